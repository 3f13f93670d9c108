// A trainer of one's own: what `plait train` does, on thread ranks of one program.
//   usage: example_trainer [SETTINGS.yaml [WORK_DIR]]      without words: examples/count/settings.yaml
// Between processes or machines instead of threads: connect_mesh (plait/comm/launch.h) in place of run_thread_ranks.
#include <ATen/ATen.h>

#include <cstdio>
#include <string>
#include <vector>

#include "plait/base/error.h"
#include "plait/base/log.h"
#include "plait/comm/launch.h"
#include "plait/config/load_config.h"
#include "plait/train/trainer.h"
#include "plait/train/work_dir.h"

int main(int argc, char** argv) {
  try {
    plait::CommandLine given;
    given.config_path = argc > 1 ? argv[1] : "examples/count/settings.yaml";
    if (argc > 2) given.flags.emplace_back("work_dir", argv[2]);
    std::vector<std::string> notices;
    plait::Config config = plait::load_config(given, /*world_size=*/0, &notices);

    auto say = [](const std::string& line) { plait::log_info(line); };
    for (const auto& line : notices) say(line);
    plait::WorkDir work_dir(config.train.work_dir);  // ours alone until the end
    plait::RunInputs inputs = plait::prepare_inputs(config, plait::RunKind::kTrain, work_dir.file("cache"), say);

    plait::run_thread_ranks(inputs.layout, [&](plait::Mesh& mesh) {
      plait::Trainer trainer(inputs, mesh, at::kCPU, say);
      plait::TrainSummary summary = trainer.run();
      if (mesh.rank() != 0) return;
      std::printf("%d steps on %d ranks, last loss %.3f\n", static_cast<int>(summary.num_steps),
                  static_cast<int>(inputs.layout.world_size()), summary.last_loss);
      std::printf("model folder: %s\n", summary.output_folder.c_str());
    });
    return 0;
  } catch (const plait::Error& error) {
    std::fprintf(stderr, "%s\n", error.what());
    return static_cast<int>(error.code());
  }
}
