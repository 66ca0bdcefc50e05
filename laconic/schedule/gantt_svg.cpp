#include <fmt/format.h>

#include <algorithm>
#include <array>

#include "laconic/base/xml.hpp"
#include "laconic/schedule/gantt.hpp"

namespace laconic {

namespace {

// In pixels.
constexpr double kMargin = 64;
constexpr double kWidth = 1200;  // the time axis
constexpr double kTop = 64;
constexpr double kLane = 28;   // a rank
constexpr double kGap = 26;    // between ranks, where messages are seen
constexpr double kLetter = 7;  // how wide one is at most
constexpr double kSumHeight = 6;

struct Colour {
  Op op;
  const char* fill;
  const char* name;
};

// From light to dark, so that a print without colour still tells them apart.
constexpr std::array<Colour, 4> kColours = {{
    {Op::forward, "#e6f0fa", "F forward"},
    {Op::backward, "#8fbf8f", "B backward"},
    {Op::backward_input, "#b5d8a8", "I backward of the input"},
    {Op::backward_weight, "#f2c879", "W backward of the weights"},
}};

const char* fill_of(Op op) {
  return std::ranges::find(kColours, op, &Colour::op)->fill;
}

class Document {
 public:
  Document(const Schedule& schedule, const Timing& timing) : schedule_(schedule), timing_(timing) {}

  std::string draw(const std::string& title) {
    open(title);
    axis();
    for (int rank = 0; rank < schedule_.shape.ranks; ++rank)
      text(8, top(rank) + kLane / 2 + 4, fmt::format("rank {}", rank));
    for (const Span& span : timing_.messages) message(span);
    for (const Span& span : timing_.compute) box(span);
    for (const Reduction& one : timing_.reductions) sum(one);
    legend();
    return out_ + "</svg>\n";
  }

 private:
  double x(double time) const {
    return kMargin + (timing_.makespan > 0 ? time / timing_.makespan * kWidth : 0);
  }
  static double top(int rank) { return kTop + rank * (kLane + kGap); }
  double bottom() const { return top(schedule_.shape.ranks - 1) + kLane + kGap; }

  void open(const std::string& title) {
    const double width = kMargin + kWidth + 24, height = bottom() + 76;
    out_ = fmt::format(
        "<svg xmlns=\"http://www.w3.org/2000/svg\" width=\"{0:g}\" height=\"{1:g}\" "
        "viewBox=\"0 0 {0:g} {1:g}\" font-family=\"sans-serif\" font-size=\"11\">\n"
        "<title>{2}</title>\n"
        "<rect width=\"{0:g}\" height=\"{1:g}\" fill=\"white\"/>\n"
        "<text x=\"8\" y=\"22\" font-size=\"15\">{2}</text>\n",
        width, height, xml_escaped(title));
    text(8, 42, fmt::format("makespan {:.6g}", timing_.makespan));
  }

  void text(double at_x, double at_y, const std::string& what, const char* anchor = "start") {
    out_ += fmt::format("<text x=\"{:.2f}\" y=\"{:.2f}\" text-anchor=\"{}\">{}</text>\n", at_x,
                        at_y, anchor, xml_escaped(what));
  }

  void axis() {
    for (const double mark : axis_marks(timing_.makespan, 13)) {
      out_ += fmt::format(
          "<line x1=\"{0:.2f}\" y1=\"{1:g}\" x2=\"{0:.2f}\" y2=\"{2:g}\" stroke=\"#dddddd\"/>\n",
          x(mark), kTop - 6, bottom());
      text(x(mark), bottom() + 14, fmt::format("{:g}", mark), "middle");
    }
  }

  void box(const Span& span) {
    const double width = x(span.end) - x(span.begin);
    const std::string name = to_text(span.action, chunks_of(schedule_.shape) > 1);
    out_ += fmt::format(
        "<rect x=\"{:.2f}\" y=\"{:g}\" width=\"{:.2f}\" height=\"{:g}\" fill=\"{}\" "
        "stroke=\"#444444\" stroke-width=\"0.6\"><title>{}: {:.6g} to {:.6g}</title></rect>\n",
        x(span.begin), top(span.rank), width, kLane, fill_of(span.action.op), name, span.begin,
        span.end);
    if (width >= kLetter * static_cast<double>(name.size()))
      text((x(span.begin) + x(span.end)) / 2, top(span.rank) + kLane / 2 + 4, name, "middle");
  }

  // Draws a line from the sender's lane to the receiver's, as long as the message is under way. If
  // they are not neighbours it crosses the lanes between them.
  void message(const Span& span) {
    const bool is_activation = span.action.op == Op::send_activation;
    const int to = rank_of_stage(schedule_, span.action.stage + (is_activation ? 1 : -1));
    const bool is_down = to > span.rank;
    out_ += fmt::format(
        "<line x1=\"{:.2f}\" y1=\"{:g}\" x2=\"{:.2f}\" y2=\"{:g}\" stroke=\"#222222\" "
        "stroke-width=\"1\"{}><title>{} from rank {} to rank {}: {:.6g} to {:.6g}</title></line>\n",
        x(span.begin), top(span.rank) + (is_down ? kLane : 0), x(span.end),
        top(to) + (is_down ? 0 : kLane), is_activation ? "" : " stroke-dasharray=\"4 2\"",
        xml_escaped(to_text(span.action, true)), span.rank, to, span.begin, span.end);
  }

  void sum(const Reduction& sum) {
    if (sum.end <= sum.begin) return;
    out_ += fmt::format(
        "<rect x=\"{:.2f}\" y=\"{:g}\" width=\"{:.2f}\" height=\"{:g}\" fill=\"#555555\"><title>R "
        "of stage {}: {:.6g} to {:.6g}</title></rect>\n",
        x(sum.begin), top(sum.rank) + kLane + 2, x(sum.end) - x(sum.begin), kSumHeight, sum.stage,
        sum.begin, sum.end);
  }

  void legend() {
    double at = kMargin;
    const double y = bottom() + 42;
    for (const Colour& colour : kColours) {
      out_ += fmt::format(
          "<rect x=\"{:g}\" y=\"{:g}\" width=\"14\" height=\"14\" fill=\"{}\" "
          "stroke=\"#444444\" stroke-width=\"0.6\"/>\n",
          at, y - 11, colour.fill);
      text(at + 19, y, colour.name);
      at += 185;
    }
    text(at, y, "full line: activation, dashed: gradient, dark bar: sums");
  }

  const Schedule& schedule_;
  const Timing& timing_;
  std::string out_;
};

}  // namespace

std::string gantt_svg(const Schedule& schedule, const Timing& timing, const std::string& title) {
  return Document(schedule, timing).draw(title);
}

}  // namespace laconic
