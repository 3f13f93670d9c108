#include "plait/config/strict_json.h"

#include <sys/stat.h>

#include <cerrno>
#include <cstring>
#include <fstream>
#include <nlohmann/json.hpp>
#include <set>
#include <sstream>

#include "plait/base/error.h"

namespace plait {

namespace {

// Builds the document; refuses duplicate keys and deep nesting while reading, before memory is spent on them.
class StrictBuilder : public nlohmann::detail::json_sax_dom_parser<nlohmann::json> {
  using Base = nlohmann::detail::json_sax_dom_parser<nlohmann::json>;

 public:
  StrictBuilder(nlohmann::json& root, const std::string& origin, int max_depth)
      : Base(root, false), origin_(origin), max_depth_(max_depth) {}

  bool start_object(std::size_t size) {
    enter();
    keys_.emplace_back();
    return Base::start_object(size);
  }
  bool end_object() {
    keys_.pop_back();
    --depth_;
    return Base::end_object();
  }
  bool key(std::string& name) {
    if (!keys_.back().insert(name).second)
      throw_error(ExitCode::kCheckpoint, origin_, ": the key ", shown_name(name), " is given twice in one object");
    return Base::key(name);
  }
  bool start_array(std::size_t size) {
    enter();
    return Base::start_array(size);
  }
  bool end_array() {
    --depth_;
    return Base::end_array();
  }
  bool parse_error(std::size_t position, const std::string&, const nlohmann::detail::exception& error) {
    throw_error(ExitCode::kCheckpoint, origin_, ": not valid JSON at byte ", position, ": ", error.what());
  }

 private:
  void enter() {
    if (++depth_ > max_depth_) throw_error(ExitCode::kCheckpoint, origin_, ": JSON nested deeper than ", max_depth_, " levels");
  }

  const std::string& origin_;
  int max_depth_;
  int depth_ = 0;
  std::vector<std::set<std::string>> keys_;
};

}  // namespace

std::string shown_name(std::string_view name) {
  constexpr size_t kShown = 120;
  std::string out = "\"";
  for (char c : name.substr(0, kShown)) {
    auto byte = static_cast<unsigned char>(c);
    if (byte < 0x20 || byte == 0x7f) {
      const char* hex = "0123456789abcdef";
      out += {'\\', 'x', hex[byte >> 4], hex[byte & 15]};
    } else {
      out += c;
    }
  }
  return out + (name.size() > kShown ? "...\"" : "\"");
}

nlohmann::json parse_json_object(std::string_view text, const std::string& origin, const JsonLimits& limits) {
  if (static_cast<int64_t>(text.size()) > limits.max_bytes)
    throw_error(ExitCode::kCheckpoint, origin, ": ", text.size(), " bytes of JSON, at most ", limits.max_bytes, " are read");
  // The library takes a NUL byte for the end of the text, and would pass over what follows.
  if (auto nul = text.find('\0'); nul != std::string_view::npos)
    throw_error(ExitCode::kCheckpoint, origin, ": not valid JSON: NUL byte at ", nul);
  nlohmann::json root;
  StrictBuilder builder(root, origin, limits.max_depth);
  nlohmann::json::sax_parse(text.begin(), text.end(), &builder);
  if (!root.is_object()) throw_error(ExitCode::kCheckpoint, origin, ": must hold one JSON object, not ", root.type_name());
  return root;
}

std::string read_text_file(const std::string& path, int64_t max_bytes) {
  struct stat info {};
  if (::stat(path.c_str(), &info) != 0) throw_error(ExitCode::kCheckpoint, path, ": ", std::strerror(errno));
  if (!S_ISREG(info.st_mode)) throw_error(ExitCode::kCheckpoint, path, ": not a regular file");
  if (info.st_size > max_bytes)
    throw_error(ExitCode::kCheckpoint, path, ": ", static_cast<int64_t>(info.st_size), " bytes, at most ", max_bytes, " are read");
  std::ifstream file(path, std::ios::binary);
  std::ostringstream text;
  text << file.rdbuf();
  if (!file || (text.str().empty() && info.st_size > 0))
    throw_error(ExitCode::kCheckpoint, path, ": cannot be read: ", std::strerror(errno));
  return std::move(text).str();
}

}  // namespace plait
