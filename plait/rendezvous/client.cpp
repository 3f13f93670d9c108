#include "plait/rendezvous/client.h"

#include <algorithm>
#include <exception>
#include <thread>

#include "plait/base/error.h"
#include "plait/rendezvous/channel.h"

namespace plait::rendezvous {

namespace {

using Clock = std::chrono::steady_clock;
using std::chrono::milliseconds;
using Trouble = Channel::Trouble;

// What a reply may come late, over the time-out that the server itself keeps.
constexpr milliseconds kGrace{15000};
constexpr milliseconds kConnectTime{5000};
// A server that was there a moment ago.
constexpr milliseconds kReconnectTime{5000};
// As long as one that listens and says nothing is waited for, before the next address is tried or a line is said.
constexpr milliseconds kSilence{10000};
// A port whose owner always closes at once is another program's; a server that is just ending is soon gone.
constexpr milliseconds kClosedFor{5000};

std::string seconds(Clock::duration time) { return cat(std::chrono::duration_cast<std::chrono::seconds>(time).count(), " s"); }

// The attempts to reach the server, until one succeeds or the deadline passes.
class Arrival {
 public:
  Arrival(const ClientOptions& options, Clock::time_point deadline)
      : options_(options), address_(address_text(options.master_addr, options.master_port)), start_(Clock::now()), deadline_(deadline),
        next_line_(start_ + options.line_time) {}

  std::unique_ptr<Channel> run(const Hello& hello) {
    for (milliseconds pause{50};; pause = std::min(2 * pause, milliseconds(500))) {
      std::vector<SocketAddress> addresses = options_.addresses;
      try {
        if (addresses.empty()) addresses = resolve(options_.master_addr, options_.master_port);
      } catch (const Error& e) {  // a name may come to be known when its machine has started
        trouble_ = {Trouble::Kind::kUnreachable, e.what()};
      }
      for (const auto& address : addresses) {
        if (auto channel = attempt(address, hello)) return channel;
        keep_people_informed();
      }
      keep_people_informed();
      if (trouble_.kind == Trouble::Kind::kBusy) pause = milliseconds(20);  // among many: soon again
      std::this_thread::sleep_for(std::min<Clock::duration>(pause, std::max(deadline_ - Clock::now(), Clock::duration::zero())));
      if (Clock::now() >= deadline_) give_up();
    }
  }

 private:
  std::unique_ptr<Channel> attempt(const SocketAddress& address, const Hello& hello) {
    auto now = Clock::now();
    auto limit =
        std::min({deadline_, now + (waiting_for_answer_ ? kSilence : kConnectTime), std::max(next_line_, now + milliseconds(1000))});
    auto opened = Channel::open(address, limit);
    if (auto* trouble = std::get_if<Trouble>(&opened)) {
      note(*trouble);
      return nullptr;
    }
    auto channel = std::move(std::get<std::unique_ptr<Channel>>(opened));
    if (auto trouble = channel->greet(hello, options_.secret, address_, std::min(deadline_, Clock::now() + kSilence))) {
      note({trouble->kind == Trouble::Kind::kClosed ? Trouble::Kind::kBusy : trouble->kind, trouble->text});
      return nullptr;
    }
    return channel;
  }

  void note(const Trouble& trouble) {
    trouble_ = trouble;
    waiting_for_answer_ = trouble.kind == Trouble::Kind::kSilent;
    if (trouble.kind != Trouble::Kind::kClosed) closed_since_.reset();
    else if (!closed_since_) closed_since_ = Clock::now();
    bool foreign = trouble.kind == Trouble::Kind::kWrongProgram || (closed_since_ && Clock::now() - *closed_since_ >= kClosedFor);
    if (foreign)
      throw_error(ExitCode::kRendezvous, who(), " does not find its job: ", trouble.text, "; give the job a master_port of its own");
  }

  std::string who() const { return name_of(options_.self); }

  void keep_people_informed() {
    if (Clock::now() < next_line_) return;
    next_line_ = Clock::now() + options_.line_time;
    if (options_.say)
      options_.say(
          cat("rank ", options_.self.rank, " waits for rank 0 at ", address_, " (", seconds(Clock::now() - start_), "): ", trouble_.text));
  }

  [[noreturn]] void give_up() const {
    throw_error(ExitCode::kRendezvous, who(), " found no rank 0 at ", address_, " within ", options_.timeout.count(),
                " ms (rdzv_timeout): ", trouble_.text, "; rank 0 is not running, or that address and port cannot be reached from here");
  }

  const ClientOptions& options_;
  std::string address_;
  Clock::time_point start_, deadline_, next_line_;
  Trouble trouble_{Trouble::Kind::kUnreachable, "no attempt was made"};
  bool waiting_for_answer_ = false;
  std::optional<Clock::time_point> closed_since_;
};

}  // namespace

Client::Client(ClientOptions options) : options_(std::move(options)), deadline_(Clock::now() + options_.timeout) {
  options_.self.has_secret = !options_.secret.empty();
  idle_.push_back(Arrival(options_, deadline_).run(options_.self));
  first_ = idle_[0].get();
  local_address_ = first_->local_address();
}

Client::~Client() {
  if (std::uncaught_exceptions() > 0) return;
  for (auto& channel : idle_) {
    if (channel.get() == first_) channel->send(to_frame(Request{RequestKind::kGoodbye, {}, {}, {}, {}, 0, {}}));
  }
}

void Client::gather() {
  Request request;
  request.kind = RequestKind::kGather;
  request.number = options_.timeout.count();
  request.timeout = std::max(std::chrono::duration_cast<milliseconds>(deadline_ - Clock::now()), milliseconds(0));
  outside_address_ = call(request).value;
}

// A channel of the pool, or a new one.
std::unique_ptr<Channel> Client::borrow() {
  {
    std::lock_guard lock(mutex_);
    if (!idle_.empty()) {
      auto channel = std::move(idle_.back());
      idle_.pop_back();
      return channel;
    }
  }
  Hello further = options_.self;
  further.further = true;
  further.settings.clear();
  ClientOptions options = options_;
  options.say = nullptr;
  try {
    return Arrival(options, Clock::now() + kReconnectTime).run(further);
  } catch (const Error& e) {
    throw_error(ExitCode::kPeerLost, "rank ", options_.self.rank, " lost the rendezvous at ", address(), ": ", e.what());
  }
}

Reply Client::call(const Request& request) {
  // First: a request that is too large must not cost a channel.
  const std::string frame = to_frame(request);
  auto channel = borrow();
  std::optional<Reply> reply;
  try {
    reply = channel->call(frame, Clock::now() + request.timeout + kGrace);
  } catch (const BadFrame& e) {
    throw_error(ExitCode::kPeerLost, "rank ", options_.self.rank, ": the rendezvous at ", address(), " broke the protocol: ", e.what());
  }
  if (!reply)
    throw_error(ExitCode::kPeerLost, "rank ", options_.self.rank, " lost its connection to the rendezvous at ", address(),
                ": the process of rank 0 has ended");
  {
    std::lock_guard lock(mutex_);
    idle_.push_back(std::move(channel));
  }
  if (reply->kind == ReplyKind::kTimedOut)
    throw_error(ExitCode::kRendezvous, "rank ", options_.self.rank, " timed out: waited ", request.timeout.count(),
                " ms at the rendezvous ", address(), " for the keys ", reply->value);
  if (reply->kind == ReplyKind::kFailed) throw error_of(*reply);
  if (reply->kind != ReplyKind::kDone)
    throw_error(ExitCode::kPeerLost, "rank ", options_.self.rank, ": the rendezvous at ", address(), " answered out of turn");
  return *reply;
}

void Client::set(const std::string& key, const std::string& value) { call({RequestKind::kSet, {key}, value, {}, {}, 0, {}}); }

void Client::append(const std::string& key, const std::string& value) { call({RequestKind::kAppend, {key}, value, {}, {}, 0, {}}); }

std::string Client::get(const std::string& key, Millis timeout) { return call({RequestKind::kGet, {key}, {}, {}, {}, 0, timeout}).value; }

void Client::wait(const std::vector<std::string>& keys, Millis timeout) { call({RequestKind::kWait, keys, {}, {}, {}, 0, timeout}); }

bool Client::check(const std::vector<std::string>& keys) { return call({RequestKind::kCheck, keys, {}, {}, {}, 0, {}}).number != 0; }

int64_t Client::add(const std::string& key, int64_t amount) { return call({RequestKind::kAdd, {key}, {}, {}, {}, amount, {}}).number; }

std::string Client::compare_set(const std::string& key, const std::string& expected, const std::string& wanted) {
  return call({RequestKind::kCompareSet, {key}, wanted, expected, {}, 0, {}}).value;
}

bool Client::remove(const std::string& key) { return call({RequestKind::kDelete, {key}, {}, {}, {}, 0, {}}).number != 0; }

int64_t Client::num_keys() { return call({RequestKind::kNumKeys, {}, {}, {}, {}, 0, {}}).number; }

std::string whose_job(const std::string& host, int port, std::chrono::milliseconds timeout) {
  auto deadline = Clock::now() + timeout;
  try {
    for (const auto& address : resolve(host, port)) {
      auto opened = Channel::open(address, deadline);
      if (!std::holds_alternative<std::unique_ptr<Channel>>(opened)) continue;
      auto reply = std::get<std::unique_ptr<Channel>>(opened)->call(to_frame(Request{RequestKind::kWho, {}, {}, {}, {}, 0, {}}), deadline);
      if (reply && reply->kind == ReplyKind::kDone) return error_of(*reply).what();
    }
  } catch (const std::exception&) {  // a question out of curiosity
  }
  return "";
}

}  // namespace plait::rendezvous
