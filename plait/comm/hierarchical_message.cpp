#include "plait/comm/hierarchical_message.h"

#include <atomic>
#include <exception>
#include <thread>
#include <utility>

namespace plait::detail {
namespace {

class MessageInsideWork : public c10d::Work {
 public:
  MessageInsideWork(std::shared_ptr<MpiBesideShm> mpi, c10::intrusive_ptr<c10d::Work> message, int rank, c10d::OpType type)
      : c10d::Work(rank, type), mpi_(std::move(mpi)), message_(std::move(message)) {}
  bool isCompleted() override {
    mpi_->poll();
    return message_->isCompleted();
  }
  bool wait(std::chrono::milliseconds) override {
    mpi_->attend([&] { return message_->isCompleted(); });
    return message_->wait();
  }

 private:
  std::shared_ptr<MpiBesideShm> mpi_;
  c10::intrusive_ptr<c10d::Work> message_;
};

class MessageAcrossWork : public c10d::Work {
 public:
  MessageAcrossWork(std::shared_ptr<ShmRank> own, c10::intrusive_ptr<c10d::Work> message, int rank, c10d::OpType type)
      : c10d::Work(rank, type), own_(std::move(own)), message_(std::move(message)) {}

  bool isCompleted() override {
    return own_->poll([&] { return message_->isCompleted(); });
  }

  bool wait(std::chrono::milliseconds timeout) override {
    std::atomic<bool> over{false};
    std::thread others([&] {
      try {
        own_->wait([&] { return over.load(); }, {});
      } catch (const std::exception&) {
        // Time is up: the message says so itself, and what it was. What else fails in shared memory belongs to another operation, whose own
        // wait meets it again.
      }
    });
    std::exception_ptr error;
    try {
      message_->wait(timeout);
    } catch (...) {
      error = std::current_exception();
    }
    over = true;
    own_->ring(own_->rank());
    others.join();
    if (error) std::rethrow_exception(error);
    return true;
  }

 private:
  std::shared_ptr<ShmRank> own_;
  c10::intrusive_ptr<c10d::Work> message_;
};

}  // namespace

c10::intrusive_ptr<c10d::Work> message_inside(std::shared_ptr<MpiBesideShm> mpi, c10::intrusive_ptr<c10d::Work> message, int rank,
                                              c10d::OpType type) {
  if (!mpi) return message;
  return c10::make_intrusive<MessageInsideWork>(std::move(mpi), std::move(message), rank, type);
}

c10::intrusive_ptr<c10d::Work> message_across(std::shared_ptr<ShmRank> own, std::shared_ptr<MpiBesideShm> mpi,
                                              c10::intrusive_ptr<c10d::Work> message, int rank, c10d::OpType type) {
  if (mpi) return message;
  return c10::make_intrusive<MessageAcrossWork>(std::move(own), std::move(message), rank, type);
}

}  // namespace plait::detail
