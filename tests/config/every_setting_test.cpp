// Every setting that has a range or a list of words refuses what is outside: the message names setting, value, rule, a valid value nearby and
// the place, and that value is accepted.
#include <algorithm>
#include <cmath>

#include <gtest/gtest.h>

#include "plait/config/describe.h"
#include "plait/config/enum_names.h"
#include "tests/config/settings_text.h"

namespace plait {

using testing::contains;
using testing::load_text;
using testing::Loaded;

namespace {

// "a.b" 3 -> {a: {b: 3}}
std::string text_of(const std::string& dotted, const std::string& value) {
  std::string out = "{", close = "}";
  for (char c : dotted) {
    out += c == '.' ? std::string(": {") : std::string(1, c);
    if (c == '.') close += "}";
  }
  return out + ": " + value + close + "\n";
}

std::string after(const std::string& text, const std::string& mark) {
  auto at = text.find(mark);
  return at == std::string::npos ? "" : text.substr(at + mark.size());
}

class TryOutside {
 public:
  int num_ranges = 0, num_open_ends = 0, num_words = 0;

  void operator()(const SettingInfo& info, int64_t) {
    numbers(info, [](double value) { return cat(static_cast<int64_t>(value)); });
  }
  void operator()(const SettingInfo& info, double) {
    numbers(info, [](double value) { return std::isinf(value) ? "inf" : cat(value); });
  }
  void operator()(const SettingInfo& info, const std::optional<double>&) { (*this)(info, 0.0); }
  void operator()(const SettingInfo& info, const std::vector<int64_t>&) { (*this)(info, int64_t{0}); }
  void operator()(const SettingInfo& info, const std::string& by_default) {
    if (info.words.empty()) return;
    EXPECT_EQ(info.words.front(), by_default) << info.name;
    words(info, info.words, by_default);
  }
  void operator()(const SettingInfo&, bool) {}
  void operator()(const SettingInfo&, const std::vector<std::string>&) {}
  void operator()(const SettingInfo& info, const std::vector<Metric>&) { words(info, enum_choices<Metric>(), "loss"); }
  template <class E, std::enable_if_t<std::is_enum_v<E>, int> = 0>
  void operator()(const SettingInfo& info, E by_default) {
    words(info, enum_choices<E>(), enum_word(by_default));
  }

 private:
  template <class Text>
  void numbers(const SettingInfo& info, const Text& text) {
    const Range& range = info.range;
    if (range.text().empty()) return;
    ++num_ranges;
    num_open_ends += range.low_open + range.high_open;
    if (std::isfinite(range.low)) {
      if (range.low_open) refused(info, text(range.low));
      refused(info, text(range.low - 1));
    }
    if (range.high_open) refused(info, text(range.high));
    if (std::isfinite(range.high)) refused(info, text(range.high > 1e15 ? 2 * range.high : range.high + 1));
  }

  void refused(const SettingInfo& info, const std::string& value) {
    Loaded loaded = load_text(text_of(info.name, value));
    EXPECT_EQ(loaded.code, 2) << info.name << " " << value;
    // Infinity and 1e+06 are shown as the setting has them.
    EXPECT_EQ(loaded.error.find(info.name + " "), 0u) << loaded.error;
    EXPECT_TRUE(contains(loaded.error, " (config.yaml:1) is not ")) << loaded.error;
    EXPECT_TRUE(contains(loaded.error, info.range.text() + "; nearest valid value ")) << loaded.error;
    std::string near = after(loaded.error, "; nearest valid value ");
    Loaded again = load_text(text_of(info.name, near));
    EXPECT_FALSE(contains(again.error, info.name + " " + near + " (config.yaml:1) is not ")) << again.error << "\n  after " << loaded.error;
  }

  void words(const SettingInfo& info, const std::vector<std::string>& known, const std::string& by_default) {
    ++num_words;
    const std::string rule = " (config.yaml:1) is not one of " + join(known);
    EXPECT_EQ(load_text(text_of(info.name, "qwertyuiop")).error, info.name + " qwertyuiop" + rule + "; nearest valid value " + by_default);
    for (const auto& word : known) {
      const std::string slip = load_text(text_of(info.name, "_" + word)).error, start = info.name + " _" + word + rule + "; nearest: ";
      EXPECT_EQ(slip.find(start), 0u) << slip;
      EXPECT_TRUE(std::find(known.begin(), known.end(), after(slip, start)) != known.end()) << slip;  // two may be as near
    }
  }
};

}  // namespace

TEST(EverySetting, RefusesWhatIsOutsideAndNamesWhatIsNot) {
  TryOutside visit;
  const Config defaults;
  describe(visit, defaults);
  EXPECT_GT(visit.num_ranges, 30);
  EXPECT_GT(visit.num_open_ends, 15);
  EXPECT_GT(visit.num_words, 12);
}

TEST(EverySetting, NearestToAnOpenEndLiesInside) {
  const Range share{0, 1, true, false}, dropout{0, 1, false, true}, seconds{0, 1e9, true, false}, finite{0, INFINITY, false, true};
  EXPECT_EQ(share.nearest_valid(0), 0.01);
  EXPECT_EQ(share.nearest_valid(-5), 0.01);
  EXPECT_EQ(share.nearest_valid(2), 1);
  EXPECT_EQ(dropout.nearest_valid(1), 0.99);
  EXPECT_EQ(seconds.nearest_valid(0), 1);
  EXPECT_TRUE(finite.holds(*finite.nearest_valid(INFINITY)));
  EXPECT_EQ(finite.nearest_valid(-1), 0);
  EXPECT_FALSE(share.nearest_valid(NAN));
}

TEST(EverySetting, WordsOfOtherForms) {
  const std::string hugging_face = "output_dir: o\nload_best_model_at_end: true\neval_strategy: epoch\nmetric_for_best_model: ";
  EXPECT_TRUE(contains(load_text(hugging_face + "acuracy\n").error, "perplexity; nearest: accuracy"));
  EXPECT_TRUE(contains(load_text(hugging_face + "bleu-score\n").error, "perplexity; nearest valid value loss"));
  const std::string distributed = "train: {distributed: {distributed_strategy: ";
  EXPECT_TRUE(contains(load_text(distributed + "zero}}\n").error, "auto_parallel; nearest valid value hybrid_parallel"));
  EXPECT_TRUE(contains(load_text(distributed + "[a]}}\n").error, "distributed_strategy"));
  EXPECT_TRUE(contains(load_text("train: {cpu_affinity: all}\n").error,
                       "train.cpu_affinity all (config.yaml:1) is not one of auto, none; nearest valid value auto"));
  EXPECT_TRUE(contains(load_text("train: {cpu_affinity: [all]}\n").error, "is not one of auto, none; nearest valid value auto"));
}

}  // namespace plait
