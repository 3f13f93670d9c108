#include "plait/elastic/output_relay.h"

#include <gtest/gtest.h>

#include "plait/base/text.h"

namespace plait {
namespace {

constexpr OutputStream kOut = OutputStream::kOut, kErr = OutputStream::kErr;

// Rank 0 plainly; rank 1 complaints only; rank 2 every line.
struct Screen {
  std::string out, err, logs;
  OutputRelay relay;

  explicit Screen(bool terminal = false, bool prefix = true, bool with_logs = true, Shown second = Shown::kComplaints)
      : relay({{{Shown::kPlain, Shown::kPlain}, {second, second}, {Shown::kLines, Shown::kLines}},
               [prefix](int64_t index) { return prefix ? cat("node7 ", index, index == 2 ? " (1,0,0)" : "") : std::string(); },
               terminal,
               [this](OutputStream stream, std::string_view text) { (stream == kOut ? out : err) += text; },
               with_logs ? [this](int64_t rank, std::string_view line) { logs += cat(rank, ":", std::string(line)); }
                         : std::function<void(int64_t, std::string_view)>(),
               "--tee 3 shows them"}) {}
};

TEST(OutputRelay, RankZeroPassesUnchangedOthersByLine) {
  Screen screen;
  screen.relay.take(0, kOut, "half");
  screen.relay.take(2, kOut, "one\ntw");
  EXPECT_EQ(screen.out, "half[node7 2 (1,0,0)] one\n");
  EXPECT_EQ(screen.err, "\n");  // the unfinished line of rank 0 was ended
  screen.relay.take(2, kOut, "o\n");
  screen.relay.take(2, kOut, "last");
  screen.relay.end(2, kOut);
  EXPECT_EQ(screen.out, "half[node7 2 (1,0,0)] one\n[node7 2 (1,0,0)] two\n[node7 2 (1,0,0)] last\n");
}

TEST(OutputRelay, NoPrefixWhenNotWanted) {
  Screen screen(false, false);
  screen.relay.take(2, kOut, "x\n");
  EXPECT_EQ(screen.out, "x\n");
}

TEST(OutputRelay, OtherRanksComplainOnceAndOtherwiseKeepQuiet) {
  Screen screen;
  screen.relay.take(0, kErr, "warning: old name\n");
  screen.err.clear();
  screen.relay.take(1, kOut, "result\n");
  screen.relay.take(1, kErr, "loading\nwarning: old name\nwarning: new\nplait: no file\nwarning: new\n");
  EXPECT_EQ(screen.out, "");
  EXPECT_EQ(screen.err, "[node7 1] warning: new\n[node7 1] plait: no file\n");
  EXPECT_EQ(screen.logs,
            "0:warning: old name\n1:result\n1:loading\n1:warning: old name\n1:warning: new\n1:plait: no file\n1:warning: new\n");
}

TEST(OutputRelay, WhatIsNeitherShownNorLoggedIsMentionedOnce) {
  Screen screen(false, true, false);
  screen.relay.take(1, kErr, "\nwarning: seen\n");
  EXPECT_EQ(screen.err, "[node7 1] warning: seen\n");
  screen.err.clear();
  screen.relay.take(1, kErr, "loading\nmore\n");
  screen.relay.take(1, kOut, "result\n");
  EXPECT_EQ(screen.err, "[node7 1] writes lines that are not shown: --tee 3 shows them\n");
  Screen silent(false, true, false, Shown::kNothing);
  silent.relay.take(1, kErr, "loading\nerror: redirected\n");
  EXPECT_EQ(silent.err, "");
  EXPECT_EQ(silent.relay.last_error(1), "error: redirected");
}

TEST(OutputRelay, WarningOfRankZeroIsNotRepeated) {
  Screen screen;
  screen.relay.take(0, kErr, "warning: old name\n");
  screen.relay.take(1, kErr, "warning: old name\n");
  EXPECT_EQ(screen.err, "warning: old name\n");
}

TEST(OutputRelay, LastLinesAreTheLastTwentyOfBothStreams) {
  Screen screen;
  for (int i = 0; i < 30; ++i) screen.relay.take(1, i % 2 ? kErr : kOut, cat("line ", i, "\n"));
  screen.relay.take(1, kErr, "error: bad\n");
  std::vector<std::string> expected;
  for (int i = 11; i < 30; ++i) expected.push_back(cat("line ", i));
  expected.push_back("error: bad");
  EXPECT_EQ(screen.relay.last_lines(1), expected);
  EXPECT_EQ(screen.relay.last_error(1), "error: bad");
}

TEST(OutputRelay, LastErrorPrefersErrorLines) {
  Screen screen;
  EXPECT_EQ(screen.relay.last_error(1), "");
  screen.relay.take(1, kErr, "first\nsecond\n\n");
  EXPECT_EQ(screen.relay.last_error(1), "second");
  EXPECT_EQ(screen.relay.last_error(1, true), "");  // of a rank that a signal ended: no line explains it
  screen.relay.take(1, kErr, "error: why\ncleaning up\n");
  EXPECT_EQ(screen.relay.last_error(1), "error: why");
  EXPECT_EQ(screen.relay.last_error(1, true), "error: why");
}

TEST(OutputRelay, ProgressBarIsWipedOnATerminalAndItsLastStateLogged) {
  Screen screen(true);
  screen.relay.take(0, kErr, "\r10 %");
  screen.relay.take(2, kOut, "hello\n");
  EXPECT_EQ(screen.err, "\r10 %\r\033[K");
  screen.relay.take(0, kErr, "\r20 %\n");
  EXPECT_EQ(screen.logs, "2:hello\n0:20 %\n");
}

TEST(OutputRelay, EndlessLineIsCut) {
  Screen screen;
  for (int i = 0; i < 100; ++i) screen.relay.take(2, kOut, std::string(1000, 'x'));
  EXPECT_FALSE(screen.out.empty());
}

}  // namespace
}  // namespace plait
