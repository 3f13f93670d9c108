// How the messages of a run travel, chosen by calls instead of settings: gradients in 8 bits with error feedback, products of tensor ranks in
// pieces between sends and receives, on data 2 x tensor 2. Compares the loss with that of the run without the calls.
//   usage: example_messages [SETTINGS.yaml [WORK_DIR]]      without words: examples/count/settings.yaml
#include <ATen/ATen.h>

#include <cstdio>
#include <functional>
#include <string>
#include <vector>

#include "plait/base/error.h"
#include "plait/comm/launch.h"
#include "plait/config/load_config.h"
#include "plait/train/trainer.h"
#include "plait/train/work_dir.h"

namespace {

double last_loss(const std::string& settings, const std::string& work_dir, const std::function<void(plait::Trainer&)>& prepare) {
  plait::CommandLine given;
  given.config_path = settings;
  if (!work_dir.empty()) given.flags.emplace_back("work_dir", work_dir);
  for (const char* size : {"data_parallel_size", "model_parallel_size"}) given.flags.emplace_back(size, "2");
  auto quiet = [](const std::string&) {};
  plait::Config config = plait::load_config(given, /*world_size=*/0, nullptr);
  plait::WorkDir folder(config.train.work_dir);
  plait::RunInputs inputs = plait::prepare_inputs(config, plait::RunKind::kTrain, "", quiet);
  double loss = 0;
  plait::run_thread_ranks(inputs.layout, [&](plait::Mesh& mesh) {
    plait::Trainer trainer(inputs, mesh, at::kCPU, quiet);
    prepare(trainer);  // on every rank alike, before run()
    plait::TrainSummary summary = trainer.run();
    if (mesh.rank() == 0) loss = summary.last_loss;
  });
  return loss;
}

}  // namespace

int main(int argc, char** argv) {
  const std::string settings = argc > 1 ? argv[1] : "examples/count/settings.yaml", work_dir = argc > 2 ? argv[2] : "";
  try {
    double plain = last_loss(settings, work_dir, [](plait::Trainer&) {});
    double compressed = last_loss(settings, work_dir, [](plait::Trainer& trainer) {
      trainer.set_comm_priority("tensor_parallel", "p2p");
      trainer.set_comm_priority("data_parallel", "collective");
      trainer.enable_comm_compression("fp8", /*threshold_bytes=*/1024);
    });
    std::printf("last loss %.3f, with gradients in 8 bits %.3f\n", plain, compressed);
    bool refused = false;
    try {
      last_loss(settings, work_dir, [](plait::Trainer& trainer) { trainer.enable_comm_compression("zip"); });
    } catch (const plait::Error& error) {
      std::printf("%s\n", error.what());
      refused = true;
    }
    return refused && plain < 0.1 && compressed < 0.1 ? 0 : 1;
  } catch (const plait::Error& error) {
    std::fprintf(stderr, "%s\n", error.what());
    return static_cast<int>(error.code());
  }
}
