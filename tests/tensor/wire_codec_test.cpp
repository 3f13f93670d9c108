#include "plait/tensor/wire_codec.h"

#include <ATen/ATen.h>
#include <gtest/gtest.h>

#include <cmath>
#include <limits>

#include "plait/tensor/wire_kernels.h"

namespace plait {
namespace {

at::Tensor round_trip(WireType type, const at::Tensor& values) {
  at::Tensor out = at::empty_like(values);
  decode_wire(type, encode_wire(type, values), out);
  return out;
}

at::Tensor numbers(std::vector<int64_t> shape, double scale) {
  int64_t n = 1;
  for (int64_t d : shape) n *= d;
  at::Tensor i = at::arange(n, at::kDouble);
  return (at::sin(i * 12.9898) * at::exp(at::sin(i * 0.37) * 4) * scale).to(at::kFloat).view(shape);
}

double relative_error(const at::Tensor& a, const at::Tensor& b) {
  at::Tensor d = a.to(at::kDouble) - b.to(at::kDouble);
  return std::sqrt((d * d).sum().item<double>() / (b.to(at::kDouble) * b.to(at::kDouble)).sum().item<double>());
}

// Each bit pattern of the formats is decoded as torch decodes it, and encoding rounds as torch rounds.
TEST(WireCodec, NumbersAreTorchsFloat8AndHalf) {
  for (WireType type : {WireType::kFloat8, WireType::kFloat16}) {
    const bool is_float8 = type == WireType::kFloat8;
    const at::ScalarType torch_type = is_float8 ? at::kFloat8_e4m3fn : at::kHalf;
    // The first element of a block fixes its scale at one: the largest exponent of the format's top.
    const double top = is_float8 ? 256.0 : 16384.0;
    at::Tensor i = at::arange(255 * 200, at::kDouble);
    at::Tensor x = (at::sin(i) * at::exp2(-at::remainder(i, 30.0)) * top * 1.7).to(at::kFloat).view({200, 255});
    at::Tensor rows = at::cat({at::full({200, 1}, top), x}, 1).contiguous();
    at::Tensor out = round_trip(type, rows);
    EXPECT_TRUE(at::equal(out, rows.to(torch_type).to(at::kFloat))) << (is_float8 ? "fp8" : "fp16");
  }
}

TEST(WireCodec, ErrorDoesNotDependOnTheSizeOfTheNumbers) {
  const struct {
    WireType type;
    double bound;
  } cases[] = {{WireType::kBFloat16, 0x1p-8}, {WireType::kFloat16, 0x1p-11}, {WireType::kFloat8, 0x1p-4}};
  for (const auto& c : cases)
    for (double scale : {1e-30, 1e-9, 1.0, 65536.0, 1e20, 1e34})
      for (std::vector<int64_t> shape : {std::vector<int64_t>{1}, {255}, {256}, {257}, {1000}, {3, 300}, {5, 7}}) {
        at::Tensor x = numbers(shape, scale);
        x.view({-1})[0] = scale;
        EXPECT_LE(relative_error(round_trip(c.type, x), x), c.bound) << scale << " " << x.numel();
        EXPECT_EQ(encode_wire(c.type, x).numel(), wire_bytes(c.type, shape.size() == 2 ? shape[0] : 1, shape.back()));
      }
}

TEST(WireCodec, ZerosTinyNumbersAndEmptyTensors) {
  for (WireType type : {WireType::kBFloat16, WireType::kFloat16, WireType::kFloat8}) {
    EXPECT_TRUE(at::equal(round_trip(type, at::zeros({300})), at::zeros({300})));
    EXPECT_EQ(encode_wire(type, at::zeros({0})).numel(), 0);
    EXPECT_EQ(round_trip(type, at::zeros({0})).numel(), 0);
    at::Tensor tiny = at::full({10}, std::numeric_limits<float>::denorm_min());
    EXPECT_LE(round_trip(type, tiny).abs().max().item<float>(), 1e-37f);
  }
}

TEST(WireCodec, NonFiniteNumbersStayVisible) {
  for (WireType type : {WireType::kBFloat16, WireType::kFloat16, WireType::kFloat8})
    for (float bad : {INFINITY, -INFINITY, NAN})
      for (int64_t place : {0, 255, 256, 999}) {
        at::Tensor x = numbers({1000}, 1.0);
        x[place] = bad;
        at::Tensor finite = round_trip(type, x).isfinite();
        EXPECT_FALSE(finite[place].item<bool>());
        int64_t block = place / kWireBlock;
        EXPECT_TRUE(finite.narrow(0, (block == 0 ? 1 : 0) * kWireBlock, kWireBlock).all().item<bool>()) << "another block is spoilt";
      }
}

// A row's numbers do not depend on the other rows.
TEST(WireCodec, RowsAreApart) {
  at::Tensor x = numbers({4, 300}, 1.0);
  for (WireType type : {WireType::kBFloat16, WireType::kFloat16, WireType::kFloat8}) {
    at::Tensor all = round_trip(type, x), changed = x.clone();
    changed[1].mul_(1e6);
    at::Tensor other = round_trip(type, changed);
    for (int64_t row : {0, 2, 3}) EXPECT_TRUE(at::equal(all[row], other[row]));
    EXPECT_TRUE(at::equal(all[2], round_trip(type, x[2].contiguous())));
  }
}

TEST(WireCodec, ReadsAndWritesOtherTypes) {
  at::Tensor x = numbers({2, 300}, 1.0);
  for (WireType type : {WireType::kBFloat16, WireType::kFloat16, WireType::kFloat8}) {
    EXPECT_TRUE(at::equal(round_trip(type, x.to(at::kDouble)), round_trip(type, x).to(at::kDouble)));
    at::Tensor half = x.to(at::kBFloat16);
    EXPECT_TRUE(at::equal(round_trip(type, half), round_trip(type, half.to(at::kFloat)).to(at::kBFloat16)));
  }
}

TEST(WireCodec, TensorOperationsGiveTheSameBytes) {
  for (WireType type : {WireType::kFloat16, WireType::kFloat8})
    for (double scale : {1e-37, 1e-6, 1.0, 1e30}) {
      at::Tensor x = numbers({3, 700}, scale);
      x[0].zero_();
      x[1][5] = NAN;
      at::Tensor message = encode_wire(type, x), same = detail::encode_with_tensor_operations(type, x);
      EXPECT_TRUE(at::equal(message, same)) << scale << " " << message.ne(same).sum().item<int64_t>();
      at::Tensor a = at::empty_like(x), b = at::empty_like(x);
      decode_wire(type, message, a);
      detail::decode_with_tensor_operations(type, message, b);
      EXPECT_TRUE(at::equal(a.nan_to_num(7), b.nan_to_num(7))) << scale;
    }
}

TEST(WireCodec, LowRankProduct) {
  for (int64_t rank : {1, 3, 8}) {
    at::Tensor left = numbers({37, rank}, 1.0), right = numbers({rank, 45}, 1.0), out = at::empty({37, 45});
    detail::low_rank_product(left.const_data_ptr<float>(), right.const_data_ptr<float>(), 37, 45, rank, out.mutable_data_ptr<float>());
    EXPECT_TRUE(at::allclose(out, at::mm(left, right), 1e-5, 1e-3));
  }
}

}  // namespace
}  // namespace plait
