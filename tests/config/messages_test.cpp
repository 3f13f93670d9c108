// How messages travel: the settings of train.comm, their names in other forms, and what contradicts or does nothing.
#include <gtest/gtest.h>

#include "tests/config/settings_text.h"

namespace plait {

using testing::contains;
using testing::has_notice;
using testing::load_text;
using testing::Loaded;

namespace {

std::string with(const std::string& comm, const std::string& distributed = "data_parallel_size: 2", const std::string& more = "") {
  return "train: {distributed: {" + distributed + "}, comm: {" + comm + "}" + more + "}\n";
}

std::string model_scope(const std::string& train) {
  return "framework: pytorch\ntask: text-classification\nmodel: {path: m}\ntrain:\n" + train;
}

}  // namespace

TEST(Messages, NativeForm) {
  Loaded loaded =
      load_text(with("priority: {tensor_parallel: p2p, data_parallel: collective}, compression: {algorithm: powersgd, threshold: "
                     "1024, rank: 8, pipeline: fp8}",
                     "data_parallel_size: 2, model_parallel_size: 2, pipeline_parallel_size: 2"));
  ASSERT_EQ(loaded.error, "");
  EXPECT_TRUE(loaded.notices.empty());
  const CommConfig& comm = loaded.config.train.comm;
  EXPECT_EQ(comm.priority.tensor_parallel, CommStyle::kP2P);
  EXPECT_EQ(comm.priority.data_parallel, CommStyle::kCollective);
  EXPECT_EQ(comm.compression.algorithm, GradientCompression::kPowerSGD);
  EXPECT_EQ(comm.compression.threshold_bytes, 1024);
  EXPECT_EQ(comm.compression.rank, 8);
  EXPECT_EQ(comm.compression.pipeline, BorderCompression::kFloat8);
}

TEST(Messages, NamesOfTheCallsInModelScopeFiles) {
  for (const char* train :
       {"  set_comm_priority: {tensor_parallel: p2p, data_parallel: collective}\n  enable_comm_compression: {algorithm: "
        "fp8, threshold: 2048}\n",
        "  comm_priority: [[tensor_parallel, p2p], [data_parallel, collective]]\n  comm_compression: {algorithm: fp8, "
        "threshold_bytes: 2048}\n",
        "  comm_priority: {tensor_parallel: p2p, data_parallel: collective}\n  enable_comm_compression: [fp8, 2048]\n",
        "  comm: {priority: {tensor_parallel: p2p, data_parallel: collective}, compression: {algorithm: fp8, threshold: "
        "2048}}\n",
        "  comm: {priority: {tensor_parallel: p2p, data_parallel: collective}, compression: [fp8, 2048]}\n"}) {
    Loaded loaded = load_text(model_scope(train), "configuration.yaml");
    ASSERT_EQ(loaded.error, "") << train;
    const CommConfig& comm = loaded.config.train.comm;
    EXPECT_EQ(comm.priority.tensor_parallel, CommStyle::kP2P) << train;
    EXPECT_EQ(comm.priority.data_parallel, CommStyle::kCollective) << train;
    EXPECT_EQ(comm.compression.algorithm, GradientCompression::kFloat8) << train;
    EXPECT_EQ(comm.compression.threshold_bytes, 2048) << train;
    for (const auto& notice : loaded.notices) EXPECT_FALSE(contains(notice, "without effect")) << notice;
  }
  Loaded word = load_text(model_scope("  enable_comm_compression: nccl\n  set_comm_priority: [tensor_parallel, p2p]\n"), "c.yaml");
  EXPECT_EQ(word.config.train.comm.compression.algorithm, GradientCompression::kNccl);
  EXPECT_EQ(word.config.train.comm.priority.tensor_parallel, CommStyle::kP2P);
  for (const auto& [train, piece] : std::vector<std::pair<std::string, std::string>>{
           {"  enable_comm_compression: gzip\n", "gzip (c.yaml:5) is not one of none, bf16, fp16, fp8, powersgd, topk, nccl"},
           {"  enable_comm_compression: [gzip, 5]\n", "enable_comm_compression[0] (train.comm.compression.algorithm) gzip (c.yaml:5)"},
           {"  enable_comm_compression: [fp8, much]\n", "threshold_bytes) much (c.yaml:5) is not a whole number"},
           {"  enable_comm_compression: [fp8, 5, 6]\n", "enable_comm_compression [fp8, 5, 6] (c.yaml:5): give ALGORITHM, [ALGORITHM, THR"},
           {"  enable_comm_compression: []\n", "give ALGORITHM, [ALGORITHM, THRESHOLD]"},
           {"  set_comm_priority: [pipeline_parallel, p2p]\n", "[AXIS, STYLE], with p2p, collective or auto"},
           {"  set_comm_priority: {tensor_parallel: ring}\n", "ring (c.yaml:5) is not one of auto, p2p, collective"},
           {"  enable_comm_compression: fp8\n  comm_compression: fp8\n", "comm_compression"}}) {
    Loaded loaded = load_text(model_scope(train), "c.yaml");
    EXPECT_EQ(loaded.code, 2) << train;
    EXPECT_TRUE(contains(loaded.error, piece)) << train << loaded.error;
  }
}

TEST(Messages, ArgumentsOfTheCallInEveryForm) {
  const std::string json = R"("framework": "pytorch", "task": "text-classification", "model": {"path": "m"})";
  struct Case {
    std::string text, name;
    std::vector<std::pair<std::string, std::string>> flags;
  };
  for (const Case& c : std::vector<Case>{
           {model_scope("  enable_comm_compression: [fp8, 2048]\n"), "configuration.yaml", {}},
           {"{" + json + R"(, "train": {"enable_comm_compression": ["fp8", 2048]}})", "configuration.json", {}},
           {"{" + json + "}", "configuration.json", {{"train.enable_comm_compression", "[fp8, 2048]"}}},
           {R"({"train_batch_size": 8, "enable_comm_compression": ["fp8", 2048]})", "ds.json", {}},
           {"train_batch_size: 8\nenable_comm_compression: [fp8, 2048]\n", "ds.yaml", {}},
           {R"({"train_batch_size": 8, "comm": {"compression": ["fp8", 2048]}})", "ds.json", {}},
           {"train: {distributed: {data_parallel_size: 2}, enable_comm_compression: [fp8, 2048]}\n", "native.yaml", {}},
           {"train: {distributed: {data_parallel_size: 2, enable_comm_compression: [fp8, 2048]}}\n", "native.yaml", {}},
           {"enable_comm_compression: {algorithm: fp8, threshold: 2048}\ntrain: {distributed: {data_parallel_size: 2}}\n",
            "native.yaml",
            {}},
           {"output_dir: o\nenable_comm_compression: [fp8, 2048]\n", "hf.yaml", {}},
           {"train: {distributed: {data_parallel_size: 2}}\n", "native.yaml", {{"enable_comm_compression", "[fp8, 2048]"}}}}) {
    Loaded loaded = load_text(c.text, c.name, {"", c.flags, {}});
    EXPECT_EQ(loaded.error, "") << c.text;
    EXPECT_EQ(loaded.config.train.comm.compression.algorithm, GradientCompression::kFloat8) << c.text;
    EXPECT_EQ(loaded.config.train.comm.compression.threshold_bytes, 2048) << c.text;
  }
  Loaded algorithm_alone = load_text(model_scope("  enable_comm_compression: [fp8]\n"), "configuration.yaml");
  EXPECT_EQ(algorithm_alone.config.train.comm.compression.algorithm, GradientCompression::kFloat8);
  EXPECT_EQ(algorithm_alone.config.train.comm.compression.threshold_bytes, CommCompressionConfig().threshold_bytes);
}

TEST(Messages, CallsInNativeFiles) {
  auto native = [](const std::string& line) { return "train:\n  distributed: {data_parallel_size: 2}\n  " + line + "\n"; };
  Loaded pair = load_text(native("set_comm_priority: [data_parallel, p2p]"));
  ASSERT_EQ(pair.error, "");
  EXPECT_EQ(pair.config.train.comm.priority.data_parallel, CommStyle::kP2P);
  Loaded map = load_text(native("set_comm_priority: {tensor_parallel: collective, data_parallel: p2p}"));
  ASSERT_EQ(map.error, "");
  EXPECT_EQ(map.config.train.comm.priority.data_parallel, CommStyle::kP2P);
  EXPECT_EQ(map.config.train.comm.priority.tensor_parallel, CommStyle::kCollective);
  for (const auto& [line, piece] : std::vector<std::pair<std::string, std::string>>{
           {"enable_comm_compression: {algorithm: fp8, treshold: 5}",
            "config.yaml:3: unknown key train.enable_comm_compression.treshold; nearest known key: "
            "train.enable_comm_compression.threshold"},
           {"enable_comm_compression: gzip", "gzip (config.yaml:3) is not one of none, bf16"},
           {"set_comm_priority: [pipeline_parallel, p2p]", "[AXIS, STYLE], with p2p, collective or auto, as in [tensor_parallel, p2p]"},
           {"set_comm_priority: [data_paralel, p2p]", "as in [data_parallel, p2p]"},
           {"set_comm_priority: {}", "(config.yaml:3): give {tensor_parallel: STYLE"},
           {"enable_comm_compression: {}", "(config.yaml:3): give ALGORITHM"},
           {"enable_comm_compression: true",
            "enable_comm_compression true (config.yaml:3): give ALGORITHM, [ALGORITHM, THRESHOLD] or {algorithm"},
           {"enable_comm_compresion: fp8", "unknown key train.enable_comm_compresion"},
           {"enable_comm_compression: fp8\n  comm: {compression: {algorithm: bf16}}", "train.comm.compression.algorithm"}}) {
    Loaded loaded = load_text(native(line));
    EXPECT_EQ(loaded.code, 2) << line;
    EXPECT_TRUE(contains(loaded.error, piece)) << line << "  message: " << loaded.error;
  }
}

TEST(Messages, Refusals) {
  const std::vector<std::pair<std::string, std::string>> table = {
      {with("compression: {rank: 2}"),
       "train.comm.compression.rank (config.yaml:1) has no effect with algorithm none; it belongs to powersgd"},
      {with("compression: {algorithm: fp8, rank: 2}"), "has no effect with algorithm fp8 (config.yaml:1); it belongs to powersgd"},
      {with("compression: {algorithm: powersgd, ratio: 0.5}"), "it belongs to topk"},
      {with("compression: {threshold: 7}"),
       "threshold_bytes (config.yaml:1) has no effect with algorithm none; name an algorithm: none, bf16"},
      {with("compression: {algorithm: topk, ratio: 0.5}"), "must be below 1 / data_parallel_size = 0.5; nearest valid value 0.495"},
      {with("compression: {algorithm: topk, ratio: 0}"), "train.comm.compression.ratio 0"},
      {with("compression: {algorithm: zip}"), "train.comm.compression.algorithm zip (config.yaml:1)"},
      {with("priority: {data_parallel: p2p}, compression: {algorithm: nccl}"),
       "algorithm nccl (config.yaml:1) is the library's collective"},
      {with("compression: {pipeline: bf16}", "pipeline_parallel_size: 2", ", dtype: float16"), "would lose numbers and save no byte"},
      {with("compression: {pipeline: fp16}", "pipeline_parallel_size: 2", ", dtype: bfloat16"), "nearest valid value fp8"},
      {with("compression: {pipeline: topk}"), "train.comm.compression.pipeline topk (config.yaml:1)"},
  };
  for (const auto& [text, piece] : table) {
    Loaded loaded = load_text(text);
    EXPECT_EQ(loaded.code, 2) << text;
    EXPECT_TRUE(contains(loaded.error, piece)) << text << "  message: " << loaded.error;
  }
}

TEST(Messages, WishesWithoutEffectAreNamed) {
  const std::vector<std::pair<std::string, std::string>> table = {
      {with("compression: {algorithm: fp8}", "data_parallel_size: 1"),
       "train.comm.compression.algorithm fp8 (config.yaml:1) has no effect with data_parallel_size 1"},
      {with("compression: {pipeline: fp8}"),
       "train.comm.compression.pipeline fp8 (config.yaml:1) has no effect with pipeline_parallel_size 1"},
      {with("compression: {pipeline: bf16}", "pipeline_parallel_size: 2", ", dtype: bfloat16"),
       "pipeline bf16 (config.yaml:1) has no effect with dtype bfloat16: borders are of that type"},
      {with("priority: {tensor_parallel: p2p}"),
       "train.comm.priority.tensor_parallel p2p (config.yaml:1) has no effect with model_parallel_size 1"},
      {with("priority: {data_parallel: p2p}", "data_parallel_size: 1"), "has no effect with data_parallel_size 1"},
      {with("", "data_parallel_size: 1, overlap_grad_reduce: false"),
       "train.distributed.overlap_grad_reduce false (config.yaml:1) has no effect with data_parallel_size 1"},
      {with("", "overlap_tensor_comm: false"), "overlap_tensor_comm false (config.yaml:1) has no effect with model_parallel_size 1"},
      {with("", "overlap_pipeline_comm: false"), "overlap_pipeline_comm false (config.yaml:1) has no effect with pipeline_parallel_size 1"},
      {with("", "data_parallel_size: 2", ", dtype: bfloat16, loss_scale: {init_scale: 128}"),
       "train.loss_scale.init_scale (config.yaml:1) has no effect with dtype bfloat16"},
      {with("compression: {algorithm: fp8, threshold: 99999999}"), "only parameters larger than a bucket are compressed"},
  };
  for (const auto& [text, piece] : table) {
    Loaded loaded = load_text(text);
    EXPECT_EQ(loaded.error, "") << text;
    EXPECT_TRUE(has_notice(loaded, piece)) << text << (loaded.notices.empty() ? "" : loaded.notices[0]);
  }
}

}  // namespace plait
