// The calls of Trainer that stand for settings.
#include <algorithm>

#include "plait/base/error.h"
#include "plait/config/enum_names.h"
#include "plait/config/setting_info.h"
#include "plait/config/validate.h"
#include "plait/config/validate_train.h"
#include "plait/train/trainer.h"

namespace plait {

namespace {

template <class E>
E word_of_call(const std::string& call, const char* what, const std::string& word) {
  if (auto value = parse_enum_word<E>(word)) return *value;
  const auto known = enum_choices<E>();
  throw_error(ExitCode::kUsage, call, ": ", what, " ", word, " is not ", rule_of_words(word, known, known.front()));
}

}  // namespace

void Trainer::change_messages(const std::string& call, const std::vector<std::string>& settings, const CommConfig& wish) {
  if (settled_) throw_error(ExitCode::kUsage, call, " comes too late: it must stand before run(), model() and step()");
  Config changed = config_;
  changed.train.comm = wish;
  for (const auto& setting : settings) changed.origin[setting] = call;
  validate(changed);
  std::vector<std::string> notices, known;
  report_messages_without_effect(config_, &known);
  report_messages_without_effect(changed, &notices);
  for (const auto& line : notices)
    if (std::find(known.begin(), known.end(), line) == known.end()) say_(line);
  config_ = std::move(changed);
}

void Trainer::set_comm_priority(const std::string& axis, const std::string& style) {
  const std::string call = "set_comm_priority";
  CommConfig wish = config_.train.comm;
  const auto value = word_of_call<CommStyle>(call, "style", style);
  if (axis == "tensor_parallel") wish.priority.tensor_parallel = value;
  else if (axis == "data_parallel") wish.priority.data_parallel = value;
  else
    throw_error(ExitCode::kUsage, call, ": axis ", axis, " is not one of tensor_parallel, data_parallel",
                axis == "pipeline_parallel" ? "; messages between pipeline stages are always point to point" : "");
  change_messages(call, {"train.comm.priority." + axis}, wish);
  const int64_t ranks = axis == "tensor_parallel" ? mesh_.layout().tp_size : mesh_.layout().dp_size;
  if (value == CommStyle::kP2P && !device_.is_cpu() && ranks > 1)
    say_(cat(call, ": streams keep the priority they got when the ranks connected; the setting train.comm.priority.", axis,
             " (RendezvousOptions::urgent_groups) is there in time to raise it"));
}

void Trainer::enable_comm_compression(const std::string& algorithm, int64_t threshold_bytes) {
  const std::string call = "enable_comm_compression";
  CommConfig wish = config_.train.comm;
  const CommCompressionConfig defaults;
  wish.compression.algorithm = word_of_call<GradientCompression>(call, "algorithm", algorithm);
  wish.compression.threshold_bytes = threshold_bytes;
  // What the settings file says of another algorithm goes with it.
  if (wish.compression.algorithm != GradientCompression::kPowerSGD) wish.compression.rank = defaults.rank;
  if (wish.compression.algorithm != GradientCompression::kTopK) wish.compression.ratio = defaults.ratio;
  change_messages(call, {"train.comm.compression.algorithm", "train.comm.compression.threshold_bytes"}, wish);
}

}  // namespace plait
