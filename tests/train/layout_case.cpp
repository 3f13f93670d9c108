#include "tests/train/layout_case.h"

#include <ATen/ATen.h>

#include <algorithm>
#include <cmath>
#include <mutex>
#include <set>

#include "plait/base/random.h"
#include "plait/comm/launch.h"
#include "plait/data/micro_batches.h"
#include "plait/data/sampler.h"
#include "plait/plan/layout_check.h"
#include "plait/train/train_step.h"

namespace plait::testing {

Samples d0_samples(int64_t vocab_size) {
  Samples s;
  int64_t k = 0;
  for (int64_t length : {3, 24, 7, 1, 15, 9, 24, 2, 11, 5, 18, 4}) {
    std::vector<int32_t> ids;
    for (int64_t i = 0; i < length; ++i)
      ids.push_back(static_cast<int32_t>(mix64(static_cast<uint64_t>(1000 + k++)) % static_cast<uint64_t>(vocab_size)));
    s.ids.push_back(ids);
    s.classes.push_back(k % 3);
  }
  return s;
}

ModelShape t0_shape(int64_t num_layers) {
  ModelShape s;
  s.family = Family::kLlama;
  s.model_type = "llama";
  s.vocab_size = 61;
  s.hidden_size = 32;
  s.num_layers = num_layers;
  s.num_heads = 8;
  s.num_kv_heads = 2;
  s.head_size = 4;
  s.ffn_size = 48;
  s.max_positions = 24;
  s.activation = Activation::kSilu;
  s.gated_ffn = s.rms_norm = s.rotary = s.tied_embeddings = true;
  s.qkv_bias = s.attention_out_bias = s.ffn_bias = false;
  s.pad_row_frozen = true;
  s.pad_token_id = 3;
  s.initializer_range = 0.2;
  return s;
}

ModelShape t0b_shape(int64_t num_layers) {
  ModelShape s = t0_shape(num_layers);
  s.family = Family::kGpt2;
  s.model_type = "gpt2";
  s.num_kv_heads = 8;
  s.activation = Activation::kGeluTanh;
  s.gated_ffn = s.rms_norm = s.rotary = s.pad_row_frozen = false;
  s.qkv_bias = s.attention_out_bias = s.ffn_bias = true;
  return s;
}

ModelShape tiny_bert_shape(int64_t num_layers) {
  ModelShape s = t0b_shape(num_layers);
  s.family = Family::kBert;
  s.model_type = "bert";
  s.activation = Activation::kGelu;
  s.causal = s.pre_norm = s.tied_embeddings = false;
  s.type_vocab_size = 2;
  s.norm_eps = 1e-12;
  s.pad_token_id = 0;
  s.pad_row_frozen = true;
  s.num_labels = 3;
  return s;
}

Config parity_config(DType dtype, OptimizerKind optimizer, double clip) {
  Config c;
  c.task = Task::kTextGeneration;
  c.train.dtype = dtype;
  c.train.seed = 11;
  c.train.clip_grad = clip;
  c.train.dropout = 0.0;
  c.train.optimizer.type = optimizer;
  c.train.optimizer.lr = 1e-2;
  c.train.optimizer.weight_decay = 0.1;
  c.train.lr_scheduler.type = LrSchedulerKind::kConstant;
  c.train.batch_size = 12;
  c.train.distributed.bucket_size_bytes = 4096;  // several buckets even on a toy
  return c;
}

namespace {

bool same_number(double a, double b) { return a == b || (std::isnan(a) && std::isnan(b)); }

// Index in Hugging Face's layout of element `stored` of a logical tensor in stored layout.
int64_t file_index(const Parameter& p, int64_t stored) {
  if (!p.transposed) return stored;
  int64_t rows = p.global_shape[0], columns = p.global_shape[1];  // of the file; stored is [columns, rows]
  return stored % rows * columns + stored / rows;
}

// Puts this rank's runs of a tensor into the FULL tensor; a second copy must be bit-equal to the first.
void merge(FullTensors& full, std::map<std::string, std::vector<bool>>& seen, const Parameter& p, const at::Tensor& local,
           const std::string& name) {
  at::Tensor flat = local.to(at::kDouble).contiguous().flatten();
  const double* values = flat.const_data_ptr<double>();
  int64_t total = 1;
  for (int64_t n : p.global_shape) total *= n;
  auto& out = full[name];
  auto& was = seen[name];
  out.resize(static_cast<size_t>(total));
  was.resize(static_cast<size_t>(total));
  for_each_run(p, [&](int64_t global_begin, int64_t local_begin, int64_t length) {
    for (int64_t i = 0; i < length; ++i) {
      auto g = static_cast<size_t>(file_index(p, global_begin + i));
      double v = values[local_begin + i];
      if (was[g] && !same_number(out[g], v)) {
        ADD_FAILURE() << name << "[" << g << "]: copies differ: " << out[g] << " and " << v;
        return;
      }
      out[g] = v;
      was[g] = true;
    }
  });
}

TokenRow token_row(const Samples& samples, int64_t index, Task task) {
  auto i = static_cast<size_t>(index);
  TokenRow row;
  row.row_id = index;
  row.ids = samples.ids[i];
  if (!samples.masks.empty()) row.attention_mask = samples.masks[i];
  if (!samples.types.empty()) row.token_types = samples.types[i];
  if (!samples.labels.empty()) row.labels = samples.labels[i];
  if (!samples.document_starts.empty()) row.document_starts = samples.document_starts[i];
  if (task == Task::kTextClassification && !samples.classes.empty()) row.label_class = samples.classes[i];
  return row;
}

}  // namespace

std::vector<MicroBatch> own_micro_batches(const Samples& samples, const Config& config, const Mesh& mesh) {
  int64_t ga = config.train.distributed.gradient_accumulation_steps;
  std::vector<MicroBatch> batches;
  for (int64_t m = 0; m < ga; ++m) {
    Span span = micro_batch_span(samples.size(), mesh.layout().dp_size, ga, mesh.coordinate().dp, m);
    std::vector<TokenRow> rows;
    for (int64_t r = span.begin; r < span.end(); ++r) rows.push_back(token_row(samples, r, config.task));
    batches.push_back(make_micro_batch(rows, config.task));
  }
  return batches;
}

int64_t count_all_targets(const Samples& samples, Task task) {
  int64_t n = 0;
  for (int64_t r = 0; r < samples.size(); ++r) n += count_targets(token_row(samples, r, task), task);
  return n;
}

RunRecord run_layout(const Config& given, const ModelShape& shape, const MeshLayout& layout, const Samples& samples, int num_steps,
                     const Hooks& hooks) {
  Config config = given;
  config.train.distributed.data_parallel_size = layout.dp_size;
  config.train.distributed.pipeline_parallel_size = layout.pp_size;
  config.train.distributed.model_parallel_size = layout.tp_size;
  config.train.batch_size = std::max<int64_t>(samples.size(), layout.dp_size);
  check_layout(shape, layout, config);
  HeadOptions head{config.task, config.task == Task::kTextClassification ? shape.num_labels : 0, config.train.label_smoothing};
  RunRecord record;
  std::mutex mutex;
  std::map<std::string, std::vector<bool>> seen_gradients, seen_weights, seen_moments;
  FullTensors moments;
  run_thread_ranks(layout, [&](Mesh& mesh) {
    auto model = parallelize(config, shape, head, mesh, at::kCPU, {.all_random = hooks.all_random});
    if (hooks.prepare) hooks.prepare(mesh, *model);
    TrainStep step(config, *model, mesh, num_steps);
    int64_t now = 0;
    step.set_gradient_observer([&](ParameterStore& store) {
      if (now != 0) return;
      std::lock_guard lock(mutex);
      for (const auto& p : store.parameters()) merge(record.first_gradients, seen_gradients, *p, p->gradient, p->name);
    });
    if (hooks.local_gradients)
      step.set_local_gradient_observer([&](ParameterStore& store) { hooks.local_gradients(mesh.coordinate(), now, store); });
    for (; now < num_steps; ++now) {
      const Samples& rows = hooks.samples ? hooks.samples(now) : samples;
      StepResult r = step.run({own_micro_batches(rows, config, mesh), count_all_targets(rows, config.task), now});
      if (hooks.after_step) hooks.after_step(mesh, *model, step, now, r);
      std::lock_guard lock(mutex);
      auto n = static_cast<size_t>(now);
      if (record.losses.size() <= n) {
        record.losses.push_back(r.loss);
        record.norms.push_back(r.gradient_norm);
        record.skipped.push_back(r.skipped);
        record.loss_scales.push_back(r.loss_scale);
      }
      EXPECT_TRUE(same_number(record.losses[n], r.loss))
          << record.losses[n] << " and " << r.loss << " on rank " << mesh.rank() << " step " << n;
      EXPECT_TRUE(same_number(record.norms[n], r.gradient_norm))
          << record.norms[n] << " and " << r.gradient_norm << " on rank " << mesh.rank() << " step " << n;
      EXPECT_EQ(record.skipped[n], r.skipped) << "rank " << mesh.rank() << " step " << n;
    }
    std::lock_guard lock(mutex);
    auto states = model->optimizer->state();
    for (const auto& p : model->store.parameters()) {
      merge(record.weights, seen_weights, *p, p->master, p->name);
      for (const auto& state : states)
        merge(moments, seen_moments, *p, state.flat.narrow(0, p->offset, p->numel), p->name + " " + state.name);
    }
  });
  for (auto& [name, values] : record.first_gradients)
    for (double& v : values) v /= record.loss_scales[0];
  for (const auto& [name, seen] : seen_weights)
    EXPECT_TRUE(std::all_of(seen.begin(), seen.end(), [](bool there) { return there; })) << name << ": elements that no rank holds";
  return record;
}

double worst_difference(const FullTensors& a, const FullTensors& b, std::string* where) {
  double worst = 0, floor = 0;
  for (const auto& [name, reference] : b)
    for (double v : reference) floor = std::max(floor, std::abs(v) * 1e-3);  // exact zeros (key biases) are compared against the whole
  for (const auto& [name, reference] : b) {
    auto it = a.find(name);
    if (it == a.end() || it->second.size() != reference.size()) {
      if (where) *where = name + " is missing";
      return INFINITY;
    }
    double largest = floor, difference = 0;
    for (size_t i = 0; i < reference.size(); ++i) {
      largest = std::max(largest, std::abs(reference[i]));
      difference = std::max(difference, std::abs(it->second[i] - reference[i]));
      if (std::isnan(it->second[i])) difference = INFINITY;
    }
    if (difference / largest > worst) {
      worst = difference / largest;
      if (where) *where = name;
    }
  }
  return worst;
}

double full_norm(const FullTensors& tensors, double p) {
  double sum = 0, largest = 0;
  for (const auto& [name, values] : tensors)
    for (double v : values) sum += v * v, largest = std::max(largest, std::abs(v));
  return p == 2.0 ? std::sqrt(sum) : largest;
}

void expect_bit_equal(const RunRecord& a, const RunRecord& b, const std::string& what) {
  EXPECT_EQ(a.losses, b.losses) << what;
  EXPECT_EQ(a.norms, b.norms) << what;
  EXPECT_TRUE(a.first_gradients == b.first_gradients) << what << ": gradients";
  EXPECT_TRUE(a.weights == b.weights) << what << ": weights";
}

void expect_same_run(const RunRecord& run, const RunRecord& reference, double bound, double weight_bound, const std::string& what) {
  ASSERT_EQ(run.losses.size(), reference.losses.size()) << what;
  for (size_t i = 0; i < run.losses.size(); ++i) {
    EXPECT_NEAR(run.losses[i], reference.losses[i], bound * std::abs(reference.losses[i])) << what << " loss of step " << i + 1;
    EXPECT_NEAR(run.norms[i], reference.norms[i], bound * std::abs(reference.norms[i])) << what << " norm of step " << i + 1;
  }
  std::string where;
  EXPECT_LE(worst_difference(run.first_gradients, reference.first_gradients, &where), bound) << what << " gradient of " << where;
  EXPECT_LE(worst_difference(run.weights, reference.weights, &where), weight_bound) << what << " weights of " << where;
}

MeshLayout grid(int64_t dp, int64_t tp, int64_t pp) { return {.dp_size = dp, .pp_size = pp, .tp_size = tp}; }

std::string name_of(const MeshLayout& l) { return cat("dp", l.dp_size, "-tp", l.tp_size, "-pp", l.pp_size); }

std::vector<MeshLayout> lay() {
  std::vector<MeshLayout> layouts;
  for (int64_t dp : {1, 2, 4, 8})
    for (int64_t pp : {1, 2, 4, 8})
      for (int64_t tp : {1, 2, 4, 8})
        if (dp * pp * tp <= 8) layouts.push_back({dp, pp, tp});
  layouts.push_back({3, 1, 1});
  layouts.push_back({1, 3, 1});
  layouts.push_back({3, 2, 1});
  return layouts;
}

}  // namespace plait::testing
