#include "plait/config/deepspeed.h"

#include <algorithm>
#include <cmath>

#include "plait/base/error.h"
#include "plait/config/modelscope.h"
#include "plait/config/scalar.h"

namespace plait {

namespace {

const std::string kParams = "train.optimizer.params.", kSchedule = "train.lr_scheduler.", kScale = "train.loss_scale.";
constexpr double kLargestPower = 24;  // init_scale goes up to 2^24

// Like FileTranslator::at, but "auto" counts as not given.
Place look(FileTranslator* file, const Place& section, const std::string& key) {
  Place place = file->at(section, key);
  if (!place || place.node->kind != SettingNode::Kind::kScalar || place.node->text != "auto") return place;
  file->ignore(place, "auto: flags or defaults decide");
  return {};
}

void ignore_keys(FileTranslator* file, const Place& section, const std::vector<const char*>& keys, const std::string& why) {
  for (const char* key : keys) file->ignore(look(file, section, key), why);
}

void refuse_keys(FileTranslator* file, const Place& section, const std::vector<const char*>& keys, const std::string& why) {
  for (const char* key : keys) file->only_off(look(file, section, key), why);
}

// A section of an engine plait does not have: fine when it is empty or says enabled false.
void off_section(FileTranslator* file, const Place& root, const char* key, const std::string& why) {
  Place section = look(file, root, key);
  if (!section) return;
  if (!section.is_map()) return file->only_off(section, why);
  Place enabled = look(file, section, "enabled");
  if (section.node->entries.empty() || (enabled && !file->flag(enabled, true))) return file->ignore(section, "it is off");
  file->refuse(enabled ? enabled : section, why);
}

void translate_zero(FileTranslator* file, const Place& zero) {
  if (!zero) return;
  if (!zero.is_map()) return file->only_off(zero, "ZeRO is not available yet; nearest valid value {stage: 0}");
  file->become(look(file, zero, "stage"), "train.distributed.zero_stage");
  for (const char* key : {"offload_optimizer", "offload_param"}) {
    Place offload = look(file, zero, key);
    if (!offload) continue;
    Place device = offload.is_map() ? look(file, offload, "device") : Place{};
    if (device && file->text(device) != "none")
      file->refuse(device, "offloading to the CPU or to NVMe is not available; nearest valid value none");
    if (!device && offload.is_map() && !offload.node->entries.empty()) file->refuse(offload, "offloading is not available; leave it out");
    file->ignore(offload, "it is off");
  }
  refuse_keys(
      file, zero,
      {"cpu_offload", "cpu_offload_params", "zero_quantized_weights", "zero_quantized_gradients", "zero_quantized_nontrainable_weights"},
      "offloading and quantised messages are not available; leave it out");
  ignore_keys(file, zero,
              {"allgather_partitions",
               "allgather_bucket_size",
               "overlap_comm",
               "reduce_scatter",
               "reduce_bucket_size",
               "contiguous_gradients",
               "sub_group_size",
               "round_robin_gradients",
               "stage3_max_live_parameters",
               "stage3_max_reuse_distance",
               "stage3_prefetch_bucket_size",
               "stage3_param_persistence_threshold",
               "stage3_model_persistence_threshold",
               "stage3_gather_16bit_weights_on_model_save",
               "stage3_gather_fp16_weights_on_model_save",
               "ignore_unused_parameters",
               "elastic_checkpoint",
               "zero_hpz_partition_size",
               "load_from_fp32_weights",
               "grad_hooks",
               "legacy_stage1",
               "memory_efficient_linear",
               "pipeline_loading_checkpoint",
               "use_multi_rank_bucket_allreduce",
               "log_trace_cache_warnings"},
              "it belongs to stages above 0");
}

void translate_precision(FileTranslator* file, const Place& root) {
  Place half = look(file, root, "fp16");
  if (half && !half.is_map()) throw_error(ExitCode::kUsage, quote(half.path, half.given()), " must be a section: {enabled: true}");
  Place enabled = look(file, half, "enabled");
  bool on = enabled && file->flag(enabled, false);
  file->become(enabled, "train.fp16");
  if (half && enabled && !on) {
    ignore_keys(file, half, {"loss_scale", "initial_scale_power", "loss_scale_window"}, "fp16 is off");
  } else {
    Place scale = look(file, half, "loss_scale");
    bool is_static = scale && file->number(scale).value_or(0) > 0;
    Place power = look(file, half, "initial_scale_power");
    if (is_static) {
      detail::translate_loss_scale(file, scale);
      file->ignore(power, "loss_scale is static");
    } else {
      file->become(scale, kScale + "dynamic", "true");
      if (auto exponent = file->number(power)) {
        file->become(power, kScale + "init_scale", cat(std::pow(2.0, std::min(*exponent, kLargestPower))));
        if (*exponent > kLargestPower) file->become(power, "deepspeed.large_power");
      }
    }
    Place window = look(file, half, "loss_scale_window");
    if (is_static) file->ignore(window, "loss_scale is static");
    else if (window) file->become(window, kScale + "growth_interval");
    else if (on) file->become(enabled, kScale + "growth_interval", "1000");  // DeepSpeed's default
  }
  ignore_keys(file, half, {"hysteresis", "consecutive_hysteresis", "min_loss_scale"}, "every overflow halves the scale, down to 1");
  refuse_keys(file, half, {"auto_cast", "fp16_master_weights_and_grads"}, "weights have float32 masters; nearest valid value false");
  for (const char* name : {"bf16", "bfloat16"}) {
    Place brain = look(file, root, name);
    if (brain && !brain.is_map()) throw_error(ExitCode::kUsage, quote(brain.path, brain.given()), " must be a section: {enabled: true}");
    file->become(look(file, brain, "enabled"), "train.bf16");
    ignore_keys(file, brain, {"immediate_grad_update", "check_grad_overflow", "bf16_master_weights_and_grads"},
                "weights have float32 masters");
  }
}

void translate_optimizer(FileTranslator* file, const Place& optimizer) {
  if (!optimizer) return;
  Place type = look(file, optimizer, "type"), params = look(file, optimizer, "params");
  std::string word = type ? file->text(type) : "AdamW";
  Place decoupled = look(file, params, "adam_w_mode");
  if (word == "Adam" || word == "AdamW" || word == "adam" || word == "adamw") {
    // DeepSpeed's Adam is AdamW unless told otherwise.
    bool plain = word != "AdamW" && word != "adamw" && decoupled && !file->flag(decoupled, true);
    file->become(type, "train.optimizer.type", plain ? "Adam" : "AdamW");
    file->derive(decoupled, plain ? "Adam adds the decay to the gradient" : "AdamW decays the weights themselves");
  } else if (word == "SGD" || word == "sgd") {
    file->become(type, "train.optimizer.type", "SGD");
  } else {
    file->refuse(type, "this optimizer is not available; one of AdamW, Adam, SGD");
  }
  for (const char* name : {"lr", "betas", "eps", "weight_decay", "momentum", "nesterov"})
    file->become(look(file, params, name), kParams + name);
  ignore_keys(file, params, {"torch_adam", "bias_correction", "fused", "foreach"}, "plait has its own kernels, with bias correction");
  refuse_keys(file, params, {"amsgrad", "dampening", "freeze_step", "cuda_aware"}, "this variant is not available");
  refuse_keys(file, optimizer, {"legacy_fusion"}, "there is no such kernel");
}

// WarmupLR, WarmupDecayLR, WarmupCosineLR. Shares of the learning rate wait until that is known.
void translate_scheduler(FileTranslator* file, const Place& scheduler, const Place& optimizer) {
  if (!scheduler) return;
  Place type = look(file, scheduler, "type"), params = look(file, scheduler, "params");
  if (!type) file->refuse(scheduler, "a schedule needs its type: WarmupLR, WarmupDecayLR or WarmupCosineLR");
  std::string word = file->text(type);
  std::string native = word == "WarmupLR" ? "constant" : word == "WarmupDecayLR" ? "linear" : word == "WarmupCosineLR" ? "cosine" : "";
  if (native.empty()) file->refuse(type, "this schedule is not available; one of WarmupLR, WarmupDecayLR, WarmupCosineLR");
  file->become(type, kSchedule + "type", native);
  Place shape = look(file, params, "warmup_type");
  if (shape && file->text(shape) != "linear") file->refuse(shape, "the rate rises along a line; nearest valid value linear");
  file->derive(shape, "the rate rises along a line");
  if (!shape) file->become(type, "deepspeed.warmup_type", word);
  Place length = look(file, params, "warmup_num_steps");
  file->become(length, kSchedule + "warmup_steps");
  bool is_auto = params && params.node->find("warmup_num_steps");
  if (!length && !is_auto) file->become(type, kSchedule + "warmup_steps", "1000");  // DeepSpeed's default
  Place highest = look(file, params, "warmup_max_lr"), rate = look(file, look(file, optimizer, "params"), "lr");
  if (highest && rate) {
    if (file->number(highest) != file->number(rate))
      throw_error(ExitCode::kUsage, quote(highest.path, highest.given()), " contradicts ", quote(rate.path, rate.given()),
                  "; write one value in both");
    file->derive(highest, "the learning rate");
  } else {
    file->become(highest, kParams + "lr");
  }
  file->become(look(file, params, "warmup_min_lr"), "deepspeed.warmup_min_lr");
  file->become(look(file, params, "warmup_min_ratio"), kSchedule + "warmup_start_factor");
  file->become(look(file, params, "total_num_steps"), word == "WarmupLR" ? "deepspeed.unused_total" : "deepspeed.total_num_steps");
  Place lowest = look(file, params, "cos_min_ratio");
  if (word == "WarmupCosineLR" && !lowest) file->become(type, "deepspeed.cos_min_ratio", "0.0001");
  file->become(lowest, word == "WarmupCosineLR" ? "deepspeed.cos_min_ratio" : "deepspeed.unused_ratio");
  refuse_keys(file, params, {"last_batch_iteration"}, "a schedule starts with the run");
}

void translate_layout(FileTranslator* file, const Place& root) {
  Place pipeline = look(file, root, "pipeline");
  if (pipeline.is_map()) {
    file->become(look(file, pipeline, "stages"), "train.distributed.pipeline_parallel_size");
    Place partition = look(file, pipeline, "partition");
    if (partition && file->text(partition) != "best")
      file->refuse(partition, "layers are spread by cost, or as train.distributed.pipeline_layers says; leave it out");
    file->ignore(partition, "layers are spread by cost");
    refuse_keys(file, pipeline, {"activation_checkpoint_interval"}, "activation checkpointing is not available yet; nearest valid value 0");
    ignore_keys(file, pipeline, {"seed_layers", "pipe_partitioned", "grad_partitioned", "use_reentrant"},
                "weights and messages do not depend on the layout");
  } else if (pipeline) {
    file->only_off(pipeline, "give {stages: N}");
  }
  Place tensor = look(file, root, "tensor_parallel");
  if (!tensor) return;
  if (!tensor.is_map()) return file->become(tensor, "train.distributed.model_parallel_size");
  file->become(look(file, tensor, "autotp_size"), "train.distributed.model_parallel_size");
  file->become(look(file, tensor, "tp_size"), "train.distributed.model_parallel_size");
  refuse_keys(file, tensor, {"tp_grain_size", "injection_policy_tuple", "keep_module_on_host", "replace_with_kernel_inject"},
              "layers are split by what they are; leave it out");
}

void translate_engines(FileTranslator* file, const Place& root) {
  const std::string off = " is not available; leave it out";
  if (Place board = look(file, root, "tensorboard")) {
    Place enabled = look(file, board, "enabled"), folder = look(file, board, "output_path");
    if (file->flag(enabled, false)) {
      if (folder) file->become(folder, "train.tensorboard.dir");
      else file->become(board, "modelscope.tensorboard_dir", "tensorboard");
      file->ignore(look(file, board, "job_name"), "the events are in the folder itself");
      file->derive(enabled, "events for TensorBoard are written");
    } else {
      file->ignore(board, "it is off");
    }
  }
  const std::vector<std::pair<const char*, const char*>> engines = {{"amp", "Apex"},
                                                                    {"flops_profiler", "the FLOPS profiler"},
                                                                    {"wandb", "Weights & Biases"},
                                                                    {"csv_monitor", "the CSV monitor"},
                                                                    {"comet", "Comet"},
                                                                    {"comms_logger", "the log of messages"},
                                                                    {"autotuning", "autotuning"},
                                                                    {"elasticity", "elastic batch size"},
                                                                    {"compression_training", "compression"},
                                                                    {"data_efficiency", "data efficiency"},
                                                                    {"curriculum_learning", "curriculum learning"},
                                                                    {"progressive_layer_drop", "progressive layer drop"},
                                                                    {"eigenvalue", "eigenvalues"},
                                                                    {"hybrid_engine", "the hybrid engine"},
                                                                    {"sparse_attention", "sparse attention"},
                                                                    {"quantize_training", "quantised training"},
                                                                    {"moe", "mixtures of experts"},
                                                                    {"nebula", "Nebula"},
                                                                    {"aio", "reading weights from NVMe"}};
  for (const auto& [key, what] : engines) off_section(file, root, key, what + off);
  if (Place recompute = look(file, root, "activation_checkpointing")) {
    for (const Place& entry : file->entries(recompute))
      file->only_off(entry, "activation checkpointing is not available yet; leave it out");
    file->ignore(recompute, "it is off");
  }
  refuse_keys(file, root, {"sparse_gradients", "dump_state", "fp32_allreduce", "memory_breakdown", "zero_force_ds_cpu_optimizer"},
              "there is no such switch; leave it out");
  Place divisor = look(file, root, "gradient_predivide_factor");
  if (divisor && file->number(divisor) != 1.0) file->refuse(divisor, "gradients are summed and divided once; nearest valid value 1");
  file->ignore(divisor, "gradients are summed and divided once");
  if (Place types = look(file, root, "data_types")) {
    Place sums = look(file, types, "grad_accum_dtype");
    if (sums && file->text(sums) != "fp32") file->refuse(sums, "gradients are summed in float32; nearest valid value fp32");
    file->ignore(sums, "gradients are summed in float32");
  }
}

// The type of gradients on the wire. DeepSpeed's engine sums in it; here sums stay float32 where the backend makes them so.
void translate_messages(FileTranslator* file, const Place& root) {
  detail::translate_messages(file, root);
  Place type = look(file, root, "communication_data_type");
  if (!type) return;
  const std::string word = file->text(type), at = "train.comm.compression.";
  if (word == "fp32") return file->ignore(type, "gradients travel and are summed in float32");
  const bool brain = word == "bf16" || word == "bfp16" || word == "bfloat16";
  if (!brain && word != "fp16") file->refuse(type, "gradients travel as fp32, fp16 or bf16; nearest valid value fp32");
  file->become(type, at + "algorithm", brain ? "nccl" : "fp16");
  file->become(type, at + "threshold_bytes", "0");
}

}  // namespace

void set_deepspeed_defaults(Config* config) {
  config->train.clip_grad = 0;
  config->train.lr_scheduler.type = LrSchedulerKind::kConstant;
}

void translate_deepspeed(FileTranslator* file) {
  Place root = file->root();
  file->become(look(file, root, "train_batch_size"), "train.batch_size");
  file->become(look(file, root, "train_micro_batch_size_per_gpu"), "train.per_device_train_batch_size");
  file->become(look(file, root, "gradient_accumulation_steps"), "train.distributed.gradient_accumulation_steps");
  file->become(look(file, root, "gradient_clipping"), "train.clip_grad");
  file->become(look(file, root, "steps_per_print"), "train.logging_steps");
  file->become(look(file, root, "seed"), "train.seed");
  translate_zero(file, look(file, root, "zero_optimization"));
  translate_precision(file, root);
  Place optimizer = look(file, root, "optimizer");
  translate_optimizer(file, optimizer);
  translate_scheduler(file, look(file, root, "scheduler"), optimizer);
  translate_layout(file, root);
  translate_engines(file, root);
  translate_messages(file, root);
  ignore_keys(file, root, {"wall_clock_breakdown"}, "metrics.jsonl has the time of every step");
  ignore_keys(file, root, {"prescale_gradients"}, "gradients are summed in float32 and divided once");
  ignore_keys(file, root, {"zero_allow_untested_optimizer", "disable_allgather", "checkpoint"}, "it belongs to DeepSpeed's engine");
  refuse_keys(file, root, {"dataloader_drop_last"},
              "every row is used, the last partial batch with its right weight; nearest valid value false");
  ignore_keys(file, root, {"local_rank"}, "the launcher says it");
  std::vector<Place> unknown = file->left_over();
  if (unknown.empty()) return;
  const Place& first = unknown.front();
  std::string near = file->nearest_known(first);
  throw_error(ExitCode::kUsage, first.origin, ": unknown key ", first.path,
              near.empty() ? "; docs/deepspeed.md lists the known ones" : "; nearest known key: " + near);
}

void finish_deepspeed(GivenSettings* given, std::vector<std::string>* notices) {
  using detail::put_setting;
  using detail::take_pending;
  const GivenSetting* lr = given->find(kParams + "lr");
  double highest = lr ? parse_real_text(lr->value.text).value_or(0) : OptimizerConfig().lr;
  const GivenSetting* type = given->find(kSchedule + "type");
  // A schedule from the command line replaces the file's as a whole.
  bool replaced = type && type->command_line;
  if (auto lowest = take_pending(given, "deepspeed.warmup_min_lr"); lowest && !replaced) {
    auto start = parse_real_text(lowest->value.text);
    if (!start || *start < 0 || *start > highest)
      throw_error(ExitCode::kUsage, quote(lowest->written, *lowest), " is not in [0, ", highest, "], the learning rate");
    bool rises = given->has(kSchedule + "warmup_steps") || given->has(kSchedule + "warmup_ratio");
    if (!rises && *start > 0) notices->push_back(cat(quote(lowest->written, *lowest), " has no effect without a warm-up"));
    if (rises && !given->has(kSchedule + "warmup_start_factor"))
      put_setting(given, kSchedule + "warmup_start_factor", *lowest, cat(highest > 0 ? *start / highest : 0.0));
  }
  if (auto ratio = take_pending(given, "deepspeed.cos_min_ratio"); ratio && !replaced) {
    auto share = parse_real_text(ratio->value.text);
    if (!share || *share < 0 || *share > 1) throw_error(ExitCode::kUsage, quote(ratio->written, *ratio), " is not in [0, 1]");
    if (!given->has(kSchedule + "min_lr")) put_setting(given, kSchedule + "min_lr", *ratio, cat(*share * highest));
  }
  if (auto total = take_pending(given, "deepspeed.total_num_steps"); total && !replaced) {
    const GivenSetting* steps = given->find("train.max_steps");
    const GivenSetting* epochs = given->find("train.max_epochs");
    if (!steps && epochs)
      throw_error(ExitCode::kUsage, quote(total->written, *total), " and ", quote(epochs->written, *epochs),
                  " both say how long the run is: the schedule ends with the run. Give max_steps, or leave total_num_steps out (auto)");
    if (steps && parse_integer_text(steps->value.text) != parse_integer_text(total->value.text))
      throw_error(ExitCode::kUsage, quote(total->written, *total), " contradicts ", quote(steps->written, *steps),
                  ": the schedule ends with the run; write one value in both");
    if (!steps) {
      given->add("train.max_steps", *total);
      notices->push_back(cat(quote(total->written, *total), ": the run is as long as its schedule, train.max_steps ", total->value.text));
    }
  }
  if (auto shape = take_pending(given, "deepspeed.warmup_type"); shape && !replaced)
    notices->push_back(cat(shape->value.text, " (", shape->origin,
                           ") without warmup_type: the rate rises along a line here (DeepSpeed's default is logarithmic)"));
  if (auto power = take_pending(given, "deepspeed.large_power"))
    notices->push_back(cat(quote(power->written, *power), " is taken as ", kLargestPower,
                           ": the largest loss scale is 16777216, and it follows", " the overflows from there"));
  for (const char* name : {"deepspeed.unused_total", "deepspeed.unused_ratio"})
    if (auto unused = take_pending(given, name))
      notices->push_back(cat(quote(unused->written, *unused), " has no effect with this schedule"));
}

}  // namespace plait
