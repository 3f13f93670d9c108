#include "plait/elastic/output_relay.h"

#include <gtest/gtest.h>

#include "plait/base/text.h"

namespace plait {
namespace {

constexpr OutputStream kOut = OutputStream::kOut, kErr = OutputStream::kErr;

struct Screen {
  std::string out, err, logs;
  OutputRelay relay;

  explicit Screen(bool terminal = false, bool prefix = true)
      : relay({{"rank 0", "rank 1", "rank 2 (dp 1, pp 0, tp 0)"},
               prefix,
               terminal,
               [this](OutputStream stream, std::string_view text) { (stream == kOut ? out : err) += text; },
               [this](int64_t rank, std::string_view line) { logs += cat(rank, ":", std::string(line)); }}) {}
};

TEST(OutputRelay, RankZeroPassesUnchangedOthersByLine) {
  Screen screen;
  screen.relay.take(0, kOut, "half");
  screen.relay.take(2, kOut, "one\ntw");
  EXPECT_EQ(screen.out, "half[rank 2 (dp 1, pp 0, tp 0)] one\n");
  EXPECT_EQ(screen.err, "\n");  // the unfinished line of rank 0 was ended
  screen.relay.take(2, kOut, "o\n");
  screen.relay.take(1, kOut, "last");
  screen.relay.end(1, kOut);
  EXPECT_EQ(screen.out, "half[rank 2 (dp 1, pp 0, tp 0)] one\n[rank 2 (dp 1, pp 0, tp 0)] two\n[rank 1] last\n");
}

TEST(OutputRelay, NoPrefixWhenNotWanted) {
  Screen screen(false, false);
  screen.relay.take(1, kOut, "x\n");
  EXPECT_EQ(screen.out, "x\n");
}

TEST(OutputRelay, OtherRanksComplainOnceAndOtherwiseKeepQuiet) {
  Screen screen;
  screen.relay.take(1, kErr, "loading\nwarning: old name\n");
  screen.relay.take(2, kErr, "loading\nwarning: old name\nerror: no file\n");
  EXPECT_EQ(screen.err, "[rank 1] warning: old name\n[rank 2 (dp 1, pp 0, tp 0)] error: no file\n");
  EXPECT_EQ(screen.logs, "1:loading\n1:warning: old name\n2:loading\n2:warning: old name\n2:error: no file\n");
}

TEST(OutputRelay, WarningOfRankZeroIsNotRepeated) {
  Screen screen;
  screen.relay.take(0, kErr, "warning: old name\n");
  screen.relay.take(1, kErr, "warning: old name\n");
  EXPECT_EQ(screen.err, "warning: old name\n");
}

TEST(OutputRelay, TailShowsTheLastTwentyLinesOnce) {
  Screen screen;
  for (int i = 0; i < 30; ++i) screen.relay.take(1, kErr, cat("line ", i, "\n"));
  screen.relay.take(1, kErr, "error: bad\n");
  screen.err.clear();
  screen.relay.show_tail(1);
  std::string expected;
  for (int i = 11; i < 30; ++i) expected += cat("[rank 1] line ", i, "\n");
  EXPECT_EQ(screen.err, expected);
  screen.relay.show_tail(1);
  EXPECT_EQ(screen.err, expected);
  EXPECT_EQ(screen.relay.last_error(1), "error: bad");
}

TEST(OutputRelay, LastErrorPrefersErrorLines) {
  Screen screen;
  EXPECT_EQ(screen.relay.last_error(1), "");
  screen.relay.take(1, kErr, "first\nsecond\n\n");
  EXPECT_EQ(screen.relay.last_error(1), "second");
  screen.relay.take(1, kErr, "error: why\ncleaning up\n");
  EXPECT_EQ(screen.relay.last_error(1), "error: why");
}

TEST(OutputRelay, ProgressBarIsWipedOnATerminalAndItsLastStateLogged) {
  Screen screen(true);
  screen.relay.take(0, kErr, "\r10 %");
  screen.relay.take(1, kOut, "hello\n");
  EXPECT_EQ(screen.err, "\r10 %\r\033[K");
  screen.relay.take(0, kErr, "\r20 %\n");
  EXPECT_EQ(screen.logs, "1:hello\n0:20 %\n");
}

TEST(OutputRelay, EndlessLineIsCut) {
  Screen screen;
  for (int i = 0; i < 100; ++i) screen.relay.take(1, kOut, std::string(1000, 'x'));
  EXPECT_FALSE(screen.out.empty());
}

}  // namespace
}  // namespace plait
