#include "plait/rendezvous/service.h"

#include <algorithm>

#include "plait/base/hmac.h"
#include "plait/rendezvous/address.h"

namespace plait::rendezvous {

namespace {

constexpr std::string_view kSecretRemedy =
    "; PLAIT_SECRET_FILE names a file with the secret of the job, the same on all nodes, mode 0600 (plait launch makes one itself)";

bool may_wait(RequestKind kind) { return kind == RequestKind::kGather || kind == RequestKind::kGet || kind == RequestKind::kWait; }

}  // namespace

Service::Service(Options options, Clock::time_point now)
    : options_(std::move(options)), gathering_(options_.self, options_.address, now), now_(now), next_line_(now + options_.line_time) {
  failure_ = options_.failure;
  random_.seed(static_cast<uint32_t>(std::hash<std::string>()(random_bytes(8))));
}

void Service::open(Id id, std::string peer, std::string local_address, Clock::time_point now) {
  now_ = now;
  Session& session = sessions_[id];
  session.peer = std::move(peer);
  session.local_address = std::move(local_address);
  session.opened = now;
  if (num_strangers() > options_.most_strangers + 4 * static_cast<size_t>(options_.self.world_size)) evict_stranger();
}

void Service::receive(Id id, std::string_view bytes, Clock::time_point now) {
  now_ = now;
  Session& session = sessions_.at(id);
  if (session.stage == Stage::kEnding) return;
  session.reader.feed(bytes);
  work(session, now);
}

void Service::sent(Id id, size_t count, Clock::time_point now) {
  Session& session = sessions_.at(id);
  session.output.erase(0, count);
  if (session.output.empty()) work(session, now);  // what came while it was answered
}

void Service::close(Id id) {
  auto it = sessions_.find(id);
  if (it == sessions_.end()) return;
  Session gone = std::move(it->second);
  sessions_.erase(it);
  if (!gone.first_of_rank) return;
  left_.insert(gone.rank);
  if (gone.said_goodbye || failure_ || lost_) return;
  if (!gathering_.complete()) return fail_job(gathering_.lost(gone.rank));
  lost_ = gathering_.lost(gone.rank);
  finish_waiting();
}

bool Service::wants_input(Id id) const {
  const Session& session = sessions_.at(id);
  return session.stage != Stage::kEnding && !session.waiting && session.output.empty();
}

size_t Service::num_strangers() const {
  return static_cast<size_t>(std::count_if(sessions_.begin(), sessions_.end(), [](const auto& entry) {
    return entry.second.stage == Stage::kPreamble || entry.second.stage == Stage::kHello;
  }));
}

void Service::evict_stranger() {
  std::map<std::string_view, std::vector<Session*>> by_host;
  for (auto& [id, session] : sessions_) {
    if (session.stage == Stage::kPreamble || session.stage == Stage::kHello)
      by_host[std::string_view(session.peer).substr(0, session.peer.rfind(':'))].push_back(&session);
  }
  auto most =
      std::max_element(by_host.begin(), by_host.end(), [](const auto& a, const auto& b) { return a.second.size() < b.second.size(); });
  if (most == by_host.end()) return;
  Session& victim = *most->second[random_() % most->second.size()];
  reply(victim, ReplyKind::kBusy);
  victim.stage = Stage::kEnding;
}

bool Service::has_deadlines() const {
  if (!gathering_.complete() && !failure_) return true;
  return std::any_of(sessions_.begin(), sessions_.end(),
                     [](const auto& entry) { return entry.second.stage != Stage::kIn || entry.second.waiting; });
}

void Service::tick(Clock::time_point now) {
  now_ = now;
  for (auto& [id, session] : sessions_) {
    bool stranger = session.stage == Stage::kPreamble || session.stage == Stage::kHello;
    if (stranger && now - session.opened > options_.hello_time) session.stage = Stage::kEnding;
    if (session.waiting && now >= session.deadline) time_out(session);
  }
  if (gathering_.complete() || failure_ || now < next_line_) return;
  next_line_ = now + options_.line_time;
  refusal_said_ = false;
  std::string refused = num_refused_ > 0 ? cat("; refused ", num_refused_, " times, last: ", last_refusal_) : "";
  say(cat(gathering_.waiting_text(now), refused));
}

void Service::work(Session& session, Clock::time_point now) {
  try {
    while (step(session, now)) {}
  } catch (const BadFrame&) {  // not one of ours, or broken: nothing to answer
    session.stage = Stage::kEnding;
  }
}

// Takes one message, if one is whole. False: nothing more to do now.
bool Service::step(Session& session, Clock::time_point now) {
  // One answer after the other: what came meanwhile stays in the reader. The greeting alone does not wait until the peer has read.
  if (session.waiting || (session.stage == Stage::kIn && !session.output.empty())) return false;
  switch (session.stage) {
    case Stage::kEnding: return false;
    case Stage::kPreamble: return read_preamble(session);
    case Stage::kHello: {
      auto payload = session.reader.next(kMostHelloBytes);
      if (!payload) return false;
      Request request = decode_request(*payload);
      if (request.kind == RequestKind::kHello) {
        greet(session, request);
      } else if (request.kind == RequestKind::kWho) {
        reply(session, ReplyKind::kDone, 0, gathering_.job_text());
        session.stage = Stage::kEnding;
      } else {
        throw BadFrame("a request before the hello");
      }
      return true;
    }
    case Stage::kIn: {
      auto payload = session.reader.next();
      if (!payload) return false;
      answer(session, decode_request(*payload), now);
      return true;
    }
  }
  return false;
}

bool Service::read_preamble(Session& session) {
  std::string_view got = session.reader.buffered().substr(0, kPreamble.size());
  if (got != kPreamble.substr(0, got.size())) {
    session.stage = Stage::kEnding;
    constexpr std::string_view kOtherVersion = "PLAIT-RENDEZVOUS ";
    if (got.starts_with(kOtherVersion))
      reply(session, ReplyKind::kRefused, static_cast<int64_t>(ExitCode::kRendezvous),
            cat("rank 0 runs plait ", options_.self.version, ", whose rendezvous speaks version ", kProtocolVersion,
                " of its protocol; this program speaks another: all ranks of a job run the same plait"));
    return false;
  }
  if (!session.reader.take(kPreamble.size())) return false;
  session.nonce = random_bytes(kNonceBytes);
  session.stage = Stage::kHello;
  reply(session, ReplyKind::kChallenge, kProtocolVersion, session.nonce);
  return true;
}

std::optional<Failure> Service::check_proof(const Session& session, const Hello& hello, const Request& request) const {
  const bool needed = !options_.secret.empty();
  const std::string first = name_of(options_.self), other = cat(name_of(hello), " at ", session.peer);
  if (needed && !hello.has_secret)
    return Failure{ExitCode::kAuth, cat("authentication refused: ", first, " has a secret and ", other, " has none", kSecretRemedy)};
  if (!needed && hello.has_secret)
    return Failure{ExitCode::kAuth, cat("authentication refused: ", other, " has a secret and ", first, " has none", kSecretRemedy)};
  if (needed &&
      !equal_in_constant_time(request.proof, proof(options_.secret, Prover::kClient, session.nonce, request.expected, request.value)))
    return Failure{ExitCode::kAuth, cat("authentication refused: the secret of ", other, " is not that of ", first, kSecretRemedy)};
  return std::nullopt;
}

void Service::greet(Session& session, const Request& request) {
  Hello hello = decode_hello(request.value);
  if (request.expected.size() != kNonceBytes) throw BadFrame("a nonce of another length");
  if (auto failure = gathering_.of_another_job(hello)) {
    note_refusal(cat(name_of(hello), " at ", session.peer, " belongs to another job"));
    return refuse(session, *failure);
  }
  if (auto failure = check_proof(session, hello, request)) {
    note_refusal(failure->text);
    // Without a secret of our own there is nobody to protect: the ranks of this job were started differently.
    if (options_.secret.empty() && !gathering_.complete() && !failure_) {
      refuse(session, *failure);
      return fail_job(*failure);
    }
    return refuse(session, *failure);
  }
  if (hello.further) {
    if (!gathering_.is_in(hello)) return refuse(session, {ExitCode::kRendezvous, cat(name_of(hello), " is not here yet")});
  } else {
    if (failure_) {
      told_.insert(hello.rank);
      return refuse(session, *failure_);
    }
    auto outcome = gathering_.arrive(hello);
    if (outcome.failure) {
      refuse(session, *outcome.failure);
      if (outcome.of_the_job) {
        told_.insert(hello.rank);
        fail_job(*outcome.failure);
      } else {
        note_refusal(outcome.failure->text);
      }
      return;
    }
    session.first_of_rank = true;
  }
  session.rank = hello.rank;
  session.stage = Stage::kIn;
  std::string own_proof =
      options_.secret.empty() ? "" : proof(options_.secret, Prover::kServer, session.nonce, request.expected, request.value);
  reply(session, ReplyKind::kWelcome, 0, own_proof);
  if (session.first_of_rank && gathering_.complete()) finish_waiting();
}

void Service::answer(Session& session, Request request, Clock::time_point now) {
  if (request.kind == RequestKind::kGoodbye) {
    session.said_goodbye = true;
    session.stage = Stage::kEnding;
    return;
  }
  if (request.kind == RequestKind::kHello || request.kind == RequestKind::kWho) throw BadFrame("a second hello");
  if (failure_) return reply(session, ReplyKind::kFailed, static_cast<int64_t>(failure_->code), failure_->text);
  if (may_wait(request.kind)) return wait(session, std::move(request), now);
  try {
    write_keys(session, request);
  } catch (const Error& e) {
    reply(session, ReplyKind::kFailed, static_cast<int64_t>(e.code()), e.what());
  }
}

void Service::write_keys(Session& session, const Request& request) {
  int64_t number = 0;
  std::string value;
  switch (request.kind) {
    case RequestKind::kSet: values_.set(request.key(), request.value); break;
    case RequestKind::kAppend:
      if (const std::string* old = values_.find(request.key()); old && old->size() + request.value.size() > kMostValueBytes)
        throw_error(ExitCode::kResource, "append: the value of key ", request.key(), " would be longer than ", kMostValueBytes, " bytes");
      values_.append(request.key(), request.value);
      break;
    case RequestKind::kAdd: number = values_.add(request.key(), request.number); break;
    case RequestKind::kCompareSet: value = values_.compare_set(request.key(), request.expected, request.value); break;
    case RequestKind::kDelete: number = values_.remove(request.key()); break;
    case RequestKind::kNumKeys: number = static_cast<int64_t>(values_.size()); break;
    case RequestKind::kCheck: number = values_.has_all(request.keys); break;
    default: throw BadFrame("not a request about keys");
  }
  reply(session, ReplyKind::kDone, number, std::move(value));
  finish_waiting();
}

void Service::wait(Session& session, Request request, Clock::time_point now) {
  session.deadline = now + request.timeout;
  session.waiting = std::move(request);
  if (!try_finish(session) && session.deadline <= now) time_out(session);
}

// Answers a waiting request if what it waits for has come, or never will.
bool Service::try_finish(Session& session) {
  const Request& request = *session.waiting;
  bool gathering = request.kind == RequestKind::kGather;
  bool here = gathering ? gathering_.complete() : values_.has_all(request.keys);
  if (!here && !failure_ && !lost_) return false;
  if (!here) {
    const Failure& failure = failure_ ? *failure_ : *lost_;
    reply(session, ReplyKind::kFailed, static_cast<int64_t>(failure.code), failure.text);
    if (session.first_of_rank) told_.insert(session.rank);
  } else {
    std::string value = gathering ? outside_address() : "";
    if (request.kind == RequestKind::kGet) value = *values_.find(request.key());
    reply(session, ReplyKind::kDone, 0, std::move(value));
  }
  session.waiting.reset();
  return true;
}

void Service::time_out(Session& session) {
  const Request& request = *session.waiting;
  if (request.kind == RequestKind::kGather) {
    // One that gives up is missing for all the others.
    Failure failure = gathering_.timed_out(std::chrono::milliseconds(std::max<int64_t>(request.number, 0)));
    if (num_refused_ > 0) failure.text += cat("; refused ", num_refused_, " times, last: ", last_refusal_);
    return fail_job(failure);
  }
  std::vector<std::string> absent;
  for (const auto& key : request.keys) {
    if (!values_.find(key) && absent.size() < 8) absent.push_back(key);
  }
  reply(session, ReplyKind::kTimedOut, 0, join(absent));
  session.waiting.reset();
}

void Service::finish_waiting() {
  for (auto& [id, session] : sessions_) {
    if (session.waiting) try_finish(session);
  }
}

void Service::fail_job(const Failure& failure) {
  if (failure_) return;
  failure_ = failure;
  finish_waiting();
}

void Service::reply(Session& session, ReplyKind kind, int64_t number, std::string value) {
  session.output += to_frame(Reply{kind, number, std::move(value)});
}

void Service::refuse(Session& session, const Failure& failure) {
  reply(session, ReplyKind::kRefused, static_cast<int64_t>(failure.code), failure.text);
  session.stage = Stage::kEnding;
}

// At once the first time, then with the next line about who is missing: a flood of them must not flood the terminal.
void Service::note_refusal(const std::string& text) {
  ++num_refused_;
  last_refusal_ = text;
  if (refusal_said_) return;
  refusal_said_ = true;
  say(text);
}

// Ours that peers on other machines have reached: what a rank on this machine, which came over loopback, must tell its peers.
std::string Service::outside_address() const {
  for (const auto& [id, session] : sessions_) {
    const std::string& ours = session.local_address;
    if (session.stage == Stage::kIn && !ours.empty() && !is_loopback_host(ours)) return ours;
  }
  return "";
}

}  // namespace plait::rendezvous
