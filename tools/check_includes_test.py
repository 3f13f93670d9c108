"""Tests of check_includes.py: python3 -m unittest discover -s tools -p '*_test.py'"""
import pathlib
import tempfile
import unittest

import check_includes


def faults(path, text, files=()):
    if path.endswith(".h"):
        text = "#pragma once\n" + text
    return check_includes.check_file(path, text, lambda name: name in files)


class CheckIncludesTest(unittest.TestCase):
    def test_down_is_allowed_also_indirectly(self):
        text = '#include "plait/base/error.h"\n#include "plait/plan/mesh_layout.h"\n#include <vector>\n'
        self.assertEqual(faults("plait/optim/adam.cpp", text, ("plait/base/error.h", "plait/plan/mesh_layout.h")), [])

    def test_up_and_sideways_are_refused(self):
        up = faults("plait/plan/a.cpp", '#include "plait/tensor/b.h"\n', ("plait/tensor/b.h",))
        self.assertEqual(len(up), 1)
        self.assertIn("line 1: plan may not include tensor", up[0])
        sideways = faults("plait/optim/a.cpp", '\n#include "plait/checkpoint/b.h"\n', ("plait/checkpoint/b.h",))
        self.assertIn("line 2: optim may not include checkpoint", sideways[0])

    def test_tests_follow_their_layer(self):
        self.assertTrue(faults("tests/data/a_test.cpp", '#include "plait/comm/mesh.h"\n', ("plait/comm/mesh.h",)))
        self.assertEqual(faults("tests/train/a_test.cpp", '#include "plait/comm/mesh.h"\n', ("plait/comm/mesh.h",)), [])

    def test_torch_free_layers(self):
        for header in ("ATen/core/Tensor.h", "c10/util/intrusive_ptr.h", "torch/types.h"):
            self.assertTrue(faults("plait/config/a.cpp", f"#include <{header}>\n"), header)
        self.assertEqual(faults("plait/tensor/a.h", "#include <ATen/core/Tensor.h>\n"), [])

    def test_heavy_torch_headers_nowhere(self):
        self.assertTrue(faults("plait/train/a.cpp", "#include <torch/torch.h>\n"))
        self.assertTrue(faults("plait/model/a.h", "#include <torch/nn/module.h>\n"))

    def test_communication_libraries_only_in_comm(self):
        for text in ("#include <torch/csrc/distributed/c10d/Backend.hpp>\n", "c10d::Store* s;\n", "ProcessGroupNCCL* p;\n",
                     "ncclAllReduce (x);\n", "namespace c10d { class Work; }\n"):
            self.assertTrue(faults("plait/train/a.cpp", text), text)
            self.assertEqual(faults("plait/comm/a.cpp", text), [], text)

    def test_comments_and_text_do_not_count(self):
        text = '// c10d::Store\n/* gloo::Context\n */\nconst char* a = "c10d::x";\nconst char* b = R"(c10d::y)";\nint c = 1\'000; c10d::d;\n'
        found = faults("plait/train/a.cpp", text)
        self.assertEqual(len(found), 1)
        self.assertTrue(found[0].startswith("line 6: "), found)

    def test_include_paths(self):
        self.assertTrue(faults("plait/base/a.cpp", '#include "error.h"\n'))
        self.assertTrue(faults("plait/base/a.cpp", "#include <plait/base/error.h>\n"))

    def test_pragma_once(self):
        self.assertEqual(check_includes.check_file("plait/base/a.h", "// What.\n// Why.\n#pragma once\n", lambda name: True), [])
        self.assertTrue(check_includes.check_file("plait/base/a.h", "// What.\nint x;\n", lambda name: True))

    def test_unknown_folder(self):
        self.assertTrue(faults("plait/utils/a.h", ""))

    def test_cmake(self):
        self.assertEqual(check_includes.check_cmake("plait_layer(base DEPS plait_xxhash)\nplait_layer(tensor TORCH DEPS plait_plan)\n"), [])
        self.assertTrue(check_includes.check_cmake("plait_layer(tensor DEPS plait_plan)\n"))
        self.assertTrue(check_includes.check_cmake("plait_layer(plan TORCH DEPS plait_config)\n"))
        self.assertTrue(check_includes.check_cmake("plait_layer(data TORCH DEPS plait_comm)\n"))

    def test_whole_tree(self):
        with tempfile.TemporaryDirectory() as folder:
            source = pathlib.Path(folder, "plait/base/a.cpp")
            source.parent.mkdir(parents=True)
            source.write_text("int x;\n")
            self.assertEqual(check_includes.main(folder), 0)
            source.write_text('#include "plait/plan/b.h"\n')
            self.assertEqual(check_includes.main(folder), 1)


if __name__ == "__main__":
    unittest.main()
