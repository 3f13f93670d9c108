#include "plait/rendezvous/hello.h"

#include <sys/random.h>
#include <unistd.h>

#include <algorithm>
#include <cerrno>
#include <climits>
#include <cstring>

#include "plait/base/error.h"
#include "plait/base/hmac.h"
#include "plait/rendezvous/frame.h"

namespace plait::rendezvous {

namespace {

constexpr size_t kMostNameBytes = 1024;
constexpr size_t kMostSettingsBytes = size_t{192} << 10;

// Folders and files are often named differently on another machine.
bool may_differ(std::string_view name) {
  for (std::string_view path : {"train.work_dir", "model.path", "model.head_init", "train.tensorboard.dir"}) {
    if (name == path) return true;
  }
  return name.starts_with("dataset.") && name.ends_with(".file");
}

constexpr std::string_view kContentsOf = "contents of ";
constexpr std::string_view kAbsent = "(not set)";

std::string shortened(std::string_view line) {
  constexpr size_t kMostLineBytes = 4096, kShownBytes = 200;
  if (line.size() <= kMostLineBytes) return std::string(line);
  return cat(line.substr(0, kShownBytes), "... (", line.size(), " bytes, SHA-256 ", sha256_hex(line).substr(0, 16), ")");
}

// Printable, short, for a line on a terminal: what a peer sent may hold anything.
std::string clean(std::string_view text) {
  std::string out;
  for (char c : text.substr(0, 200)) out.push_back(static_cast<unsigned char>(c) < 32 || c == 127 ? '?' : c);
  return out;
}

// Calls use(line) for each line without its end.
template <class Use>
void for_each_line(std::string_view text, Use use) {
  while (!text.empty()) {
    size_t end = std::min(text.find('\n'), text.size());
    if (end > 0) use(text.substr(0, end));
    text.remove_prefix(std::min(end + 1, text.size()));
  }
}

struct Line {
  std::string_view name, value;
};

Line split_line(std::string_view line) {
  size_t colon = std::min(line.find(": "), line.size());
  return {line.substr(0, colon), line.substr(std::min(colon + 2, line.size()))};
}

// Value without what only messages need: a digest without its path.
std::string_view compared(const Line& line) {
  return line.name.starts_with(kContentsOf) ? line.value.substr(0, line.value.find(' ')) : line.value;
}

// The line of `text` that begins with `name`: all its names are different.
std::optional<std::string_view> value_of(std::string_view text, std::string_view name) {
  std::optional<std::string_view> found;
  for_each_line(text, [&](std::string_view line) {
    if (Line parts = split_line(line); !found && parts.name == name) found = parts.value;
  });
  return found;
}

// Both values around the place where they differ, when they are long.
SettingDifference shown(std::string_view name, std::string_view first, std::string_view second) {
  if (name.starts_with(kContentsOf)) {
    auto path = [](std::string_view value) {
      size_t space = std::min(value.find(' '), value.size());
      return value == kAbsent ? "not given" : clean(value.substr(std::min(space + 1, value.size())));
    };
    return {clean(name.substr(kContentsOf.size())), path(first), path(second), true};
  }
  constexpr size_t kMost = 80;
  size_t same = 0;
  while (same < first.size() && same < second.size() && first[same] == second[same]) ++same;
  size_t from = std::max(first.size(), second.size()) > kMost && same > 20 ? same - 20 : 0;
  auto part = [&](std::string_view value) {
    std::string text(value.substr(std::min(from, value.size()), kMost));
    return cat(from > 0 ? "..." : "", clean(text), from + kMost < value.size() ? "..." : "");
  };
  return {clean(name), part(first), part(second), false};
}

}  // namespace

std::string plait_version() { return PLAIT_VERSION; }

Hello Hello::of_this_process(int64_t rank, int64_t world_size) {
  Hello hello;
  hello.rank = rank;
  hello.world_size = world_size;
  char host[HOST_NAME_MAX + 1] = "";
  ::gethostname(host, sizeof host - 1);
  hello.host = host;
  hello.pid = ::getpid();
  hello.instance = random_bytes(16);
  return hello;
}

std::string encode(const Hello& hello) {
  FieldWriter fields;
  fields.number(hello.rank).number(hello.world_size).text(hello.job_id).text(hello.version).text(hello.host).number(hello.pid);
  fields.text(hello.instance).byte(hello.further).byte(hello.has_secret).text(hello.settings);
  return fields.payload();
}

Hello decode_hello(std::string_view bytes) {
  FieldReader fields(bytes);
  Hello hello;
  hello.rank = fields.number();
  hello.world_size = fields.number();
  hello.job_id = clean(fields.text(kMostNameBytes));
  hello.version = clean(fields.text(kMostNameBytes));
  hello.host = clean(fields.text(kMostNameBytes));
  hello.pid = fields.number();
  hello.instance = fields.text(kNonceBytes);
  hello.further = fields.byte() != 0;
  hello.has_secret = fields.byte() != 0;
  hello.settings = fields.text(kMostSettingsBytes);
  fields.expect_end();
  return hello;
}

std::string name_of(const Hello& hello) { return cat("rank ", hello.rank, " (host ", hello.host, ", pid ", hello.pid, ")"); }

std::string proof(std::string_view secret, Prover prover, std::string_view server_nonce, std::string_view client_nonce,
                  std::string_view hello_bytes) {
  FieldWriter message;
  message.text(prover == Prover::kClient ? "plait rendezvous client" : "plait rendezvous server");
  message.text(server_nonce).text(client_nonce).text(hello_bytes);
  Sha256Digest digest = hmac_sha256(secret, message.payload());
  return std::string(reinterpret_cast<const char*>(digest.data()), digest.size());
}

std::string random_bytes(size_t count) {
  std::string bytes(count, '\0');
  for (size_t done = 0; done < count;) {
    ssize_t n = ::getrandom(bytes.data() + done, count - done, 0);
    if (n < 0 && errno != EINTR) throw_error(ExitCode::kResource, "the system gives no random bytes: ", std::strerror(errno));
    if (n > 0) done += static_cast<size_t>(n);
  }
  return bytes;
}

std::string contents_line(std::string_view name, std::string_view digest, std::string_view path) {
  return cat(kContentsOf, name, ": ", digest, " ", clean(path.substr(path.size() - std::min<size_t>(path.size(), 200))), "\n");
}

std::string comparable_settings(std::string_view config_text) {
  std::vector<std::string> sections;
  std::string out, contents;
  for_each_line(config_text, [&](std::string_view line) {
    if (line.starts_with(kContentsOf)) {
      contents += cat(line, "\n");
      return;
    }
    size_t indent = std::min(line.find_first_not_of(' '), line.size());
    std::string_view rest = line.substr(indent);
    sections.resize(std::min(sections.size(), indent / 2));
    if (rest.ends_with(':')) {
      sections.emplace_back(rest.substr(0, rest.size() - 1));
      return;
    }
    std::string full;
    for (const auto& section : sections) full += section + ".";
    full += rest;
    if (!may_differ(split_line(full).name)) out += shortened(full) + "\n";
  });
  if (out.size() + contents.size() > kMostSettingsBytes) out = cat("all settings together: SHA-256 ", sha256_hex(out), "\n");
  return out + contents;
}

std::optional<SettingDifference> first_difference(std::string_view first, std::string_view second) {
  if (first == second) return std::nullopt;
  std::optional<SettingDifference> found;
  auto look = [&](std::string_view here, std::string_view there, bool swapped) {
    for_each_line(here, [&](std::string_view line) {
      if (found) return;
      Line parts = split_line(line);
      std::string_view other = value_of(there, parts.name).value_or(kAbsent);
      if (compared({parts.name, other}) == compared(parts)) return;
      found = swapped ? shown(parts.name, other, parts.value) : shown(parts.name, parts.value, other);
    });
  };
  look(first, second, false);
  look(second, first, true);
  return found;
}

}  // namespace plait::rendezvous
