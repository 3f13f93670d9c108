#include "plait/train/fault.h"

#include <csignal>
#include <cstdlib>
#include <sstream>
#include <vector>

#include "plait/base/error.h"

namespace plait {

std::optional<Fault> read_fault() {
  const char* text = std::getenv("PLAIT_FAULT");
  if (!text || !*text) return std::nullopt;
  std::vector<std::string> parts;
  std::stringstream stream(text);
  for (std::string part; std::getline(stream, part, ':');) parts.push_back(part);
  auto number = [&](size_t i) {
    size_t end = 0;
    int64_t value = -1;
    try {
      value = std::stoll(parts[i], &end);
    } catch (const std::exception&) {}
    if (value < 0 || end != parts[i].size()) parts.clear();
    return value;
  };
  Fault fault;
  if (parts.size() >= 3) {
    fault.action = parts[0];
    fault.place = parts[2];
    if (parts.size() == 4) fault.step = number(3);
    if (parts.size() >= 3) fault.rank = number(1);
  }
  bool known = (fault.action == "kill" || fault.action == "throw" || fault.action == "overflow") &&
               (fault.place == "start" || fault.place == "step" || fault.place == "export");
  if (parts.size() < 3 || parts.size() > 4 || !known)
    throw_error(ExitCode::kUsage, "PLAIT_FAULT=", text,
                " is not ACTION:RANK:PLACE[:STEP], ACTION kill | throw | overflow, PLACE start | step | export");
  return fault;
}

void apply_fault(const std::optional<Fault>& fault, int64_t rank, const std::string& place, int64_t step) {
  if (!fault || fault->rank != rank || fault->place != place || fault->action == "overflow") return;
  if (place == "step" && fault->step != step) return;
  if (fault->action == "kill") std::raise(SIGKILL);
  throw_error(ExitCode::kBug, "rank ", rank, " failed at ", place, place == "step" ? cat(" ", step) : "",
              " because PLAIT_FAULT asked for it");
}

}  // namespace plait
