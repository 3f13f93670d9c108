// ProcessGroup: a handle on one group of ranks that can do collectives. It hides the backend (backend_group.h).
// Rank rule: every member calls the same operations in the same order; an operation on a group of size 1 is a no-op.
// Errors: a lost peer or a time-out throws Error(kPeerLost / kHang) that names the group, the own rank and the operation.
#pragma once

#include <ATen/core/Tensor.h>

#include <memory>
#include <string>
#include <vector>

namespace plait {

class StepProfiler;
enum class StepPart : int;

enum class ReduceOp { kSum, kMax, kMin };

// Result of an asynchronous operation. wait() returns when the tensors are ready to use; calling it twice is allowed.
class Work {
 public:
  virtual ~Work() = default;
  virtual void wait() = 0;
  // Never waits. Of a message over Gloo, which cannot be asked, false until wait() has returned.
  virtual bool done() = 0;
};
using WorkPtr = std::shared_ptr<Work>;

class ProcessGroup {
 public:
  virtual ~ProcessGroup() = default;
  virtual int64_t rank() const = 0;  // within the group
  virtual int64_t size() const = 0;
  virtual const std::string& name() const = 0;
  // Global ranks of the members, by group rank.
  virtual const std::vector<int64_t>& members() const = 0;

  // Where the tensors of its operations must lie.
  virtual at::Device device() const { return at::kCPU; }

  // In place; tensor contiguous, same shape on all members.
  virtual WorkPtr all_reduce(at::Tensor tensor, ReduceOp op = ReduceOp::kSum) = 0;
  // output [size * n, ...] gets input [n, ...] of every member in group order. Both contiguous.
  virtual WorkPtr all_gather(at::Tensor output, at::Tensor input) = 0;
  // output [n, ...] gets the sum of members' input rows [rank * n, +n). Both contiguous.
  virtual WorkPtr reduce_scatter(at::Tensor output, at::Tensor input) = 0;
  virtual WorkPtr broadcast(at::Tensor tensor, int64_t root) = 0;
  // Point to point with group ranks; tensors stay untouched until wait(). A send needs no posted receive to end, but a large one may need
  // that its receiver waits for anything, or looks whether anything is done.
  virtual WorkPtr send(at::Tensor tensor, int64_t destination, int tag) = 0;
  virtual WorkPtr recv(at::Tensor tensor, int64_t source, int tag) = 0;
  virtual void barrier() = 0;

  // Times of its operations go to `profiler` as `part` until it is set to null; nothing to do for a group of one or one that is made of others.
  virtual void set_profiler(StepProfiler* profiler, StepPart part) {
    (void)profiler;
    (void)part;
  }
};
using ProcessGroupPtr = std::shared_ptr<ProcessGroup>;

}  // namespace plait
