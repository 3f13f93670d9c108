// The Python rules of docs/data.md, run as they stand there, against EpochOrder.
#include <gtest/gtest.h>
#include <stdlib.h>
#include <unistd.h>

#include <cstdio>
#include <filesystem>
#include <fstream>
#include <string>

#include "plait/base/text.h"
#include "plait/data/sampler.h"

namespace plait {
namespace {

// All ```python blocks, one after the other.
std::string python_of_the_documentation() {
  std::ifstream in(std::string(PLAIT_SOURCE_DIR) + "/docs/data.md");
  std::string code, line;
  bool inside = false;
  while (std::getline(in, line)) {
    if (line.starts_with("```")) {
      inside = line == "```python";
    } else if (inside) {
      code += line + "\n";
    }
  }
  return code;
}

std::string output_of_python(const std::string& code) {
  std::string pattern = (std::filesystem::temp_directory_path() / "plait-order-XXXXXX").string();
  int descriptor = mkstemp(pattern.data());
  EXPECT_GE(descriptor, 0);
  close(descriptor);
  std::ofstream(pattern) << code;
  FILE* pipe = popen(("python3 " + pattern).c_str(), "r");
  std::string output;
  for (int c; (c = fgetc(pipe)) != EOF;) output.push_back(static_cast<char>(c));
  EXPECT_EQ(pclose(pipe), 0);
  std::filesystem::remove(pattern);
  return output;
}

TEST(OrderRule, DocumentedPythonGivesTheSameOrders) {
  std::string code = python_of_the_documentation();
  ASSERT_NE(code.find("def epoch_order"), std::string::npos);
  ASSERT_NE(code.find("def permuted_row"), std::string::npos);
  std::string expected;
  for (int64_t n : {1, 2, 100, 257}) {
    for (bool sorted : {true, false}) {
      code += sorted ? cat("print(*epoch_order(", n, ", 11, 2))\n")
                     : cat("print(*[permuted_row(", n, ", 11, 2, p) for p in range(", n, ")])\n");
      EpochOrder order(n, 11, true, sorted ? kMaxSortedRows : 0);
      for (int64_t p = 0; p < n; ++p) expected += cat(order.row(2, p), p + 1 < n ? " " : "\n");
    }
  }
  EXPECT_EQ(output_of_python(code), expected);
}

}  // namespace
}  // namespace plait
