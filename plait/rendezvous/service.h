// Service: what the server of a job answers, connection by connection, without any socket or thread: bytes in, bytes out. It greets, checks
// proofs, gathers the ranks and keeps the keys. Strangers (connections that have not proved who they are) are few, short-lived and
// bounded in memory, so that no flood, garbage or silence stops the job. One thread.
#pragma once

#include <chrono>
#include <functional>
#include <map>
#include <optional>
#include <random>
#include <set>
#include <string>
#include <string_view>
#include <vector>

#include "plait/rendezvous/gathering.h"
#include "plait/rendezvous/key_values.h"
#include "plait/rendezvous/message.h"

namespace plait::rendezvous {

class Service {
 public:
  using Clock = std::chrono::steady_clock;
  using Id = int64_t;

  struct Options {
    Hello self;                                   // rank 0, in whose process this runs
    std::string secret;                           // empty = no proofs
    std::string address;                          // for messages: "127.0.0.1:29500"
    std::chrono::milliseconds hello_time{5000};   // from connecting until the hello is whole
    std::chrono::milliseconds line_time{10000};   // between two lines about who is missing
    size_t most_strangers = 256;                  // and 4 more for each rank
    std::optional<Failure> failure;               // the job has failed already: all who come are told so
    std::function<void(const std::string&)> say;  // lines for people; may be empty
  };

  Service(Options options, Clock::time_point now);

  // A new connection. `peer`: its address, for messages. `local_address`: ours that it reached.
  void open(Id id, std::string peer, std::string local_address, Clock::time_point now);
  void receive(Id id, std::string_view bytes, Clock::time_point now);
  // The peer has closed or the connection broke.
  void close(Id id);
  void tick(Clock::time_point now);

  // Bytes to send; sent() says how many of them went.
  const std::string& output(Id id) const { return sessions_.at(id).output; }
  void sent(Id id, size_t count, Clock::time_point now);
  // False: do not read from it now, a request is being answered.
  bool wants_input(Id id) const;
  // To be closed once its output is sent.
  bool is_ending(Id id) const { return sessions_.at(id).stage == Stage::kEnding; }
  // A stranger makes room (it is told to come again): any one from where most of them come, so that a flood hits itself first, and an
  // honest one among them has a chance however short the turns are.
  void evict_stranger();
  // Whether tick() has something to watch.
  bool has_deadlines() const;

  const std::optional<Failure>& failure() const { return failure_; }  // while gathering; the job cannot begin
  // All other ranks have said goodbye or are gone.
  bool all_left() const { return holds_all_others(left_); }
  // All other ranks have been told the failure.
  bool all_told() const { return holds_all_others(told_); }

 private:
  enum class Stage { kPreamble, kHello, kIn, kEnding };
  struct Session {
    Stage stage = Stage::kPreamble;
    std::string peer, local_address;
    Clock::time_point opened;
    FrameReader reader;
    std::string output;
    std::string nonce;
    int64_t rank = -1;
    bool first_of_rank = false;  // its end is the rank's
    bool said_goodbye = false;
    std::optional<Request> waiting;
    Clock::time_point deadline;
  };

  void work(Session& session, Clock::time_point now);
  bool step(Session& session, Clock::time_point now);
  bool read_preamble(Session& session);
  void greet(Session& session, const Request& request);
  std::optional<Failure> check_proof(const Session& session, const Hello& hello, const Request& request) const;
  void answer(Session& session, Request request, Clock::time_point now);
  void write_keys(Session& session, const Request& request);
  void wait(Session& session, Request request, Clock::time_point now);
  bool try_finish(Session& session);
  void time_out(Session& session);
  void finish_waiting();
  void reply(Session& session, ReplyKind kind, int64_t number = 0, std::string value = {});
  void refuse(Session& session, const Failure& failure);
  void fail_job(const Failure& failure);
  void note_refusal(const std::string& text);
  std::string outside_address() const;
  size_t num_strangers() const;
  bool holds_all_others(const std::set<int64_t>& ranks) const {
    return ranks.size() + (ranks.count(options_.self.rank) ? 0 : 1) >= static_cast<size_t>(options_.self.world_size);
  }
  void say(const std::string& line) const {
    if (options_.say) options_.say(line);
  }

  Options options_;
  Gathering gathering_;
  KeyValues values_;
  std::map<Id, Session> sessions_;
  std::optional<Failure> failure_;  // of the gathering
  std::optional<Failure> lost_;     // a rank that went away after it, without a goodbye
  std::set<int64_t> left_, told_;
  int64_t num_refused_ = 0;
  std::string last_refusal_;
  bool refusal_said_ = false;
  Clock::time_point now_, next_line_;
  std::minstd_rand random_;
};

}  // namespace plait::rendezvous
