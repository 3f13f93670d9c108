#include "plait/comm/shm_rank.h"

#include <linux/futex.h>
#include <sched.h>
#include <sys/syscall.h>
#include <unistd.h>
#include <torch/csrc/distributed/c10d/Store.hpp>

#include <algorithm>
#include <climits>
#include <ctime>
#include <thread>

#include "plait/base/error.h"

namespace plait::detail {
namespace {

constexpr std::chrono::microseconds kYielding{200};   // how long a waiting rank offers its core before it sleeps
constexpr std::chrono::microseconds kDearYield{500};  // a core that was away so long went to one that computes
constexpr std::chrono::milliseconds kNoYielding{20};
constexpr std::chrono::milliseconds kLookAround{50};  // a peer that died rings nobody: how often a sleeper looks
constexpr std::chrono::seconds kLongestLook{1};       // who was away for longer was stopped, and its peers perhaps with it
constexpr std::chrono::seconds kLongestEnd{20};       // of a process that is ending

void futex_wait(std::atomic<uint32_t>& word, uint32_t expected, std::chrono::milliseconds longest) {
  timespec time{};
  time.tv_nsec = static_cast<long>(longest.count()) * 1000000L;
  ::syscall(SYS_futex, &word, FUTEX_WAIT, expected, &time, nullptr, 0);
}

void futex_wake_all(std::atomic<uint32_t>& word) { ::syscall(SYS_futex, &word, FUTEX_WAKE, INT_MAX, nullptr, nullptr, 0); }

std::vector<uint8_t> bytes_of(const std::string& text) { return {text.begin(), text.end()}; }
std::string text_of(const std::vector<uint8_t>& bytes) { return {bytes.begin(), bytes.end()}; }

}  // namespace

ShmRank::ShmRank(c10d::Store& store, int64_t rank, int64_t world_size, std::chrono::milliseconds timeout, const std::string& machine)
    : rank_(rank), timeout_(timeout) {
  auto machine_key = [](int64_t r) { return cat("shm/machine/", r); };
  store.set(machine_key(rank), bytes_of(machine));
  std::vector<std::string> machines;  // of every rank
  for (int64_t r = 0; r < world_size; ++r) machines.push_back(text_of(store.get(machine_key(r))));
  seat_of_.assign(static_cast<size_t>(world_size), -1);
  int64_t seats = 0;
  for (int64_t r = 0; r < world_size; ++r) {
    const std::string& of_r = machines[static_cast<size_t>(r)];
    machine_of_.push_back(std::find(machines.begin(), machines.end(), of_r) - machines.begin());
    if (of_r == machines[static_cast<size_t>(rank)]) seat_of_[static_cast<size_t>(r)] = seats++;
  }
  const int64_t leader = machine_of_[static_cast<size_t>(rank)];
  const auto size = static_cast<size_t>(seats) * sizeof(ShmSeat);
  const std::string page_key = cat("shm/page/", leader);
  std::string failed;
  try {
    if (rank == leader) {
      page_ = SharedMemory::create(size);
      store.set(page_key, bytes_of(page_.address()));
    } else {
      page_ = SharedMemory::attach(text_of(store.get(page_key)), size);
    }
    const auto start_time = process_start_time(::getpid());
    if (start_time == 0) throw_error(ExitCode::kResource, "cannot read /proc/", ::getpid(), "/stat");
    seat(rank).start_time.store(start_time);
    seat(rank).pid.store(::getpid(), std::memory_order_release);
  } catch (const Error& error) {
    failed = cat("rank ", rank, ": ", error.what());
    if (rank == leader) store.set(page_key, bytes_of("none"));
  }
  // The leader keeps its descriptor until all have come; everybody needs to know the others' process ids. One that cannot: none does.
  store.set(cat("shm/seated/", rank), bytes_of(cat("seated ", failed)));
  std::vector<std::string> problems(static_cast<size_t>(world_size));  // of the machine of which this is the first rank
  for (int64_t r = 0; r < world_size; ++r) {
    std::string answer = text_of(store.get(cat("shm/seated/", r))).substr(7);
    std::string& first = problems[static_cast<size_t>(machine_of_[static_cast<size_t>(r)])];
    if (first.empty()) first = answer;
  }
  problem_ = problems[static_cast<size_t>(leader)];
  for (int64_t& machine : machine_of_)
    if (!problems[static_cast<size_t>(machine)].empty()) machine = -1;
  page_.release_address();
  if (problem_.empty()) return;
  std::fill(seat_of_.begin(), seat_of_.end(), -1);
  // A problem may end the run. Rank 0, which may serve the store, goes on only when all others have read the answers; it looks instead of
  // waiting, because one that has read them may be gone already.
  if (rank != 0) store.set(cat("shm/known/", rank), bytes_of("yes"));
  std::vector<std::string> known;
  for (int64_t r = 1; r < world_size; ++r)
    if (machines[static_cast<size_t>(r)] == machines[0]) known.push_back(cat("shm/known/", r));
  const auto latest = std::chrono::steady_clock::now() + std::chrono::seconds(5);
  while (rank == 0 && !store.check(known) && std::chrono::steady_clock::now() < latest)
    std::this_thread::sleep_for(std::chrono::milliseconds(2));
}

ShmRank::~ShmRank() {
  if (!page_.data() || !problem_.empty()) return;
  seat(rank_).ended.store(1, std::memory_order_release);
  for (size_t r = 0; r < seat_of_.size(); ++r)
    if (seat_of_[r] >= 0 && static_cast<int64_t>(r) != rank_) ring(static_cast<int64_t>(r));
}

ShmSeat& ShmRank::seat(int64_t rank) const {
  int64_t at = seat_of_[static_cast<size_t>(rank)];
  PLAIT_CHECK(at >= 0, "rank ", rank, " is not on this machine");
  return reinterpret_cast<ShmSeat*>(page_.data())[at];
}

bool ShmRank::shares_machine(const std::vector<int64_t>& members) const {
  return std::all_of(members.begin(), members.end(), [&](int64_t r) { return seat_of_[static_cast<size_t>(r)] >= 0; });
}

void ShmRank::add(ShmProgress* group) {
  std::lock_guard<std::mutex> lock(mutex_);
  groups_.push_back(group);
}

void ShmRank::remove(ShmProgress* group) {
  std::lock_guard<std::mutex> lock(mutex_);
  groups_.erase(std::remove(groups_.begin(), groups_.end(), group), groups_.end());
}

void ShmRank::ring(int64_t rank) {
  ShmSeat& to = seat(rank);
  to.bell.fetch_add(1, std::memory_order_seq_cst);
  if (to.sleeping.load(std::memory_order_seq_cst)) futex_wake_all(to.bell);
}

bool ShmRank::progress_all() {
  bool moved = false;
  for (ShmProgress* group : groups_) moved |= group->progress();
  return moved;
}

// Until the bell differs from `bell`: the core goes to whoever has work, then sleep. Spinning on it would keep it from the very rank that is
// waited for whenever there are more ranks, or other programs, than cores; waking a sleeper costs several times what a whole small collective
// takes, so sleep comes late. But where the core went to one that computes, it stays away for a whole time slice: then a sleeper, whom the
// ring brings back at once, is better off, for a while. Lost wake-ups cannot happen: the ringer counts first and looks at `sleeping` then, we
// say `sleeping` first and look at the count then.
void ShmRank::sleep(uint32_t bell) {
  using Clock = std::chrono::steady_clock;
  ShmSeat& own = seat(rank_);
  const auto begin = Clock::now();
  auto now = begin;
  while (now - begin < kYielding && now.time_since_epoch().count() >= yields_again_.load(std::memory_order_relaxed)) {
    ::sched_yield();
    const auto back = Clock::now();
    if (back - now > kDearYield) yields_again_.store((back + kNoYielding).time_since_epoch().count(), std::memory_order_relaxed);
    now = back;
    if (own.bell.load(std::memory_order_acquire) != bell) return;
  }
  own.sleeping.fetch_add(1, std::memory_order_seq_cst);
  if (own.bell.load(std::memory_order_seq_cst) == bell) futex_wait(own.bell, bell, kLookAround);
  own.sleeping.fetch_sub(1, std::memory_order_seq_cst);
}

void ShmRank::throw_if_lost(const std::vector<int64_t>& needed, std::vector<int64_t>& suspects) {
  for (int64_t r : needed) {
    if (r == rank_) continue;
    const ShmSeat& other = seat(r);
    const bool ended = other.ended.load(std::memory_order_acquire) != 0;
    if (!ended && process_life(other.pid.load(), other.start_time.load()) != Life::kEnded) continue;
    // What it did before its end is looked at once more before it counts as lost.
    if (std::find(suspects.begin(), suspects.end(), r) == suspects.end()) {
      suspects.push_back(r);
      continue;
    }
    throw ShmPeerLost(cat("rank ", r, " (process ", other.pid.load(), ") has ", ended ? "ended without its part" : "died"));
  }
}

void ShmRank::throw_timed_out() const {
  std::string behind;
  for (const ShmProgress* group : groups_) behind += group->behind();
  throw std::runtime_error(cat("timed out after ", timeout_.count(), " ms", behind));
}

template <class Open>
auto ShmRank::opened(int64_t rank, const Open& open) {
  try {
    return open();
  } catch (const Error& error) {
    // A rank keeps its memory until all have read it: where it is missing, that rank is on its way out.
    const ShmSeat& other = seat(rank);
    const int32_t pid = other.pid.load();
    auto life = [&] { return process_life(pid, other.start_time.load()); };
    // Whoever has started the ranks should see it gone before those that lost it.
    const auto latest = std::chrono::steady_clock::now() + kLongestEnd;
    while (life() == Life::kEnding && std::chrono::steady_clock::now() < latest) std::this_thread::sleep_for(std::chrono::milliseconds(5));
    const bool alive = life() == Life::kAlive;
    if (error.code() == ExitCode::kPeerLost || !alive)
      throw ShmPeerLost(cat("rank ", rank, " (process ", pid, ") has ", alive ? "ended without its part" : "died"));
    throw_error(error.code(), "rank ", rank_, ", memory of rank ", rank, ": ", error.what());
  }
}

SharedMemory ShmRank::attach(int64_t rank, const std::string& address, size_t size_bytes) {
  return opened(rank, [&] { return SharedMemory::attach(address, size_bytes); });
}

char* ShmRank::reach(int64_t rank, const ShmLoan& loan) {
  return opened(rank, [&] { return loans_.reach(loan); });
}

void ShmRank::wait(const std::function<bool()>& finished, const std::vector<int64_t>& needed) {
  using Clock = std::chrono::steady_clock;
  std::unique_lock<std::mutex> lock(mutex_);
  if (progress_all(); finished()) return;
  auto last_look = Clock::now(), next_look = last_look + kLookAround;
  Clock::duration waited{};
  std::vector<int64_t> suspects;
  while (true) {
    const uint32_t bell = seat(rank_).bell.load(std::memory_order_acquire);
    const bool moved = progress_all();
    if (finished()) return;
    if (moved) continue;
    if (auto now = Clock::now(); now >= next_look || !suspects.empty()) {
      throw_if_lost(needed, suspects);
      waited += std::min<Clock::duration>(now - last_look, kLongestLook);
      if (waited > timeout_) throw_timed_out();
      last_look = now;
      next_look = now + kLookAround;
    }
    lock.unlock();
    sleep(bell);
    lock.lock();
  }
}

bool ShmRank::poll(const std::function<bool()>& finished) {
  std::lock_guard<std::mutex> lock(mutex_);
  progress_all();
  return finished();
}

}  // namespace plait::detail
