// The one table of settings. describe(visit, config) calls visit(const SettingInfo&, field&) for every setting, in the
// order they are printed. Reading, printing, ranges, --set and docs/settings.md all come from here: a new setting is a
// field in config.h and a line in this file.
#pragma once

#include "plait/config/config.h"
#include "plait/config/describe_comm.h"
#include "plait/config/setting_info.h"

namespace plait {

namespace detail {
template <class Visitor, class C>
void describe_model(Visitor& visit, C& c) {
  visit(SettingInfo{.name = "model.path", .effect = "Hugging Face folder: config.json, weights, tokenizer.json", .is_path = true}, c.path);
  visit(
      SettingInfo{
          .name = "model.init", .effect = "where the weights come from; a missing head is seeded", .words = {"pretrained", "random"}},
      c.init);
  visit(SettingInfo{.name = "model.head_init", .effect = "safetensors file with classifier.weight and classifier.bias", .is_path = true},
        c.head_init);
}

template <class Visitor, class C>
void describe_data_file(Visitor& visit, const std::string& at, const char* use, C& c) {
  visit(SettingInfo{.name = at + ".file", .effect = cat(use, " rows: .jsonl, .tsv, .csv or .txt; empty = none"), .is_path = true}, c.file);
  visit(SettingInfo{.name = at + ".text_col", .effect = "column (or JSON field) of the text"}, c.text_col);
  visit(SettingInfo{.name = at + ".text_pair_col", .effect = "text-classification: column of a second text, for pairs; empty = none"},
        c.text_pair_col);
  visit(SettingInfo{.name = at + ".label_col", .effect = "column (or JSON field) of the label"}, c.label_col);
  visit(SettingInfo{.name = at + ".rows", .effect = "only the first n rows", .unit = "rows", .range = counts(0), .zero_word = "all"},
        c.rows);
}

template <class Visitor, class C>
void describe_preprocessor(Visitor& visit, C& c) {
  visit(SettingInfo{.name = "preprocessor.sequence_length",
                    .effect = "longest row, longer text is cut; model = the model's own limit",
                    .unit = "tokens",
                    .range = counts(0),
                    .zero_word = "model"},
        c.sequence_length);
  visit(SettingInfo{.name = "preprocessor.pad_to",
                    .effect = "no effect on any number, as nothing is padded; for files that name it",
                    .unit = "tokens",
                    .range = counts(0),
                    .zero_word = "longest"},
        c.pad_to);
  visit(SettingInfo{.name = "preprocessor.block",
                    .effect =
                        "text-generation: stream = the whole file one token stream in windows; document = rows end with their document"},
        c.block);
  visit(SettingInfo{.name = "preprocessor.document_attention",
                    .effect =
                        "causal LM, block stream with add_eos: documents that share a row do not attend to each other, positions restart"},
        c.document_attention);
  visit(SettingInfo{.name = "preprocessor.add_eos", .effect = "end each document with the end-of-text token"}, c.add_eos);
}

template <class Visitor, class C>
void describe_distributed(Visitor& visit, C& c) {
  const std::string at = "train.distributed.";
  visit(SettingInfo{.name = at + "data_parallel_size",
                    .effect = "replicas of the model, each with its share of the rows",
                    .unit = "ranks",
                    .range = sizes(1)},
        c.data_parallel_size);
  visit(SettingInfo{.name = at + "model_parallel_size",
                    .effect = "tensor-parallel ranks one layer is split over",
                    .unit = "ranks",
                    .range = sizes(1),
                    .aliases = {at + "tensor_parallel_size", at + "tensor_model_parallel_size"}},
        c.model_parallel_size);
  visit(SettingInfo{.name = at + "pipeline_parallel_size",
                    .effect = "pipeline ranks the layers are spread over",
                    .unit = "ranks",
                    .range = sizes(1),
                    .aliases = {at + "pipeline_model_parallel_size"}},
        c.pipeline_parallel_size);
  visit(SettingInfo{.name = at + "virtual_pipeline_size",
                    .effect =
                        "stages a pipeline rank holds: schedule interleaved_1f1b; zb_v always has 2, a schedule_file its own, auto chooses",
                    .range = sizes(1)},
        c.virtual_pipeline_size);
  visit(SettingInfo{.name = at + "gradient_accumulation_steps",
                    .effect = "micro-batches of one optimizer step on one data rank; with a pipeline its micro-batches",
                    .unit = "micro-batches",
                    .range = sizes(1),
                    .aliases = {"train.gradient_accumulation_steps"}},
        c.gradient_accumulation_steps);
  visit(
      SettingInfo{.name = at + "sequence_parallel", .effect = "split norms and dropout over the tensor-parallel ranks along the sequence"},
      c.sequence_parallel);
  visit(
      SettingInfo{.name = at + "schedule",
                  .effect = "order of the pipeline's forwards and backwards (docs/schedules.md); auto: the shortest that fits the memory"},
      c.schedule);
  visit(
      SettingInfo{.name = at + "schedule_file", .effect = "schedule custom: file with its text form (docs/schedules.md)", .is_path = true},
      c.schedule_file);
  visit(SettingInfo{.name = at + "pipeline_memory_bytes",
                    .effect = "schedule auto: memory of one rank for activations in flight; free = what the machine has free, shared out",
                    .unit = "bytes",
                    .range = counts(0),
                    .zero_word = "free"},
        c.pipeline_memory_bytes);
  visit(SettingInfo{.name = at + "pipeline_layers",
                    .effect = "layers of each (virtual) stage; empty = balanced by cost",
                    .unit = "layers",
                    .range = counts(0)},
        c.pipeline_layers);
  visit(
      SettingInfo{
          .name = at + "zero_stage", .effect = "what the data ranks share out: 0 = nothing; 1 to 3 are not available yet", .range = {0, 3}},
      c.zero_stage);
  visit(SettingInfo{.name = at + "bucket_size_bytes",
                    .effect = "gradients reduced over the data ranks as one message",
                    .unit = "bytes",
                    .range = counts(1)},
        c.bucket_size_bytes);
  visit(SettingInfo{.name = at + "overlap_grad_reduce", .effect = "reduce gradients while the last backward still runs"},
        c.overlap_grad_reduce);
  visit(SettingInfo{.name = at + "overlap_tensor_comm",
                    .effect = "sum input gradients over the tensor ranks while the weight gradients are computed"},
        c.overlap_tensor_comm);
  visit(
      SettingInfo{.name = at + "overlap_pipeline_comm",
                  .effect = "post the pipeline's receives ahead of their use; on GPUs messages go in the order of the stream in any case"},
      c.overlap_pipeline_comm);
}

template <class Visitor, class C>
void describe_optimizer(Visitor& visit, C& c) {
  const std::string at = "train.optimizer.params.", bare = "train.optimizer.";
  visit(SettingInfo{.name = bare + "type", .effect = "update rule"}, c.type);
  visit(SettingInfo{.name = at + "lr", .effect = "highest learning rate", .range = finite_from(0), .aliases = {bare + "lr"}}, c.lr);
  visit(SettingInfo{.name = at + "beta1",
                    .effect = "AdamW, Adam: decay of the first moment",
                    .range = {0, 1, false, true},
                    .aliases = {bare + "beta1"}},
        c.beta1);
  visit(SettingInfo{.name = at + "beta2",
                    .effect = "AdamW, Adam: decay of the second moment",
                    .range = {0, 1, false, true},
                    .aliases = {bare + "beta2"}},
        c.beta2);
  visit(SettingInfo{.name = at + "eps",
                    .effect = "AdamW, Adam: added to the root of the second moment",
                    .range = finite_from(0),
                    .aliases = {bare + "eps"}},
        c.eps);
  visit(SettingInfo{.name = at + "weight_decay",
                    .effect = "decoupled decay for AdamW, added to the gradient for Adam and SGD",
                    .range = finite_from(0),
                    .aliases = {bare + "weight_decay"}},
        c.weight_decay);
  visit(SettingInfo{.name = at + "decay_all", .effect = "decay biases and norms too", .aliases = {bare + "decay_all"}}, c.decay_all);
  visit(SettingInfo{.name = at + "momentum", .effect = "SGD", .range = {0, 1, false, true}, .aliases = {bare + "momentum"}}, c.momentum);
  visit(SettingInfo{.name = at + "nesterov", .effect = "SGD", .aliases = {bare + "nesterov"}}, c.nesterov);
}

// What single kinds of the schedule need besides.
template <class Visitor, class C>
void describe_lr_shape(Visitor& visit, C& c) {
  const std::string at = "train.lr_scheduler.";
  visit(SettingInfo{.name = at + "warmup", .effect = "shape of the warm-up: a line, one value, or equal factors"}, c.warmup);
  visit(
      SettingInfo{
          .name = at + "warmup_start_factor", .effect = "share of the learning rate in the warm-up's first update", .range = {0, 1}},
      c.warmup_start_factor);
  visit(SettingInfo{.name = at + "by_epoch", .effect = "the schedule counts epochs instead of updates (the warm-up always updates)"},
        c.by_epoch);
  visit(SettingInfo{.name = at + "step_size", .effect = "step: between two drops", .unit = "updates or epochs", .range = counts(1)},
        c.step_size);
  visit(
      SettingInfo{.name = at + "milestones", .effect = "multi_step: where the drops are", .unit = "updates or epochs", .range = counts(0)},
      c.milestones);
  visit(SettingInfo{.name = at + "gamma", .effect = "step, multi_step, exponential: factor of a drop", .range = finite_from(0)}, c.gamma);
  visit(SettingInfo{.name = at + "power", .effect = "polynomial: exponent", .range = finite_from(0)}, c.power);
  visit(SettingInfo{.name = at + "start_factor", .effect = "ramp: share of the learning rate at the start", .range = finite_from(0)},
        c.start_factor);
  visit(SettingInfo{.name = at + "end_factor", .effect = "ramp: share of the learning rate at the end", .range = finite_from(0)},
        c.end_factor);
  visit(SettingInfo{.name = at + "total_periods",
                    .effect = "linear, cosine, polynomial, ramp: length; run = up to the last update, from the end of the warm-up on",
                    .unit = "updates or epochs",
                    .range = counts(0),
                    .zero_word = "run"},
        c.total_periods);
  visit(SettingInfo{.name = at + "min_lr", .effect = "cosine, polynomial: learning rate at the end", .range = finite_from(0)}, c.min_lr);
}

template <class Visitor, class C>
void describe_lr_scheduler(Visitor& visit, C& c) {
  visit(SettingInfo{.name = "train.lr_scheduler.type", .effect = "learning rate after the warm-up"}, c.type);
  visit(SettingInfo{.name = "train.lr_scheduler.warmup_steps",
                    .effect = "updates with a rising learning rate; the first has 0",
                    .unit = "steps",
                    .range = counts(0)},
        c.warmup_steps);
  visit(SettingInfo{.name = "train.lr_scheduler.warmup_ratio",
                    .effect = "the same as a share of all updates, rounded up; used when warmup_steps is 0",
                    .range = {0, 1}},
        c.warmup_ratio);
  describe_lr_shape(visit, c);
}

template <class Visitor, class C>
void describe_loss_scale(Visitor& visit, C& c) {
  const std::string at = "train.loss_scale.";
  visit(SettingInfo{.name = at + "dynamic",
                    .effect = "float16: the scale follows overflows; false = init_scale stays, steps that overflow are skipped"},
        c.dynamic);
  visit(SettingInfo{.name = at + "init_scale", .effect = "float16: first loss scale", .range = {1, 16777216}}, c.init_scale);
  visit(
      SettingInfo{
          .name = at + "growth_factor", .effect = "float16: scale after growth_interval good steps, times", .range = finite_from(1)},
      c.growth_factor);
  visit(SettingInfo{.name = at + "backoff_factor", .effect = "float16: scale after an overflow, times", .range = {0, 1, true, true}},
        c.backoff_factor);
  visit(SettingInfo{.name = at + "growth_interval",
                    .effect = "float16: steps without overflow before the scale grows",
                    .unit = "steps",
                    .range = counts(1)},
        c.growth_interval);
}

template <class Visitor, class C>
void describe_outputs(Visitor& visit, C& c) {
  visit(SettingInfo{.name = "train.early_stop.patience",
                    .effect = "evaluations in a row without a better first metric of evaluation.metrics before training stops; 0 = off",
                    .range = counts(0)},
        c.early_stop.patience);
  visit(SettingInfo{.name = "train.early_stop.min_delta", .effect = "a smaller gain does not count", .range = finite_from(0)},
        c.early_stop.min_delta);
  visit(SettingInfo{.name = "train.save.strategy", .effect = "weights during training, as folders work_dir/weights/step_N"},
        c.save.strategy);
  visit(SettingInfo{.name = "train.save.interval", .effect = "between two of them", .unit = "epochs or steps", .range = counts(1)},
        c.save.interval);
  visit(SettingInfo{.name = "train.save.keep", .effect = "only the newest n of them", .range = counts(0), .zero_word = "all"}, c.save.keep);
  visit(SettingInfo{.name = "train.tensorboard.dir", .effect = "folder of event files for TensorBoard; empty = none", .is_path = true},
        c.tensorboard.dir);
  visit(SettingInfo{.name = "train.tensorboard.interval", .effect = "between two points", .unit = "steps", .range = counts(1)},
        c.tensorboard.interval);
}

template <class Visitor, class C>
void describe_train(Visitor& visit, C& c) {
  visit(SettingInfo{.name = "train.work_dir", .effect = "folder of everything the run writes", .is_path = true}, c.work_dir);
  visit(SettingInfo{.name = "train.max_epochs", .effect = "passes over the training rows", .unit = "epochs", .range = counts(1)},
        c.max_epochs);
  visit(
      SettingInfo{
          .name = "train.max_steps", .effect = "optimizer steps, wins over max_epochs; 0 = by epochs", .unit = "steps", .range = counts(0)},
      c.max_steps);
  visit(SettingInfo{.name = "train.seed", .effect = "of row order, seeded weights and dropout"}, c.seed);
  visit(SettingInfo{.name = "train.shuffle", .effect = "a new row order each epoch; false = file order"}, c.shuffle);
  visit(SettingInfo{.name = "train.dtype", .effect = "compute type; bfloat16 and float16 keep float32 masters; float64 is for checking"},
        c.dtype);
  visit(SettingInfo{.name = "train.dropout",
                    .effect = "overrides every dropout of the model; model = as config.json says",
                    .range = {0, 1, false, true},
                    .zero_word = "model"},
        c.dropout);
  visit(SettingInfo{.name = "train.clip_grad", .effect = "largest gradient norm; 0 = off", .range = finite_from(0)}, c.clip_grad);
  visit(SettingInfo{.name = "train.norm_type", .effect = "of that norm: 2 or inf"}, c.norm_type);
  visit(
      SettingInfo{
          .name = "train.label_smoothing", .effect = "share of the target given to all classes alike", .range = {0, 1, false, true}},
      c.label_smoothing);
  visit(SettingInfo{.name = "train.batch_size",
                    .effect = "global batch = per_device_train_batch_size x data_parallel_size x gradient_accumulation_steps",
                    .unit = "rows a step",
                    .range = {1, 1e18}},
        c.batch_size);
  visit(
      SettingInfo{
          .name = "train.per_device_train_batch_size", .effect = "one micro-batch on one data rank", .unit = "rows", .range = sizes(1)},
      c.per_device_train_batch_size);
  visit(SettingInfo{.name = "train.export_dtype", .effect = "of the weights in output/ and output_best/"}, c.export_dtype);
  visit(SettingInfo{.name = "train.log_interval_seconds",
                    .effect = "between progress lines when not on a terminal",
                    .unit = "s",
                    .range = finite_from(0)},
        c.log_interval_seconds);
  visit(
      SettingInfo{
          .name = "train.logging_steps", .effect = "a progress line every n steps; 0 = by time", .unit = "steps", .range = counts(0)},
      c.logging_steps);
  visit(SettingInfo{.name = "train.progress_bar", .effect = "draw a bar on a terminal; false = lines as elsewhere"}, c.progress_bar);
  visit(SettingInfo{.name = "train.device", .effect = "auto = cuda when there is a device", .words = {"auto", "cpu", "cuda"}}, c.device);
  visit(SettingInfo{.name = "train.comm_timeout_seconds",
                    .effect = "a collective that takes longer ends the run",
                    .unit = "s",
                    .range = {0, 1e9, true, false}},
        c.comm_timeout_seconds);
  visit(
      SettingInfo{
          .name = "train.cpu_affinity",
          .effect = "auto = each rank stays on cores of its own when the ranks of this machine take all of its cores, one thread a core"},
      c.cpu_affinity);
  describe_comm(visit, c.comm);
  describe_profile(visit, c.profile);
  describe_distributed(visit, c.distributed);
  describe_optimizer(visit, c.optimizer);
  describe_lr_scheduler(visit, c.lr_scheduler);
  describe_loss_scale(visit, c.loss_scale);
  describe_outputs(visit, c);
}

template <class Visitor, class C>
void describe_evaluation(Visitor& visit, C& c) {
  visit(SettingInfo{.name = "evaluation.period.eval_strategy",
                    .effect = "when the validation rows are evaluated",
                    .aliases = {"evaluation.strategy"}},
        c.strategy);
  visit(SettingInfo{.name = "evaluation.period.interval",
                    .effect = "between evaluations",
                    .unit = "epochs or steps",
                    .range = counts(1),
                    .aliases = {"evaluation.interval"}},
        c.interval);
  visit(SettingInfo{.name = "evaluation.metrics",
                    .effect = "the first picks output_best/; empty = accuracy, f1, loss or loss, perplexity by task"},
        c.metrics);
  visit(SettingInfo{.name = "evaluation.per_device_batch_size",
                    .effect = "rows of one evaluation micro-batch; train = as in training",
                    .unit = "rows",
                    .range = sizes(0),
                    .zero_word = "train"},
        c.per_device_batch_size);
}
}  // namespace detail

// C is Config or const Config.
template <class Visitor, class C>
void describe(Visitor&& visit, C& config) {
  visit(SettingInfo{.name = "task", .effect = "what is trained, by ModelScope's task ids"}, config.task);
  detail::describe_model(visit, config.model);
  detail::describe_data_file(visit, "dataset.train", "training", config.dataset.train);
  detail::describe_data_file(visit, "dataset.valid", "validation", config.dataset.valid);
  visit(SettingInfo{.name = "dataset.labels",
                    .effect = "class names in id order; empty = integers as they are, else the training file's in bytewise order"},
        config.dataset.labels);
  detail::describe_preprocessor(visit, config.preprocessor);
  detail::describe_train(visit, config.train);
  detail::describe_evaluation(visit, config.evaluation);
}

}  // namespace plait
