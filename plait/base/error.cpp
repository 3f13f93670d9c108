#include "plait/base/error.h"

namespace plait::detail {

void check_failed(const char* condition, const char* file, int line, const std::string& message) {
  throw Error(ExitCode::kBug,
              cat("bug in plait: ", condition, " does not hold at ", file, ":", line, message.empty() ? "" : ": ", message));
}

}  // namespace plait::detail
