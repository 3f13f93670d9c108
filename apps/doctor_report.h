// What `plait doctor` found, as text and as JSON. Plain values; no rank rule.
#pragma once

#include <nlohmann/json_fwd.hpp>
#include <string>
#include <vector>

#include "plait/comm/link_test.h"
#include "plait/elastic/machine_checks.h"

namespace plait {

struct HostReport {
  std::string host;
  std::vector<MachineCheck> checks;
};

struct DoctorReport {
  std::vector<HostReport> hosts;        // in rank order of the rank that looked
  std::vector<std::string> rank_hosts;  // by rank; empty for one process
  LinkReport links;
  std::vector<MachineCheck> link_checks;  // judgement over links and clocks
};

// Fills link_checks from links: slowest pair, clocks.
void add_link_checks(DoctorReport* report);

// 0, or 8 when anything stops a run.
int exit_code(const DoctorReport& report);

std::string to_text(const DoctorReport& report);
nlohmann::json to_json(const DoctorReport& report);
nlohmann::json to_json(const HostReport& report);
HostReport host_report_from_json(const nlohmann::json& json);

}  // namespace plait
