#include "laconic/layout/layout_picture.hpp"

#include <fmt/format.h>

#include <algorithm>

#include "laconic/base/error.hpp"
#include "laconic/base/text.hpp"
#include "laconic/base/xml.hpp"

namespace laconic {

namespace {

constexpr std::size_t kMostDrawn = 16;  // rows or columns of a text

void add_range(std::vector<Range>& ranges, const Range& range) {
  if (range.size() > 0 && std::ranges::find(ranges, range) == ranges.end()) ranges.push_back(range);
}

std::size_t place_of(const std::vector<Range>& ranges, const Range& range) {
  return static_cast<std::size_t>(std::ranges::find(ranges, range) - ranges.begin());
}

std::string pad_left(const std::string& text, std::size_t width) {
  return std::string(width - std::min(width, text.size()), ' ') + text;
}

// Texts of all cells with their labels, the first row and column being the labels.
std::vector<std::vector<std::string>> cell_texts(const LayoutPicture& picture) {
  std::vector<std::vector<std::string>> lines = {{""}};
  for (const Range& range : picture.columns) lines[0].push_back(to_text(range));
  for (std::size_t r = 0; r < picture.cells.size(); ++r) {
    lines.push_back({picture.rows.empty() ? "" : to_text(picture.rows[r])});
    for (const Group& ranks : picture.cells[r]) lines.back().push_back(ranks_to_text(ranks));
  }
  return lines;
}

}  // namespace

LayoutPicture picture_of(std::string title, const Layout& layout, const Mesh& mesh,
                         std::span<const std::int64_t> sizes, const DrawnDims& drawn) {
  LACONIC_ASSERT(drawn.columns < sizes.size(), fmt::format("{} dims", sizes.size()));
  LayoutPicture picture{.title = std::move(title), .rows = {}, .columns = {}, .cells = {}};
  const auto for_each_shard = [&](const auto& act) {
    for (Rank rank = 0; rank < size(mesh); ++rank)
      act(rank, shard_of(layout, mesh, coord_of(mesh, rank), sizes));
  };
  for_each_shard([&](Rank, const std::vector<Range>& shard) {
    if (drawn.rows) add_range(picture.rows, shard[*drawn.rows]);
    add_range(picture.columns, shard[drawn.columns]);
  });
  std::ranges::sort(picture.rows, {}, &Range::begin);
  std::ranges::sort(picture.columns, {}, &Range::begin);
  picture.cells.resize(std::max<std::size_t>(picture.rows.size(), 1));
  for (std::vector<Group>& row : picture.cells) row.resize(picture.columns.size());
  for_each_shard([&](Rank rank, const std::vector<Range>& shard) {
    const std::size_t row = drawn.rows ? place_of(picture.rows, shard[*drawn.rows]) : 0,
                      column = place_of(picture.columns, shard[drawn.columns]);
    if (row < picture.cells.size() && column < picture.columns.size())
      picture.cells[row][column].push_back(rank);
  });
  return picture;
}

std::string to_text(const LayoutPicture& picture) {
  std::vector<std::vector<std::string>> lines = cell_texts(picture);
  for (std::vector<std::string>& line : lines)
    if (line.size() > kMostDrawn + 1) {
      line.resize(kMostDrawn);
      line.emplace_back("...");
    }
  std::vector<std::size_t> widths(lines[0].size(), 0);
  for (const std::vector<std::string>& line : lines)
    for (std::size_t c = 0; c < line.size(); ++c) widths[c] = std::max(widths[c], line[c].size());
  std::string text;
  for (std::size_t r = 0; r < lines.size(); ++r) {
    if (r > kMostDrawn) return text + "  ...\n";
    for (std::size_t c = 0; c < lines[r].size(); ++c)
      text += "  " + pad_left(lines[r][c], widths[c]);
    text += "\n";
  }
  return text;
}

std::string to_text(const Range& range) {
  return range.size() == 1 ? fmt::format("{}", range.begin)
                           : fmt::format("{}-{}", range.begin, range.end - 1);
}

std::string ranks_to_text(const Group& ranks) {
  std::vector<std::string> runs;
  for (std::size_t first = 0; first < ranks.size();) {
    std::size_t last = first;
    while (last + 1 < ranks.size() && ranks[last + 1] == ranks[last] + 1) ++last;
    runs.push_back(last == first ? fmt::format("{}", ranks[first])
                                 : fmt::format("{}-{}", ranks[first], ranks[last]));
    first = last + 1;
  }
  return join(runs, " ");
}

// --- SVG, in pixels

namespace {

constexpr double kEdge = 24, kLabelWidth = 90, kCellWidth = 64, kCellHeight = 24, kTitleHeight = 44;

// Ranks have colours of their own, the same in all pictures: as far apart as can be.
std::string colour_of_rank(Rank rank, int ranks) {
  return fmt::format("hsl({:.0f}, 65%, 82%)", 360.0 * rank / std::max(ranks, 1));
}

class SvgPictures {
 public:
  std::string draw(const std::string& title, const std::vector<LayoutPicture>& pictures) {
    for (const LayoutPicture& picture : pictures)
      for (const std::vector<Group>& row : picture.cells)
        for (const Group& ranks : row)
          if (!ranks.empty()) ranks_ = std::max(ranks_, ranks.back() + 1);
    text(kEdge, 30, title, "start", 15);
    for (const LayoutPicture& picture : pictures) add(picture);
    const double width = right_ + kEdge, height = y_ + kEdge;
    return fmt::format(
               "<svg xmlns=\"http://www.w3.org/2000/svg\" width=\"{0:g}\" height=\"{1:g}\" "
               "viewBox=\"0 0 {0:g} {1:g}\" font-family=\"sans-serif\" font-size=\"12\">\n"
               "<title>{2}</title>\n<rect width=\"{0:g}\" height=\"{1:g}\" fill=\"white\"/>\n",
               width, height, xml_escaped(title)) +
           out_ + "</svg>\n";
  }

 private:
  void text(double x, double y, const std::string& what, const char* anchor, int pixels = 12) {
    out_ +=
        fmt::format("<text x=\"{:g}\" y=\"{:g}\" text-anchor=\"{}\" font-size=\"{}\">{}</text>\n",
                    x, y, anchor, pixels, xml_escaped(what));
    if (std::string_view(anchor) == "start")
      right_ = std::max(right_, x + 0.6 * pixels * static_cast<double>(what.size()));
  }

  void add(const LayoutPicture& picture) {
    text(kEdge, y_ + 28, picture.title, "start");
    y_ += kTitleHeight;
    const double left = kEdge + kLabelWidth;
    for (std::size_t c = 0; c < picture.columns.size(); ++c)
      text(left + (static_cast<double>(c) + 0.5) * kCellWidth, y_ + 6, to_text(picture.columns[c]),
           "middle", 10);
    y_ += 12;
    for (std::size_t r = 0; r < picture.cells.size(); ++r) {
      if (!picture.rows.empty())
        text(left - 8, y_ + 0.7 * kCellHeight, to_text(picture.rows[r]), "end", 10);
      for (std::size_t c = 0; c < picture.columns.size(); ++c)
        cell(left + static_cast<double>(c) * kCellWidth, picture.cells[r][c]);
      y_ += kCellHeight;
    }
    right_ = std::max(right_, left + static_cast<double>(picture.columns.size()) * kCellWidth);
  }

  void cell(double x, const Group& ranks) {
    out_ += fmt::format(
        "<rect x=\"{:g}\" y=\"{:g}\" width=\"{:g}\" height=\"{:g}\" fill=\"{}\" "
        "stroke=\"#444444\"/>\n",
        x, y_, kCellWidth, kCellHeight,
        ranks.size() == 1 ? colour_of_rank(ranks[0], ranks_) : "#f2f2f2");
    text(x + kCellWidth / 2, y_ + 0.7 * kCellHeight, ranks_to_text(ranks), "middle");
  }

  std::string out_;
  double y_ = 36, right_ = 0;
  int ranks_ = 0;
};

}  // namespace

std::string pictures_svg(const std::string& title, const std::vector<LayoutPicture>& pictures) {
  return SvgPictures().draw(title, pictures);
}

}  // namespace laconic
