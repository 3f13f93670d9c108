#include "plait/comm/gloo.h"

#include <torch/csrc/distributed/c10d/ProcessGroupGloo.hpp>

#include <cstdlib>
#include <sstream>
#include <vector>

namespace plait::detail {

struct GlooFactory::Devices {
  std::vector<std::shared_ptr<::gloo::transport::Device>> devices;
};

GlooFactory::GlooFactory(const std::string& address) : devices_(std::make_unique<Devices>()) {
  const char* interfaces = std::getenv("GLOO_SOCKET_IFNAME");
  std::istringstream names(interfaces ? interfaces : "");
  for (std::string name; std::getline(names, name, ',');)
    if (!name.empty()) devices_->devices.push_back(c10d::ProcessGroupGloo::createDeviceForInterface(name));
  if (devices_->devices.empty()) devices_->devices.push_back(c10d::ProcessGroupGloo::createDeviceForHostname(address));
}

GlooFactory::~GlooFactory() = default;

c10::intrusive_ptr<c10d::Backend> GlooFactory::make(c10::intrusive_ptr<c10d::Store> store, int rank, int size,
                                                    std::chrono::milliseconds timeout) {
  auto options = c10d::ProcessGroupGloo::Options::create(timeout);
  options->devices = devices_->devices;
  options->threads = 2 * static_cast<int>(devices_->devices.size());  // as torch.distributed
  return c10::make_intrusive<c10d::ProcessGroupGloo>(store, rank, size, options);
}

}  // namespace plait::detail
