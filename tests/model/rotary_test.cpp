// Rotary frequencies of every scaling kind against numbers computed with the formulas of transformers' modeling_rope_utils (5.24),
// written out in plain Python; and the rotation itself.
#include "plait/model/rotary.h"

#include <ATen/ATen.h>
#include <gtest/gtest.h>

#include <cmath>

namespace plait {
namespace {

void expect_frequencies(const std::vector<double>& got, const std::vector<double>& wanted) {
  ASSERT_EQ(got.size(), wanted.size());
  for (size_t i = 0; i < wanted.size(); ++i) EXPECT_NEAR(got[i], wanted[i], 1e-14 * wanted[i] + 1e-18) << "pair " << i;
}

RopeOptions scaled(RopeScaling kind, double factor) {
  RopeOptions rope;
  rope.scaling = kind;
  rope.factor = factor;
  return rope;
}

constexpr double kPlain[] = {1,     0.31622776601683794,   0.10000000000000001, 0.031622776601683791, 0.01, 0.003162277660168379,
                             0.001, 0.00031622776601683794};
const std::vector<double> kNone(std::begin(kPlain), std::end(kPlain));

TEST(Rotary, PlainAndLinear) {
  expect_frequencies(rotary_frequencies({}, 16, 64, 10), kNone);
  expect_frequencies(rotary_frequencies(scaled(RopeScaling::kLinear, 4), 16, 64, 10),
                     {0.25, 0.079056941504209485, 0.025000000000000001, 0.0079056941504209478, 0.0025000000000000001,
                      0.00079056941504209474, 0.00025000000000000001, 7.9056941504209485e-05});
}

TEST(Rotary, DynamicGrowsBeyondTheTrainedLength) {
  RopeOptions rope = scaled(RopeScaling::kDynamic, 2);
  expect_frequencies(rotary_frequencies(rope, 16, 64, 10), kNone);
  expect_frequencies(rotary_frequencies(rope, 16, 64, 64), kNone);
  expect_frequencies(rotary_frequencies(rope, 16, 64, 200),
                     {1, 0.2495284675940164, 0.062264456139818077, 0.01553675432614365, 0.0038768624983873293, 0.00096738755829530018,
                      0.00024139073499094342, 6.0233860193683424e-05});
}

TEST(Rotary, Llama3) {
  RopeOptions rope = scaled(RopeScaling::kLlama3, 8);
  rope.theta = 500000;
  rope.original_max_positions = 256;
  expect_frequencies(rotary_frequencies(rope, 16, 2048, 10),
                     {1, 0.19392274474868576, 0.010538232746455323, 0.00091158309215213856, 0.00017677669529663688, 3.4281021959525912e-05,
                      6.6478698711812362e-06, 1.2891731721515574e-06});
  EXPECT_EQ(rotary_attention_factor(rope), 1.0);
}

TEST(Rotary, Yarn) {
  RopeOptions rope = scaled(RopeScaling::kYarn, 4);
  rope.original_max_positions = 512;
  expect_frequencies(rotary_frequencies(rope, 16, 2048, 10), {1, 0.25693505988868082, 0.0625, 0.01383496476323666, 0.0025000000000000001,
                                                              0.00079056941504209474, 0.00025000000000000001, 7.9056941504209485e-05});
  EXPECT_NEAR(rotary_attention_factor(rope), 1.1386294361119891, 1e-15);
  rope.attention_factor = 1.5;
  EXPECT_EQ(rotary_attention_factor(rope), 1.5);
  rope.theta = 1000000;
  rope.original_max_positions = 4096;
  expect_frequencies(rotary_frequencies(rope, 16, 16384, 10),
                     {1, 0.17782794100389226, 0.023717082451262847, 0.0028117066259517455, 0.00025000000000000001, 4.4456985250973067e-05,
                      7.9056941504209488e-06, 1.4058533129758728e-06});
}

// cos and sin of position x frequency, times yarn's factor; far positions keep their digits in fp32.
TEST(Rotary, Table) {
  ModelShape shape;
  shape.head_size = 16;
  shape.max_positions = 1 << 20;
  shape.rope = scaled(RopeScaling::kYarn, 4);
  shape.rope.original_max_positions = 512;
  at::Tensor positions = at::empty({3}, at::kLong);
  int64_t places[] = {0, 7, 1000000};
  for (int64_t i = 0; i < 3; ++i) positions[i].fill_(places[i]);
  auto frequencies = rotary_frequencies(shape.rope, 16, shape.max_positions, 1000001);
  for (auto type : {at::kFloat, at::kDouble}) {
    RotaryTable table = make_rotary_table(shape, positions, type);
    ASSERT_EQ(table.cosine.scalar_type(), type);
    for (int64_t t = 0; t < 3; ++t)
      for (int64_t i = 0; i < 8; ++i) {
        double angle = static_cast<double>(places[t]) * frequencies[static_cast<size_t>(i)];
        EXPECT_NEAR(table.cosine[t][i].item<double>(), std::cos(angle) * 1.1386294361119891, 2e-7);
        EXPECT_NEAR(table.sine[t][i].item<double>(), std::sin(angle) * 1.1386294361119891, 2e-7);
      }
  }
}

// Pairs are (i, i + D/2); the inverse undoes the turn; heads outside the narrowed view stay as they are.
TEST(Rotary, TurnsPairsOfTheTwoHalves) {
  ModelShape shape;
  shape.head_size = 4;
  shape.max_positions = 8;
  at::Tensor positions = at::arange(3, at::kLong);
  RotaryTable table = make_rotary_table(shape, positions, at::kDouble);
  at::Tensor x = at::arange(1, 25, at::kDouble).view({3, 2, 4}), before = x.clone();
  apply_rotary(x.narrow(1, 0, 1), table, false);
  for (int64_t t = 0; t < 3; ++t)
    for (int64_t i = 0; i < 2; ++i) {
      double angle = static_cast<double>(t) * std::pow(10000.0, -static_cast<double>(i) / 2), a = before[t][0][i].item<double>(),
             b = before[t][0][i + 2].item<double>();
      EXPECT_NEAR(x[t][0][i].item<double>(), a * std::cos(angle) - b * std::sin(angle), 1e-13);
      EXPECT_NEAR(x[t][0][i + 2].item<double>(), b * std::cos(angle) + a * std::sin(angle), 1e-13);
    }
  EXPECT_TRUE(x.select(1, 1).equal(before.select(1, 1)));
  apply_rotary(x.narrow(1, 0, 1), table, true);
  EXPECT_LE((x - before).abs().max().item<double>(), 1e-13);
}

}  // namespace
}  // namespace plait
