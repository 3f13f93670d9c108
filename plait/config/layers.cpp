#include "plait/config/layers.h"

#include "plait/base/error.h"
#include "plait/config/scalar.h"

namespace plait {

namespace {

const std::string kData = "train.distributed.data_parallel_size", kModel = "train.distributed.model_parallel_size",
                  kPipeline = "train.distributed.pipeline_parallel_size", kStrategy = "train.distributed.distributed_strategy",
                  kStageLayers = "train.distributed.pipeline_layers", kVirtual = "train.distributed.virtual_pipeline_size",
                  kWorld = "modelscope.world_size";

// Pairs of which a flag replaces the file's other one.
const std::vector<std::pair<std::string, std::string>>& alternatives() {
  static const std::vector<std::pair<std::string, std::string>> pairs = {
      {"train.lr_scheduler.warmup_steps", "train.lr_scheduler.warmup_ratio"},
      {"train.max_steps", "train.max_epochs"},
      {"dataset.train.file", "modelscope.hub_data.train"},
      {"dataset.valid.file", "modelscope.hub_data.valid"}};
  return pairs;
}

std::string short_name(const std::string& dotted) { return dotted.substr(dotted.rfind('.') + 1); }

}  // namespace

std::string alternative_of(const std::string& name) {
  for (const auto& [one, other] : alternatives()) {
    if (name == one) return other;
    if (name == other) return one;
  }
  return "";
}

std::string given_word(const GivenSettings& given, const std::string& name) {
  const GivenSetting* found = given.find(name);
  if (!found) return "";
  if (found->value.kind != SettingNode::Kind::kScalar) throw_error(ExitCode::kUsage, quote(found->written, *found), " must be one word");
  return found->value.text;
}

void fold_precision(GivenSettings* layer) {
  const GivenSetting* chosen = nullptr;
  std::string chosen_dtype;
  for (const char* name : {"train.fp16", "train.bf16"}) {
    const GivenSetting* given = layer->find(name);
    if (!given) continue;
    std::string dtype = std::string(name) == "train.fp16" ? "float16" : "bfloat16";
    auto on = parse_bool_text(given_word(*layer, name));
    if (!on) throw_error(ExitCode::kUsage, quote(given->written, *given), " is not true or false");
    const GivenSetting* direct = layer->find("train.dtype");
    std::string said = given_word(*layer, "train.dtype");
    bool same = said == dtype || said == (dtype == "float16" ? "fp16" : "bf16");
    if (direct && *on != same)
      throw_error(ExitCode::kUsage, quote(given->written, *given), " contradicts ", quote(direct->written, *direct));
    if (!*on) continue;
    if (chosen)
      throw_error(ExitCode::kUsage, quote(chosen->written, *chosen), " contradicts ", quote(given->written, *given), "; keep one");
    chosen = given;
    chosen_dtype = dtype;
  }
  if (!chosen) return;
  GivenSetting wish = *chosen;
  wish.value.text = chosen_dtype;
  layer->erase("train.dtype");
  layer->add("train.dtype", wish);
}

void merge_layers(GivenSettings* file, const GivenSettings& above) {
  for (const auto& [one, other] : alternatives()) {
    if (above.has(one) && !above.has(other)) file->erase(other);
    if (above.has(other) && !above.has(one)) file->erase(one);
  }
  for (const char* name : {"train.fp16", "train.bf16"}) {
    bool turned_off = above.has(name) && !parse_bool_text(given_word(above, name)).value_or(true);
    std::string dtype = given_word(*file, "train.dtype");
    bool was_on = std::string(name) == "train.fp16" ? dtype == "float16" || dtype == "fp16" : dtype == "bfloat16" || dtype == "bf16";
    if (turned_off && was_on) file->erase("train.dtype");
  }
  file->overlay(above);
}

ReplacedLayout replace_layout(GivenSettings* file, const GivenSettings& command) {
  ReplacedLayout out;
  std::string strategy = given_word(command, kStrategy);
  bool fixes_sizes = !strategy.empty() && strategy != "hybrid_parallel" && strategy != "auto_parallel";
  if (!command.has(kData) && !command.has(kModel) && !command.has(kPipeline) && !fixes_sizes) return out;
  out.replaced = true;
  for (const auto& name : {kData, kModel, kPipeline}) {
    const GivenSetting* old = file->find(name);
    if (old && name == kPipeline) out.pipeline = *old;
    if (old && !command.has(name)) out.sizes.emplace_back(name, *old);
    file->erase(name);
  }
  file->erase(kStrategy);
  if (const GivenSetting* world = file->find(kWorld); world && !command.has(kWorld)) out.world = *world;
  file->erase(kWorld);
  // Stages of another pipeline mean nothing here; they come back when the pipeline size turns out the same.
  for (auto [name, slot] : {std::pair{&kStageLayers, &out.stage_layers}, std::pair{&kVirtual, &out.virtual_pipeline}}) {
    if (const GivenSetting* old = file->find(*name); old && !command.has(*name)) *slot = *old;
    if (!command.has(*name)) file->erase(*name);
  }
  return out;
}

void report_replaced(const ReplacedLayout& old, const GivenSettings& merged, const Config& config, int64_t world_size,
                     std::vector<std::string>* notices) {
  const auto& d = config.train.distributed;
  std::vector<int64_t> fixed;
  for (auto [name, value] :
       {std::pair{kData, d.data_parallel_size}, std::pair{kModel, d.model_parallel_size}, std::pair{kPipeline, d.pipeline_parallel_size}})
    if (merged.has(name)) fixed.push_back(value);
  std::string reason = fixed.empty() ? cat("the command line says distributed_strategy ", given_word(merged, kStrategy))
                                     : cat("the command line fixes ", join(fixed, " x "));
  reason += world_size > 0 ? cat(" on ", world_size, " ranks") : "";
  for (const auto& [name, given] : old.sizes) {
    int64_t now = name == kData ? d.data_parallel_size : name == kModel ? d.model_parallel_size : d.pipeline_parallel_size;
    if (parse_integer_text(given.value.text) != now)
      notices->push_back(cat(short_name(name), " ", given.value.summary(), " (", given.origin, ") replaced by ", now, ": ", reason));
  }
  int64_t ranks = d.data_parallel_size * d.model_parallel_size * d.pipeline_parallel_size;
  if (old.world && parse_integer_text(old.world->value.text) != ranks)
    notices->push_back(cat(quote(old.world->written, *old.world), " replaced by ", ranks, ": ", reason));
}

void restore_stages(const ReplacedLayout& old, GivenSettings* merged, int64_t pipeline_size, std::vector<std::string>* notices) {
  int64_t was = old.pipeline ? parse_integer_text(old.pipeline->value.text).value_or(0) : 1;
  for (auto [name, slot] : {std::pair{&kStageLayers, &old.stage_layers}, std::pair{&kVirtual, &old.virtual_pipeline}}) {
    if (!*slot) continue;
    if (was == pipeline_size) merged->add(*name, **slot);
    else
      notices->push_back(cat(short_name(*name), " ", (*slot)->value.summary(), " (", (*slot)->origin,
                             ") left out: it was for pipeline_parallel_size ", was, ", the command line makes it ", pipeline_size));
  }
}

}  // namespace plait
