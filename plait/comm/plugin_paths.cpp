#include "plait/comm/plugin_paths.h"

#include <unistd.h>

namespace plait::detail {

std::vector<std::string> plugin_paths(const std::string& file) {
  std::string program(4096, '\0');
  ssize_t length = ::readlink("/proc/self/exe", program.data(), program.size());
  program.resize(length > 0 ? static_cast<size_t>(length) : 0);
  std::string folder = program.substr(0, program.rfind('/'));
  return {folder + "/" + file, folder + "/../lib/plait/" + file};
}

std::string find_plugin(const std::string& file) {
  for (const auto& path : plugin_paths(file))
    if (::access(path.c_str(), R_OK) == 0) return path;
  return "";
}

}  // namespace plait::detail
