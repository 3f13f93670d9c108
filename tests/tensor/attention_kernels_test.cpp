// The attention kernels against the textbook in fp64: lengths that leave rests everywhere, shared key/value heads, rotary embedding, all types.
#include "plait/tensor/attention_kernels.h"

#include <gtest/gtest.h>

#include <algorithm>
#include <bit>
#include <cmath>
#include <cstdlib>
#include <limits>
#include <memory>
#include <type_traits>
#include <vector>

#include "plait/base/random.h"

namespace plait::detail {
namespace {

double value(uint64_t salt, size_t i) { return 1.5 * (static_cast<double>(mix64(salt * 1000003 + i) >> 11) * 0x1p-52 - 1.0); }

float wide(float x) { return x; }
float wide(BFloat16Bits x) { return std::bit_cast<float>(static_cast<uint32_t>(x.bits) << 16); }
float wide(Float16Bits x) {
  const int exponent = x.bits >> 10 & 31, fraction = x.bits & 1023;
  const double magnitude = exponent == 0 ? std::ldexp(fraction, -24) : std::ldexp(1024 + fraction, exponent - 25);
  return static_cast<float>(x.bits >> 15 ? -magnitude : magnitude);
}
// Some value of the type near x: the textbook reads the same bits.
template <class T>
T narrow(double x) {
  if constexpr (std::is_same_v<T, float>) return static_cast<float>(x);
  if constexpr (std::is_same_v<T, BFloat16Bits>) return {static_cast<uint16_t>(std::bit_cast<uint32_t>(static_cast<float>(x)) >> 16)};
  if constexpr (std::is_same_v<T, Float16Bits>) {
    const double magnitude = std::abs(x);
    if (magnitude < 0x1p-14) return {0};
    int exponent = 0;
    const auto fraction = static_cast<int>(std::frexp(magnitude, &exponent) * 2048) - 1024;
    return {static_cast<uint16_t>((x < 0 ? 0x8000 : 0) | (exponent + 14) << 10 | fraction)};
  }
}

struct Problem {
  int64_t length, head_size, num_queries;
  bool causal, rotary;
};

using Rows = std::vector<std::vector<double>>;

template <class T>
class Trial {
 public:
  explicit Trial(const Problem& p)
      : p_(p), stride_((p.num_queries + 2) * p.head_size + 3), out_stride_(p.num_queries * p.head_size + 1), qkv(size(stride_)),
        d_qkv(size(stride_)), out(size(out_stride_)), d_out(size(out_stride_)), log_sum_(size(p.num_queries)),
        cosine_(size(p.head_size / 2)), sine_(cosine_.size()) {
    for (size_t i = 0; i < qkv.size(); ++i) qkv[i] = narrow<T>(value(1, i));
    for (size_t i = 0; i < d_out.size(); ++i) d_out[i] = narrow<T>(value(2, i));
    for (size_t i = 0; i < cosine_.size(); ++i) {
      cosine_[i] = static_cast<float>(std::cos(0.37 * static_cast<double>(i)));
      sine_[i] = static_cast<float>(std::sin(0.37 * static_cast<double>(i)));
    }
  }

  void kernels() {
    AttentionHeads<T> h;
    h.length = p_.length, h.head_size = p_.head_size, h.num_queries = p_.num_queries;
    h.scale = kScale, h.causal = p_.causal;
    h.q = qkv.data(), h.k = h.q + p_.num_queries * p_.head_size, h.v = h.k + p_.head_size, h.stride = stride_;
    h.out = out.data(), h.out_stride = out_stride_, h.log_sum = log_sum_.data();
    if (p_.rotary) h.cosine = cosine_.data(), h.sine = sine_.data();
    const int64_t floats =
        std::max(attention_forward_scratch(p_.length, p_.head_size), attention_backward_scratch(p_.length, p_.head_size));
    std::unique_ptr<float, decltype(&std::free)> scratch(
        static_cast<float*>(std::aligned_alloc(64, static_cast<size_t>((floats * 4 + 63) / 64 * 64))), &std::free);
    std::fill(scratch.get(), scratch.get() + floats, std::numeric_limits<float>::quiet_NaN());  // nothing may be read before it is written
    attention_forward(h, scratch.get());
    std::fill(scratch.get(), scratch.get() + floats, std::numeric_limits<float>::quiet_NaN());
    T* dq = d_qkv.data();
    AttentionGradients<T> g{d_out.data(), out_stride_, dq, dq + (h.k - h.q), dq + (h.v - h.q), stride_};
    attention_backward(h, g, scratch.get());
  }

  // The largest difference from the textbook, as a share of 1 + the value.
  double worst() const {
    const int64_t s = p_.length, d = p_.head_size, r = p_.num_queries;
    Rows k = rows(qkv, stride_, r * d), v = rows(qkv, stride_, (r + 1) * d), dk(k.size(), std::vector<double>(static_cast<size_t>(d))),
         dv = dk;
    rotate(k, 1);
    double worst = 0;
    auto compare = [&](const Rows& wanted, const std::vector<T>& got, int64_t stride, int64_t at) {
      Rows is = rows(got, stride, at);
      for (size_t t = 0; t < is.size(); ++t)
        for (size_t j = 0; j < is[t].size(); ++j) {
          double difference = std::abs(is[t][j] - wanted[t][j]) / (1 + std::abs(wanted[t][j]));
          worst = difference <= worst ? worst : difference;  // a NaN stays
        }
    };
    for (int64_t head = 0; head < r; ++head) {
      Rows q = rows(qkv, stride_, head * d), dy = rows(d_out, out_stride_, head * d), y = dv, dq = dv;
      rotate(q, 1);
      for (auto* x : {&y, &dq})
        for (auto& row : *x) std::fill(row.begin(), row.end(), 0.0);
      for (int64_t t = 0; t < s; ++t) row(q, k, v, dy, static_cast<size_t>(t), y, dq, dk, dv);
      rotate(dq, -1);
      compare(y, out, out_stride_, head * d);
      compare(dq, d_qkv, stride_, head * d);
    }
    rotate(dk, -1);
    compare(dk, d_qkv, stride_, r * d);
    compare(dv, d_qkv, stride_, (r + 1) * d);
    return worst;
  }

 private:
  static constexpr float kScale = 0.3f;
  size_t size(int64_t columns) const { return static_cast<size_t>(p_.length * columns); }
  Rows rows(const std::vector<T>& x, int64_t stride, int64_t at) const {
    Rows result(static_cast<size_t>(p_.length));
    for (size_t t = 0; t < result.size(); ++t)
      for (int64_t j = 0; j < p_.head_size; ++j)
        result[t].push_back(static_cast<double>(wide(x[t * static_cast<size_t>(stride) + static_cast<size_t>(at + j)])));
    return result;
  }
  void rotate(Rows& x, double direction) const {
    if (!p_.rotary) return;
    const auto half = static_cast<size_t>(p_.head_size / 2);
    for (size_t t = 0; t < x.size(); ++t)
      for (size_t j = 0; j < half; ++j) {
        const double a = x[t][j], b = x[t][half + j];
        const double c = static_cast<double>(cosine_[t * half + j]), n = direction * static_cast<double>(sine_[t * half + j]);
        x[t][j] = a * c - b * n;
        x[t][half + j] = b * c + a * n;
      }
  }
  void row(const Rows& q, const Rows& k, const Rows& v, const Rows& dy, size_t t, Rows& y, Rows& dq, Rows& dk, Rows& dv) const {
    const size_t seen = p_.causal ? t + 1 : k.size(), d = q[t].size();
    const double scale = static_cast<double>(kScale);
    std::vector<double> p(seen);
    double sum = 0, delta = 0;
    for (size_t i = 0; i < seen; ++i) {
      for (size_t j = 0; j < d; ++j) p[i] += scale * q[t][j] * k[i][j];
      sum += p[i] = std::exp(p[i]);
    }
    for (size_t i = 0; i < seen; ++i)
      for (size_t j = 0; j < d; ++j) y[t][j] += p[i] / sum * v[i][j];
    for (size_t j = 0; j < d; ++j) delta += y[t][j] * dy[t][j];
    for (size_t i = 0; i < seen; ++i) {
      double dp = 0;
      for (size_t j = 0; j < d; ++j) dp += dy[t][j] * v[i][j];
      const double ds = p[i] / sum * (dp - delta) * scale;
      for (size_t j = 0; j < d; ++j) {
        dv[i][j] += p[i] / sum * dy[t][j];
        dq[t][j] += ds * k[i][j];
        dk[i][j] += ds * q[t][j];
      }
    }
  }

  Problem p_;
  int64_t stride_, out_stride_;

 public:
  std::vector<T> qkv, d_qkv, out, d_out;

 private:
  std::vector<float> log_sum_, cosine_, sine_;
};

std::vector<Problem> problems() {
  std::vector<Problem> all;
  for (int64_t length : {1, 2, 7, 8, 9, 16, 17, 33, 64, 65, 100, 129})
    for (int64_t head_size : {2, 8, 16, 24, 32, 64})
      for (int64_t queries : {1, 3})
        for (bool causal : {false, true}) all.push_back({length, head_size, queries, causal, (length + head_size) % 3 == 0});
  return all;
}

template <class T>
void expect_textbook(double tolerance) {
  if (!attention_kernels_available()) GTEST_SKIP() << "this processor has no AVX-512";
  for (const Problem& p : problems()) {
    Trial<T> run(p);
    run.kernels();
    EXPECT_LT(run.worst(), tolerance) << "S " << p.length << ", D " << p.head_size << ", r " << p.num_queries
                                      << (p.causal ? ", causal" : "") << (p.rotary ? ", rotary" : "");
  }
}

TEST(AttentionKernels, EqualTheTextbookFp32) { expect_textbook<float>(2e-5); }
TEST(AttentionKernels, EqualTheTextbookBf16) { expect_textbook<BFloat16Bits>(2e-2); }
TEST(AttentionKernels, EqualTheTextbookFp16) { expect_textbook<Float16Bits>(3e-3); }

// Scores in blocks of fewer rows, as long rows need.
TEST(AttentionKernels, LongRows) {
  if (!attention_kernels_available()) GTEST_SKIP() << "this processor has no AVX-512";
  Trial<float> run({2100, 8, 1, true, false});
  run.kernels();
  EXPECT_LT(run.worst(), 2e-5);
}

TEST(AttentionKernels, NonFiniteValuesStayVisible) {
  if (!attention_kernels_available()) GTEST_SKIP() << "this processor has no AVX-512";
  for (size_t place : {size_t{0}, size_t{9}, size_t{17}}) {  // in q, k and v of the first token
    Trial<float> run({20, 8, 1, true, false});
    run.qkv[place] = std::numeric_limits<float>::quiet_NaN();
    run.kernels();
    EXPECT_TRUE(std::any_of(run.out.begin(), run.out.end(), [](float x) { return std::isnan(x); })) << place;
    EXPECT_TRUE(std::any_of(run.d_qkv.begin(), run.d_qkv.end(), [](float x) { return std::isnan(x); })) << place;
  }
}

}  // namespace
}  // namespace plait::detail
