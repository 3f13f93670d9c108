#include "plait/train/pipeline_memory.h"

#include <gtest/gtest.h>

namespace plait {
namespace {

TEST(PipelineMemory, IsWhatTheMachineAndItsControlGroupsLeave) {
  const std::string text = "MemTotal:       24576000 kB\nMemFree:          900000 kB\nMemAvailable:   20480000 kB\nBuffers:  5 kB\n";
  EXPECT_EQ(available_bytes(text, int64_t{1} << 60), int64_t{20480000} * 1024);
  EXPECT_EQ(available_bytes(text, 123456), 123456);
  EXPECT_EQ(available_bytes("MemFree: 7 kB\n", int64_t{1} << 60), 0);
  EXPECT_EQ(available_bytes("", 5), 0);
}

}  // namespace
}  // namespace plait
