// Models whose numbers were made once by PyTorch and transformers (tests/data/golden): plait's loss, logits, gradients and training
// curve equal them in every layout the model allows.
#include <ATen/ATen.h>
#include <gtest/gtest.h>

#include <cstring>
#include <fstream>
#include <nlohmann/json.hpp>

#include "plait/checkpoint/safetensors_file.h"
#include "plait/checkpoint/weights.h"
#include "plait/config/model_shape.h"
#include "tests/train/layout_case.h"

namespace plait::testing {
namespace {

std::string golden_folder(const std::string& name) { return cat(PLAIT_TEST_DATA, "/golden/", name); }

nlohmann::json read_json(const std::string& path) {
  std::ifstream file(path);
  EXPECT_TRUE(file.good()) << path;
  return nlohmann::json::parse(file);
}

template <class Stored>
std::vector<double> widened(const TensorView& view) {
  std::vector<double> values(static_cast<size_t>(view.numel()));
  for (size_t i = 0; i < values.size(); ++i) {
    Stored v;
    std::memcpy(&v, view.data + i * sizeof(Stored), sizeof(Stored));
    values[i] = static_cast<double>(v);
  }
  return values;
}

std::vector<double> read_values(const SafetensorsFolder& file, const std::string& name) {
  auto view = file.find(name);
  if (!view) throw std::runtime_error("no tensor " + name);
  switch (view->dtype) {
    case FileDType::kF32: return widened<float>(*view);
    case FileDType::kI64: return widened<int64_t>(*view);
    case FileDType::kI32: return widened<int32_t>(*view);
    default: throw std::runtime_error("type of " + name);
  }
}

std::vector<std::vector<int32_t>> read_rows(const SafetensorsFolder& file, const std::string& name, int64_t num_rows) {
  std::vector<double> flat = read_values(file, name);
  size_t width = flat.size() / static_cast<size_t>(num_rows);
  std::vector<std::vector<int32_t>> rows;
  for (size_t r = 0; r < static_cast<size_t>(num_rows); ++r)
    rows.emplace_back(flat.begin() + static_cast<long>(r * width), flat.begin() + static_cast<long>((r + 1) * width));
  return rows;
}

// The tensors PREFIXinput_ids, ... of one batch.
Samples read_batch(const SafetensorsFolder& file, const std::string& prefix, Task task) {
  Samples s;
  int64_t num_rows = file.find(prefix + "input_ids")->shape[0];
  s.ids = read_rows(file, prefix + "input_ids", num_rows);
  if (file.contains(prefix + "attention_mask")) s.masks = read_rows(file, prefix + "attention_mask", num_rows);
  if (file.contains(prefix + "token_type_ids")) s.types = read_rows(file, prefix + "token_type_ids", num_rows);
  if (!file.contains(prefix + "labels")) return s;
  if (task == Task::kTextClassification) {
    for (double label : read_values(file, prefix + "labels")) s.classes.push_back(static_cast<int64_t>(label));
  } else {
    s.labels = read_rows(file, prefix + "labels", num_rows);
  }
  return s;
}

Task task_of(const ModelShape& shape) { return shape.family == Family::kBert ? Task::kTextClassification : Task::kTextGeneration; }

Config golden_config(const ModelShape& shape, const nlohmann::json& settings, double beta1, double beta2, DType dtype) {
  Config c = parity_config(dtype, OptimizerKind::kAdamW, 1.0);
  c.task = task_of(shape);
  c.train.optimizer.lr = settings.at("lr");
  c.train.optimizer.beta1 = beta1;
  c.train.optimizer.beta2 = beta2;
  c.train.optimizer.eps = settings.at("eps");
  c.train.optimizer.weight_decay = settings.at("weight_decay");
  c.train.optimizer.decay_all = true;
  return c;
}

void load_golden(ParallelModel& model, const SafetensorsFolder& weights) {
  WeightLoadOptions options;
  for (auto& t : model_tensors(model.shape, model.head)) options.all.push_back({t.name, t.shape});
  EXPECT_TRUE(load_weights(model.store, weights, options).seeded.empty());
}

// Forward of this data rank's rows; the last stage compares its logits with those of the whole batch.
void expect_logits(const Mesh& mesh, ParallelModel& model, const Config& config, const Samples& samples,
                   const std::vector<double>& wanted) {
  Config whole = config;
  whole.train.distributed.gradient_accumulation_steps = 1;
  auto batches = own_micro_batches(samples, whole, mesh);
  Schedule schedule = make_forward_schedule(mesh.layout().pp_size, 1, 1);
  PipelineRun run;
  run.micro_batches = &batches;
  run.training = false;
  bool seen = false;
  run.on_output = [&](int64_t, const StageOutput& out) {
    seen = true;
    int64_t classes = out.logits.size(1);
    for (int64_t b = 0; b < out.logits.size(0); ++b)
      for (int64_t k = 0; k < classes; ++k) {
        auto at = static_cast<size_t>(batches[0].sample_ids[static_cast<size_t>(b)] * classes + k);
        EXPECT_NEAR(out.logits[b][k].item<double>(), wanted[at], 2e-6) << "logit " << at;
      }
  };
  model.executor->run(schedule, run);
  bool last = mesh.coordinate().pp == mesh.layout().pp_size - 1;
  EXPECT_EQ(seen, last && !batches[0].empty());
}

// Gradients against grad.NAME, each within `bound` of the global norm, and none missing on either side.
void expect_gradients(const RunRecord& run, const SafetensorsFolder& io, double norm, double bound, const std::string& what) {
  size_t compared = 0;
  for (const std::string& name : io.names()) {
    if (name.rfind("grad.", 0) != 0) continue;
    auto found = run.first_gradients.find(name.substr(5));
    ASSERT_NE(found, run.first_gradients.end()) << what << ": no gradient of " << name;
    std::vector<double> wanted = read_values(io, name);
    ASSERT_EQ(found->second.size(), wanted.size()) << name;
    double worst = 0;
    for (size_t i = 0; i < wanted.size(); ++i) worst = std::max(worst, std::abs(found->second[i] - wanted[i]));
    EXPECT_LE(worst, bound * norm) << what << " " << name;
    ++compared;
  }
  EXPECT_EQ(compared, run.first_gradients.size()) << what;
}

void check_curve(const RunRecord& run, const std::vector<double>& losses, const std::vector<double>& norms, double loss_bound,
                 double norm_bound, const std::string& what) {
  ASSERT_EQ(run.losses.size(), losses.size());
  for (size_t i = 0; i < losses.size(); ++i) {
    EXPECT_NEAR(run.losses[i], losses[i], loss_bound * losses[i]) << what << " step " << i + 1;
    EXPECT_NEAR(run.norms[i], norms[i], norm_bound * norms[i]) << what << " step " << i + 1;
  }
}

void expect_parameter_sums(const RunRecord& run, const nlohmann::json& sums, const std::string& what) {
  for (const auto& [name, wanted] : sums.items()) {
    const auto& values = run.weights.at(name);
    double sum = 0, size = 0;
    for (double v : values) sum += v, size += std::abs(v);
    // Where a gradient is rounding noise (key biases) AdamW's step has a random sign: allow a few elements of 6 steps of lr.
    bool noise = name.find("key.bias") != std::string::npos || name.find("c_attn.bias") != std::string::npos;
    double bound = noise ? 2 * 6 * 1e-3 * static_cast<double>(values.size()) : 2e-5 * (1 + size);
    EXPECT_NEAR(sum, wanted.get<double>(), bound) << what << " " << name;
  }
}

// One tiny model in one layout: everything its folder holds.
void check_tiny(const std::string& name, const MeshLayout& layout, bool sequence_parallel, int64_t ga, DType dtype) {
  std::string folder = golden_folder("models/" + name),
              what = cat(name, " ", name_of(layout), sequence_parallel ? " sequence parallel" : "");
  SCOPED_TRACE(what);
  ModelShape shape = read_model_shape(folder);
  SafetensorsFolder weights(folder), io = SafetensorsFolder::of_file(folder + "/io.safetensors");
  auto golden = read_json(folder + "/golden.json");
  const auto& settings = golden.at("optimizer");
  Config config = golden_config(shape, settings, settings.at("betas")[0], settings.at("betas")[1], dtype);
  config.train.distributed.sequence_parallel = sequence_parallel;
  config.train.distributed.gradient_accumulation_steps = ga;
  Samples samples = read_batch(io, "in.", config.task);
  Hooks hooks;
  hooks.prepare = [&](Mesh& mesh, ParallelModel& model) {
    load_golden(model, weights);
    if (config.task == Task::kTextClassification) expect_logits(mesh, model, config, samples, read_values(io, "out.logits"));
  };
  RunRecord run = run_layout(config, shape, layout, samples, 6, hooks);
  double norm = golden.at("grad_norm");
  bool exact = dtype == DType::kFloat64;
  EXPECT_NEAR(run.losses[0], golden.at(exact ? "loss_fp64" : "loss").get<double>(), (exact ? 1e-7 : 2e-6) * run.losses[0]);
  EXPECT_NEAR(run.norms[0], norm, 2e-6 * norm);
  expect_gradients(run, io, norm, 1e-6, what);
  check_curve(run, golden.at("adamw_loss"), golden.at("adamw_grad_norm"), 5e-6, 5e-5, what);
  expect_parameter_sums(run, golden.at("param_sum_after"), what);
}

struct Place {
  MeshLayout layout;
  bool sequence_parallel = false;
  int64_t ga = 1;
};

void check_tiny_everywhere(const std::string& name) {
  check_tiny(name, grid(1, 1, 1), false, 1, DType::kFloat64);
  for (const Place& p : std::vector<Place>{{grid(1, 1, 1)},
                                           {grid(1, 1, 1), false, 3},
                                           {grid(2, 1, 1)},
                                           {grid(1, 2, 1)},
                                           {grid(1, 2, 1), true},
                                           {grid(1, 4, 1), true},
                                           {grid(1, 1, 2), false, 3},
                                           {grid(1, 2, 2), true, 2},
                                           {grid(2, 2, 2)},
                                           {grid(1, 4, 2), false, 2}})
    check_tiny(name, p.layout, p.sequence_parallel, p.ga, DType::kFloat32);
}

TEST(Golden, Bert) { check_tiny_everywhere("bert"); }
TEST(Golden, Gpt2) { check_tiny_everywhere("gpt2"); }
TEST(Golden, LlamaGroupedHeads) { check_tiny_everywhere("llama"); }
TEST(Golden, LlamaTied) { check_tiny_everywhere("llama-tied"); }

// Five training steps on five batches.
void check_steps(const std::string& name, const Place& place) {
  std::string folder = golden_folder(name), what = cat(name, " ", name_of(place.layout));
  SCOPED_TRACE(what);
  ModelShape shape = read_model_shape(folder);
  SafetensorsFolder weights = SafetensorsFolder::of_file(folder + "/init.safetensors");
  SafetensorsFolder batches = SafetensorsFolder::of_file(folder + "/batches.safetensors");
  auto golden = read_json(folder + "/ref.json");
  const auto& settings = golden.at("hyper");
  Config config = golden_config(shape, settings, settings.at("beta1"), settings.at("beta2"), DType::kFloat32);
  config.train.distributed.sequence_parallel = place.sequence_parallel;
  config.train.distributed.gradient_accumulation_steps = place.ga;
  std::vector<Samples> steps;
  for (int i = 0; i < 5; ++i) steps.push_back(read_batch(batches, cat("step", i, "."), config.task));
  Hooks hooks;
  hooks.prepare = [&](Mesh&, ParallelModel& model) { load_golden(model, weights); };
  hooks.samples = [&](int64_t step) -> const Samples& { return steps[static_cast<size_t>(step)]; };
  RunRecord run = run_layout(config, shape, place.layout, steps[0], 5, hooks);
  check_curve(run, golden.at("loss_fp32"), golden.at("grad_norm_fp32"), 2e-5 / golden.at("loss_fp32")[0].get<double>(), 1e-4, what);
}

TEST(Golden, W2FiveSteps) {
  for (const Place& p : std::vector<Place>{{grid(1, 1, 1)}, {grid(2, 1, 1), false, 2}, {grid(1, 4, 1), true}, {grid(1, 1, 4), false, 4}})
    check_steps("w2", p);
}

TEST(Golden, W3sFiveSteps) {
  for (const Place& p :
       std::vector<Place>{{grid(1, 1, 1)}, {grid(4, 1, 1)}, {grid(1, 2, 1), true}, {grid(1, 1, 3), false, 4}, {grid(2, 2, 2), true, 2}})
    check_steps("w3s", p);
}

}  // namespace
}  // namespace plait::testing
