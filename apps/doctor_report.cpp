#include "apps/doctor_report.h"

#include <algorithm>
#include <cmath>
#include <cstdio>
#include <nlohmann/json.hpp>
#include <set>

#include "plait/base/error.h"

namespace plait {

namespace {

using nlohmann::json;

std::string padded(std::string text, size_t width) {
  text.resize(std::max(width, text.size()), ' ');
  return text;
}

// "12.3 us", "4.56 ms", "1.20 s": three digits.
std::string time_text(double seconds) {
  char buffer[32];
  double magnitude = std::abs(seconds);
  if (magnitude < 1e-3) std::snprintf(buffer, sizeof buffer, "%.1f us", seconds * 1e6);
  else if (magnitude < 1) std::snprintf(buffer, sizeof buffer, "%.2f ms", seconds * 1e3);
  else std::snprintf(buffer, sizeof buffer, "%.2f s", seconds);
  return buffer;
}

std::string speed_text(double bytes_per_second) { return bytes_text(static_cast<int64_t>(bytes_per_second)) + "/s"; }

std::string check_lines(const std::vector<MachineCheck>& checks) {
  std::string out;
  for (const auto& check : checks) {
    out += cat("  ", padded(check_word(check.status), 8), padded(check.name, 12), check.found, "\n");
    if (!check.remedy.empty()) out += cat(std::string(22, ' '), check.remedy, "\n");
  }
  return out;
}

std::string pair_text(const DoctorReport& report, const PairMeasure& pair) {
  const auto& hosts = report.rank_hosts;
  const std::string &first = hosts[static_cast<size_t>(pair.first)], &second = hosts[static_cast<size_t>(pair.second)];
  return cat("ranks ", pair.first, " and ", pair.second, first == second ? " of " + first : " (" + first + ", " + second + ")");
}

std::string link_tables(const DoctorReport& report) {
  std::string out = "\npairs of ranks (half a round trip of 8 bytes; messages of 1 MiB)\n  ranks         latency       bandwidth\n";
  for (const auto& pair : report.links.pairs) {
    out += cat("  ", padded(cat(pair.first, " - ", pair.second), 14), padded(time_text(pair.latency_seconds), 14),
               padded(speed_text(pair.bytes_per_second), 14),
               report.rank_hosts[static_cast<size_t>(pair.first)] == report.rank_hosts[static_cast<size_t>(pair.second)] ? "same host" : "",
               "\n");
    while (out.size() > 1 && out[out.size() - 2] == ' ') out.erase(out.size() - 2, 1);
  }
  out += cat("\ncollectives over all ", report.rank_hosts.size(),
             " ranks (median of the slowest rank)\n  size          operation       time\n");
  for (const auto& collective : report.links.collectives)
    out += cat("  ", padded(bytes_text(collective.bytes), 14), padded(collective.operation, 16), time_text(collective.seconds), "\n");
  return out;
}

json check_json(const MachineCheck& check) {
  return {{"name", check.name}, {"status", check_word(check.status)}, {"found", check.found}, {"remedy", check.remedy}};
}

std::vector<MachineCheck> all_checks(const DoctorReport& report) {
  std::vector<MachineCheck> all = report.link_checks;
  for (const auto& host : report.hosts) all.insert(all.end(), host.checks.begin(), host.checks.end());
  return all;
}

MachineCheck check_clocks(const DoctorReport& report) {
  constexpr double kFarApart = 1.0;
  const auto& clocks = report.links.clock_seconds;
  size_t worst_rank = 0;
  for (size_t rank = 0; rank < clocks.size(); ++rank)
    if (std::abs(clocks[rank]) > std::abs(clocks[worst_rank])) worst_rank = rank;
  double error = report.links.clock_error_seconds[worst_rank];
  std::string found = cat("at most ", time_text(std::abs(clocks[worst_rank])), " apart (known to ", time_text(error), ")");
  if (std::abs(clocks[worst_rank]) - error < kFarApart) return {"clocks", CheckStatus::kOk, found, ""};
  return {"clocks", CheckStatus::kWarning,
          cat(report.rank_hosts[worst_rank], " (rank ", worst_rank, ") is ", time_text(std::abs(clocks[worst_rank])),
              clocks[worst_rank] > 0 ? " ahead of" : " behind", " rank 0"),
          "logs of these machines cannot be put in order: run chrony or systemd-timesyncd on both"};
}

}  // namespace

void add_link_checks(DoctorReport* report) {
  const auto& pairs = report->links.pairs;
  if (pairs.empty()) return;
  auto slowest =
      std::min_element(pairs.begin(), pairs.end(), [](const auto& a, const auto& b) { return a.bytes_per_second < b.bytes_per_second; });
  auto farthest =
      std::max_element(pairs.begin(), pairs.end(), [](const auto& a, const auto& b) { return a.latency_seconds < b.latency_seconds; });
  std::vector<double> speeds;
  for (const auto& pair : pairs) speeds.push_back(pair.bytes_per_second);
  std::nth_element(speeds.begin(), speeds.begin() + static_cast<int64_t>(speeds.size() / 2), speeds.end());
  double usual = speeds[speeds.size() / 2];
  MachineCheck check{"links", CheckStatus::kOk,
                     cat("slowest pair: ", pair_text(*report, *slowest), ", ", speed_text(slowest->bytes_per_second),
                         "; longest latency: ", pair_text(*report, *farthest), ", ", time_text(farthest->latency_seconds)),
                     ""};
  std::set<std::string> hosts(report->rank_hosts.begin(), report->rank_hosts.end());
  constexpr double kMuchSlower = 4;
  if (hosts.size() > 2 && slowest->bytes_per_second * kMuchSlower < usual) {
    check.status = CheckStatus::kWarning;
    check.remedy = cat("a quarter of the usual ", speed_text(usual),
                       " or less: look at the cable, the switch port and the interface (ethtool) of these machines");
  }
  report->link_checks = {check, check_clocks(*report)};
}

int exit_code(const DoctorReport& report) {
  return static_cast<int>(worst(all_checks(report)) == CheckStatus::kFail ? ExitCode::kResource : ExitCode::kOk);
}

std::string to_text(const DoctorReport& report) {
  std::string out;
  for (const auto& host : report.hosts) out += cat(out.empty() ? "" : "\n", "host ", host.host, "\n", check_lines(host.checks));
  if (!report.links.pairs.empty()) out += link_tables(report) + "\n" + check_lines(report.link_checks);
  auto all = all_checks(report);
  auto count = [&](CheckStatus status) { return std::count_if(all.begin(), all.end(), [&](const auto& c) { return c.status == status; }); };
  int64_t failures = count(CheckStatus::kFail), warnings = count(CheckStatus::kWarning);
  return out +
         cat("\n",
             failures > 0 ? cat(failures, failures == 1 ? " thing stops" : " things stop", " a run") : std::string("nothing stops a run"),
             "; ", warnings, warnings == 1 ? " warning\n" : " warnings\n");
}

json to_json(const HostReport& report) {
  json checks = json::array();
  for (const auto& check : report.checks) checks.push_back(check_json(check));
  return {{"host", report.host}, {"checks", checks}};
}

json to_json(const DoctorReport& report) {
  json hosts = json::array();
  for (const auto& host : report.hosts) hosts.push_back(to_json(host));
  json out = {{"hosts", hosts}, {"worst", check_word(worst(all_checks(report)))}, {"exit_code", exit_code(report)}};
  if (report.links.pairs.empty()) return out;
  json pairs = json::array(), collectives = json::array(), clocks = json::array(), checks = json::array();
  for (const auto& pair : report.links.pairs)
    pairs.push_back(
        {{"ranks", {pair.first, pair.second}}, {"latency_seconds", pair.latency_seconds}, {"bytes_per_second", pair.bytes_per_second}});
  for (const auto& collective : report.links.collectives)
    collectives.push_back({{"operation", collective.operation}, {"bytes", collective.bytes}, {"seconds", collective.seconds}});
  for (size_t rank = 0; rank < report.links.clock_seconds.size(); ++rank)
    clocks.push_back(
        {{"rank", rank}, {"seconds", report.links.clock_seconds[rank]}, {"error_seconds", report.links.clock_error_seconds[rank]}});
  for (const auto& check : report.link_checks) checks.push_back(check_json(check));
  out["ranks"] = report.rank_hosts;
  out["pairs"] = pairs;
  out["collectives"] = collectives;
  out["clocks"] = clocks;
  out["link_checks"] = checks;
  return out;
}

HostReport host_report_from_json(const json& value) {
  HostReport report{value.at("host").get<std::string>(), {}};
  for (const auto& check : value.at("checks")) {
    std::string word = check.at("status").get<std::string>();
    CheckStatus status = CheckStatus::kFail;
    for (CheckStatus each : {CheckStatus::kOk, CheckStatus::kNote, CheckStatus::kWarning})
      if (word == check_word(each)) status = each;
    report.checks.push_back(
        {check.at("name").get<std::string>(), status, check.at("found").get<std::string>(), check.at("remedy").get<std::string>()});
  }
  return report;
}

}  // namespace plait
