#include "plait/rendezvous/gathering.h"

#include <ctime>

namespace plait::rendezvous {

namespace {

std::string time_of_day() {
  std::time_t now = std::time(nullptr);
  std::tm parts{};
  char text[32] = "";
  if (::localtime_r(&now, &parts)) std::strftime(text, sizeof text, "%H:%M:%S", &parts);
  return text;
}

std::string job_name(const Hello& hello) { return hello.job_id.empty() ? "a job without id" : cat("job ", hello.job_id); }

std::string seconds_text(std::chrono::milliseconds time) {
  return time.count() % 1000 == 0 || time.count() > 10000 ? cat(time.count() / 1000, " s") : cat(time.count(), " ms");
}

// Remedy when nothing tells the two jobs apart but what contradicts.
std::string two_jobs_hint(const Hello& hello) {
  return hello.job_id.empty() ? "; if these are two jobs, give each a master_port or a PLAIT_JOB_ID of its own" : "";
}

}  // namespace

std::string ranks_text(const std::vector<int64_t>& ranks) {
  constexpr size_t kMostPieces = 24;
  std::vector<std::string> pieces;
  for (size_t i = 0; i < ranks.size() && pieces.size() < kMostPieces;) {
    size_t last = i;
    while (last + 1 < ranks.size() && ranks[last + 1] == ranks[last] + 1) ++last;
    if (last >= i + 2) {
      pieces.push_back(cat(ranks[i], "-", ranks[last]));
      i = last + 1;
    } else {
      pieces.push_back(cat(ranks[i++]));
    }
    if (pieces.size() == kMostPieces && i < ranks.size()) pieces.push_back(cat("... (", ranks.size(), " in all)"));
  }
  return cat(ranks.size() == 1 ? "rank " : "ranks ", join(pieces));
}

Gathering::Gathering(Hello reference, std::string address, Clock::time_point now)
    : reference_(std::move(reference)), address_(std::move(address)), start_(now), start_text_(time_of_day()) {}

std::optional<std::string> Gathering::contradiction(const Hello& hello) const {
  const std::string other = name_of(hello), first = name_of(reference_);
  if (hello.version != reference_.version)
    return cat("plait's version is ", reference_.version, " at ", first, " and ", hello.version, " at ", other,
               ": all ranks of a job run the same one");
  if (hello.world_size != reference_.world_size)
    return cat("the number of ranks (WORLD_SIZE) is ", reference_.world_size, " at ", first, " and ", hello.world_size, " at ", other,
               two_jobs_hint(hello));
  if (hello.rank < 0 || hello.rank >= reference_.world_size) return cat(other, " is not one of the ranks 0 to ", reference_.world_size - 1);
  auto difference = first_difference(reference_.settings, hello.settings);
  if (difference && difference->of_contents)
    return cat("the inputs differ: ", difference->name, " has other contents at ", other, " (", difference->second, ") than at ", first,
               " (", difference->first, "): all ranks need the same ones", two_jobs_hint(hello));
  if (difference)
    return cat("the settings differ: ", difference->name, " is ", difference->first, " at ", first, " and ", difference->second, " at ",
               other, two_jobs_hint(hello));
  if (auto it = here_.find(hello.rank); it != here_.end())
    return cat("rank ", hello.rank, " came twice: host ", it->second.host, ", pid ", it->second.pid, " and host ", hello.host, ", pid ",
               hello.pid, two_jobs_hint(hello));
  return std::nullopt;
}

std::optional<Failure> Gathering::of_another_job(const Hello& hello) const {
  if (hello.job_id == reference_.job_id) return std::nullopt;
  return Failure{ExitCode::kRendezvous,
                 cat(job_text(), ", this is ", job_name(hello), ", ", name_of(hello), ": give each job a master_port of its own")};
}

Gathering::Outcome Gathering::arrive(const Hello& hello) {
  if (auto failure = of_another_job(hello)) return {failure, false};
  if (auto what = contradiction(hello)) {
    if (complete())
      return {Failure{ExitCode::kRendezvous, cat(*what, "; ", job_text(), ", and all its ranks are here: ", name_of(hello), " is refused")},
              false};
    return {Failure{ExitCode::kRendezvous, *what}, true};
  }
  here_.emplace(hello.rank, hello);
  return {};
}

bool Gathering::is_in(const Hello& hello) const {
  auto it = here_.find(hello.rank);
  return it != here_.end() && it->second.instance == hello.instance && !hello.instance.empty();
}

std::vector<int64_t> Gathering::missing() const {
  std::vector<int64_t> ranks;
  for (int64_t rank = 0; rank < reference_.world_size; ++rank) {
    if (!here_.count(rank)) ranks.push_back(rank);
  }
  return ranks;
}

std::string Gathering::job_text() const {
  std::string port = address_.substr(address_.rfind(':') + 1);
  return cat("port ", port, " serves ", job_name(reference_), " of ", reference_.world_size, " ranks (rank 0 on host ", reference_.host,
             ", pid ", reference_.pid, ") since ", start_text_);
}

std::string Gathering::here_text() const {
  constexpr size_t kMostHosts = 12;
  if (here_.empty()) return "nobody";
  std::vector<std::pair<std::string, std::vector<int64_t>>> hosts;  // in the order of their lowest rank
  for (const auto& [rank, hello] : here_) {
    size_t i = 0;
    while (i < hosts.size() && hosts[i].first != hello.host) ++i;
    if (i == hosts.size()) hosts.push_back({hello.host, {}});
    hosts[i].second.push_back(rank);
  }
  std::vector<std::string> pieces;
  for (size_t i = 0; i < hosts.size() && i < kMostHosts; ++i) pieces.push_back(cat(ranks_text(hosts[i].second), " host ", hosts[i].first));
  if (hosts.size() > kMostHosts) pieces.push_back(cat("and ", hosts.size() - kMostHosts, " hosts more"));
  return join(pieces);
}

std::string Gathering::waiting_text(Clock::time_point now) const {
  auto waited = std::chrono::duration_cast<std::chrono::seconds>(now - start_);
  return cat("waiting for ", ranks_text(missing()), " of ", reference_.world_size, " at ", address_, " (", waited.count(),
             " s); here: ", here_text());
}

Failure Gathering::timed_out(std::chrono::milliseconds waited) const {
  return {ExitCode::kRendezvous, cat("waited ", seconds_text(waited), " (rdzv_timeout) at ", address_,
                                     "; did not come: ", ranks_text(missing()), " of ", reference_.world_size, "; here: ", here_text())};
}

Failure Gathering::lost(int64_t rank) const {
  auto it = here_.find(rank);
  std::string who = it == here_.end() ? cat("rank ", rank) : name_of(it->second);
  if (complete()) return {ExitCode::kPeerLost, cat(who, " is gone: its connection to the rendezvous at ", address_, " ended")};
  return {ExitCode::kPeerLost,
          cat(who, " went away while the others waited for ", ranks_text(missing()), " of ", reference_.world_size, " at ", address_)};
}

}  // namespace plait::rendezvous
