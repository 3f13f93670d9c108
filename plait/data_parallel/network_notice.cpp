#include "plait/data_parallel/network_notice.h"

#include <ATen/ATen.h>

#include <algorithm>
#include <cstdio>
#include <functional>
#include <map>

#include "plait/base/error.h"
#include "plait/comm/shm_memory.h"
#include "plait/config/enum_names.h"

namespace plait {

namespace {

// Bytes of a number in the messages of a compression between pairs of ranks; 0: it has none, or takes the group's collectives.
int64_t compressed_bytes(const Config& config) {
  switch (config.train.comm.compression.algorithm) {
    case GradientCompression::kBFloat16:
    case GradientCompression::kFloat16: return 2;
    case GradientCompression::kFloat8: return 1;
    default: return 0;
  }
}

// 0 when gradients go through collectives.
int64_t pair_bytes(const Config& config, int64_t element_size) {
  if (int64_t bytes = compressed_bytes(config); bytes > 0) return bytes;
  return config.train.comm.priority.data_parallel == CommStyle::kP2P ? element_size : 0;
}

// Different machines get different numbers, but for one chance in 2^63.
int64_t own_machine() { return static_cast<int64_t>(std::hash<std::string>()(detail::machine_identity()) >> 1); }

}  // namespace

std::string network_notice(const Config& config, ProcessGroup& data, int64_t element_size) {
  if (data.size() == 1 || pair_bytes(config, element_size) == 0) return "";
  at::Tensor mine = at::full({1}, own_machine(), at::TensorOptions().dtype(at::kLong)).to(data.device());
  at::Tensor all = mine.repeat({data.size()});
  data.all_gather(all, mine)->wait();
  all = all.cpu();
  const int64_t* machines = all.const_data_ptr<int64_t>();
  return network_notice(config, std::vector<int64_t>(machines, machines + data.size()), element_size);
}

std::string network_notice(const Config& config, const std::vector<int64_t>& machines, int64_t element_size) {
  const int64_t bytes = pair_bytes(config, element_size);
  std::map<int64_t, int64_t> members;
  for (int64_t machine : machines) ++members[machine];
  int64_t most = 0, crossing = static_cast<int64_t>(machines.size() * machines.size());  // ordered pairs between machines
  for (const auto& [machine, count] : members) {
    most = std::max(most, count);
    crossing -= count * count;
  }
  if (bytes == 0 || members.size() < 2 || most < 2) return "";
  // Each pair: a shard to its owner and a sum back, of all numbers over the ranks; a collective: twice all numbers from all machines but one.
  const double factor = static_cast<double>(bytes * crossing) / static_cast<double>(machines.size()) /
                        (static_cast<double>(element_size) * static_cast<double>(members.size() - 1));
  char text[32];
  std::snprintf(text, sizeof text, "%.2g", factor);
  const bool compresses = compressed_bytes(config) > 0;
  const std::string setting = compresses ? "train.comm.compression.algorithm" : "train.comm.priority.data_parallel";
  const std::string value = compresses ? enum_word(config.train.comm.compression.algorithm) : "p2p";
  return cat(setting, ' ', value, config.where(setting), ": up to ", most, " of the ", machines.size(),
             " data ranks share a machine, and each sends for itself: between machines ", text, " x the bytes of ",
             compresses ? "none; nearest alternative powersgd" : "collective; nearest alternative collective",
             ", whose sums cross the network once a machine");
}

}  // namespace plait
