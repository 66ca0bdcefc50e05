#include "laconic/schedule/gantt.hpp"

#include <fmt/format.h>

#include <algorithm>
#include <cmath>
#include <map>

#include "laconic/base/error.hpp"

namespace laconic {

namespace {

constexpr int kFewestColumns = 40;
constexpr int kColumnsPerMark = 8;

struct Look {
  const char* fill;
  int colour;  // ANSI, of the background
};

Look look_of(Op op) {
  switch (op) {
    case Op::forward: return {"─", 46};
    case Op::backward: return {"═", 42};
    case Op::backward_input: return {"═", 42};
    case Op::backward_weight: return {"╌", 43};
    case Op::send_activation: return {"─", 46};
    default: return {"═", 42};
  }
}
constexpr Look kSums = {"░", 45};

struct Box {
  int stage = 0;
  std::string name;  // "F10", "a10" on a wire, "R" for sums
  Look look;
  double begin = 0;
  double end = 0;
};

Box box_of(const Span& span) {
  std::string name = to_text(span.action);
  if (name[0] == '>') name.erase(0, 1);
  return {span.action.stage, name, look_of(span.action.op), span.begin, span.end};
}

struct Lane {
  std::string name;
  std::vector<Box> boxes;  // by begin
};

// The longest of "2F10", "F10" and "F" that fits.
std::string label(const Box& box, bool with_stage, std::size_t columns) {
  const std::string whole = with_stage ? std::to_string(box.stage) + box.name : box.name;
  if (whole.size() <= columns) return whole;
  return box.name.size() <= columns ? box.name : box.name.substr(0, 1);
}

std::string repeat(const char* text, std::size_t times) {
  std::string repeated;
  for (std::size_t i = 0; i < times; ++i) repeated += text;
  return repeated;
}

int receiver_of(const Schedule& schedule, const Action& send) {
  return rank_of_stage(schedule, send.op == Op::send_activation ? send.stage + 1 : send.stage - 1);
}

class Drawing {
 public:
  Drawing(const Schedule& schedule, const Timing& timing, const GanttOptions& options)
      : schedule_(schedule), timing_(timing), options_(options) {
    LACONIC_ASSERT(options.columns >= kFewestColumns, fmt::format("{} columns", options.columns));
    add_ranks();
    if (options.messages) add_wires();
    add_sums();
    for (const Lane& lane : lanes_) margin_ = std::max(margin_, lane.name.size() + 1);
    width_ = static_cast<std::size_t>(options.columns) - margin_;
  }

  std::string draw() const {
    std::string text;
    for (const Lane& lane : lanes_)
      text += fmt::format("{:<{}}{}\n", lane.name, margin_, drawn(lane));
    return text + axis();
  }

 private:
  void add_ranks() {
    for (int rank = 0; rank < schedule_.shape.ranks; ++rank) lanes_.push_back({name(rank), {}});
    for (const Span& span : timing_.compute)
      lanes_[static_cast<std::size_t>(span.rank)].boxes.push_back(box_of(span));
  }
  static std::string name(int rank) { return fmt::format("rank {}", rank); }

  void add_wires() {
    std::map<std::pair<int, int>, Lane> wires;
    for (const Span& span : timing_.messages) {
      const int to = receiver_of(schedule_, span.action);
      Lane& lane = wires[{span.rank, to}];
      lane.name = fmt::format("{} to {}", span.rank, to);
      lane.boxes.push_back(box_of(span));
    }
    for (auto& [between, lane] : wires) lanes_.push_back(std::move(lane));
  }

  void add_sums() {
    std::map<int, Lane> sums;
    for (const Reduction& sum : timing_.reductions) {
      if (sum.end <= sum.begin) continue;
      sums[sum.rank].name = fmt::format("sums {}", sum.rank);
      sums[sum.rank].boxes.push_back({sum.stage, "R", kSums, sum.begin, sum.end});
    }
    for (auto& [rank, lane] : sums) {
      std::ranges::stable_sort(lane.boxes, {}, &Box::begin);
      lanes_.push_back(std::move(lane));
    }
  }

  double time_of(std::size_t column) const {
    return (static_cast<double>(column) + 0.5) * timing_.makespan / static_cast<double>(width_);
  }

  // A column is the first box's that covers its middle.
  std::string drawn(const Lane& lane) const {
    std::string text;
    std::size_t column = 0, next = 0;
    while (column < width_) {
      while (next < lane.boxes.size() && lane.boxes[next].end <= time_of(column)) ++next;
      const bool is_idle = next == lane.boxes.size() || lane.boxes[next].begin > time_of(column);
      std::size_t last = column + 1;
      if (is_idle) {
        while (last < width_ &&
               (next == lane.boxes.size() || lane.boxes[next].begin > time_of(last)))
          ++last;
        text += repeat("·", last - column);
      } else {
        while (last < width_ && lane.boxes[next].end > time_of(last)) ++last;
        text += box(lane.boxes[next], last - column);
      }
      column = last;
    }
    return text;
  }

  std::string box(const Box& box, std::size_t columns) const {
    const std::string text = label(box, chunks_of(schedule_.shape) > 1, columns);
    const std::size_t rest = columns - text.size();
    if (!options_.colour) return text + repeat(box.look.fill, rest);
    return fmt::format("\x1b[30;{}m{}{}\x1b[0m", box.look.colour, text, std::string(rest, ' '));
  }

  std::string axis() const {
    std::string line(margin_ + width_, ' ');
    const int most = std::max(2, static_cast<int>(width_) / kColumnsPerMark);
    for (const double mark : axis_marks(timing_.makespan, most)) {
      const std::string text = fmt::format("|{:g}", mark);
      const double share = timing_.makespan > 0 ? mark / timing_.makespan : 0;
      const auto at =
          margin_ + static_cast<std::size_t>(std::llround(share * static_cast<double>(width_)));
      if (at + text.size() <= line.size()) line.replace(at, text.size(), text);
    }
    line.resize(line.find_last_not_of(' ') + 1);
    return line + "\n";
  }

  const Schedule& schedule_;
  const Timing& timing_;
  GanttOptions options_;
  std::vector<Lane> lanes_;
  std::size_t margin_ = 0;
  std::size_t width_ = 0;
};

}  // namespace

std::vector<double> axis_marks(double end, int most) {
  if (!(end > 0)) return {0};
  const double least = end / (most - 1);
  const double power = std::pow(10.0, std::floor(std::log10(least)));
  double step = 10 * power;
  for (const double factor : {5.0, 2.0, 1.0})
    if (factor * power >= least * (1 - 1e-9)) step = factor * power;
  std::vector<double> marks;
  for (int i = 0; i * step <= end * (1 + 1e-9); ++i) marks.push_back(i * step);
  return marks;
}

std::string gantt_text(const Schedule& schedule, const Timing& timing,
                       const GanttOptions& options) {
  return Drawing(schedule, timing, options).draw();
}

}  // namespace laconic
