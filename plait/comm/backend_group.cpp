#include "plait/comm/backend_group.h"

#include <torch/csrc/distributed/c10d/Backend.hpp>

#include "plait/base/error.h"
#include "plait/comm/shared_buffer.h"
#include "plait/tensor/profiler.h"

namespace plait::detail {
namespace {

struct GroupInfo {
  std::string name;
  std::vector<int64_t> members;
  int64_t rank = 0;
  std::string where;
  at::Device device = at::kCPU;
  StepProfiler* profiler = nullptr;  // while a step is measured
  StepPart part = StepPart::kOther;
};

// What runs, kept cheap: the text is made only when something fails.
struct Operation {
  const char* verb;
  int64_t numel;
  at::ScalarType type;
  int64_t peer = -1;  // group rank
};

[[noreturn]] void throw_lost(const GroupInfo& info, const Operation& operation, const std::exception& cause) {
  std::string text = cause.what();
  if (auto end = text.find("\nException raised from"); end != std::string::npos) text.resize(end);
  bool timed_out = text.find("imed out") != std::string::npos || text.find("imeout") != std::string::npos;
  throw_error(timed_out ? ExitCode::kHang : ExitCode::kPeerLost, info.where, ": ", operation.verb, " of ", operation.numel, " x ",
              c10::toString(operation.type),
              operation.peer < 0 ? "" : cat(" with rank ", info.members[static_cast<size_t>(operation.peer)]), " in group ", info.name,
              " (ranks ", join(info.members), ") ", timed_out ? "timed out: " : "lost a peer: ", text);
}

TraceEvent trace_event(const GroupInfo& info, const Operation& operation, const char* what) {
  TraceEvent event;
  event.name = cat(what, operation.verb, operation.peer < 0 ? "" : cat(" rank ", info.members[static_cast<size_t>(operation.peer)]));
  event.bytes = operation.numel * static_cast<int64_t>(c10::elementSize(operation.type));
  event.group = info.name;
  return event;
}

template <class Function>
auto named(const GroupInfo& info, const Operation& operation, const Function& function) {
  try {
    return function();
  } catch (const Error&) {
    throw;
  } catch (const std::exception& e) {
    throw_lost(info, operation, e);
  }
}

template <class Function>
auto guarded(GroupInfo& info, const Operation& operation, const char* what, const Function& function) {
  ProfileScope scope(info.profiler, info.part, [&] { return trace_event(info, operation, what); });
  return named(info, operation, function);
}

// Between its start and the end of its wait an operation is under way.
class BackendWork : public Work {
 public:
  BackendWork(std::shared_ptr<GroupInfo> info, Operation operation, c10::intrusive_ptr<c10d::Work> work)
      : info_(std::move(info)), operation_(operation), work_(std::move(work)) {
    StepProfiler* profiler = info_->profiler;
    if (!profiler || !profiler->in_step()) return;
    if (info_->part == StepPart::kCommunication) profiler->operation_started();
    begin_ns_ = profiler->now_ns();
  }
  void wait() override {
    if (!work_) return;
    guarded(*info_, operation_, "wait ", [&] { work_->wait(); });
    work_.reset();
    StepProfiler* profiler = info_->profiler;
    if (!profiler || !profiler->in_step() || begin_ns_ == 0) return;
    if (info_->part == StepPart::kCommunication) profiler->operation_ended();
    if (!profiler->tracing()) return;
    TraceEvent event = trace_event(*info_, operation_, "");
    event.part = info_->part;
    event.begin_ns = begin_ns_;
    event.end_ns = profiler->now_ns();
    event.in_flight = true;
    profiler->add_event(std::move(event));
  }
  bool done() override {
    return !work_ || named(*info_, operation_, [&] { return work_->isCompleted(); });
  }

 private:
  std::shared_ptr<GroupInfo> info_;
  Operation operation_;
  c10::intrusive_ptr<c10d::Work> work_;
  int64_t begin_ns_ = 0;
};

class DoneWork : public Work {
 public:
  void wait() override {}
  bool done() override { return true; }
};

c10d::ReduceOp backend_op(ReduceOp op) {
  switch (op) {
    case ReduceOp::kSum: return c10d::ReduceOp::SUM;
    case ReduceOp::kMax: return c10d::ReduceOp::MAX;
    case ReduceOp::kMin: return c10d::ReduceOp::MIN;
  }
  return c10d::ReduceOp::SUM;
}

class BackendGroup : public ProcessGroup, public BufferMaker {
 public:
  BackendGroup(c10::intrusive_ptr<c10d::Backend> backend, GroupInfo info)
      : backend_(std::move(backend)), info_(std::make_shared<GroupInfo>(std::move(info))) {}

  int64_t rank() const override { return info_->rank; }
  int64_t size() const override { return static_cast<int64_t>(info_->members.size()); }
  const std::string& name() const override { return info_->name; }
  const std::vector<int64_t>& members() const override { return info_->members; }
  at::Device device() const override { return info_->device; }
  void set_profiler(StepProfiler* profiler, StepPart part) override {
    info_->profiler = profiler;
    info_->part = part;
  }

  WorkPtr all_reduce(at::Tensor tensor, ReduceOp op) override {
    return run("all_reduce", tensor, [&] {
      std::vector<at::Tensor> tensors{tensor};
      c10d::AllreduceOptions options;
      options.reduceOp = backend_op(op);
      return backend_->allreduce(tensors, options);
    });
  }

  WorkPtr all_gather(at::Tensor output, at::Tensor input) override {
    if (!backend_) return copied(output, input);
    return run("all_gather", input, [&] { return backend_->_allgather_base(output, input, c10d::AllgatherOptions()); });
  }

  WorkPtr reduce_scatter(at::Tensor output, at::Tensor input) override {
    if (!backend_) return copied(output, input);
    return run("reduce_scatter", input, [&] { return backend_->_reduce_scatter_base(output, input, c10d::ReduceScatterOptions()); });
  }

  WorkPtr broadcast(at::Tensor tensor, int64_t root) override {
    return run("broadcast", tensor, [&] {
      std::vector<at::Tensor> tensors{tensor};
      c10d::BroadcastOptions options;
      options.rootRank = root;
      return backend_->broadcast(tensors, options);
    });
  }

  WorkPtr send(at::Tensor tensor, int64_t destination, int tag) override {
    PLAIT_CHECK(destination >= 0 && destination < size() && destination != rank(), "send to group rank ", destination, " of ", size());
    return run(
        "send", tensor,
        [&] {
          std::vector<at::Tensor> tensors{tensor};
          return backend_->send(tensors, static_cast<int>(destination), tag);
        },
        destination);
  }

  WorkPtr recv(at::Tensor tensor, int64_t source, int tag) override {
    PLAIT_CHECK(source >= 0 && source < size() && source != rank(), "receive from group rank ", source, " of ", size());
    return run(
        "recv", tensor,
        [&] {
          std::vector<at::Tensor> tensors{tensor};
          return backend_->recv(tensors, static_cast<int>(source), tag);
        },
        source);
  }

  at::Tensor make_buffer(int64_t elements, at::ScalarType type) override {
    auto* maker = dynamic_cast<BufferMaker*>(backend_.get());
    return maker ? maker->make_buffer(elements, type) : at::zeros({elements}, at::TensorOptions().dtype(type).device(info_->device));
  }

  int64_t in_place_bytes() const override {
    auto* maker = dynamic_cast<BufferMaker*>(backend_.get());
    return maker ? maker->in_place_bytes() : INT64_MAX;
  }

  void barrier() override {
    if (!backend_) return;
    guarded(*info_, Operation{"barrier", 0, at::kByte}, "", [&] { backend_->barrier(c10d::BarrierOptions())->wait(); });
  }

 private:
  template <class Start>
  WorkPtr run(const char* verb, const at::Tensor& tensor, const Start& start, int64_t peer = -1) {
    if (!backend_) return std::make_shared<DoneWork>();
    Operation operation{verb, tensor.numel(), tensor.scalar_type(), peer};
    return std::make_shared<BackendWork>(info_, operation, guarded(*info_, operation, "start ", start));
  }

  static WorkPtr copied(at::Tensor& output, const at::Tensor& input) {
    at::NoGradGuard no_grad;
    if (output.data_ptr() != input.data_ptr()) output.copy_(input.view_as(output));
    return std::make_shared<DoneWork>();
  }

  c10::intrusive_ptr<c10d::Backend> backend_;
  std::shared_ptr<GroupInfo> info_;
};

}  // namespace

ProcessGroupPtr make_backend_group(c10::intrusive_ptr<c10d::Backend> backend, std::string name, std::vector<int64_t> members, int64_t rank,
                                   std::string where, at::Device device) {
  PLAIT_CHECK((backend.get() == nullptr) == (members.size() == 1), "group ", name, " of ", members.size());
  GroupInfo info;
  info.name = std::move(name);
  info.members = std::move(members);
  info.rank = rank;
  info.where = std::move(where);
  info.device = device;
  return std::make_shared<BackendGroup>(std::move(backend), std::move(info));
}

}  // namespace plait::detail
