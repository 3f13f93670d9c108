#include "plait/train/stop.h"

#include <ATen/ATen.h>

#include <cstring>

#include "plait/base/text.h"

namespace plait {

int agree_on_stop(const StopRequest* stop, const Mesh& mesh, at::Device device) {
  if (!stop) return 0;
  int own = stop->signal.load();
  if (mesh.world().size() == 1) return own;
  at::Tensor signal = at::full({1}, own, at::TensorOptions().dtype(at::kLong).device(device));
  mesh.world().all_reduce(signal, ReduceOp::kMax)->wait();
  return static_cast<int>(signal.item<int64_t>());
}

std::string stop_text(int signal, int64_t step, int64_t num_steps) {
  return cat("stopped after step ", step, " of ", num_steps, " by signal ", signal, " (", ::strsignal(signal), ")");
}

}  // namespace plait
