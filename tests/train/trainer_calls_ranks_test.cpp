// Trainer's calls about messages do what the settings of the same meaning do, and refuse what those refuse.
#include <ATen/ATen.h>
#include <gtest/gtest.h>

#include <unistd.h>

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
