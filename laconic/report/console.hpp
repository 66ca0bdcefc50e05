// report/console.hpp — what a person watches: the step line and the progress bar.
//
// On a terminal the bar is the last line, redrawn in place; line() puts a
// normal line above it. Into a file or a pipe there is no bar, only lines. One
// thread only. Colours and redrawing follow NO_COLOR and TERM=dumb.
#pragma once

#include <cstdint>
#include <cstdio>
#include <optional>
#include <string>
#include <string_view>

#include "laconic/base/clock.hpp"

namespace laconic {

struct StepLine {
  std::int64_t step = 0;
  std::int64_t steps = 0;
  double loss = 0;
  double norm = 0;
  double lr = 0;
  double tokens_per_second = 0;
  std::optional<double> mfu;         // model FLOPs utilisation: 1 is all the machine can do
  std::optional<double> wire_bytes;  // sent by this rank in this step
  std::optional<double> wire_ratio;  // raw bytes / wire bytes
  std::optional<double> comm_ms;
  std::optional<double> exposed_ms;  // of comm_ms, not hidden behind computation
};

// step   100/1000 | loss 3.2144 | norm 0.91 | lr 3.00e-04 | 12,345 tok/s | mfu 41 % | wire 12.3 MB
// (31.8x) | comm 41 ms, exposed 6 — on one line; the last parts only when they are set.
std::string to_text(const StepLine& line);

// Seconds to go, from the pace of the last half minute or so: slow first steps are forgotten.
class Eta {
 public:
  void update(std::int64_t step, double now_seconds);  // the first call only starts the clock
  std::optional<double> seconds_left(std::int64_t steps) const;

 private:
  std::int64_t step_ = -1;
  double now_ = 0;
  double recent_steps_ = 0;    // both fade with age,
  double recent_seconds_ = 0;  // so their ratio is a weighted mean
};

struct Bar {
  std::int64_t step = 0;
  std::int64_t steps = 0;
  std::optional<double> seconds_left;
  std::string text;
};

// [=====>    ]  50% | 1 m 05 s left | text — never wider than `columns`.
std::string to_text(const Bar& bar, std::size_t columns, bool has_colour);

bool is_live_terminal(std::FILE* out);         // a terminal whose cursor moves
bool wants_colour(std::FILE* out);             // that, and NO_COLOR is not set
std::size_t terminal_columns(std::FILE* out);  // 80 when unknown

class Progress {
 public:
  Progress(std::int64_t total_steps, bool is_terminal, std::FILE* out = stdout);
  ~Progress() { finish(); }
  Progress(const Progress&) = delete;
  Progress& operator=(const Progress&) = delete;

  // The bar at `step`, with a text after it. Where there is no bar, the text is a line; an empty
  // one is nothing, and on a terminal keeps the text that is there.
  void update(std::int64_t step, std::string_view text = {});
  void line(std::string_view text);
  void finish();  // leaves the bar as a normal line

 private:
  void draw();
  void put(const std::string& text);

  bool is_terminal_;
  bool has_colour_;
  std::FILE* out_;
  Stopwatch clock_;
  Eta eta_;
  Bar bar_;
  bool is_drawn_ = false;
  double drawn_at_ = -1;
};

}  // namespace laconic
