#include "plait/elastic/root_cause.h"

#include <algorithm>
#include <map>
#include <regex>

#include "plait/base/text.h"

namespace plait {

namespace {

// "training, step 3", "loading", "before it said anything"
std::string place_text(const RankEnd& end) {
  if (end.phase.empty()) return "";
  return end.step > 0 ? cat(end.phase, ", step ", end.step) : end.phase;
}

std::string consequence_lines(const std::vector<RankEnd>& others) {
  std::map<std::string, std::vector<int64_t>> by_end;
  for (const RankEnd& other : others) {
    const char* why = other.stopped ? "stopped by the launcher" : other.lost_peer ? " (lost a peer)" : "";
    by_end[other.stopped ? why : cat(other.how, why)].push_back(other.rank);
  }
  std::string text;
  for (const auto& [how, ranks] : by_end)
    text += cat(text.empty() ? "" : "; ", "rank", ranks.size() > 1 ? "s " : " ", rank_list(ranks), ": ", how);
  return text.empty() ? "" : cat("consequences: ", text, "\n");
}

}  // namespace

std::string rank_text(const RankEnd& end) {
  return end.dp < 0 ? cat("rank ", end.rank) : cat("rank ", end.rank, " (dp ", end.dp, ", pp ", end.pp, ", tp ", end.tp, ")");
}

std::string prefix_text(const RankEnd& end) {
  std::string text = cat(end.host, end.host.empty() ? "" : " ", end.rank);
  return end.dp < 0 ? text : cat(text, " (", end.dp, ",", end.pp, ",", end.tp, ")");
}

std::optional<int64_t> blamed_rank(const std::string& message) {
  std::smatch found;
  const std::regex kBlame("\\brank ([0-9]{1,9}) failed (while|first)");
  if (!std::regex_search(message, found, kBlame)) return std::nullopt;
  return std::stoll(found[1]);
}

std::string killed_line(const std::vector<RankEnd>& ranks, const std::string& why) {
  constexpr size_t kMostNamed = 16;
  std::string text;
  for (size_t i = 0; i < std::min(ranks.size(), kMostNamed); ++i) {
    const std::string place = place_text(ranks[i]);
    text += cat(text.empty() ? "" : ", ", rank_text(ranks[i]), place.empty() ? "" : cat(" in ", place));
  }
  if (ranks.size() > kMostNamed) text += cat(" and ", ranks.size() - kMostNamed, " more");
  return cat("killed, as ", ranks.size() == 1 ? "it " : "they ", why, ": ", text);
}

std::string rank_list(std::vector<int64_t> ranks) {
  std::sort(ranks.begin(), ranks.end());
  std::string text;
  for (size_t begin = 0, end; begin < ranks.size(); begin = end) {
    for (end = begin + 1; end < ranks.size() && ranks[end] == ranks[end - 1] + 1;) ++end;
    text += cat(text.empty() ? "" : ", ", ranks[begin]);
    if (end - begin > 1) text += cat(end - begin > 2 ? "-" : ", ", ranks[end - 1]);
  }
  return text;
}

std::string root_cause_block(const RankEnd& first, const std::vector<RankEnd>& others, bool several_nodes) {
  const bool elsewhere = several_nodes && first.lost_peer;
  std::string text = elsewhere ? "ROOT CAUSE: on another node; here this is the first consequence\n" : "ROOT CAUSE\n";
  text += cat("  rank     ", rank_text(first), " on ", first.host.empty() ? "this machine" : first.host, ", process ", first.pid, "\n");
  if (std::string place = place_text(first); !place.empty()) text += cat("  phase    ", place, "\n");
  text += cat("  ended    with ", first.how, "\n");
  if (!first.message.empty()) text += cat("  message  ", first.message, "\n");
  if (!first.log_path.empty()) text += cat("  log      ", first.log_path, "\n");
  if (!first.last_lines.empty()) text += cat("  its last ", first.last_lines.size() == 1 ? "line" : "lines", ":\n");
  for (const std::string& line : first.last_lines) text += cat("    | ", line, "\n");
  text += consequence_lines(others);
  text += cat("error: ", rank_text(first), elsewhere ? " lost a peer, " : " failed first, ", "with ", first.how);
  if (!first.log_path.empty()) text += cat(" (", first.log_path, ")");
  if (elsewhere) text += ": look at the other nodes for the rank that failed first";
  if (!first.message.empty()) text += cat(": ", first.message);
  return text + "\n";
}

}  // namespace plait
