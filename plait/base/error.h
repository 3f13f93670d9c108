// Error: what the user reads and the code the process ends with. One message says setting, value, rule, nearest
// valid value and where it came from. Thrown anywhere, caught once in apps/.
#pragma once

#include <stdexcept>
#include <string>
#include <utility>

#include "plait/base/text.h"

namespace plait {

// Exit codes of the process (docs/errors.md).
enum class ExitCode : int {
  kOk = 0,
  kBug = 1,
  kUsage = 2,       // settings, shapes against layout, unwritable work_dir
  kData = 3,        // rows of data files
  kCheckpoint = 4,  // anything in a model or checkpoint folder
  kRendezvous = 5,  // port, peers that never come
  kPeerLost = 6,    // a rank that died
  kHang = 7,
  kResource = 8,  // disk, memory, descriptors, device absent
  kNonFinite = 9,
  kRestarts = 10,
  kBusy = 11,  // work_dir in use
  kAuth = 12,
  kPreempted = 75,
  kInterrupted = 130,
};

class Error : public std::runtime_error {
 public:
  Error(ExitCode code, const std::string& message) : std::runtime_error(message), code_(code) {}
  ExitCode code() const { return code_; }

 private:
  ExitCode code_;
};

// throw_error(ExitCode::kUsage, "dropout ", value, " is not in [0, 1)"): pieces are joined as text.
template <class... Pieces>
[[noreturn]] void throw_error(ExitCode code, const Pieces&... pieces) {
  throw Error(code, cat(pieces...));
}

namespace detail {
[[noreturn]] void check_failed(const char* condition, const char* file, int line, const std::string& message);
}

// A bug of plait, not of the user: ends with exit code 1 and the place.
#define PLAIT_CHECK(condition, ...) \
  do { \
    if (!(condition)) ::plait::detail::check_failed(#condition, __FILE__, __LINE__, ::plait::cat("" __VA_OPT__(, ) __VA_ARGS__)); \
  } while (false)

}  // namespace plait
