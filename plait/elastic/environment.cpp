#include "plait/elastic/environment.h"

#include <charconv>
#include <cstdlib>

#include "plait/base/text.h"

namespace plait {

namespace {

using Variable = std::function<std::optional<std::string>(const std::string&)>;

std::string required(const Variable& variable, const std::string& name, const std::string& why) {
  auto value = variable(name);
  if (!value || value->empty()) {
    throw_error(ExitCode::kUsage, "the environment variable ", name, " is ", value ? "empty" : "not set", ", but ", why,
                ": a launcher sets RANK, WORLD_SIZE, LOCAL_RANK, MASTER_ADDR and MASTER_PORT together; unset them all to let plait start "
                "its own ranks");
  }
  return *value;
}

int64_t number(const std::string& name, const std::string& text, int64_t least, int64_t most, const std::string& rule) {
  int64_t value = 0;
  auto [end, error] = std::from_chars(text.data(), text.data() + text.size(), value);
  if (error != std::errc() || end != text.data() + text.size() || value < least || value > most) {
    throw_error(ExitCode::kUsage, "the environment variable ", name, "=", text, " is not a whole number from ", least, " to ", most, " (",
                rule, ")");
  }
  return value;
}

}  // namespace

std::optional<std::string> process_variable(const std::string& name) {
  const char* value = std::getenv(name.c_str());
  return value ? std::optional<std::string>(value) : std::nullopt;
}

std::optional<RankEnvironment> read_launcher_environment(const Variable& variable) {
  std::string given;
  for (const char* name : {"RANK", "WORLD_SIZE", "LOCAL_RANK"}) {
    if (variable(name) && given.empty()) given = name;
  }
  if (given.empty()) return std::nullopt;
  const std::string why = cat(given, " is set");
  constexpr int64_t kMostRanks = 1 << 20;

  RankEnvironment env;
  env.world_size = number("WORLD_SIZE", required(variable, "WORLD_SIZE", why), 1, kMostRanks, "the number of ranks");
  env.rank = number("RANK", required(variable, "RANK", why), 0, env.world_size - 1, cat("below WORLD_SIZE ", env.world_size));
  env.local_world_size = env.world_size;
  if (auto text = variable("LOCAL_WORLD_SIZE"); text && !text->empty()) {
    env.local_world_size = number("LOCAL_WORLD_SIZE", *text, 1, env.world_size, cat("at most WORLD_SIZE ", env.world_size));
  }
  env.local_rank = number("LOCAL_RANK", required(variable, "LOCAL_RANK", why), 0, env.local_world_size - 1,
                          cat("below the number of ranks on this node, ", env.local_world_size));
  if (env.world_size > 1) {
    env.master_addr = required(variable, "MASTER_ADDR", why);
    env.master_port = static_cast<int>(number("MASTER_PORT", required(variable, "MASTER_PORT", why), 1, 65535, "a TCP port"));
  }
  // The torch launcher keeps the store itself; it writes str(bool).
  const bool agent_store = variable("TORCHELASTIC_USE_AGENT_STORE").value_or("") == "True";
  env.listen = env.rank == 0 && env.world_size > 1 && !agent_store;
  return env;
}

}  // namespace plait
