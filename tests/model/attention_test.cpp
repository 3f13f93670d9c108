// Attention against the textbook formula written with loops over rows and heads, in fp64 and in the low-precision types.
#include "plait/model/attention.h"

#include <ATen/ATen.h>
#include <gtest/gtest.h>

#include "plait/base/random.h"
#include "plait/base/text.h"

namespace plait {
namespace {

at::Tensor values(at::IntArrayRef sizes, uint64_t salt) {
  at::Tensor x = at::empty(sizes, at::kDouble);
  double* p = x.mutable_data_ptr<double>();
  for (int64_t i = 0; i < x.numel(); ++i)
    p[i] = 1.5 * (static_cast<double>(mix64(salt * 1000003 + static_cast<uint64_t>(i)) >> 11) * 0x1p-52 - 1.0);
  return x;
}

// Rows of the given lengths; a segment is a row unless `segments` says otherwise. Positions restart in each segment.
MicroBatch batch_of(const std::vector<int64_t>& lengths, const std::vector<int64_t>& segments = {}) {
  MicroBatch b;
  auto offsets = [](const std::vector<int64_t>& sizes) {
    std::vector<int64_t> result = {0};
    for (int64_t n : sizes) result.push_back(result.back() + n);
    return result;
  };
  b.row_offsets = offsets(lengths);
  b.segment_offsets = segments.empty() ? b.row_offsets : offsets(segments);
  for (size_t i = 0; i < lengths.size(); ++i) b.sample_ids.push_back(static_cast<int64_t>(i));
  b.positions = at::empty({b.num_tokens()}, at::kLong);
  for (size_t s = 0; s + 1 < b.segment_offsets.size(); ++s)
    for (int64_t t = b.segment_offsets[s]; t < b.segment_offsets[s + 1]; ++t) b.positions[t].fill_(t - b.segment_offsets[s]);
  b.input_ids = at::zeros({b.num_tokens()}, at::kLong);
  return b;
}

struct Case {
  const char* name;
  AttentionOptions options;
  std::vector<int64_t> lengths;
  std::vector<int64_t> hidden_keys;  // tokens that are never attended to
};

AttentionOptions options_of(int64_t heads, int64_t kv_heads, bool causal, int64_t window = 0, bool rotary = false) {
  AttentionOptions o;
  o.num_heads = heads;
  o.num_kv_heads = kv_heads;
  o.head_size = 8;
  o.scale = 0.35;
  o.causal = causal;
  o.window = window;
  o.rotary = rotary;
  return o;
}

ModelShape shape_of(const AttentionOptions& o) {
  ModelShape s;
  s.head_size = o.head_size;
  s.max_positions = 64;
  s.rotary = o.rotary;
  return s;
}

// Hugging Face's apply_rotary_pos_emb for one head vector at one position.
at::Tensor rotated(const at::Tensor& x, int64_t position) {
  int64_t d = x.size(0), half = d / 2;
  at::Tensor angle = at::empty({half}, at::kDouble);
  for (int64_t i = 0; i < half; ++i)
    angle[i].fill_(static_cast<double>(position) * std::pow(10000.0, -2.0 * static_cast<double>(i) / static_cast<double>(d)));
  at::Tensor cosine = at::cat({angle.cos(), angle.cos()}), sine = at::cat({angle.sin(), angle.sin()});
  at::Tensor turned = at::cat({x.narrow(0, half, half).neg(), x.narrow(0, 0, half)});
  return x * cosine + turned * sine;
}

// One query at a time, through autograd.
at::Tensor textbook(const at::Tensor& qkv, const AttentionOptions& o, const MicroBatch& batch) {
  int64_t d = o.head_size, n = o.num_heads, g = o.num_kv_heads;
  std::vector<at::Tensor> rows;
  for (size_t s = 0; s + 1 < batch.segment_offsets.size(); ++s) {
    int64_t begin = batch.segment_offsets[s], end = batch.segment_offsets[s + 1];
    for (int64_t t = begin; t < end; ++t) {
      std::vector<at::Tensor> heads;
      for (int64_t h = 0; h < n; ++h) {
        int64_t kv = h / (n / g);
        auto part = [&](int64_t token, int64_t head) { return qkv[token].narrow(0, head * d, d); };
        auto turned = [&](int64_t token, int64_t head) { return o.rotary ? rotated(part(token, head), token - begin) : part(token, head); };
        std::vector<at::Tensor> scores, seen;
        for (int64_t k = begin; k < end; ++k) {
          if (o.causal && k > t) continue;
          if (o.window > 0 && t - k >= o.window) continue;
          if (batch.key_mask.defined() && !batch.key_mask[k].item<bool>()) continue;
          scores.push_back(at::dot(turned(t, h), turned(k, n + kv)) * o.scale);
          seen.push_back(part(k, n + g + kv));
        }
        heads.push_back(at::matmul(at::softmax(at::stack(scores), 0), at::stack(seen)));
      }
      rows.push_back(at::cat(heads));
    }
  }
  return at::stack(rows);
}

std::vector<Case> cases() {
  return {
      {"causal", options_of(2, 2, true), {5, 5, 1, 7}, {}},
      {"bidirectional", options_of(2, 2, false), {5, 5, 1, 7}, {}},
      {"grouped", options_of(4, 2, true), {6, 3}, {}},
      {"one key head", options_of(3, 1, false), {4, 4}, {}},
      {"window", options_of(2, 1, true, 3), {8, 2, 8}, {}},
      {"window of one", options_of(2, 2, true, 1), {4}, {}},
      {"window as long as the row", options_of(2, 2, true, 8), {8, 5}, {}},
      {"rotary", options_of(4, 2, true, 0, true), {6, 6, 2}, {}},
      {"rotary window", options_of(2, 2, true, 4, true), {9}, {}},
      {"hidden keys", options_of(2, 2, false), {5, 5, 4}, {1, 6, 9}},
      {"hidden keys, causal, grouped", options_of(4, 2, true, 0, true), {5, 5, 4}, {2, 6, 8}},
  };
}

void check(const Case& c, at::ScalarType type, double bound) {
  SCOPED_TRACE(cat(c.name, " ", at::toString(type)));
  MicroBatch batch = batch_of(c.lengths);
  if (!c.hidden_keys.empty()) {
    batch.key_mask = at::ones({batch.num_tokens()}, at::kBool);
    for (int64_t k : c.hidden_keys) batch.key_mask[k].fill_(false);
  }
  const auto& o = c.options;
  int64_t width = (o.num_heads + 2 * o.num_kv_heads) * o.head_size;
  at::Tensor input = values({batch.num_tokens(), width}, 3).to(type),
             dy = values({batch.num_tokens(), o.num_heads * o.head_size}, 4).to(type);
  at::Tensor plain = input.to(at::kDouble), own = input.clone();
  plain.requires_grad_(true);
  own.requires_grad_(true);
  at::Tensor wanted = textbook(plain, o, batch);
  wanted.backward(dy.to(at::kDouble));
  ForwardContext context = make_forward_context(batch, shape_of(o), type, true, {});
  at::Tensor got = attention(own, o, context);
  ASSERT_EQ(got.scalar_type(), type);
  got.backward(dy);
  EXPECT_LE((got.detach().to(at::kDouble) - wanted.detach()).abs().max().item<double>(), bound);
  EXPECT_LE((own.grad().to(at::kDouble) - plain.grad()).abs().max().item<double>(), bound * 4);
}

TEST(Attention, EqualsTheTextbookFp64) {
  for (const Case& c : cases()) check(c, at::kDouble, 1e-12);
}
TEST(Attention, EqualsTheTextbookFp32) {
  for (const Case& c : cases()) check(c, at::kFloat, 5e-6);
}
TEST(Attention, EqualsTheTextbookLowPrecision) {
  for (const Case& c : cases()) {
    check(c, at::kBFloat16, 4e-2);
    check(c, at::kHalf, 5e-3);
  }
}

// With dropout the explicit form runs: at a probability next to nothing it gives what the fused one gives, and its gradient is that
// of the masked formula (checked against differences of the forward, whose mask is the same every time).
TEST(Attention, DropoutFormAndItsGradient) {
  for (Case c : cases()) {
    SCOPED_TRACE(c.name);
    MicroBatch batch = batch_of(c.lengths);
    int64_t width = (c.options.num_heads + 2 * c.options.num_kv_heads) * c.options.head_size;
    at::Tensor x = values({batch.num_tokens(), width}, 5), dy = values({batch.num_tokens(), c.options.num_heads * c.options.head_size}, 6);
    ForwardContext context = make_forward_context(batch, shape_of(c.options), at::kDouble, true, {7, 2, true});
    at::Tensor fused = attention(x, c.options, context);
    c.options.dropout = 1e-15;
    EXPECT_LE((attention(x, c.options, context) - fused).abs().max().item<double>(), 1e-12);
    c.options.dropout = 0.4;
    at::Tensor leaf = x.clone();
    leaf.requires_grad_(true);
    at::Tensor y = attention(leaf, c.options, context);
    EXPECT_GT((y.detach() - fused).abs().max().item<double>(), 1e-2) << "nothing was dropped";
    y.backward(dy);
    at::Tensor direction = values(x.sizes(), 8);
    double h = 1e-6;
    double difference =
        ((attention(x + direction * h, c.options, context) - attention(x - direction * h, c.options, context)) * dy).sum().item<double>() /
        (2 * h);
    EXPECT_NEAR((leaf.grad() * direction).sum().item<double>(), difference, 1e-6 * std::max(1.0, std::abs(difference)));
    // Evaluation drops nothing.
    ForwardContext evaluating = make_forward_context(batch, shape_of(c.options), at::kDouble, false, {7, 2, true});
    EXPECT_TRUE(attention(x, c.options, evaluating).equal(fused));
  }
}

// Documents of one packed row: as if they were rows; a change in the first leaves the second bit-equal, forward and backward.
TEST(Attention, DocumentsDoNotSeeEachOther) {
  for (bool causal : {true, false})
    for (double dropout : {0.0, 0.3}) {
      AttentionOptions o = options_of(4, 2, causal, 0, true);
      o.dropout = dropout;
      MicroBatch packed = batch_of({12}, {5, 7});
      at::Tensor x = values({12, 64}, 9), dy = values({12, 32}, 10);
      DropoutStream stream{3, 1, dropout > 0};
      ForwardContext context = make_forward_context(packed, shape_of(o), at::kDouble, true, stream);
      auto run = [&](const at::Tensor& input) {
        at::Tensor leaf = input.clone();
        leaf.requires_grad_(true);
        at::Tensor y = attention(leaf, o, context);
        y.backward(dy);
        return std::make_pair(y.detach().clone(), leaf.grad().clone());
      };
      auto [y, gradient] = run(x);
      at::Tensor changed = x.clone();
      changed[2].add_(3.0);
      auto [y2, gradient2] = run(changed);
      EXPECT_TRUE(y2.narrow(0, 5, 7).equal(y.narrow(0, 5, 7)));
      EXPECT_TRUE(gradient2.narrow(0, 5, 7).equal(gradient.narrow(0, 5, 7)));
      EXPECT_FALSE(y2.narrow(0, 0, 5).equal(y.narrow(0, 0, 5)));
      if (dropout > 0) continue;
      MicroBatch apart = batch_of({5, 7});
      ForwardContext rows = make_forward_context(apart, shape_of(o), at::kDouble, true, {});
      EXPECT_LE((attention(x, o, rows) - y).abs().max().item<double>(), 1e-13);
    }
}

}  // namespace
}  // namespace plait
