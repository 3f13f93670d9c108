#include <ATen/core/Tensor.h>

#include <cstdio>
#include <iostream>
#include <memory>

#include "apps/command_help.h"
#include "apps/commands.h"
#include "apps/run_command.h"
#include "plait/base/atomic_file.h"
#include "plait/base/error.h"
#include "plait/base/log.h"
#include "plait/config/validate.h"
#include "plait/plan/layout_check.h"
#include "plait/train/trace.h"
#include "plait/train/trainer.h"
#include "plait/train/work_dir.h"

namespace plait {

namespace {

void report(const TrainSummary& s, const std::function<void(const std::string&)>& say) {
  char text[256];
  std::snprintf(text, sizeof text, "trained %ld steps in %.1f s, last loss %.4f", static_cast<long>(s.num_steps), s.train_seconds,
                s.last_loss);
  std::string line = text;
  if (s.peak_bytes > 0) {
    std::snprintf(text, sizeof text, ", peak tensor memory of a rank %.0f MiB", static_cast<double>(s.peak_bytes) / (1 << 20));
    line += text;
  }
  say(line);
  for (const auto& row : s.step_table) say(row);
  if (s.last_evaluation) say("evaluation: " + json_line(result_fields(*s.last_evaluation)));
  say("last weights: " + s.output_folder);
  if (!s.best_folder.empty()) say("best weights: " + s.best_folder);
}

}  // namespace

CommandHelp train_help() {
  return {"train",
          "train a model in a data x tensor x pipeline layout",
          {"train [CONFIG] [--flag value ...] [--set a.b=c ...]"},
          "Trains a model in any data x tensor x pipeline layout. Starts its own local ranks when no launcher did.",
          {{"CONFIG", "FILE", "settings file (docs/settings.md tells the forms); --config FILE is the same"},
           {"--config", "FILE", "settings file"},
           {"--model", "DIR", "Hugging Face folder: config.json, weights, tokenizer.json"},
           {"--task", "text-classification | text-generation", "what is trained"},
           {"--train_file", "FILE", "training rows: .jsonl, .tsv, .csv or .txt"},
           {"--valid_file", "FILE", "validation rows"},
           {"--work_dir", "DIR", "folder of everything the run writes"},
           {"--data_parallel_size", "N", "replicas of the model, each with its share of the rows"},
           {"--model_parallel_size", "N", "tensor-parallel ranks one layer is split over"},
           {"--pipeline_parallel_size", "N", "pipeline ranks the layers are spread over"},
           {"--set", "a.b=c", "any setting; wins over flags, and flags win over the file"},
           {"--rdzv_timeout", "SECONDS", "until all ranks must have come (default 600)"},
           {"--bind", "ADDRESS", "address that rank 0 listens on for the others (default: the master address)"},
           {"--job_id", "ID", "name of the job: a rank of another job is refused"},
           {"--stop_grace", "SECONDS", "own ranks: between a signal and the end by force (default 60)"},
           {"--print-config", "", "show all settings, resolved, and end"}},
          true};
}

int train_command(int argc, char** argv) {
  CommandFlags flags = read_flags(argc, argv, {}, /*config_argument=*/true);
  if (flags.help) {
    std::cout << help_text(train_help());
    return 0;
  }
  RunPlace place = read_run_place(flags);
  Config config = load_command_config(flags, place);
  if (flags.print_config) {
    if (place.talks()) std::cout << print_config(config);
    return 0;
  }
  require_training_settings(config);
  bool talks = place.talks();
  auto say = [talks](const std::string& line) {
    if (talks) log_info(line);
  };
  check_layout(read_model_shape(config.model.path), layout_of(config), config);  // before anything is written
  refuse_crowd(config, place);
  // The process that talks holds the folder; ranks forked from it share its lock.
  std::unique_ptr<WorkDir> work_dir;
  RunInputs inputs;
  before_meeting(config, place, [&] {
    if (talks) {
      check_trace_file(config);
      work_dir = std::make_unique<WorkDir>(config.train.work_dir);
      write_file_atomically(work_dir->file("config.resolved.yaml"), print_config(config));
    }
    inputs = prepare_inputs(config, RunKind::kTrain, config.train.work_dir + "/cache", say);
  });
  place.tells_placement = true;
  return run_ranks(config, place, config.train.work_dir + "/logs", &inputs,
                   [&](Mesh& mesh, const auto& say_rank, const RunControl& control) {
                     Trainer trainer(inputs, mesh, mesh.world().device(), say_rank, control);
                     TrainSummary summary = trainer.run();
                     if (summary.stop_signal != 0) return 128 + summary.stop_signal;
                     if (mesh.rank() == 0) report(summary, say_rank);
                     return 0;
                   });
}

}  // namespace plait
