#include "plait/rendezvous/key_values.h"

#include <algorithm>
#include <charconv>

#include "plait/base/error.h"

namespace plait::rendezvous {

namespace {

// What the table's own structures cost a key, roughly.
constexpr size_t kBytesPerKey = 128;

size_t cost(const std::string& key, const std::string& value) { return key.size() + value.size() + kBytesPerKey; }

}  // namespace

void KeyValues::set(const std::string& key, std::string value) {
  auto it = values_.find(key);
  size_t freed = it == values_.end() ? 0 : cost(key, it->second);
  size_t num_bytes = num_bytes_ - freed + cost(key, value);
  if (num_bytes > most_bytes_)
    throw_error(ExitCode::kResource, "the rendezvous' key-value table is full: ", values_.size(), " keys, ", num_bytes_, " of ",
                most_bytes_, " bytes");
  num_bytes_ = num_bytes;
  if (it == values_.end()) values_.emplace(key, std::move(value));
  else it->second = std::move(value);
}

void KeyValues::append(const std::string& key, std::string_view value) {
  const std::string* old = find(key);
  set(key, cat(old ? *old : std::string(), value));
}

int64_t KeyValues::add(const std::string& key, int64_t amount) {
  int64_t number = 0;
  if (const std::string* old = find(key)) {
    auto [end, error] = std::from_chars(old->data(), old->data() + old->size(), number);
    if (error != std::errc() || end != old->data() + old->size())
      throw_error(ExitCode::kBug, "add: the value of key ", key, " is no number");
  }
  // Wraps around instead of overflowing: the number is a peer's.
  number = static_cast<int64_t>(static_cast<uint64_t>(number) + static_cast<uint64_t>(amount));
  set(key, cat(number));
  return number;
}

std::string KeyValues::compare_set(const std::string& key, const std::string& expected, std::string wanted) {
  const std::string* old = find(key);
  if (old ? *old != expected : !expected.empty()) return old ? *old : expected;
  set(key, wanted);
  return wanted;
}

bool KeyValues::remove(const std::string& key) {
  auto it = values_.find(key);
  if (it == values_.end()) return false;
  num_bytes_ -= cost(key, it->second);
  values_.erase(it);
  return true;
}

const std::string* KeyValues::find(const std::string& key) const {
  auto it = values_.find(key);
  return it == values_.end() ? nullptr : &it->second;
}

bool KeyValues::has_all(const std::vector<std::string>& keys) const {
  return std::all_of(keys.begin(), keys.end(), [&](const std::string& key) { return find(key) != nullptr; });
}

}  // namespace plait::rendezvous
