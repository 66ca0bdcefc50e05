#include "laconic/study/heat_map.hpp"

#include <fmt/format.h>

#include <algorithm>
#include <array>
#include <cmath>

#include "laconic/base/error.hpp"
#include "laconic/base/xml.hpp"

namespace laconic {

namespace {

constexpr double kNames = 170, kTop = 60, kWide = 84, kHigh = 26;  // pixels

// From nearly white to a blue on which black can be read.
std::string shade(double share) {
  constexpr std::array<double, 3> kLeast = {247, 251, 255}, kMost = {107, 174, 214};
  std::array<int, 3> colour{};
  for (std::size_t i = 0; i < 3; ++i)
    colour.at(i) =
        static_cast<int>(std::lround(kLeast.at(i) + share * (kMost.at(i) - kLeast.at(i))));
  return fmt::format("#{:02x}{:02x}{:02x}", colour[0], colour[1], colour[2]);
}

struct HeatRange {
  double least = 0, most = 0;
  double share(double value) const { return most > least ? (value - least) / (most - least) : 0; }
};

HeatRange range_of(const Figure& figure) {
  HeatRange range;
  bool is_first = true;
  for (const Curve& row : figure.curves)
    for (const Point& field : row.points) {
      if (!std::isfinite(field.y)) continue;
      range.least = is_first ? field.y : std::min(range.least, field.y);
      range.most = is_first ? field.y : std::max(range.most, field.y);
      is_first = false;
    }
  return range;
}

std::string text_at(double x, double y, const std::string& what, const char* anchor) {
  return fmt::format("<text x=\"{:g}\" y=\"{:g}\" text-anchor=\"{}\">{}</text>\n", x, y, anchor,
                     xml_escaped(what));
}

std::string field_text(const Point& field, double y, const HeatRange& range) {
  const double x = kNames + field.x * kWide;
  return fmt::format("<rect x=\"{:g}\" y=\"{:g}\" width=\"{:g}\" height=\"{:g}\" fill=\"{}\"/>\n",
                     x, y, kWide, kHigh, shade(range.share(field.y))) +
         text_at(x + kWide / 2, y + kHigh - 8, fmt::format("{:.4g}", field.y), "middle");
}

}  // namespace

std::string heat_svg(const Figure& figure) {
  LACONIC_ASSERT(has_data(figure) && figure.kind == FigureKind::heat, figure.name);
  const HeatRange range = range_of(figure);
  const double width = kNames + kWide * static_cast<double>(figure.ticks.size()) + 24;
  const double height = kTop + kHigh * static_cast<double>(figure.curves.size()) + 24;
  std::string out = fmt::format(
      "<svg xmlns=\"http://www.w3.org/2000/svg\" width=\"{0:g}\" height=\"{1:g}\" "
      "viewBox=\"0 0 {0:g} {1:g}\" font-family=\"sans-serif\" font-size=\"12\">\n"
      "<title>{2}</title>\n<rect width=\"{0:g}\" height=\"{1:g}\" fill=\"white\"/>\n"
      "<text x=\"12\" y=\"22\" font-size=\"15\">{2}: {3}</text>\n",
      width, height, xml_escaped(figure.title), xml_escaped(figure.y_label));
  for (const Tick& tick : figure.ticks)
    out += text_at(kNames + (tick.x + 0.5) * kWide, kTop - 8, tick.label, "middle");
  for (std::size_t i = 0; i < figure.curves.size(); ++i) {
    const double y = kTop + kHigh * static_cast<double>(i);
    out += text_at(kNames - 8, y + kHigh - 8, figure.curves[i].name, "end");
    for (const Point& field : figure.curves[i].points)
      if (std::isfinite(field.y)) out += field_text(field, y, range);
  }
  return out + "</svg>\n";
}

}  // namespace laconic
