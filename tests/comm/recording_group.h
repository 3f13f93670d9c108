// RecordingGroup: a process group that writes down what is started and waited for, so that tests see the order and not only the result.
#pragma once

#include <algorithm>
#include <memory>
#include <string>
#include <vector>

#include "plait/base/text.h"
#include "plait/comm/process_group.h"

namespace plait::testing {

using OperationLog = std::vector<std::string>;  // "start all_reduce", "wait recv", ...

class RecordingGroup : public ProcessGroup {
 public:
  RecordingGroup(ProcessGroup& inner, std::shared_ptr<OperationLog> log) : inner_(inner), log_(std::move(log)) {}
  int64_t rank() const override { return inner_.rank(); }
  int64_t size() const override { return inner_.size(); }
  const std::string& name() const override { return inner_.name(); }
  const std::vector<int64_t>& members() const override { return inner_.members(); }
  at::Device device() const override { return inner_.device(); }
  WorkPtr all_reduce(at::Tensor tensor, ReduceOp op) override { return note("all_reduce", inner_.all_reduce(tensor, op)); }
  WorkPtr all_gather(at::Tensor output, at::Tensor input) override { return note("all_gather", inner_.all_gather(output, input)); }
  WorkPtr reduce_scatter(at::Tensor output, at::Tensor input) override {
    return note("reduce_scatter", inner_.reduce_scatter(output, input));
  }
  WorkPtr broadcast(at::Tensor tensor, int64_t root) override { return note("broadcast", inner_.broadcast(tensor, root)); }
  WorkPtr send(at::Tensor tensor, int64_t to, int tag) override { return note("send", inner_.send(tensor, to, tag)); }
  WorkPtr recv(at::Tensor tensor, int64_t from, int tag) override { return note("recv", inner_.recv(tensor, from, tag)); }
  void barrier() override { inner_.barrier(); }

 private:
  class RecordedWork : public Work {
   public:
    RecordedWork(std::string verb, WorkPtr work, std::shared_ptr<OperationLog> log)
        : verb_(std::move(verb)), work_(std::move(work)), log_(std::move(log)) {}
    void wait() override {
      if (!waited_) log_->push_back("wait " + verb_);
      waited_ = true;
      work_->wait();
    }
    bool done() override { return work_->done(); }

   private:
    std::string verb_;
    WorkPtr work_;
    std::shared_ptr<OperationLog> log_;
    bool waited_ = false;
  };
  WorkPtr note(const char* verb, WorkPtr work) {
    log_->push_back(cat("start ", verb));
    return std::make_shared<RecordedWork>(verb, std::move(work), log_);
  }
  ProcessGroup& inner_;
  std::shared_ptr<OperationLog> log_;
};

inline int64_t count_of(const OperationLog& log, const std::string& what) { return std::count(log.begin(), log.end(), what); }

}  // namespace plait::testing
