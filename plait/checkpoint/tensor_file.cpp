#include "plait/checkpoint/tensor_file.h"

#include <ATen/ATen.h>

#include <nlohmann/json.hpp>

#include "plait/base/atomic_file.h"
#include "plait/base/error.h"

namespace plait {

void write_tensor_file(const std::string& path, const std::vector<std::pair<std::string, at::Tensor>>& tensors) {
  nlohmann::ordered_json header;
  std::vector<at::Tensor> data;
  int64_t offset = 0;
  for (const auto& [name, tensor] : tensors) {
    PLAIT_CHECK(tensor.scalar_type() == at::kFloat || tensor.scalar_type() == at::kLong, name);
    data.push_back(tensor.contiguous());
    int64_t bytes = static_cast<int64_t>(data.back().nbytes());
    header[name] = {{"dtype", tensor.scalar_type() == at::kFloat ? "F32" : "I64"},
                    {"shape", tensor.sizes().vec()},
                    {"data_offsets", {offset, offset + bytes}}};
    offset += bytes;
  }
  std::string text = header.dump();
  text.resize((text.size() + 7) / 8 * 8, ' ');
  auto length = static_cast<uint64_t>(text.size());
  AtomicFile file(path);
  file.write(&length, sizeof length);
  file.write(text);
  for (const auto& tensor : data) file.write(tensor.const_data_ptr(), tensor.nbytes());
  file.commit();
}

}  // namespace plait
