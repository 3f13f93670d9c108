// A table of texts: what is refused, with which words; what is accepted, with which values.
#include <cmath>
#include <functional>

#include <gtest/gtest.h>

#include "tests/config/settings_text.h"

namespace plait {

using testing::contains;
using testing::load_flags;
using testing::load_text;
using testing::Loaded;

struct BadText {
  const char* text;
  std::vector<std::string> pieces;
  int64_t world_size = 0;
};

TEST(BadSettings, Texts) {
  const std::vector<BadText> table = {
      {"trian: {}\n", {"config.yaml:1: unknown key trian; nearest known key: train"}},
      {"train:\n  batchsize: 3\n", {"config.yaml:2: unknown key train.batchsize; nearest known key: train.batch_size"}},
      {"batch_size: 3\n", {"config.yaml:1: unknown key batch_size; nearest known key: train.batch_size"}},
      {"train: {learning_rate: 1}\n", {"unknown key train.learning_rate; nearest known key: train.optimizer.params.lr"}},
      {"train: {optimizer: {params: {xyzzy_q: 1}}}\n", {"unknown key train.optimizer.params.xyzzy_q; known here: lr, beta1"}},
      {"train: 3\n", {"config.yaml:1: train is a section, not a value"}},
      {"model: some/path\n", {"model is a section", "path, init, head_init"}},
      {"train: {batch_size: [1]}\n", {"train.batch_size [1] (config.yaml:1) is not a whole number"}},
      {"train: {batch_size: 3.5}\n", {"train.batch_size 3.5 (config.yaml:1) is not a whole number"}},
      {"train: {batch_size: 0x10}\n", {"train.batch_size 0x10"}},
      {"train: {batch_size: 0}\n", {"train.batch_size 0 (config.yaml:1) is not in [1, ", "nearest valid value 1"}},
      {"train: {batch_size: 99999999999999999999}\n", {"is not a whole number"}},
      {"train: {optimizer: {params: {lr: fast}}}\n", {"train.optimizer.params.lr fast (config.yaml:1) is not a number"}},
      {"train: {optimizer: {params: {lr: -1}}}\n",
       {"train.optimizer.params.lr -1 (config.yaml:1) is not >= 0 and finite; nearest valid value 0"}},
      {"train: {optimizer: {params: {lr: inf}}}\n", {"train.optimizer.params.lr inf", ">= 0 and finite"}},
      {"train: {optimizer: {params: {lr: .nan}}}\n", {"is not a number"}},
      {"train: {optimizer: {params: {betas: [0.9, 1]}}}\n", {"beta2 1 (config.yaml:1) is not in [0, 1)"}},
      {"train: {optimizer: {params: {betas: 0.9}}}\n", {"betas 0.9 (config.yaml:1) must be two numbers"}},
      {"train: {optimizer: {params: {betas: [0.9, 0.9], beta1: 0.8}}}\n", {"train.optimizer.params.beta1 is given twice"}},
      {"train: {optimizer: {type: Adamw}}\n",
       {"train.optimizer.type Adamw (config.yaml:1) is not one of AdamW, Adam, SGD; nearest: AdamW"}},
      {"train: {optimizer: {type: SGD, params: {eps: 1e-6}}}\n", {"eps (config.yaml:1) has no effect with optimizer SGD"}},
      {"train: {optimizer: {params: {momentum: 0.9}}}\n", {"momentum (config.yaml:1) has no effect with optimizer AdamW"}},
      {"train: {optimizer: {type: SGD, params: {nesterov: true}}}\n", {"needs a momentum"}},
      {"train: {optimizer: {type: Adam, params: {momentum: 0.9}}}\n", {"momentum (config.yaml:1) has no effect with optimizer Adam ("}},
      {"dataset: {train: {text_col: a, text_pair_col: a}}\n",
       {"dataset.train.text_pair_col a (config.yaml:1) is the column of the first text too"}},
      {"dataset: {train: {file: t.csv, text_pair_col: b}, valid: {file: v.csv}}\n",
       {"dataset.train.text_pair_col b (config.yaml:1) makes rows of two texts, but dataset.valid.text_pair_col is not given"}},
      {"dataset: {train: {file: t.csv}, valid: {file: v.csv, text_pair_col: b}}\n",
       {"dataset.valid.text_pair_col b (config.yaml:1) makes rows of two texts, but dataset.train.text_pair_col is not given"}},
      {"task: text-generation\ndataset: {train: {text_pair_col: b}}\n",
       {"dataset.train.text_pair_col b (config.yaml:2) has no meaning for task text-generation"}},
      {"train:\n  optimizer: {type: SGD}\n  distributed:\n    optimizer: {params: {lr: 1}}\n",
       {"optimizer is given twice: train.optimizer (config.yaml:2) and train.distributed.optimizer (config.yaml:4)"}},
      {"train: {dropout: 1}\n", {"train.dropout 1 (config.yaml:1) is not in [0, 1)"}},
      {"train: {dropout: some}\n", {"is not a number or model"}},
      {"train: {label_smoothing: -0.1}\n", {"nearest valid value 0"}},
      {"train: {norm_type: 3}\n", {"train.norm_type 3 (config.yaml:1) is not 2 or inf"}},
      {"train: {shuffle: perhaps}\n", {"train.shuffle perhaps (config.yaml:1) is not true or false"}},
      {"train: {dtype: float8}\n", {"is not one of float32, bfloat16, float16, float64", "nearest: float"}},
      {"train: {fp16: true, bf16: true}\n", {"train.fp16 true (config.yaml:1) contradicts train.bf16 true"}},
      {"train: {fp16: true, dtype: bfloat16}\n", {"train.fp16 true (config.yaml:1) contradicts train.dtype bfloat16"}},
      {"train: {device: gpu}\n", {"train.device gpu (config.yaml:1) is not one of auto, cpu, cuda"}},
      {"train: {comm_timeout_seconds: 0}\n", {"is not in (0, 1e+09]"}},
      {"train: {distributed: {tensor_parallel_size: 2, model_parallel_size: 2}}\n",
       {"train.distributed.model_parallel_size is given twice: as train.distributed.tensor_parallel_size (config.yaml:1) and"}},
      {"train: {distributed: {model_parallel_size: {vision: 2, language: 4}}}\n", {"not available yet", "{vision: 2, language: 4}"}},
      {"train: {distributed: {zero_stage: 1}}\n", {"zero_stage 1 (config.yaml:1)", "not available yet"}},
      {"train: {distributed: {zero_stage: 4}}\n", {"is not in [0, 3]; nearest valid value 3"}},
      {"train: {distributed: {schedule: 1f1p}}\n",
       {"is not one of gpipe, 1f1b, interleaved_1f1b, zb_h1, zb_h2, zb_v, auto, custom; nearest: 1f1b"}},
      {"train: {distributed: {schedule: zb_v, pipeline_parallel_size: 2, virtual_pipeline_size: 3}}\n",
       {"virtual_pipeline_size 3", "zb_v (config.yaml:1) has 2 stages a rank; nearest valid value 2"}},
      {"train: {distributed: {schedule: zb_v, pipeline_parallel_size: 2, pipeline_layers: [1, 2]}}\n",
       {"lists 2 stages", "virtual_pipeline_size 2 needs 4"}},
      {"train: {distributed: {schedule: auto, pipeline_parallel_size: 2, virtual_pipeline_size: 2}}\n",
       {"schedule auto (config.yaml:1) chooses it"}},
      {"train: {distributed: {schedule: custom, pipeline_parallel_size: 2}}\n", {"schedule custom (config.yaml:1) needs", "schedule_file"}},
      {"train: {distributed: {schedule_file: a.txt}}\n", {"schedule_file ", "has no effect with schedule 1f1b"}},
      {"train: {distributed: {pipeline_memory_bytes: 5}}\n", {"pipeline_memory_bytes 5", "has no effect with schedule 1f1b"}},
      {"train: {distributed: {schedule: interleaved, pipeline_parallel_size: 2}}\n", {"needs virtual_pipeline_size of at least 2"}},
      {"train: {distributed: {virtual_pipeline_size: 2}}\n", {"needs schedule interleaved_1f1b, not 1f1b"}},
      {"train: {distributed: {pipeline_parallel_size: 2, pipeline_layers: [1, 2, 3]}}\n",
       {"pipeline_layers [1, 2, 3] (config.yaml:1) lists 3 stages", "needs 2"}},
      {"train: {distributed: {distributed_strategy: auto_parallel}}\n", {"auto_parallel (config.yaml:1)", "not available yet"}},
      {"train: {distributed: {distributed_strategy: data_paralel}}\n", {"nearest: data_parallel"}},
      {"train: {distributed: {distributed_strategy: data_parallel, model_parallel_size: 2}}\n",
       {"contradicts model_parallel_size 2 (config.yaml:1)", "hybrid_parallel"}},
      {"train: {batch_size: 30, per_device_train_batch_size: 4, distributed: {data_parallel_size: 2, gradient_accumulation_steps: 4}}\n",
       {"batch_size 30 (config.yaml:1) = per_device_train_batch_size 4 (config.yaml:1) x data_parallel_size 2 (config.yaml:1) x "
        "gradient_accumulation_steps 4 (config.yaml:1)",
        "nearest valid: batch_size 32"}},
      {"train: {batch_size: 64, per_device_train_batch_size: 4, distributed: {data_parallel_size: 2, gradient_accumulation_steps: 4}}\n",
       {"nearest valid: batch_size 32, or per_device_train_batch_size 8, or gradient_accumulation_steps 8; to keep batch_size 64 in this "
        "layout leave out train.per_device_train_batch_size or say --set train.per_device_train_batch_size=null"}},
      {"train: {batch_size: 10, per_device_train_batch_size: 4, distributed: {data_parallel_size: 2, gradient_accumulation_steps: 4}}\n",
       {"to keep batch_size 10 in this layout say --set train.per_device_train_batch_size=null --set "
        "train.distributed.gradient_accumulation_steps=null"}},
      {"train: {batch_size: 30, distributed: {data_parallel_size: 2, gradient_accumulation_steps: 4}}\n",
       {"nearest valid: batch_size 24 or 32"}},
      {"train: {batch_size: 30, per_device_train_batch_size: 8}\n", {"nearest valid: batch_size 24 or 32"}},
      {"train: {batch_size: 2, distributed: {data_parallel_size: 3}}\n", {"nearest valid: batch_size 3"}},
      {"train: {distributed: {data_parallel_size: 2, model_parallel_size: 4, pipeline_parallel_size: 2}}\n",
       {"data_parallel_size 2 (config.yaml:1) x model_parallel_size 4 (config.yaml:1) x pipeline_parallel_size 2 (config.yaml:1) = 16, but "
        "there are 8 ranks",
        "sizes that fit (data x model x pipeline): 1 x 4 x 2"},
       8},
      {"train: {distributed: {model_parallel_size: 3}}\n",
       {"model_parallel_size 3 (config.yaml:1), but there are 8 ranks (3 does not divide 8: no data_parallel_size fits); sizes that fit "
        "(data x"},
       8},
      {"train: {distributed: {data_parallel_size: 2, pipeline_parallel_size: 2}}\n",
       {"data_parallel_size 2 (config.yaml:1) x pipeline_parallel_size 2 (config.yaml:1) = 4, but there is 1 rank (4 does not divide 1: no "
        "model_parallel_size fits); sizes that fit (data x model x pipeline): 1 x 1 x 1"},
       1},
      {"train: {device: cpu, comm: {backend: nccl}}\n",
       {"train.comm.backend nccl (config.yaml:1) does not carry tensors of device cpu (config.yaml:1); nearest valid value auto"}},
      {"train: {device: cuda, comm: {backend: gloo}}\n", {"nearest valid value nccl"}},
      {"train: {loss_scale: {init_scale: 3e7}}\n",
       {"train.loss_scale.init_scale 3e+07 (config.yaml:1) is not in [1, 16777216]; nearest valid value 16777216"}},
      {"train: {optimizer: {params: {lr: 1e400}}}\n", {"train.optimizer.params.lr 1e400 (config.yaml:1) is not in the range of a double"}},
      {"train: {distributed: {data_parallel_size: 2}}\n",
       {"data_parallel_size 2 (config.yaml:1), but there are 8 ranks (model_parallel_size and pipeline_parallel_size are not given and "
        "count as 1)",
        "2 x "},
       8},
      {"train: {lr_scheduler: {warmup_steps: 3, warmup_ratio: 0.1}}\n", {"both say how long the warm-up is"}},
      {"train: {lr_scheduler: {step_size: 3}}\n",
       {"train.lr_scheduler.step_size (config.yaml:1) has no effect with type linear; it belongs to step; leave it out"}},
      {"train: {lr_scheduler: {type: cosine, gamma: 0.5}}\n", {"gamma (config.yaml:1) has no effect with type cosine (config.yaml:1)"}},
      {"train: {lr_scheduler: {type: step, milestones: [1]}}\n", {"it belongs to multi_step"}},
      {"train: {lr_scheduler: {type: multi_step}}\n", {"type multi_step (config.yaml:1) needs train.lr_scheduler.milestones"}},
      {"train: {lr_scheduler: {type: multi_step, milestones: [3, -1]}}\n", {"milestones -1 (config.yaml:1) is not in [0, "}},
      {"train: {lr_scheduler: {power: 2}}\n", {"it belongs to polynomial"}},
      {"train: {lr_scheduler: {start_factor: 0.5}}\n", {"it belongs to ramp"}},
      {"train: {lr_scheduler: {type: ramp, end_factor: -1}}\n", {"end_factor -1 (config.yaml:1) is not >= 0 and finite"}},
      {"train: {lr_scheduler: {type: constant, total_periods: 5}}\n", {"it belongs to linear, cosine, polynomial, ramp"}},
      {"train: {lr_scheduler: {min_lr: 1e-6}}\n", {"it belongs to cosine, polynomial"}},
      {"train: {lr_scheduler: {type: cosine, min_lr: 1}}\n", {"min_lr 1 (config.yaml:1) is above the learning rate 5e-05"}},
      {"train: {lr_scheduler: {type: noam, by_epoch: true}}\n", {"by_epoch (config.yaml:1) has no effect with type inverse_sqrt"}},
      {"train: {lr_scheduler: {warmup: exponential}}\n", {"warmup (config.yaml:1) has no effect without a warm-up"}},
      {"train: {lr_scheduler: {warmup_start_factor: 0.1}}\n", {"warmup_start_factor (config.yaml:1) has no effect without a warm-up"}},
      {"train: {lr_scheduler: {warmup: constant, warmup_steps: 3}}\n", {"learning rate 0 throughout the warm-up"}},
      {"train: {lr_scheduler: {type: noam, warmup_steps: 3, warmup_start_factor: 0.1}}\n", {"formula has its own warm-up"}},
      {"train: {lr_scheduler: {type: steps}}\n", {"is not one of linear, cosine, constant, step, multi_step", "nearest: step"}},
      {"train: {loss_scale: {dynamic: false, growth_interval: 3}}\n", {"growth_interval (config.yaml:1) has no effect with dynamic false"}},
      {"train: {early_stop: {patience: -1}}\n", {"train.early_stop.patience -1 (config.yaml:1)"}},
      {"train: {early_stop: {min_delta: 0.1}}\n", {"min_delta (config.yaml:1) has no effect without train.early_stop.patience"}},
      {"train: {early_stop: {patience: 2}}\nevaluation: {period: {eval_strategy: no}}\n",
       {"patience 2 (config.yaml:1) needs evaluations", "eval_strategy is no (config.yaml:2)"}},
      {"train: {save: {keep: 2}}\n", {"train.save.keep (config.yaml:1) has no effect with train.save.strategy no"}},
      {"train: {save: {interval: 2}}\n", {"train.save.interval (config.yaml:1) has no effect"}},
      {"train: {save: {strategy: step}}\n", {"is not one of no, epoch, steps; nearest: steps"}},
      {"train: {save: {strategy: steps, interval: 0}}\n", {"train.save.interval 0 (config.yaml:1)"}},
      {"train: {tensorboard: {interval: 5}}\n", {"train.tensorboard.interval (config.yaml:1) has no effect without train.tensorboard.dir"}},
      {"evaluation: {metrics: [accuracy, recall]}\n",
       {"evaluation.metrics [accuracy, recall] (config.yaml:1) is not one of accuracy, f1, loss, perplexity"}},
      {"evaluation: {metrics: [f1, f1]}\n", {"names f1 twice"}},
      {"evaluation: {metrics: perplexity}\n", {"needs task text-generation"}},
      {"task: text-generation\nevaluation: {metrics: f1}\n", {"needs task text-classification"}},
      {"task: text_classification\n", {"nearest: text-classification"}},
      {"dataset: {labels: [a, ~]}\n", {"dataset.labels (config.yaml:1) has an item that is not one word: null"}},
      {"dataset: {labels: [a, a]}\n", {"names a twice"}},
      {"preprocessor: {pad_to: 8, sequence_length: 16}\n", {"is shorter than sequence_length 16"}},
      {"preprocessor: {sequence_length: long}\n", {"is not a whole number or model"}},
      {"evaluation: {period: {by_epoch: true, eval_strategy: steps}}\n", {"evaluation.period.eval_strategy is given twice"}},
      {"evaluation: {period: {by_epoch: sometimes}}\n", {"is not true or false"}},
      {"framework: tensorflow\n", {"framework tensorflow (config.yaml:1): plait trains PyTorch models; nearest valid value pytorch"}},
      {"zero_optimization: {stage: 2}\n", {"train.distributed.zero_stage 2 (config.yaml:1)", "not available yet"}},
      {"col_index: {a: 1}\n", {"unknown key col_index"}},
  };
  for (const auto& row : table) {
    Loaded loaded = load_text(row.text, "config.yaml", {}, row.world_size);
    EXPECT_EQ(loaded.code, 2) << row.text;
    for (const auto& piece : row.pieces)
      EXPECT_TRUE(contains(loaded.error, piece)) << row.text << "  message: " << loaded.error << "\n  without: " << piece;
  }
}

TEST(BadSettings, Flags) {
  const std::vector<std::pair<std::vector<std::pair<std::string, std::string>>, std::string>> table = {
      {{{"batch_sise", "3"}}, "unknown flag --batch_sise; nearest known name: batch_size"},
      {{{"file", "x"}}, "--file could be dataset.train.file, dataset.valid.file; write the whole name"},
      {{{"lr", "1"}, {"learning-rate", "2"}},
       "train.optimizer.params.lr is given twice: as lr (command line) and learning_rate (command line)"},
      {{{"batch_size", "many"}}, "batch_size (train.batch_size) many (command line) is not a whole number"},
      {{{"optimizer", "x"}}, "optimizer x (command line) is not available; one of AdamW, Adam, SGD"},
      {{{"train.optimizer", "x"}}, "train.optimizer (command line) is a section"},
      {{{"fp16", "maybe"}}, "fp16 maybe (command line) is not true or false"},
      {{{"labels", "[a"}}, "--labels:1: not YAML"},
      {{{"train..lr", "3"}}, "the name 'train..lr' (command line) has an empty part"},
      {{{"lr", "1e400"}}, "1e400 (command line) is not in the range of a double"},
  };
  for (const auto& [flags, piece] : table) {
    Loaded loaded = load_flags(flags);
    EXPECT_EQ(loaded.code, 2) << piece;
    EXPECT_TRUE(contains(loaded.error, piece)) << loaded.error << "\n  without: " << piece;
  }
  EXPECT_TRUE(contains(load_flags({}, {"batch_size"}).error, "is not NAME=VALUE"));
  EXPECT_TRUE(contains(load_flags({}, {"seed=1", "train.seed=2"}).error, "train.seed is given twice"));
}

struct GoodText {
  const char* text;
  std::function<bool(const Loaded&)> holds;
  int64_t world_size = 0;
};

TEST(GoodSettings, Texts) {
  auto sizes = [](const Loaded& l, int64_t dp, int64_t tp, int64_t pp) {
    const auto& d = l.config.train.distributed;
    return d.data_parallel_size == dp && d.model_parallel_size == tp && d.pipeline_parallel_size == pp;
  };
  auto batch = [](const Loaded& l, int64_t whole, int64_t per_device, int64_t accumulation) {
    const auto& t = l.config.train;
    return t.batch_size == whole && t.per_device_train_batch_size == per_device &&
           t.distributed.gradient_accumulation_steps == accumulation;
  };
  const std::vector<GoodText> table = {
      {"",
       [&](const Loaded& l) {
         return sizes(l, 1, 1, 1) && batch(l, 8, 8, 1) && l.config.train.seed == 0 && l.config.train.max_epochs == 3;
       }},
      {"", [&](const Loaded& l) { return sizes(l, 4, 1, 1) && batch(l, 32, 8, 1); }, 4},
      {"train: {distributed: {pipeline_parallel_size: 2}}\n", [&](const Loaded& l) { return sizes(l, 4, 1, 2) && batch(l, 32, 2, 4); }, 8},
      {"train: {distributed: {data_parallel_size: 2, model_parallel_size: 2}}\n", [&](const Loaded& l) { return sizes(l, 2, 2, 2); }, 8},
      {"train: {distributed: {data_parallel_size: 2, pipeline_parallel_size: 2}}\n", [&](const Loaded& l) { return sizes(l, 2, 2, 2); }, 8},
      {"train: {distributed: {distributed_strategy: pipeline_parallel}}\n", [&](const Loaded& l) { return sizes(l, 1, 1, 4); }, 4},
      {"train: {batch_size: 30, distributed: {data_parallel_size: 3, pipeline_parallel_size: 3}}\n",
       [&](const Loaded& l) { return batch(l, 30, 2, 5); }},
      {"train: {batch_size: 7, distributed: {pipeline_parallel_size: 2}}\n", [&](const Loaded& l) { return batch(l, 7, 7, 1); }},
      {"train: {batch_size: 12}\n", [&](const Loaded& l) { return batch(l, 12, 12, 1); }},
      {"train: {per_device_train_batch_size: 3, distributed: {data_parallel_size: 2}}\n",
       [&](const Loaded& l) { return batch(l, 6, 3, 1); }},
      {"train: {gradient_accumulation_steps: 3}\n", [&](const Loaded& l) { return batch(l, 24, 8, 3); }},
      {"train: {batch_size: 24, per_device_train_batch_size: 4, distributed: {data_parallel_size: 2}}\n",
       [&](const Loaded& l) { return batch(l, 24, 4, 3); }},
      {"train: {batch_size: 010}\n",
       [&](const Loaded& l) {
         return batch(l, 10, 10, 1) && testing::has_notice(l, "warning: train.batch_size 010 (config.yaml:1) is read as 10");
       }},
      {"train: {optimizer: {lr: '2e-5', params: ~}}\n", [](const Loaded& l) { return l.config.train.optimizer.lr == 2e-5; }},
      {"train: {fp16: yes, seed: ~, max_epochs: null}\n",
       [](const Loaded& l) { return l.config.train.dtype == DType::kFloat16 && l.config.train.max_epochs == 3; }},
      {"train: {fp16: False}\n", [](const Loaded& l) { return l.config.train.dtype == DType::kFloat32; }},
      {"train: {bf16: True, fp16: False}\n", [](const Loaded& l) { return l.config.train.dtype == DType::kBFloat16; }},
      {"dataset: {labels: [no, yes, NO, 010, 1.0]}\n",
       [](const Loaded& l) {
         return l.config.dataset.labels == std::vector<std::string>{"no", "yes", "NO", "010", "1.0"};
       }},
      {"cols: &cols {text_col: t, label_col: l}\ndataset: {train: {<<: *cols, file: a.csv}, valid: {<<: *cols, label_col: other}}\n",
       [](const Loaded& l) { return l.config.dataset.train.text_col == "t" && l.config.dataset.valid.label_col == "other"; }},
      {"evaluation: {period: {by_epoch: false, interval: 50}}\n",
       [](const Loaded& l) { return l.config.evaluation.strategy == EvalStrategy::kSteps && l.config.evaluation.interval == 50; }},
      {"evaluation: {period: {eval_strategy: no}, metrics: f1}\n",
       [](const Loaded& l) { return l.config.evaluation.strategy == EvalStrategy::kNo && l.config.evaluation.metrics.size() == 1; }},
      {"preprocessor: {sequence_length: model, pad_to: 64}\n",
       [](const Loaded& l) { return l.config.preprocessor.sequence_length == 0 && l.config.preprocessor.pad_to == 64; }},
      {"train: {dropout: model, clip_grad: 0, norm_type: .inf}\n",
       [](const Loaded& l) { return !l.config.train.dropout && std::isinf(l.config.train.norm_type); }},
      {"train: {distributed: {schedule: interleaved, pipeline_parallel_size: 2, virtual_pipeline_size: 3}}\n",
       [](const Loaded& l) { return l.config.train.distributed.virtual_pipeline_size == 3; }},
      {"{\"train\": {\"batch_size\": 4, \"distributed\": {}}}", [&](const Loaded& l) { return batch(l, 4, 4, 1); }},
  };
  for (const auto& row : table) {
    Loaded loaded = load_text(row.text, "config.yaml", {}, row.world_size);
    EXPECT_EQ(loaded.error, "") << row.text;
    EXPECT_TRUE(row.holds(loaded)) << row.text << print_config(loaded.config);
  }
}

}  // namespace plait
