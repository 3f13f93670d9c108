// Any bytes as flags: pieces between NUL bytes or newlines are NAME=VALUE; the first byte says how many ranks a launcher started and
// whether a piece is a flag or a --set. Reading ends in a Config or in plait::Error, never in anything else.
#include <cstddef>
#include <cstdint>
#include <string>

#include "plait/base/error.h"
#include "plait/config/load_config.h"

extern "C" int LLVMFuzzerTestOneInput(const uint8_t* data, size_t size) {
  if (size == 0) return 0;
  plait::CommandLine command_line;
  bool as_sets = (data[0] & 0x80) != 0;
  std::string piece;
  for (size_t at = 1; at <= size; ++at) {
    char c = at < size ? static_cast<char>(data[at]) : '\n';
    if (c != '\0' && c != '\n') {
      piece.push_back(c);
      continue;
    }
    size_t equals = piece.find('=');
    if (as_sets) command_line.sets.push_back(piece);
    else if (!piece.empty())
      command_line.flags.emplace_back(piece.substr(0, equals), equals == std::string::npos ? "true" : piece.substr(equals + 1));
    piece.clear();
  }
  try {
    plait::config_from_text("", "fuzz.yaml", command_line, data[0] & 0x0f);
  } catch (const plait::Error& error) {
    if (error.code() == plait::ExitCode::kBug) throw;
  }
  return 0;
}
