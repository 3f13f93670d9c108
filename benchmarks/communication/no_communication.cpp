// plait without communication: what a step would cost if messages were free. The program is plait itself, linked so that its one call of
// connect_mesh comes here (CMakeLists.txt): the ranks find each other and test their groups as always, then the operations of data,
// pipeline and tensor groups return at once. The numbers it trains to are meaningless; only the time of a step is of use. No setting leads here, and it is never installed.
#include <ATen/ATen.h>

#include "plait/base/log.h"
#include "plait/comm/launch.h"

namespace plait {
namespace {

class NoWork : public Work {
 public:
  void wait() override {}
  bool done() override { return true; }
};

// Outputs are filled with own input, because memory that nobody wrote may hold values that slow a processor down.
class SilentGroup : public ProcessGroup {
 public:
  SilentGroup(std::shared_ptr<Mesh> real, ProcessGroup& group) : real_(std::move(real)), group_(group) {}
  int64_t rank() const override { return group_.rank(); }
  int64_t size() const override { return group_.size(); }
  const std::string& name() const override { return group_.name(); }
  const std::vector<int64_t>& members() const override { return group_.members(); }
  at::Device device() const override { return group_.device(); }

  WorkPtr all_reduce(at::Tensor, ReduceOp) override { return nothing(); }
  WorkPtr all_gather(at::Tensor output, at::Tensor input) override {
    at::NoGradGuard no_grad;
    output.view({size(), input.numel()}).copy_(input.view({1, input.numel()}).expand({size(), input.numel()}));
    return nothing();
  }
  WorkPtr reduce_scatter(at::Tensor output, at::Tensor input) override {
    at::NoGradGuard no_grad;
    output.view({-1}).copy_(input.view({-1}).narrow(0, rank() * output.numel(), output.numel()));
    return nothing();
  }
  WorkPtr broadcast(at::Tensor, int64_t) override { return nothing(); }
  WorkPtr send(at::Tensor, int64_t, int) override { return nothing(); }
  WorkPtr recv(at::Tensor tensor, int64_t, int) override {
    at::NoGradGuard no_grad;
    tensor.zero_();
    return nothing();
  }
  void barrier() override {}

 private:
  static WorkPtr nothing() { return std::make_shared<NoWork>(); }
  std::shared_ptr<Mesh> real_;  // keeps the connections that peers look at
  ProcessGroup& group_;
};

// The group of all ranks stays real, for the start and the export at the end; but what ranks ask each other after a step, whether one of them
// was told to stop (plait/train/stop.cpp), is not sent: nobody waits for anybody between steps.
class StepsAloneGroup : public ProcessGroup {
 public:
  StepsAloneGroup(std::shared_ptr<Mesh> real) : real_(std::move(real)), group_(real_->world()) {}
  int64_t rank() const override { return group_.rank(); }
  int64_t size() const override { return group_.size(); }
  const std::string& name() const override { return group_.name(); }
  const std::vector<int64_t>& members() const override { return group_.members(); }
  at::Device device() const override { return group_.device(); }
  WorkPtr all_reduce(at::Tensor tensor, ReduceOp op) override {
    bool asks_to_stop = tensor.numel() == 2 && tensor.scalar_type() == at::kLong && op == ReduceOp::kMax;
    return asks_to_stop ? std::make_shared<NoWork>() : group_.all_reduce(tensor, op);
  }
  WorkPtr all_gather(at::Tensor output, at::Tensor input) override { return group_.all_gather(output, input); }
  WorkPtr reduce_scatter(at::Tensor output, at::Tensor input) override { return group_.reduce_scatter(output, input); }
  WorkPtr broadcast(at::Tensor tensor, int64_t root) override { return group_.broadcast(tensor, root); }
  WorkPtr send(at::Tensor tensor, int64_t destination, int tag) override { return group_.send(tensor, destination, tag); }
  WorkPtr recv(at::Tensor tensor, int64_t source, int tag) override { return group_.recv(tensor, source, tag); }
  void barrier() override { group_.barrier(); }

 private:
  std::shared_ptr<Mesh> real_;
  ProcessGroup& group_;
};

}  // namespace

std::unique_ptr<Mesh> connect_and_test(const MeshLayout& layout, const RendezvousOptions& options) asm(PLAIT_REAL_CONNECT);
std::unique_ptr<Mesh> connect_in_silence(const MeshLayout& layout, const RendezvousOptions& options) asm(PLAIT_WRAPPED_CONNECT);

std::unique_ptr<Mesh> connect_in_silence(const MeshLayout& layout, const RendezvousOptions& options) {
  std::shared_ptr<Mesh> real = connect_and_test(layout, options);
  if (options.rank == 0) log_warning("this program sends no messages: its losses and weights mean nothing");
  auto silent = [&](ProcessGroup& group) { return std::make_shared<SilentGroup>(real, group); };
  return std::make_unique<Mesh>(layout, real->rank(), std::make_shared<StepsAloneGroup>(real), silent(real->data()),
                                silent(real->pipeline()), silent(real->tensor()));
}

}  // namespace plait
