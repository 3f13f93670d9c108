#include <ATen/ATen.h>

#include <filesystem>
#include <iostream>
#include <nlohmann/json.hpp>

#include "apps/command_help.h"
#include "apps/commands.h"
#include "apps/run_command.h"
#include "plait/base/atomic_file.h"
#include "plait/base/error.h"
#include "plait/base/log.h"
#include "plait/checkpoint/tensor_file.h"
#include "plait/train/evaluate.h"
#include "plait/train/load_model.h"

namespace plait {

namespace {

// --data is dataset.valid.file; without a settings file the task follows from what the model is.
Config read_config(CommandFlags& flags, const RunPlace& place) {
  std::string data = flags.value("data");
  if (!data.empty()) flags.settings.flags.emplace_back("valid_file", data);
  bool says_task = !flags.settings.config_path.empty();
  std::string model;
  for (const auto& [name, value] : flags.settings.flags) {
    if (name == "task") says_task = true;
    if (name == "model") model = value;
  }
  if (!says_task && !model.empty() && read_model_shape(model).family != Family::kBert)
    flags.settings.flags.emplace_back("task", "text-generation");
  return load_command_config(flags, place);
}

int64_t rows_per_micro_batch(const Config& c) {
  return c.evaluation.per_device_batch_size > 0 ? c.evaluation.per_device_batch_size : c.train.per_device_train_batch_size;
}

// A place that cannot be written is refused before minutes of work, not after.
void require_writable(const std::string& path) {
  if (path.empty()) return;
  if (std::filesystem::is_directory(path)) throw_error(ExitCode::kUsage, path, " is a folder; give the name of a file to write");
  AtomicFile probe(path);  // removes itself
}

// An output that is an input under any of its names would end it.
void refuse_inputs_as_outputs(const Config& config, const CommandFlags& flags) {
  namespace fs = std::filesystem;
  std::vector<std::pair<std::string, std::string>> inputs = {{"dataset.valid.file", config.dataset.valid.file},
                                                             {"dataset.train.file", config.dataset.train.file},
                                                             {"the settings file", flags.settings.config_path},
                                                             {"model.head_init", config.model.head_init}};
  std::error_code failed;
  for (const auto& item : fs::directory_iterator(config.model.path, failed))
    inputs.emplace_back("a file of model.path", item.path().string());
  for (const char* name : {"output", "logits"}) {
    const std::string output = flags.value(name);
    if (output.empty()) continue;
    for (const auto& [what, input] : inputs)
      if (!input.empty() && fs::equivalent(output, input, failed))
        throw_error(ExitCode::kUsage, "--", name, " ", output, " is ", what, " ", input, ", which it would overwrite; name another file");
  }
  const std::string output = flags.value("output"), logits = flags.value("logits");
  if (!output.empty() && !logits.empty() &&
      fs::weakly_canonical(fs::absolute(output), failed) == fs::weakly_canonical(fs::absolute(logits), failed))
    throw_error(ExitCode::kUsage, "--output and --logits are both ", output, "; name another file for one of them");
}

// Scores in the shortest form that reads back to the same number.
std::string prediction_line(int64_t row, const at::Tensor& probabilities, const LabelMap& labels) {
  const float* p = probabilities.const_data_ptr<float>();
  int64_t best = 0;
  std::string scores;
  for (int64_t k = 0; k < labels.size(); ++k) {
    if (p[k] > p[best]) best = k;
    scores += cat(k ? ", " : "", p[k]);
  }
  return cat("{\"row\": ", row, ", \"label\": ", nlohmann::json(labels.names[static_cast<size_t>(best)]).dump(), ", \"scores\": [", scores,
             "]}\n");
}

void write_predictions(const std::string& path, const at::Tensor& logits, const LabelMap& labels) {
  at::Tensor probabilities = at::softmax(logits, 1).contiguous();
  AtomicFile file(path);
  for (int64_t row = 0; row < probabilities.size(0); ++row) file.write(prediction_line(row, probabilities[row], labels));
  file.commit();
}

}  // namespace

CommandHelp eval_help() {
  return {"eval",
          "score a model folder on a data file",
          {"eval --model DIR --data FILE [--output FILE.json] [layout flags] [--set a.b=c ...]"},
          "Scores every row of FILE once and prints one JSON object. Takes the layout and settings flags of plait train.",
          {{"--model", "DIR", "Hugging Face folder: config.json, weights, tokenizer.json"},
           {"--data", "FILE", "rows to score: .jsonl, .tsv, .csv or .txt"},
           {"--output", "FILE.json", "write the JSON object here too"},
           {"--config", "FILE", "settings file"},
           {"--task", "text-classification | text-generation", "follows from the model where it is not given"},
           {"--set", "a.b=c", "any setting"}},
          true};
}

int eval_command(int argc, char** argv) {
  CommandFlags flags = read_flags(argc, argv, {"data", "output"}, false);
  if (flags.help) {
    std::cout << help_text(eval_help());
    return 0;
  }
  RunPlace place = read_run_place(flags);
  Config config = read_config(flags, place);
  bool talks = place.talks();
  RunInputs inputs;
  before_meeting(config, place, [&] {
    refuse_inputs_as_outputs(config, flags);
    if (talks) require_writable(flags.value("output"));
    inputs = prepare_inputs(config, RunKind::kEvaluate, "", [talks](const std::string& line) {
      if (talks) log_info(line);
    });
  });
  return run_ranks(config, place, "", &inputs, [&](Mesh& mesh, const auto& say, const RunControl&) {
    auto model = load_model(inputs, mesh, mesh.world().device(), /*training=*/false, say);
    EvalResult result = evaluate(config, *model, mesh, inputs.valid, rows_per_micro_batch(config));
    if (mesh.rank() != 0) return 0;
    std::string line = json_line(result_fields(result));
    std::cout << line << std::endl;
    if (std::string output = flags.value("output"); !output.empty()) write_file_atomically(output, line + "\n");
    return 0;
  });
}

CommandHelp predict_help() {
  return {"predict",
          "write class scores of a data file",
          {"predict --model DIR --data FILE --output FILE.jsonl [--logits FILE.safetensors] [layout flags]"},
          "Writes {\"row\", \"label\", \"scores\"} for each row of FILE, in row order.",
          {{"--model", "DIR", "Hugging Face folder of a classifier"},
           {"--data", "FILE", "rows to score: .jsonl, .tsv, .csv or .txt"},
           {"--output", "FILE.jsonl", "the predictions, one line a row"},
           {"--logits", "FILE.safetensors", "write the raw scores as well"},
           {"--config", "FILE", "settings file"},
           {"--set", "a.b=c", "any setting"}},
          true};
}

int predict_command(int argc, char** argv) {
  CommandFlags flags = read_flags(argc, argv, {"data", "output", "logits"}, false);
  if (flags.help) {
    std::cout << help_text(predict_help());
    return 0;
  }
  RunPlace place = read_run_place(flags);
  Config config = read_config(flags, place);
  if (config.task != Task::kTextClassification)
    throw_error(ExitCode::kUsage, "task text-generation: plait predict writes class scores; plait eval gives the loss of a language model");
  if (flags.value("output").empty()) throw_error(ExitCode::kUsage, "--output is not given: name the .jsonl file to write");
  bool talks = place.talks();
  RunInputs inputs;
  before_meeting(config, place, [&] {
    refuse_inputs_as_outputs(config, flags);
    if (talks)
      for (const char* name : {"output", "logits"}) require_writable(flags.value(name));
    inputs = prepare_inputs(config, RunKind::kPredict, "", [talks](const std::string& line) {
      if (talks) log_info(line);
    });
  });
  return run_ranks(config, place, "", &inputs, [&](Mesh& mesh, const auto& say, const RunControl&) {
    auto model = load_model(inputs, mesh, mesh.world().device(), /*training=*/false, say);
    at::Tensor logits = predict_logits(config, *model, mesh, inputs.valid, rows_per_micro_batch(config));
    if (mesh.rank() != 0) return 0;
    write_predictions(flags.value("output"), logits, inputs.labels);
    if (std::string path = flags.value("logits"); !path.empty()) write_tensor_file(path, {{"logits", logits}});
    say(cat("wrote ", logits.size(0), " predictions to ", flags.value("output")));
    return 0;
  });
}

}  // namespace plait
