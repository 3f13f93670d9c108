// Trainer's calls about messages do what the settings of the same meaning do, and refuse what those refuse.
#include <ATen/ATen.h>
#include <gtest/gtest.h>

#include <unistd.h>

#include <algorithm>
#include <filesystem>
#include <functional>

#include "plait/base/error.h"
#include "plait/comm/launch.h"
#include "plait/config/load_config.h"
#include "plait/train/trainer.h"

namespace plait {
namespace {

class TrainerCalls : public ::testing::Test {
 protected:
  void SetUp() override {
    folder_ = std::filesystem::temp_directory_path() / cat("plait-calls-", ::getpid());
    std::filesystem::create_directories(folder_);
  }
  void TearDown() override { std::filesystem::remove_all(folder_); }

  RunInputs inputs(const std::vector<std::pair<std::string, std::string>>& more = {}) const {
    CommandLine given;
    given.config_path = cat(PLAIT_SOURCE_DIR, "/examples/count/settings.yaml");
    given.flags = {{"work_dir", folder_.string()}, {"train.max_steps", "6"}, {"evaluation.strategy", "no"}};
    given.flags.insert(given.flags.end(), more.begin(), more.end());
    return prepare_inputs(load_config(given, 0, nullptr), RunKind::kTrain, "", quiet);
  }
  // Runs and returns rank 0's last loss.
  double last_loss(const RunInputs& in, const std::function<void(Trainer&)>& prepare) const {
    double loss = 0;
    run_thread_ranks(in.layout, [&](Mesh& mesh) {
      Trainer trainer(in, mesh, at::kCPU, quiet);
      prepare(trainer);
      TrainSummary summary = trainer.run();
      if (mesh.rank() == 0) loss = summary.last_loss;
    });
    return loss;
  }
  // What rank 0 says in a run.
  std::vector<std::string> said(const RunInputs& in, const std::function<void(Trainer&)>& prepare) const {
    std::vector<std::string> lines;
    run_thread_ranks(in.layout, [&](Mesh& mesh) {
      Trainer trainer(in, mesh, at::kCPU, [&](const std::string& line) { lines.push_back(line); });
      prepare(trainer);
      trainer.run();
    });
    return lines;
  }
  static void quiet(const std::string&) {}

  std::filesystem::path folder_;
};

std::string refusal(const std::function<void()>& call) {
  try {
    call();
  } catch (const Error& error) {
    EXPECT_EQ(error.code(), ExitCode::kUsage);
    return error.what();
  }
  return "not refused";
}

TEST_F(TrainerCalls, DoWhatTheSettingsDo) {
  double plain = last_loss(inputs(), [](Trainer&) {});
  double called = last_loss(inputs(), [](Trainer& trainer) {
    trainer.set_comm_priority("data_parallel", "p2p");
    trainer.enable_comm_compression("fp8", 0);
    EXPECT_TRUE(trainer.model().reducer->compresses());
  });
  double set = last_loss(inputs({{"train.comm.priority.data_parallel", "p2p"},
                                 {"train.comm.compression.algorithm", "fp8"},
                                 {"train.comm.compression.threshold_bytes", "0"}}),
                         [](Trainer&) {});
  EXPECT_EQ(called, set);
  EXPECT_NE(called, plain);
  double off = last_loss(inputs({{"train.comm.compression.algorithm", "powersgd"}, {"train.comm.compression.rank", "2"}}),
                         [](Trainer& trainer) { trainer.enable_comm_compression("none"); });
  EXPECT_EQ(off, plain);
}

int64_t count_of(const std::vector<std::string>& lines, const std::string& piece) {
  return std::count_if(lines.begin(), lines.end(), [&](const std::string& line) { return line.find(piece) != std::string::npos; });
}

// Built once however many calls come before: schedule auto would else see the first model's memory as used.
TEST_F(TrainerCalls, ModelIsMadeOnce) {
  auto lines = said(inputs({{"train.distributed.schedule", "auto"}}), [](Trainer& trainer) {
    trainer.set_comm_priority("data_parallel", "p2p");
    trainer.enable_comm_compression("fp8", 0);
  });
  EXPECT_EQ(count_of(lines, "schedule auto: takes "), 1) << join(lines, "\n");
  EXPECT_EQ(count_of(lines, "predicted bubble "), 1) << join(lines, "\n");
}

TEST_F(TrainerCalls, CompressionThatCompressesNothingSaysSo) {
  const std::string warning =
      "warning: train.comm.compression.algorithm bf16 (enable_comm_compression) saved no byte in step 1: all messages "
      "are below threshold_bytes 1000000000 (enable_comm_compression); lower threshold_bytes";
  auto call = [](Trainer& trainer) { trainer.enable_comm_compression("bf16", 1000000000); };
  for (const auto& settings : std::vector<std::vector<std::pair<std::string, std::string>>>{
           {},
           {{"train.comm.compression.algorithm", "powersgd"}, {"train.comm.compression.rank", "2"}},
           {{"train.comm.compression.pipeline", "fp8"}}}) {  // borders that do save bytes are no excuse
    auto lines = said(inputs(settings), call);
    EXPECT_EQ(count_of(lines, warning), 1) << join(lines, "\n");
    EXPECT_EQ(count_of(lines, "warning: "), 1) << join(lines, "\n");
  }
  auto lines = said(inputs(), [](Trainer& trainer) { trainer.enable_comm_compression("bf16", 0); });
  EXPECT_EQ(count_of(lines, "warning: "), 0) << join(lines, "\n");
}

TEST_F(TrainerCalls, Refuse) {
  RunInputs in = inputs();
  run_thread_ranks(in.layout, [&](Mesh& mesh) {
    Trainer trainer(in, mesh, at::kCPU, quiet);
    auto expect = [](const std::string& message, const std::string& piece) {
      EXPECT_NE(message.find(piece), std::string::npos) << message << "\n  without: " << piece;
    };
    expect(refusal([&] { trainer.set_comm_priority("pipeline_parallel", "p2p"); }),
           "set_comm_priority: axis pipeline_parallel is not one of tensor_parallel, data_parallel; messages between pipeline stages");
    expect(refusal([&] { trainer.set_comm_priority("tensor_parallel", "p2"); }),
           "style p2 is not one of auto, p2p, collective; nearest: p2p");
    expect(refusal([&] { trainer.enable_comm_compression("fp9"); }),
           "algorithm fp9 is not one of none, bf16, fp16, fp8, powersgd, topk, nccl");
    expect(refusal([&] { trainer.enable_comm_compression("none", 7); }), "threshold_bytes");
    expect(refusal([&] { trainer.enable_comm_compression("fp8", -1); }), "train.comm.compression.threshold_bytes -1");
    trainer.set_comm_priority("data_parallel", "p2p");
    expect(refusal([&] { trainer.enable_comm_compression("nccl"); }), "nccl (enable_comm_compression) is the library's collective");
    trainer.step();
    expect(refusal([&] { trainer.enable_comm_compression("fp8"); }), "comes too late");
  });
}

}  // namespace
}  // namespace plait
