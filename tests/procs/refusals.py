"""What the tests of bad input share: exit codes (docs/errors.md) and how a refusal must look."""
import tiny
from program import ProgramTest

USAGE, DATA, CHECKPOINT, RENDEZVOUS, RESOURCE, NON_FINITE, BUSY = 2, 3, 4, 5, 8, 9, 11


class RefusalTest(ProgramTest):
    def setUp(self):
        super().setUp()
        self.rows = tiny.bert_rows(self.path("rows.jsonl"), 12)

    def words(self, model=tiny.BERT, file=None, *more):
        return ["train", "--model", model, "--train_file", file or self.rows, "--set", "train.batch_size=4", "--set", "train.max_epochs=1",
                "--work_dir", self.path("run"), *more]

    def refused(self, code, fragments, words, cwd=None, **env):
        """One message of at most a few lines, with all fragments, and no rank's noise."""
        done = self.run_plait(*words, cwd=cwd, **env)
        self.assertEqual(done.code, code, f"plait {' '.join(map(str, words))}\n{done}")
        for fragment in [fragments] if isinstance(fragments, str) else fragments:
            self.assertIn(fragment, done.err, done)
        self.assertEqual(done.err.count("plait: ") + done.err.count("\nerror: "), 1, done)
        self.assertNotIn("terminate called", done.err)
        return done

    def each(self, cases):
        for name, case in cases.items():
            with self.subTest(name):
                self.refused(*case)
