// The two lists of Hugging Face names; what they do is in hugging_face.cpp.
#include "plait/config/hugging_face.h"

namespace plait {

const std::vector<HuggingFaceName>& hugging_face_names() {
  static const std::vector<HuggingFaceName> names = {
      {"output_dir", "train.work_dir", "default trainer_output"},
      {"num_train_epochs", "train.max_epochs", "whole numbers"},
      {"max_steps", "train.max_steps", "-1 = by epochs"},
      {"per_device_train_batch_size", "train.per_device_train_batch_size", ""},
      {"per_device_eval_batch_size", "evaluation.per_device_batch_size", "default 8"},
      {"gradient_accumulation_steps", "train.distributed.gradient_accumulation_steps", ""},
      {"learning_rate", "train.optimizer.params.lr", ""},
      {"weight_decay", "train.optimizer.params.weight_decay", ""},
      {"adam_beta1", "train.optimizer.params.beta1", ""},
      {"adam_beta2", "train.optimizer.params.beta2", ""},
      {"adam_epsilon", "train.optimizer.params.eps", ""},
      {"max_grad_norm", "train.clip_grad", ""},
      {"lr_scheduler_type", "train.lr_scheduler.type",
       "constant has no warm-up; constant_with_warmup has; polynomial ends at 1e-7; inverse_sqrt is refused: another formula"},
      {"warmup_steps", "train.lr_scheduler.warmup_steps", "below 1: a share of all updates"},
      {"warmup_ratio", "train.lr_scheduler.warmup_ratio", "warmup_steps wins", true},
      {"seed", "train.seed", "default 42"},
      {"data_seed", "hugging_face.data_seed", "must equal seed: plait has one"},
      {"bf16", "train.bf16", ""},
      {"fp16", "train.fp16", ""},
      {"logging_steps", "train.logging_steps", "default by time"},
      {"eval_strategy", "evaluation.period.eval_strategy", "default no"},
      {"evaluation_strategy", "evaluation.period.eval_strategy", "", true},
      {"eval_steps", "hugging_face.eval_steps", "evaluation.period.interval when eval_strategy is steps; default logging_steps, else 500"},
      {"save_strategy", "hugging_face.save_strategy",
       "no or best: output/ at the end and output_best/ are always written; the others need checkpoints, or save_only_model"},
      {"save_steps", "hugging_face.save_steps", "train.save.interval with save_only_model and save_strategy steps; default 500"},
      {"save_total_limit", "hugging_face.save_total_limit", "train.save.keep with save_only_model"},
      {"save_only_model", "hugging_face.save_only_model", "true: save_strategy becomes train.save.strategy (default steps)"},
      {"load_best_model_at_end", "hugging_face.load_best_model_at_end", "the best weights are in output_best/"},
      {"metric_for_best_model", "hugging_face.metric_for_best_model", "becomes the first of evaluation.metrics"},
      {"greater_is_better", "hugging_face.greater_is_better", "must agree with the metric"},
      {"label_smoothing_factor", "train.label_smoothing", ""},
      {"dataloader_num_workers", "hugging_face.dataloader_num_workers", "no effect: all cores tokenise before the first step"},
      {"disable_tqdm", "hugging_face.disable_tqdm", "true: train.progress_bar false"},
      {"report_to", "hugging_face.report_to", "none or tensorboard; points every logging_steps"},
      {"logging_dir", "hugging_face.logging_dir", "train.tensorboard.dir with report_to tensorboard; default output_dir/runs"},
      {"deepspeed", "hugging_face.deepspeed", "a DeepSpeed JSON, read with these names; what both say must be the same"},
      {"run_name", "hugging_face.run_name", "no effect: a run is its work_dir"},
      {"optim", "hugging_face.optim", "adamw_torch, adamw_torch_fused or sgd"},
  };
  return names;
}

const std::vector<UnavailableName>& unavailable_names() {
  const std::vector<std::string> no = {"false"};
  static const std::vector<UnavailableName> names = {
      {"gradient_checkpointing", no, "recomputation is not available yet"},
      {"dataloader_drop_last", no, "plait trains every row of an epoch, the last partial batch with its right weight"},
      {"resume_from_checkpoint", {"false", ""}, "checkpoints to resume from are not available yet"},
      {"push_to_hub", no, "uploading is not available"},
      {"fsdp", {"", "false", "[]"}, "sharded weights are not available yet"},
      {"torch_compile", no, "there is no graph compiler in plait"},
      {"group_by_length", no, "row order is a function of seed and epoch only"},
      {"auto_find_batch_size", no, "the batch is what the settings say"},
      {"neftune_noise_alpha", {"0"}, "embedding noise is not available"},
      {"tf32", no, "float32 is computed in full"},
      {"use_liger_kernel", no, "plait has its own kernels"},
      {"eval_accumulation_steps", {}, "evaluation keeps no predictions"},
      {"eval_delay", {"0"}, "evaluation starts with the first period"},
      {"eval_on_start", no, "use plait eval before training"},
      {"average_tokens_across_devices", {"true"}, "the loss is always divided by the targets of the whole global batch"},
      {"remove_unused_columns", {"true"}, "only the text and label columns are read"},
      {"overwrite_output_dir", no, "a work_dir is never emptied"},
      {"do_train", {"true"}, "plait train trains; plait eval and plait predict do the rest"},
      {"lr_scheduler_kwargs", {"{}", ""}, "schedules have no further options"},
      {"auto_parallel", no, "choosing the layout is not available yet"},
  };
  return names;
}

}  // namespace plait
