// Gathering: who of a job has come, who is missing, and whether what they say fits together. It is told one hello after the other, by the
// server of our own protocol or by rank 0 that reads them from a foreign launcher's store. No sockets, no clock of its own, one thread.
#pragma once

#include <chrono>
#include <map>
#include <optional>
#include <string>
#include <vector>

#include "plait/base/error.h"
#include "plait/rendezvous/hello.h"

namespace plait::rendezvous {

struct Failure {
  ExitCode code = ExitCode::kRendezvous;
  std::string text;
};

// "rank 3", "ranks 3, 5, 8-12 of 16": neighbours as ranges, at most a screen line of them.
std::string ranks_text(const std::vector<int64_t>& ranks);

class Gathering {
 public:
  using Clock = std::chrono::steady_clock;

  struct Outcome {
    std::optional<Failure> failure;  // none: the rank is in
    bool of_the_job = false;         // the failure is a contradiction inside the job, not a stranger's
  };

  // `reference`: what rank 0 says; others must fit. `address`: where the job meets, "127.0.0.1:29500".
  Gathering(Hello reference, std::string address, Clock::time_point now);

  // A rank of another job: it is on the wrong port.
  std::optional<Failure> of_another_job(const Hello& hello) const;
  // A stranger (other job), or one that comes when all are here, is refused alone; any other contradiction is the job's.
  Outcome arrive(const Hello& hello);
  bool is_in(const Hello& hello) const;  // this very process has come
  bool complete() const { return static_cast<int64_t>(here_.size()) == reference_.world_size; }
  std::vector<int64_t> missing() const;
  const std::map<int64_t, Hello>& here() const { return here_; }

  // "port 29500 serves job A of 8 ranks since 14:02:11"
  std::string job_text() const;
  // "waiting for ranks 3, 5 of 8 (62 s); here: rank 0 host a, ..."
  std::string waiting_text(Clock::time_point now) const;
  Failure timed_out(std::chrono::milliseconds waited) const;
  Failure lost(int64_t rank) const;

 private:
  std::optional<std::string> contradiction(const Hello& hello) const;
  std::string here_text() const;

  Hello reference_;
  std::string address_;
  Clock::time_point start_;
  std::string start_text_;
  std::map<int64_t, Hello> here_;
};

}  // namespace plait::rendezvous
