#include "laconic/report/console.hpp"

#include <fmt/format.h>
#include <sys/ioctl.h>
#include <unistd.h>

#include <algorithm>
#include <cmath>
#include <cstdlib>

#include "laconic/base/text.hpp"
#include "laconic/report/column.hpp"

namespace laconic {

namespace {

constexpr double kMemorySeconds = 30;
constexpr double kRedrawSeconds = 0.1;  // faster is only flicker
constexpr std::size_t kBarColumns = 24;
constexpr const char* kEraseLine = "\r\x1b[K";
constexpr const char* kGreen = "\x1b[32m";
constexpr const char* kPlain = "\x1b[0m";

double fraction(const Bar& bar) {
  if (bar.steps <= 0) return 1;
  return std::clamp(static_cast<double>(bar.step) / static_cast<double>(bar.steps), 0.0, 1.0);
}

std::string bar_picture(double done, std::size_t columns) {
  const auto full = static_cast<std::size_t>(done * static_cast<double>(columns));
  std::string picture(full, '=');
  if (full < columns) picture += '>';
  picture.resize(columns, ' ');
  return picture;
}

std::string coloured(std::string text) {
  const std::size_t from = 1, to = std::min(1 + kBarColumns, text.size());
  if (to <= from) return text;
  return text.insert(to, kPlain).insert(from, kGreen);
}

std::int64_t rounded(double value) {
  return std::isfinite(value) ? std::llround(value) : 0;
}

}  // namespace

std::string to_text(const StepLine& line) {
  const std::size_t digits = std::max<std::size_t>(5, fmt::formatted_size("{}", line.steps));
  std::string text = fmt::format(
      "step {:>{}}/{} | loss {:.4f} | norm {:.2f} | lr {:.2e} | {} tok/s", line.step, digits,
      line.steps, line.loss, line.norm, line.lr, with_commas(rounded(line.tokens_per_second)));
  if (line.mfu) text += fmt::format(" | mfu {:.0f} %", 100 * *line.mfu);
  if (line.wire_bytes) text += " | wire " + human_bytes(*line.wire_bytes);
  if (line.wire_bytes && line.wire_ratio) text += fmt::format(" ({:.1f}x)", *line.wire_ratio);
  if (line.comm_ms) text += fmt::format(" | comm {:.0f} ms", *line.comm_ms);
  if (line.comm_ms && line.exposed_ms) text += fmt::format(", exposed {:.0f}", *line.exposed_ms);
  return text;
}

void Eta::update(std::int64_t step, double now_seconds) {
  if (step_ >= 0 && step > step_) {
    const double seconds = std::max(now_seconds - now_, 0.0);
    const double fading = std::exp(-seconds / kMemorySeconds);
    recent_steps_ = recent_steps_ * fading + static_cast<double>(step - step_);
    recent_seconds_ = recent_seconds_ * fading + seconds;
  }
  if (step == step_) return;
  step_ = step;
  now_ = now_seconds;
}

std::optional<double> Eta::seconds_left(std::int64_t steps) const {
  if (recent_steps_ <= 0) return std::nullopt;
  const double left = static_cast<double>(std::max<std::int64_t>(steps - step_, 0));
  return left * recent_seconds_ / recent_steps_;
}

std::string to_text(const Bar& bar, std::size_t columns, bool has_colour) {
  const double done = fraction(bar);
  // 100 % only when it is true.
  const int percent = static_cast<int>(done * 100);
  std::string text = fmt::format("[{}] {:>3}%", bar_picture(done, kBarColumns), percent);
  if (bar.seconds_left && done < 1)
    text += fmt::format(" | {} left", human_seconds(*bar.seconds_left));
  if (!bar.text.empty()) text += " | " + bar.text;
  text = clipped(text, columns);
  return has_colour ? coloured(text) : text;
}

bool is_live_terminal(std::FILE* out) {
  // OpenMPI gives every rank a terminal of its own, and passes on what it reads there.
  if (std::getenv("OMPI_COMM_WORLD_RANK") != nullptr) return false;
  const char* term = std::getenv("TERM");
  return ::isatty(::fileno(out)) == 1 && term != nullptr && std::string_view(term) != "dumb";
}

bool wants_colour(std::FILE* out) {
  const char* refusal = std::getenv("NO_COLOR");  // no-color.org: set and not empty
  return is_live_terminal(out) && (refusal == nullptr || *refusal == '\0');
}

std::size_t terminal_columns(std::FILE* out) {
  winsize size{};
  if (::ioctl(::fileno(out), TIOCGWINSZ, &size) != 0 || size.ws_col == 0) return 80;
  return size.ws_col;
}

Progress::Progress(std::int64_t total_steps, bool is_terminal, std::FILE* out)
    : is_terminal_(is_terminal), has_colour_(is_terminal && wants_colour(out)), out_(out) {
  bar_.steps = total_steps;
}

void Progress::update(std::int64_t step, std::string_view text) {
  if (!is_terminal_) {
    if (!text.empty()) line(text);
    return;
  }
  const double now = clock_.seconds();
  eta_.update(step, now);
  bar_.step = step;
  bar_.seconds_left = eta_.seconds_left(bar_.steps);
  if (!text.empty()) bar_.text = text;
  if (drawn_at_ < 0 || now - drawn_at_ >= kRedrawSeconds || step >= bar_.steps) draw();
}

void Progress::line(std::string_view text) {
  const bool had_bar = is_drawn_;
  put(fmt::format("{}{}\n", had_bar ? kEraseLine : "", text));
  is_drawn_ = false;
  if (had_bar) draw();
}

void Progress::finish() {
  if (!is_drawn_) return;
  draw();
  put("\n");
  is_drawn_ = false;
}

void Progress::draw() {
  // The last column stays free: some terminals wrap as soon as it is written.
  const std::size_t columns = std::max<std::size_t>(terminal_columns(out_), 2) - 1;
  // New text over old, then the rest of the line erased: nothing is blank in between.
  put(fmt::format("\r{}\x1b[K", to_text(bar_, columns, has_colour_)));
  is_drawn_ = true;
  drawn_at_ = clock_.seconds();
}

void Progress::put(const std::string& text) {
  std::fputs(text.c_str(), out_);
  std::fflush(out_);
}

}  // namespace laconic
