// Lines for people, on stderr, one write(2) each so that lines of several ranks never mix.
// The launcher adds the rank prefix; a rank that runs alone prints plainly. Thread safe.
#pragma once

#include <string>

#include "plait/base/text.h"

namespace plait {

enum class LogLevel { kInfo, kWarning, kError };

// Writes "message\n" (warnings: "warning: message\n").
void log_line(LogLevel level, const std::string& message);

template <class... Pieces>
void log_info(const Pieces&... pieces) {
  log_line(LogLevel::kInfo, cat(pieces...));
}
template <class... Pieces>
void log_warning(const Pieces&... pieces) {
  log_line(LogLevel::kWarning, cat(pieces...));
}

}  // namespace plait
