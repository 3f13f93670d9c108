// BorderCodec: what an activation or a gradient is on its way between two pipeline stages: itself, or a message of fewer bytes
// (train.comm.compression.pipeline). Both ends know the shape. Rows are coded apart, so a row's numbers depend neither on its neighbours nor on
// how rows are shared out. The gradient of a rounded activation is passed on as that of the activation itself. No error feedback: a
// border's numbers belong to one micro-batch only. An element that is not finite stays visible.
#pragma once

#include <ATen/core/Tensor.h>

#include <cstdint>
#include <optional>

#include "plait/config/config.h"
#include "plait/tensor/wire_codec.h"

namespace plait {

class BorderCodec {
 public:
  BorderCodec(BorderCompression wish, at::ScalarType compute_type, at::Device device);

  // border: [rows, width], contiguous. The result is sent and stays untouched until it is.
  at::Tensor encode(const at::Tensor& border);
  // Where a border of that shape is received.
  at::Tensor arriving(int64_t rows, int64_t width) const;
  // The border, from what arrived.
  at::Tensor decode(const at::Tensor& message, int64_t rows, int64_t width) const;

  // Since the object exists, on this rank.
  int64_t bytes_sent() const { return bytes_sent_; }
  int64_t bytes_saved() const { return bytes_saved_; }
  bool compresses() const { return type_.has_value(); }

 private:
  std::optional<WireType> type_;  // none: borders go as they are
  at::TensorOptions options_;
  int64_t bytes_sent_ = 0, bytes_saved_ = 0;
};

}  // namespace plait
