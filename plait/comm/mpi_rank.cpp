#include "plait/comm/mpi_rank.h"

#include <sched.h>
#include <sys/prctl.h>
#include <unistd.h>
#include <torch/csrc/distributed/c10d/Store.hpp>

#include <algorithm>
#include <exception>
#include <mutex>
#include <stdexcept>
#include <thread>

#include "plait/base/error.h"

namespace plait::detail {
namespace {

using MpiClock = std::chrono::steady_clock;

constexpr std::chrono::milliseconds kMpiLookAround{200};  // how often a waiting rank asks whether all the others still live
constexpr std::chrono::seconds kMpiEndTime{10};           // for the others to come to the end
constexpr const char* kNeverSet = "mpi/never";

void mpi_set_text(c10d::Store& store, const std::string& key, const std::string& text) {
  store.set(key, std::vector<uint8_t>(text.begin(), text.end()));
}

std::string mpi_get_text(c10d::Store& store, const std::string& key) {
  auto bytes = store.get(key);
  return {bytes.begin(), bytes.end()};
}

// That the ranks of this machine share: where each is bound to a core of its own, those that are there count, not the one it may use.
int64_t mpi_cores_of_machine() { return std::max<int64_t>(1, ::sysconf(_SC_NPROCESSORS_ONLN)); }

}  // namespace

MpiRank::MpiRank(c10::intrusive_ptr<c10d::Store> store, int64_t rank, int64_t world_size, int64_t local_world_size,
                 std::chrono::milliseconds timeout)
    : store_(std::move(store)), rank_(rank), world_size_(world_size), timeout_(timeout),
      crowded_(local_world_size > mpi_cores_of_machine()), exceptions_(std::uncaught_exceptions()) {
  agree_to_start();
  ::prctl(PR_SET_TIMERSLACK, 2000UL);  // nanoseconds: the kernel's 50 us would double every rest() of this thread
  mpi_->start();
  if (mpi_->rank() == rank_ && mpi_->size() == world_size_) return;
  throw_error(ExitCode::kUsage, "train.comm.backend mpi: this is rank ", rank_, " of ", world_size_, ", but ", mpi_->library(),
              " says rank ", mpi_->rank(), " of ", mpi_->size(),
              ": start the ranks with the mpirun of that library, or with srun --mpi=pmix or pmi2", "; nearest valid value auto");
}

// A rank without the library would leave the others waiting inside MPI_Init, where no time-out counts.
void MpiRank::agree_to_start() {
  std::string answer;
  int code = 0;
  try {
    mpi_ = &load_mpi_plugin();
    answer = mpi_->library();
  } catch (const Error& error) {
    code = static_cast<int>(error.code());
    answer = error.what();
  }
  mpi_set_text(*store_, cat("mpi/library/", rank_), cat(code, ' ', answer));
  std::string first;
  for (int64_t r = 0; r < world_size_; ++r) {
    const std::string text = mpi_get_text(*store_, cat("mpi/library/", r));
    const size_t space = text.find(' ');
    const int other_code = std::stoi(text);
    const std::string other = text.substr(space + 1);
    if (other_code != 0) throw Error(static_cast<ExitCode>(other_code), cat("rank ", r, ": ", other));
    if (r == 0) first = other;
    if (other != first)
      throw_error(ExitCode::kUsage, "train.comm.backend mpi: rank 0 has ", first, ", rank ", r, " has ", other,
                  ": all ranks need the same MPI library");
  }
}

MpiRank::~MpiRank() {
  if (given_up_ || std::uncaught_exceptions() > exceptions_) return;
  try {
    mpi_set_text(*store_, cat("mpi/end/", rank_), "yes");
    std::vector<std::string> ends;
    for (int64_t r = 0; r < world_size_; ++r) ends.push_back(cat("mpi/end/", r));
    store_->wait(ends, kMpiEndTime);
    mpi_->end();
  } catch (const std::exception&) {  // the rank that failed says why
  }
}

MpiGroup* MpiRank::make_group(const std::vector<int64_t>& members, int tag) {
  std::vector<int> ranks;
  for (int64_t r : members) ranks.push_back(static_cast<int>(r));
  std::lock_guard lock(mutex_);
  return mpi_->make_group(ranks, tag);
}

void MpiRank::add(MpiProgress* group) {
  std::lock_guard lock(mutex_);
  groups_.push_back(group);
}

void MpiRank::remove(MpiProgress* group) {
  std::lock_guard lock(mutex_);
  groups_.erase(std::remove(groups_.begin(), groups_.end(), group), groups_.end());
}

bool MpiRank::idle() const {
  return std::all_of(groups_.begin(), groups_.end(), [](const MpiProgress* group) { return group->idle(); });
}

bool MpiRank::progress_all() {
  bool moved = false;
  for (MpiProgress* group : groups_) moved |= group->progress();
  return moved;
}

// MPI gives nothing to sleep on: ask again at once for a while, then let others have the core, then less and less often.
void MpiRank::rest(int64_t idle_rounds) const {
  if (idle_rounds < (crowded_ ? 0 : 2000)) {
    __builtin_ia32_pause();
  } else if (idle_rounds < (crowded_ ? 100 : 4000)) {
    ::sched_yield();
  } else {
    std::this_thread::sleep_for(std::chrono::microseconds(crowded_ && idle_rounds > 1000 ? 200 : 50));
  }
}

// The rendezvous knows the end of every rank's connection: whoever asks for a key that is not there is told of a rank that went away
// without a goodbye, also where no launcher ends the job.
std::string MpiRank::lost_rank() {
  try {
    store_->wait({kNeverSet}, std::chrono::milliseconds(1));
  } catch (const Error& error) {
    if (error.code() == ExitCode::kPeerLost) return error.what();
  } catch (const std::exception&) {  // a foreign store: not there in time
  }
  return "";
}

void MpiRank::wait(const std::function<bool()>& finished) {
  std::unique_lock lock(mutex_);
  const auto begin = MpiClock::now();
  auto next_look = begin + kMpiLookAround;
  int64_t idle_rounds = 0;
  for (int64_t round = 1;; ++round) {
    const auto asked = MpiClock::now();
    const bool moved = progress_all();
    if (finished()) return;
    idle_rounds = moved || copied_something(MpiClock::now() - asked) ? 0 : idle_rounds + 1;
    // Whatever this round did: another thread of this rank may have to act before the operation can end.
    lock.unlock();
    if (given_up_) throw std::runtime_error("this rank has failed and ends");
    if (round % 64 == 0) {
      if (auto now = MpiClock::now(); now >= next_look) {
        if (std::string lost = lost_rank(); !lost.empty()) throw std::runtime_error(lost);
        if (now - begin > timeout_) throw std::runtime_error(cat("timed out after ", timeout_.count(), " ms"));
        next_look = now + kMpiLookAround;
      }
    }
    if (idle_rounds > 0) rest(idle_rounds);
    lock.lock();
  }
}

// MPI does not say whether a call moved a part of a long message, but one that copied takes longer than one that found nothing. Calls that
// are longer for good, because more requests are under way, become the usual ones within some hundred rounds.
bool MpiRank::copied_something(std::chrono::nanoseconds call) {
  usual_call_ = std::min(call, usual_call_ + usual_call_ / 256 + std::chrono::nanoseconds(1));
  return call > 4 * usual_call_ + std::chrono::microseconds(1);
}

bool MpiRank::poll(const std::function<bool()>& finished) {
  std::lock_guard lock(mutex_);
  progress_all();
  return finished();
}

}  // namespace plait::detail
