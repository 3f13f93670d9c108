// The part of Gloo that c10d/ProcessGroupGloo.hpp names. The PyTorch wheel exports ProcessGroupGloo but ships no Gloo headers.
// Declarations only, used by plait/comm/gloo.cpp alone: it constructs ProcessGroupGloo and calls it through c10d::Backend.
#pragma once

namespace gloo {
namespace transport {
class Device;
class UnboundBuffer {
 public:
  virtual ~UnboundBuffer();
};
}  // namespace transport
}  // namespace gloo
