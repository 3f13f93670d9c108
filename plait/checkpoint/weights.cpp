#include "plait/checkpoint/weights.h"

#include <ATen/ATen.h>

#include <algorithm>
#include <cstring>

#include "plait/base/error.h"
#include "plait/checkpoint/file_runs.h"

namespace plait {

namespace {

template <class From, class To>
void convert_run(const std::byte* from, const FileRun& run, To* to) {
  const std::byte* in = from + run.file_begin * static_cast<int64_t>(sizeof(From));
  To* out = to + run.local_begin;
  if constexpr (std::is_same_v<From, To>) {
    if (run.local_stride == 1) {
      std::memcpy(out, in, static_cast<size_t>(run.length) * sizeof(From));
      return;
    }
  }
  for (int64_t i = 0; i < run.length; ++i) {
    From value;  // the file's data may be unaligned
    std::memcpy(&value, in + i * static_cast<int64_t>(sizeof(From)), sizeof(From));
    out[i * run.local_stride] = static_cast<To>(value);
  }
}

template <class To>
void fill(const Parameter& p, const TensorView& view, To* to) {
  for_each_file_run(p, [&](const FileRun& run) {
    PLAIT_CHECK(run.file_begin >= 0 && run.file_begin + run.length <= view.numel(), p.name, ": run beyond ", shape_text(view.shape));
    switch (view.dtype) {
      case FileDType::kF64: return convert_run<double>(view.data, run, to);
      case FileDType::kF32: return convert_run<float>(view.data, run, to);
      case FileDType::kF16: return convert_run<c10::Half>(view.data, run, to);
      case FileDType::kBF16: return convert_run<c10::BFloat16>(view.data, run, to);
      default: PLAIT_CHECK(false, p.name, " ", dtype_name(view.dtype));  // refused by resolve_weights
    }
  });
}

void fill_master(Parameter& p, const TensorView& view) {
  if (p.numel == 0) return;
  // Elements outside the pieces (none today) keep their values, so the staging copy starts from the master.
  at::Tensor host = p.master.is_cpu() ? p.master : p.master.cpu();
  PLAIT_CHECK(host.is_contiguous(), p.name);
  if (host.scalar_type() == at::kDouble) fill(p, view, host.mutable_data_ptr<double>());
  else fill(p, view, host.mutable_data_ptr<float>());
  if (!host.is_same(p.master)) p.master.copy_(host);
}

}  // namespace

LoadReport load_weights(ParameterStore& store, const SafetensorsFolder& folder, const WeightLoadOptions& options) {
  WeightLoadOptions own = options;
  if (own.all.empty()) {
    for (const auto& p : store.parameters()) own.all.push_back({p->name, p->global_shape});
    // Without the list of the whole model nobody can tell what is unexpected: look at the store's names only.
    if (own.only.empty())
      for (const auto& spec : own.all) own.only.push_back(spec.name);
  }
  ResolvedWeights resolved = resolve_weights(folder, own);
  at::NoGradGuard no_grad;
  for (const auto& p : store.parameters()) {
    auto it = resolved.file_name_of.find(p->name);
    if (it == resolved.file_name_of.end()) {
      bool accounted = !own.only.empty() || std::count(resolved.report.seeded.begin(), resolved.report.seeded.end(), p->name) != 0;
      PLAIT_CHECK(accounted, "parameter ", p->name, " is not in the list of the model's tensors");
      continue;
    }
    TensorView view = folder.find(it->second).value();
    PLAIT_CHECK(view.shape == p->global_shape, p->name, ": parameter ", shape_text(p->global_shape), ", list ", shape_text(view.shape));
    fill_master(*p, view);
    release_pages(view);
  }
  store.refresh_weights();
  return std::move(resolved.report);
}

}  // namespace plait
