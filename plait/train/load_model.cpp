#include "plait/train/load_model.h"

#include "plait/base/error.h"
#include "plait/checkpoint/export.h"
#include "plait/checkpoint/model_folder.h"
#include "plait/checkpoint/safetensors_file.h"
#include "plait/checkpoint/weights.h"

namespace plait {

namespace {

std::vector<TensorSpec> tensor_specs(const ModelShape& shape, const HeadOptions& head) {
  std::vector<TensorSpec> specs;
  for (auto& t : model_tensors(shape, head)) specs.push_back({std::move(t.name), std::move(t.shape)});
  return specs;
}

WeightLoadOptions folder_options(const RunInputs& in, bool training) {
  const FamilyNames& names = family_names(in.shape.family);
  WeightLoadOptions options;
  options.all = tensor_specs(in.shape, in.head);
  if (training && in.head.task == Task::kTextClassification) options.may_be_missing = {names.classifier, names.pooler};
  return options;
}

WeightLoadOptions head_options(const RunInputs& in) {
  const ModelConfig& config = in.config.model;
  if (in.head.task != Task::kTextClassification)
    throw_error(ExitCode::kUsage, "model.head_init ", config.head_init, in.config.where("model.head_init"),
                " is for classification; this run's task is text-generation");
  WeightLoadOptions options;
  options.only = {family_names(in.shape.family).classifier};
  for (auto& spec : tensor_specs(in.shape, in.head))
    if (spec.name.starts_with(options.only[0])) options.all.push_back(std::move(spec));
  return options;
}

std::string architecture(const ModelShape& shape, Task task) {
  if (shape.family == Family::kBert) return task == Task::kTextClassification ? "BertForSequenceClassification" : "BertForMaskedLM";
  if (shape.model_type == "gpt2") return "GPT2LMHeadModel";
  if (shape.model_type == "mistral") return "MistralForCausalLM";
  return shape.model_type == "qwen2" ? "Qwen2ForCausalLM" : "LlamaForCausalLM";
}

}  // namespace

std::unique_ptr<ParallelModel> load_model(const RunInputs& in, const Mesh& mesh, at::Device device, bool training,
                                          const std::function<void(const std::string&)>& say, const Config* changed) {
  const ModelConfig& config = in.config.model;
  bool random = config.init == "random";
  auto model = parallelize(changed ? *changed : in.config, in.shape, in.head, mesh, device, {.training = training, .seed_values = random});
  for (const auto& line : model->notices) say(line);
  if (training && mesh.layout().pp_size > 1) say(describe_plan(model->pipeline, in.config.train.distributed.gradient_accumulation_steps));
  auto seed = static_cast<uint64_t>(in.config.train.seed);
  if (!random) {
    LoadReport report = load_weights(model->store, SafetensorsFolder(config.path), folder_options(in, training));
    if (!report.seeded.empty()) model->store.initialize(seed, false, report.seeded);
    // What head_init brings is not news.
    const std::string head = family_names(in.shape.family).classifier + ".";
    if (!config.head_init.empty()) std::erase_if(report.seeded, [&](const std::string& name) { return name.starts_with(head); });
    if (std::string notice = report.notice(config.path); !notice.empty()) say(notice);
  }
  if (!config.head_init.empty()) load_weights(model->store, SafetensorsFolder::of_file(config.head_init), head_options(in));
  return model;
}

void check_model_files(const RunInputs& in, bool training) {
  if (in.config.model.init != "random") resolve_weights(SafetensorsFolder(in.config.model.path), folder_options(in, training));
  if (!in.config.model.head_init.empty()) resolve_weights(SafetensorsFolder::of_file(in.config.model.head_init), head_options(in));
}

void export_folder(const ParallelModel& model, const RunInputs& in, Mesh& mesh, const std::string& folder,
                   const std::map<std::string, std::string>& metadata) {
  ExportOptions options;
  options.folder = folder;
  options.metadata = metadata;
  options.dtype = in.config.train.export_dtype;
  ConfigUpdate update;
  update.architecture = architecture(in.shape, in.head.task);
  update.dtype = options.dtype;
  update.labels = in.labels.names;
  options.config_json = updated_config_json(in.shape.config_json, update);
  options.files_to_copy = side_files(in.config.model.path);
  export_model(model.store, tensor_specs(model.shape, model.head), mesh, options);
}

}  // namespace plait
