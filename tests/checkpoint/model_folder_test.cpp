// config.json of an export, the plan of its files, and the exchange of folders.
#include "plait/checkpoint/model_folder.h"

#include <nlohmann/json.hpp>

#include "plait/checkpoint/export_plan.h"
#include "tests/checkpoint/test_folder.h"

namespace plait {
namespace {

using namespace test;

TEST(ModelFolder, ConfigKeepsWhatItDoesNotChange) {
  auto text = updated_config_json(
      R"({"model_type": "bert", "layer_norm_eps": 1e-12, "torch_dtype": "float16", "num_labels": 2, "auto": {"x": [1, null, true]}, "n": 10000.0})",
      {"BertForSequenceClassification", DType::kBFloat16, {"noun.act", "b\"c"}});
  auto config = nlohmann::json::parse(text);
  EXPECT_EQ(config["architectures"], nlohmann::json::parse(R"(["BertForSequenceClassification"])"));
  EXPECT_EQ(config["dtype"], "bfloat16");
  EXPECT_EQ(config["torch_dtype"], "bfloat16");
  EXPECT_EQ(config["id2label"], nlohmann::json::parse(R"({"0": "noun.act", "1": "b\"c"})"));
  EXPECT_EQ(config["label2id"], nlohmann::json::parse(R"({"noun.act": 0, "b\"c": 1})"));
  EXPECT_EQ(config["num_labels"], 2);
  EXPECT_EQ(config["layer_norm_eps"], 1e-12);
  EXPECT_EQ(config["auto"], nlohmann::json::parse(R"({"x": [1, null, true]})"));
  EXPECT_NE(text.find("10000.0"), std::string::npos);  // a float stays a float
  auto plain = nlohmann::json::parse(updated_config_json(R"({"model_type": "gpt2", "id2label": {"0": "x"}})", {}));
  EXPECT_FALSE(plain.contains("num_labels") || plain.contains("torch_dtype") || plain.contains("architectures"));
  EXPECT_EQ(plain["dtype"], "float32");
  EXPECT_EQ(plain["id2label"]["0"], "x");
}

TEST(ModelFolder, SideFiles) {
  TestFolder dir;
  for (const char* name : {"tokenizer.json", "vocab.txt", "model.safetensors", "notes.md"}) write_bytes(dir / name, "x");
  EXPECT_EQ(side_files(dir.path()), (std::vector<std::string>{dir / "tokenizer.json", dir / "vocab.txt"}));
}

TEST(ModelFolder, PlanOfFiles) {
  std::vector<TensorSpec> all{{"b", {4, 2}}, {"a", {3}}, {"c", {}}, {"d", {0, 5}}};
  auto plan = plan_export(all, DType::kFloat32, 5'000'000'000, {});
  ASSERT_EQ(plan.files.size(), 1u);
  EXPECT_EQ(plan.files[0].name, "model.safetensors");
  EXPECT_EQ(plan.num_elements, 12);
  EXPECT_TRUE(plan.index_json.empty());
  EXPECT_EQ(plan.files[0].head.size() % 8, 0u);
  auto header = parse_safetensors_header(plan.files[0].head, plan.files[0].num_bytes, "planned");
  EXPECT_EQ(header.metadata.at("format"), "pt");
  EXPECT_EQ(header.find("b")->shape, (std::vector<int64_t>{4, 2}));
  for (const auto& spec : all) EXPECT_EQ(plan.tensors.at(spec.name).begin, header.data_begin + header.find(spec.name)->begin) << spec.name;
  // a 6 bytes, b 16, c 2: at most 16 bytes a file.
  auto shards = plan_export(all, DType::kBFloat16, 16, {{"step", "7"}});
  ASSERT_EQ(shards.files.size(), 3u);
  EXPECT_EQ(shards.files[1].name, "model-00002-of-00003.safetensors");
  auto index = nlohmann::json::parse(shards.index_json);
  EXPECT_EQ(index["metadata"]["total_size"], 24);
  EXPECT_EQ(index["weight_map"]["b"], "model-00002-of-00003.safetensors");
  EXPECT_EQ(index["weight_map"]["c"], "model-00003-of-00003.safetensors");
  for (const auto& file : shards.files) EXPECT_EQ(parse_safetensors_header(file.head, file.num_bytes, file.name).metadata.at("step"), "7");
}

TEST(ModelFolder, SwapKeepsTheOldOneUntilTheEnd) {
  TestFolder dir;
  std::string target = dir / "runs/output";
  {
    FolderSwap swap(target + "/", "1");
    write_durable(swap.path() + "/config.json", "one");
    EXPECT_FALSE(std::filesystem::exists(target));
    swap.commit();
  }
  EXPECT_EQ(read_bytes(target + "/config.json"), "one");
  {
    FolderSwap swap(target, "2");
    write_durable(swap.path() + "/config.json", "two");
  }
  EXPECT_EQ(read_bytes(target + "/config.json"), "one");
  std::filesystem::create_directory(target + ".tmp-9");  // left by a killed writer
  {
    FolderSwap swap(target, "3");
    write_durable(swap.path() + "/config.json", "three");
    swap.commit();
  }
  EXPECT_EQ(read_bytes(target + "/config.json"), "three");
  size_t left = 0;
  for ([[maybe_unused]] const auto& item : std::filesystem::directory_iterator(dir / "runs")) ++left;
  EXPECT_EQ(left, 1u);
}

TEST(ModelFolder, ForeignFoldersAreNotTouched) {
  TestFolder dir;
  write_bytes(dir / "thesis.tex", "years of work");
  expect_error(ExitCode::kUsage, {"not a model folder"}, [&] { FolderSwap swap(dir.path(), "1"); });
  expect_error(ExitCode::kUsage, {"thesis.tex"}, [&] { FolderSwap swap(dir / "thesis.tex", "1"); });
  expect_error(ExitCode::kUsage, {"thesis.tex"}, [&] { FolderSwap swap(dir / "thesis.tex/output", "1"); });
  EXPECT_EQ(read_bytes(dir / "thesis.tex"), "years of work");
  std::filesystem::create_directory(dir / "empty");
  FolderSwap swap(dir / "empty", "1");
}

}  // namespace
}  // namespace plait
