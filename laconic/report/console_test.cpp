#include "laconic/report/console.hpp"

#include <gtest/gtest.h>
#include <poll.h>
#include <pty.h>
#include <sys/ioctl.h>
#include <unistd.h>

#include <array>
#include <cmath>
#include <cstdlib>
#include <string>
#include <string_view>

namespace laconic {
namespace {

// A FILE that keeps what is written to it. It is no terminal.
class Memory {
 public:
  Memory() : file_(::open_memstream(&data_, &size_)) {}
  ~Memory() {
    std::fclose(file_);
    std::free(data_);
  }
  Memory(const Memory&) = delete;
  Memory& operator=(const Memory&) = delete;
  std::FILE* file() { return file_; }
  std::string text() {
    std::fflush(file_);
    return {data_, size_};
  }

 private:
  char* data_ = nullptr;
  std::size_t size_ = 0;
  std::FILE* file_;
};

StepLine step_line() {
  return {.step = 100,
          .steps = 1000,
          .loss = 3.21442,
          .norm = 0.912,
          .lr = 3e-4,
          .tokens_per_second = 12345.4};
}

TEST(Console, StepLineTellsHowMuchOfTheMachineIsUsed) {
  StepLine line = step_line();
  line.mfu = 0.414;
  EXPECT_TRUE(to_text(line).ends_with("12,345 tok/s | mfu 41 %")) << to_text(line);
}

TEST(Console, StepLineReadsLikeTheManual) {
  StepLine line = step_line();
  const std::string start =
      "step   100/1000 | loss 3.2144 | norm 0.91 | lr 3.00e-04 | 12,345 tok/s";
  EXPECT_EQ(to_text(line), start);
  line.wire_bytes = 0;
  EXPECT_EQ(to_text(line), start + " | wire 0 B");
  line.wire_bytes = 12.3e6;
  line.wire_ratio = 31.8;
  EXPECT_EQ(to_text(line), start + " | wire 12.3 MB (31.8x)");
  line.comm_ms = 41.2;
  EXPECT_EQ(to_text(line), start + " | wire 12.3 MB (31.8x) | comm 41 ms");
  line.exposed_ms = 6.4;
  EXPECT_EQ(to_text(line), start + " | wire 12.3 MB (31.8x) | comm 41 ms, exposed 6");
}

TEST(Console, StepLineSurvivesADivergedRun) {
  StepLine line = step_line();
  line.loss = std::nan("");
  line.norm = INFINITY;
  line.tokens_per_second = INFINITY;
  EXPECT_EQ(to_text(line), "step   100/1000 | loss nan | norm inf | lr 3.00e-04 | 0 tok/s");
}

TEST(Console, StepsOfARunStandUnderEachOther) {
  StepLine line = step_line();
  line.steps = 1'000'000;
  const std::size_t bar = to_text(line).find('|');
  line.step = 999'999;
  EXPECT_EQ(to_text(line).find('|'), bar);
}

TEST(Eta, KnowsNothingBeforeTheSecondStep) {
  Eta eta;
  EXPECT_EQ(eta.seconds_left(10), std::nullopt);
  eta.update(0, 5);
  EXPECT_EQ(eta.seconds_left(10), std::nullopt);
  eta.update(0, 6);  // no step made
  EXPECT_EQ(eta.seconds_left(10), std::nullopt);
  eta.update(2, 9);
  EXPECT_DOUBLE_EQ(*eta.seconds_left(10), 8 * 2.0);
  EXPECT_DOUBLE_EQ(*eta.seconds_left(2), 0);
}

TEST(Eta, CountsFromWhereARunResumed) {
  Eta eta;
  eta.update(5000, 0);
  eta.update(5001, 1);
  EXPECT_DOUBLE_EQ(*eta.seconds_left(5011), 10);
}

TEST(Eta, ForgetsASlowStart) {
  Eta eta;
  eta.update(0, 0);
  eta.update(1, 20);  // one slow step, then ten a second
  for (int step = 2; step <= 3000; ++step) eta.update(step, 20 + step * 0.1);
  EXPECT_NEAR(*eta.seconds_left(4000), 100, 1);
}

TEST(Bar, ShowsShareTimeAndText) {
  const Bar bar{.step = 12, .steps = 24, .seconds_left = 65, .text = "loss 3.2"};
  EXPECT_EQ(to_text(bar, 80, false), "[============>           ]  50% | 1 m 05 s left | loss 3.2");
  EXPECT_EQ(to_text(bar, 80, true),
            "[\x1b[32m============>           \x1b[0m]  50% | 1 m 05 s left | loss 3.2");
}

TEST(Bar, IsNeverWiderThanTheTerminal) {
  const Bar bar{.step = 1, .steps = 3, .seconds_left = 5, .text = "µs"};
  for (std::size_t columns = 0; columns < 60; ++columns)
    EXPECT_LE(to_text(bar, columns, false).size(), columns + 1) << columns;  // µ has two bytes
}

TEST(Bar, IsFullOnlyAtTheEnd) {
  EXPECT_EQ(to_text(Bar{.step = 999, .steps = 1000}, 80, false), "[=======================>]  99%");
  EXPECT_EQ(to_text(Bar{.step = 1000, .steps = 1000, .seconds_left = 0}, 80, false),
            "[========================] 100%");
  EXPECT_EQ(to_text(Bar{.step = 0, .steps = 0}, 80, false), "[========================] 100%");
}

TEST(Progress, IntoAFileIsOnlyLines) {
  Memory memory;
  {
    Progress progress(3, false, memory.file());
    progress.line("start");
    progress.update(1);
    progress.update(2, "step 2");
    progress.finish();
  }
  EXPECT_EQ(memory.text(), "start\nstep 2\n");
}

TEST(Progress, OnATerminalRedrawsOneLineAndEndsWithANewline) {
  Memory memory;
  {
    Progress progress(2, true, memory.file());
    progress.update(0, "a");
    progress.update(1, "b");  // too soon after the first to be drawn
    progress.line("note");
    progress.update(2);
  }
  const std::string text = memory.text();
  const std::string at_0 = "\r[>                       ]   0% | a\x1b[K";
  EXPECT_EQ(text.substr(0, at_0.size()), at_0);
  // The note takes the place of the bar, which comes back below with the latest text.
  const std::string note = "\r\x1b[Knote\n\r[============>           ]  50%";
  EXPECT_EQ(text.substr(at_0.size(), note.size()), note);
  const std::string end = "\r[========================] 100% | b\x1b[K\n";
  EXPECT_TRUE(text.ends_with(end)) << text;
}

TEST(Progress, WithoutUpdatesLeavesNoTrace) {
  Memory memory;
  { Progress progress(2, true, memory.file()); }
  EXPECT_EQ(memory.text(), "");
}

// Both ends of a terminal that nobody sits at, 40 columns wide.
class Terminal {
 public:
  Terminal() {
    int terminal = -1;
    const winsize size{.ws_row = 5, .ws_col = 40};
    if (::openpty(&screen_, &terminal, nullptr, nullptr, &size) == 0)
      file_ = ::fdopen(terminal, "w");
  }
  ~Terminal() {
    if (file_ != nullptr) std::fclose(file_);
    ::close(screen_);
  }
  Terminal(const Terminal&) = delete;
  Terminal& operator=(const Terminal&) = delete;
  std::FILE* file() { return file_; }
  // What appeared since the last call, once it ends with `end`. The kernel may hand one write over
  // in several pieces; five seconds without a further piece end the wait, so a wrong text is shown.
  std::string shown_until(std::string_view end) {
    std::string text;
    pollfd screen{.fd = screen_, .events = POLLIN, .revents = 0};
    while (!text.ends_with(end) && ::poll(&screen, 1, 5000) == 1) {
      std::array<char, 4096> piece;
      const ssize_t n = ::read(screen_, piece.data(), piece.size());
      if (n <= 0) break;
      text.append(piece.data(), static_cast<std::size_t>(n));
    }
    return text;
  }

 private:
  int screen_ = -1;
  std::FILE* file_ = nullptr;
};

TEST(Console, ATerminalIsLiveUnlessToldOtherwise) {
  Terminal terminal;
  if (terminal.file() == nullptr) GTEST_SKIP() << "no pseudo-terminals here";
  ::unsetenv("NO_COLOR");
  ::setenv("TERM", "xterm", 1);
  EXPECT_TRUE(is_live_terminal(terminal.file()));
  EXPECT_TRUE(wants_colour(terminal.file()));
  ::setenv("NO_COLOR", "1", 1);
  EXPECT_TRUE(is_live_terminal(terminal.file()));
  EXPECT_FALSE(wants_colour(terminal.file()));
  ::setenv("TERM", "dumb", 1);
  EXPECT_FALSE(is_live_terminal(terminal.file()));
  ::unsetenv("NO_COLOR");
}

TEST(Progress, FitsTheTerminalItIsOn) {
  Terminal terminal;
  if (terminal.file() == nullptr) GTEST_SKIP() << "no pseudo-terminals here";
  ::setenv("NO_COLOR", "1", 1);
  Progress progress(2, true, terminal.file());
  progress.update(1, std::string(100, 'x'));
  EXPECT_EQ(terminal.shown_until("\x1b[K"), "\r[============>           ]  50% | xxxxx\x1b[K");
  progress.finish();
  EXPECT_TRUE(terminal.shown_until("\r\n").ends_with("xxxxx\x1b[K\r\n"));
  ::unsetenv("NO_COLOR");
}

TEST(Console, APipeIsNoTerminal) {
  std::FILE* file = std::tmpfile();
  EXPECT_FALSE(is_live_terminal(file));
  EXPECT_FALSE(wants_colour(file));
  EXPECT_EQ(terminal_columns(file), 80u);
  std::fclose(file);
}

}  // namespace
}  // namespace laconic
