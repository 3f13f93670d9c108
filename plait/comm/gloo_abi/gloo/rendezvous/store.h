// The part of Gloo that c10d/ProcessGroupGloo.hpp names. The PyTorch wheel exports ProcessGroupGloo but ships no Gloo headers.
// Declarations only, used by plait/comm/gloo.cpp alone: it constructs ProcessGroupGloo and calls it through c10d::Backend.
#pragma once

#include <chrono>
#include <string>
#include <vector>

namespace gloo {
namespace rendezvous {
class Store {
 public:
  virtual ~Store() = default;
  virtual void set(const std::string&, const std::vector<char>&) = 0;
  virtual std::vector<char> get(const std::string&) = 0;
  virtual void wait(const std::vector<std::string>&) = 0;
  virtual void wait(const std::vector<std::string>&, const std::chrono::milliseconds&) = 0;
};
}  // namespace rendezvous
}  // namespace gloo
