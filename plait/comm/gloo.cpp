#include "plait/comm/gloo.h"

#include <torch/csrc/distributed/c10d/ProcessGroupGloo.hpp>

#include <cstdlib>

namespace plait::detail {

struct GlooFactory::Device {
  std::shared_ptr<::gloo::transport::Device> device;
};

GlooFactory::GlooFactory(const std::string& address) : device_(std::make_unique<Device>()) {
  const char* interface = std::getenv("GLOO_SOCKET_IFNAME");
  device_->device = interface && *interface ? c10d::ProcessGroupGloo::createDeviceForInterface(interface)
                                            : c10d::ProcessGroupGloo::createDeviceForHostname(address);
}

GlooFactory::~GlooFactory() = default;

c10::intrusive_ptr<c10d::Backend> GlooFactory::make(c10::intrusive_ptr<c10d::Store> store, int rank, int size,
                                                    std::chrono::milliseconds timeout) {
  auto options = c10d::ProcessGroupGloo::Options::create(timeout);
  options->devices.push_back(device_->device);
  return c10::make_intrusive<c10d::ProcessGroupGloo>(store, rank, size, options);
}

}  // namespace plait::detail
