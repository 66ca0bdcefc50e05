#include "laconic/study/chart.hpp"

#include <fmt/format.h>

#include <algorithm>
#include <array>
#include <cmath>
#include <limits>
#include <optional>

#include "laconic/base/error.hpp"
#include "laconic/base/xml.hpp"
#include "laconic/report/column.hpp"
#include "laconic/schedule/gantt.hpp"

namespace laconic {

namespace {

bool is_finite(const Point& point) {
  return std::isfinite(point.x) && std::isfinite(point.y);
}

// What the axes show: x from 0, y from the least to the most with a little room.
struct ChartFrame {
  double right = 1;
  double bottom = 0, top = 1;

  double x_share(double x) const { return x / right; }
  double y_share(double y) const { return (y - bottom) / (top - bottom); }
};

ChartFrame frame_of(const Figure& figure) {
  double right = 0, least = std::numeric_limits<double>::infinity(), most = -least;
  for (const Curve& curve : figure.curves)
    for (const Point& point : curve.points) {
      if (!is_finite(point)) continue;
      right = std::max(right, point.x);
      least = std::min(least, point.y);
      most = std::max(most, point.y);
    }
  const double room = most > least ? 0.04 * (most - least) : std::max(std::abs(most), 1.0) * 0.04;
  return {right > 0 ? right : 1, least - room, most + room};
}

// Round numbers from `least` to `most`, about `count` of them.
std::vector<double> marks_between(double least, double most, int count) {
  const std::vector<double> lengths = axis_marks(most - least, count);
  const double step = lengths.size() > 1 ? lengths[1] : most - least;
  std::vector<double> marks;
  for (double i = std::ceil(least / step - 1e-9); i * step <= most; ++i)
    marks.push_back(i * step + 0.0);  // -0 becomes 0
  return marks;
}

// The height of a curve at x, on the line between its neighbours; nothing beyond its ends.
std::optional<double> height_at(const Curve& curve, double x) {
  const Point* before = nullptr;
  for (const Point& point : curve.points) {
    if (!is_finite(point)) continue;
    if (point.x >= x) {
      if (before == nullptr) return point.x == x ? std::optional(point.y) : std::nullopt;
      const double share = point.x > before->x ? (x - before->x) / (point.x - before->x) : 1;
      return before->y + share * (point.y - before->y);
    }
    before = &point;
  }
  return std::nullopt;
}

void require_drawable(const Figure& figure, FigureKind kind) {
  LACONIC_ASSERT(has_data(figure) && figure.curves.size() <= kMostCurves && figure.kind == kind &&
                     !figure.log_x && !figure.log_y,
                 fmt::format("{}: {} curves", figure.name, figure.curves.size()));
}

// --- text

constexpr std::array<char, kMostCurves> kLetters = {'x', 'o', '+', '#', '*', '%', '@', '='};
constexpr std::array<int, kMostCurves> kAnsi = {31, 34, 32, 35, 33, 36, 90, 39};

class TextChart {
 public:
  TextChart(const Figure& figure, const ChartOptions& options)
      : figure_(figure), options_(options), frame_(frame_of(figure)) {
    for (const double mark : marks_between(frame_.bottom, frame_.top, options.rows / 3 + 2))
      margin_ = std::max(margin_, label(mark).size());
    width_ =
        static_cast<std::size_t>(std::max(20, options.columns - static_cast<int>(margin_) - 3));
    height_ = static_cast<std::size_t>(options.rows);
    cells_.assign(height_, std::vector<int>(width_, -1));
  }

  std::string draw() {
    for (std::size_t i = 0; i < figure_.curves.size(); ++i) put_curve(i);
    std::string text = fmt::format("{}\n", figure_.title);
    const std::vector<std::string> labels = row_labels();
    for (std::size_t row = 0; row < height_; ++row)
      text += fmt::format("{} |{}\n", padded(labels[row], margin_, Align::right), line_of(row));
    text += fmt::format("{} +{}\n", std::string(margin_, ' '), std::string(width_, '-'));
    return text + axis() + legend();
  }

 private:
  static std::string label(double mark) { return fmt::format("{:g}", mark); }

  std::size_t row_of(double y) const {
    const double from_top = (1 - frame_.y_share(y)) * static_cast<double>(height_ - 1);
    return static_cast<std::size_t>(
        std::clamp(std::lround(from_top), 0L, static_cast<long>(height_) - 1));
  }

  void put_curve(std::size_t index) {
    for (std::size_t column = 0; column < width_; ++column) {
      const double x = frame_.right * static_cast<double>(column) / static_cast<double>(width_ - 1);
      if (const auto y = height_at(figure_.curves[index], x))
        cells_[row_of(*y)][column] = static_cast<int>(index);
    }
    // A curve shorter than a column would be missing.
    for (const Point& point : figure_.curves[index].points) {
      if (!is_finite(point)) continue;
      const double at = frame_.x_share(point.x) * static_cast<double>(width_ - 1);
      cells_[row_of(point.y)][static_cast<std::size_t>(std::lround(at))] = static_cast<int>(index);
    }
  }

  std::string letter_of(int index) const {
    if (index < 0) return " ";
    const auto i = static_cast<std::size_t>(index);
    if (!options_.colour) return std::string(1, kLetters.at(i));
    return fmt::format("\033[{}m{}\033[0m", kAnsi.at(i), kLetters.at(i));
  }

  std::string line_of(std::size_t row) const {
    std::size_t end = width_;
    while (end > 0 && cells_[row][end - 1] < 0) --end;
    std::string line;
    for (std::size_t column = 0; column < end; ++column) line += letter_of(cells_[row][column]);
    return line;
  }

  std::vector<std::string> row_labels() const {
    std::vector<std::string> labels(height_);
    for (const double mark : marks_between(frame_.bottom, frame_.top, options_.rows / 3 + 2))
      labels[row_of(mark)] = label(mark);
    return labels;
  }

  std::string axis() const {
    std::string line(margin_ + 2 + width_, ' ');
    for (const double mark : axis_marks(frame_.right, static_cast<int>(width_ / 10) + 2)) {
      const std::string text = label(mark);
      const std::size_t at = margin_ + 2 +
                             static_cast<std::size_t>(std::lround(frame_.x_share(mark) *
                                                                  static_cast<double>(width_ - 1)));
      if (at + text.size() <= line.size()) line.replace(at, text.size(), text);
    }
    line.resize(line.find_last_not_of(' ') + 1);
    return fmt::format("{}  {}\n", line, figure_.x_label);
  }

  std::string legend() const {
    std::string line(margin_ + 2, ' ');
    for (std::size_t i = 0; i < figure_.curves.size(); ++i)
      line += fmt::format("{}{} {}", i == 0 ? "" : "    ", letter_of(static_cast<int>(i)),
                          figure_.curves[i].name);
    return line + "\n";
  }

  const Figure& figure_;
  ChartOptions options_;
  ChartFrame frame_;
  std::size_t margin_ = 0, width_ = 0, height_ = 0;
  std::vector<std::vector<int>> cells_;  // by row and column: which curve; -1: none
};

// --- SVG, in pixels

constexpr double kLeft = 64, kTopOfPlot = 48, kPlotWidth = 760, kPlotHeight = 360;
constexpr std::array<const char*, 4> kDashes = {"", "8 4", "2 3", "8 3 2 3"};

class SvgChart {
 public:
  explicit SvgChart(const Figure& figure) : figure_(figure), frame_(frame_of(figure)) {}

  std::string draw() {
    open();
    axes();
    if (figure_.kind == FigureKind::scatter) diagonal();
    for (std::size_t i = 0; i < figure_.curves.size(); ++i) curve(i);
    legend();
    return out_ + "</svg>\n";
  }

 private:
  double x_of(double x) const { return kLeft + frame_.x_share(x) * kPlotWidth; }
  double y_of(double y) const { return kTopOfPlot + (1 - frame_.y_share(y)) * kPlotHeight; }

  void open() {
    const double width = kLeft + kPlotWidth + 24;
    const double height =
        kTopOfPlot + kPlotHeight + 52 + 20 * static_cast<double>(figure_.curves.size());
    out_ = fmt::format(
        "<svg xmlns=\"http://www.w3.org/2000/svg\" width=\"{0:g}\" height=\"{1:g}\" "
        "viewBox=\"0 0 {0:g} {1:g}\" font-family=\"sans-serif\" font-size=\"12\">\n"
        "<title>{2}</title>\n<rect width=\"{0:g}\" height=\"{1:g}\" fill=\"white\"/>\n"
        "<text x=\"{3:g}\" y=\"26\" font-size=\"15\">{2}</text>\n",
        width, height, xml_escaped(figure_.title), kLeft);
  }

  void text(double x, double y, const std::string& what, const char* anchor) {
    out_ += fmt::format("<text x=\"{:.1f}\" y=\"{:.1f}\" text-anchor=\"{}\">{}</text>\n", x, y,
                        anchor, xml_escaped(what));
  }

  void line(double x1, double y1, double x2, double y2, const char* colour) {
    out_ += fmt::format(
        "<line x1=\"{:.1f}\" y1=\"{:.1f}\" x2=\"{:.1f}\" y2=\"{:.1f}\" stroke=\"{}\"/>\n", x1, y1,
        x2, y2, colour);
  }

  void axes() {
    const double bottom = kTopOfPlot + kPlotHeight;
    for (const double mark : axis_marks(frame_.right, 10)) {
      line(x_of(mark), kTopOfPlot, x_of(mark), bottom, "#dddddd");
      text(x_of(mark), bottom + 17, fmt::format("{:g}", mark), "middle");
    }
    for (const double mark : marks_between(frame_.bottom, frame_.top, 9)) {
      line(kLeft, y_of(mark), kLeft + kPlotWidth, y_of(mark), "#dddddd");
      text(kLeft - 7, y_of(mark) + 4, fmt::format("{:g}", mark), "end");
    }
    line(kLeft, kTopOfPlot, kLeft, bottom, "#444444");
    line(kLeft, bottom, kLeft + kPlotWidth, bottom, "#444444");
    text(kLeft + kPlotWidth / 2, bottom + 35, figure_.x_label, "middle");
    text(kLeft - 7, kTopOfPlot - 8, figure_.y_label, "end");
  }

  std::string style_of(std::size_t index) const {
    const char* dashes = kDashes.at(index % kDashes.size());
    return fmt::format("fill=\"none\" stroke=\"{}\" stroke-width=\"2\"{}", colour_of(index),
                       *dashes == '\0' ? "" : fmt::format(" stroke-dasharray=\"{}\"", dashes));
  }

  // Where both axes have the same number, as far as both go.
  void diagonal() {
    const double from = std::max(0.0, frame_.bottom);
    const double to = std::min(frame_.right, frame_.top);
    if (from < to) line(x_of(from), y_of(from), x_of(to), y_of(to), "#bbbbbb");
  }

  void dots(std::size_t index) {
    for (const Point& point : figure_.curves[index].points)
      if (is_finite(point))
        out_ += fmt::format("<circle cx=\"{:.1f}\" cy=\"{:.1f}\" r=\"4\" fill=\"{}\"/>\n",
                            x_of(point.x), y_of(point.y), colour_of(index));
  }

  void curve(std::size_t index) {
    if (figure_.kind == FigureKind::scatter) return dots(index);
    std::string points;
    for (const Point& point : figure_.curves[index].points)
      if (is_finite(point))
        points +=
            fmt::format("{}{:.1f},{:.1f}", points.empty() ? "" : " ", x_of(point.x), y_of(point.y));
    out_ += fmt::format("<polyline points=\"{}\" {}/>\n", points, style_of(index));
  }

  void legend() {
    double y = kTopOfPlot + kPlotHeight + 58;
    for (std::size_t i = 0; i < figure_.curves.size(); ++i, y += 20) {
      out_ += fmt::format("<polyline points=\"{0:g},{2:g} {1:g},{2:g}\" {3}/>\n", kLeft, kLeft + 40,
                          y - 4, style_of(i));
      text(kLeft + 50, y, figure_.curves[i].name, "start");
    }
  }

  const Figure& figure_;
  ChartFrame frame_;
  std::string out_;
};

}  // namespace

std::string chart_text(const Figure& figure, const ChartOptions& options) {
  require_drawable(figure, FigureKind::lines);
  return TextChart(figure, options).draw();
}

std::string chart_svg(const Figure& figure) {
  const bool is_scatter = figure.kind == FigureKind::scatter;
  require_drawable(figure, is_scatter ? FigureKind::scatter : FigureKind::lines);
  return SvgChart(figure).draw();
}

}  // namespace laconic
