#include "plait/base/log.h"

#include <unistd.h>

namespace plait {

void log_line(LogLevel level, const std::string& message) {
  std::string line = level == LogLevel::kWarning ? "warning: " : level == LogLevel::kError ? "error: " : "";
  line += message;
  line += '\n';
  size_t done = 0;
  while (done < line.size()) {
    ssize_t n = ::write(STDERR_FILENO, line.data() + done, line.size() - done);
    if (n <= 0) return;
    done += static_cast<size_t>(n);
  }
}

}  // namespace plait
