// Model folders as users bring them: whole, sharded, with missing or contradicting parts. Every refusal is exit code 4.
#include "plait/checkpoint/safetensors_file.h"

#include "tests/checkpoint/test_folder.h"

namespace plait {
namespace {

using namespace test;

TEST(SafetensorsFolder, SingleFile) {
  SafetensorsFolder folder(PLAIT_TEST_DATA "/golden/models/llama");
  EXPECT_EQ(folder.names().size(), 21u);
  auto view = folder.find("model.norm.weight");
  ASSERT_TRUE(view);
  EXPECT_EQ(view->shape, std::vector<int64_t>{32});
  EXPECT_EQ(view->dtype, FileDType::kF32);
  EXPECT_EQ(view->numel(), 32);
  EXPECT_FALSE(folder.find("model.norm"));
}

TEST(SafetensorsFolder, Shards) {
  TestFolder dir;
  write_bytes(dir / "a.safetensors", safetensors_bytes({{"x", ramp({2}, 5)}}));
  write_bytes(dir / "b.safetensors", safetensors_bytes({{"y", ramp({3})}, {"z", ramp({1})}}));
  auto index = [&](const std::string& text) { write_bytes(dir / "model.safetensors.index.json", text); };
  index(R"({"metadata": {"total_size": 24}, "weight_map": {"x": "a.safetensors", "y": "b.safetensors", "z": "b.safetensors"}})");
  SafetensorsFolder folder(dir.path());
  EXPECT_EQ(folder.names(), (std::vector<std::string>{"x", "y", "z"}));
  float value = 0;
  std::memcpy(&value, folder.find("x")->data + 4, 4);
  EXPECT_EQ(value, 6);

  auto refused = [&](const std::string& text, const std::vector<std::string>& words) {
    index(text);
    expect_error(ExitCode::kCheckpoint, words, [&] { SafetensorsFolder again(dir.path()); });
  };
  refused(R"({"weight_map": {"x": "a.safetensors", "y": "c.safetensors"}})", {"c.safetensors", "missing", "\"y\""});
  refused(R"({"weight_map": {"x": "a.safetensors", "w": "a.safetensors"}})", {"a.safetensors", "\"w\"", "absent"});
  refused(R"({"weight_map": {"y": "b.safetensors"}})", {"b.safetensors", "\"z\"", "does not place"});
  refused(R"({"weight_map": {"x": "../a.safetensors"}})", {"plain name"});
  refused(R"({"weight_map": {"x": "/etc/passwd"}})", {"plain name"});
  refused(R"({"weight_map": {"x": ".."}})", {"plain name"});
  refused(R"({"weight_map": {"x": 3}})", {"plain name", "number"});
  refused(R"({"weight_map": []})", {"weight_map"});
  refused(R"({})", {"weight_map"});
  refused(R"({"weight_map": {"x": "a.safetensors")", {"not valid JSON"});
  write_bytes(dir / "b.safetensors", safetensors_bytes({{"x", ramp({3})}}));
  refused(R"({"weight_map": {"x": "a.safetensors", "x": "b.safetensors"}})", {"twice"});
}

TEST(SafetensorsFolder, SaysWhatThereIsInstead) {
  expect_error(ExitCode::kCheckpoint, {"/nowhere/at/all", "not there"}, [] { SafetensorsFolder folder("/nowhere/at/all"); });
  TestFolder dir;
  expect_error(ExitCode::kCheckpoint, {dir.path(), "no model.safetensors"}, [&] { SafetensorsFolder folder(dir.path()); });
  write_bytes(dir / "adapter.safetensors", "");
  expect_error(ExitCode::kCheckpoint, {"adapter.safetensors"}, [&] { SafetensorsFolder folder(dir.path()); });
  write_bytes(dir / "pytorch_model.bin", "PK");
  expect_error(ExitCode::kCheckpoint, {"pytorch_model.bin", "pickle", "save_pretrained"}, [&] { SafetensorsFolder folder(dir.path()); });
  std::filesystem::create_directory(dir / "model.safetensors");
  expect_error(ExitCode::kCheckpoint, {"pytorch_model.bin"}, [&] { SafetensorsFolder folder(dir.path()); });
}

TEST(SafetensorsFile, EveryTruncationIsRefused) {
  TestFolder dir;
  std::string good = safetensors_bytes({{"w", ramp({4, 5})}, {"b", ramp({5})}});
  for (size_t size = 0; size < good.size(); size += size < 40 ? 1 : 7) {
    write_bytes(dir / "model.safetensors", good.substr(0, size));
    expect_error(ExitCode::kCheckpoint, {"model.safetensors"}, [&] { SafetensorsFolder folder(dir.path()); });
  }
  write_bytes(dir / "model.safetensors", good + "x");
  expect_error(ExitCode::kCheckpoint, {"1 bytes at the end"}, [&] { SafetensorsFolder folder(dir.path()); });
  write_bytes(dir / "model.safetensors", good);
  EXPECT_EQ(SafetensorsFolder(dir.path()).names().size(), 2u);
}

}  // namespace
}  // namespace plait
