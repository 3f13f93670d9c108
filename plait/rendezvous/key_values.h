// KeyValues: the shared table of a job, with the operations that c10d needs and a bound on what it may hold. One thread.
#pragma once

#include <cstdint>
#include <map>
#include <string>
#include <string_view>
#include <vector>

namespace plait::rendezvous {

class KeyValues {
 public:
  explicit KeyValues(size_t most_bytes = size_t{256} << 20) : most_bytes_(most_bytes) {}

  // All that write throw Error(kResource) when the table would hold too much; nothing is changed then.
  void set(const std::string& key, std::string value);
  void append(const std::string& key, std::string_view value);
  // The number in the table (0 when absent) plus `amount`, stored as decimal text. Error(kBug) when the value is no number.
  int64_t add(const std::string& key, int64_t amount);
  // Stores `wanted` when the value is `expected`, or when both the key is absent and `expected` is empty. Returns what the key now
  // holds; an absent key that stays absent gives `expected`, as c10d's other stores do.
  std::string compare_set(const std::string& key, const std::string& expected, std::string wanted);
  bool remove(const std::string& key);
  const std::string* find(const std::string& key) const;
  bool has_all(const std::vector<std::string>& keys) const;
  size_t size() const { return values_.size(); }

 private:
  std::map<std::string, std::string> values_;
  size_t most_bytes_;
  size_t num_bytes_ = 0;
};

}  // namespace plait::rendezvous
