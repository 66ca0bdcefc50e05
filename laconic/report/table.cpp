#include "laconic/report/table.hpp"

#include <fmt/format.h>

#include <algorithm>

#include "laconic/base/error.hpp"

namespace laconic {

void Table::add(std::vector<std::string> cells) {
  LACONIC_ASSERT(cells.size() == columns_.size(),
                 fmt::format("{} cells for {} columns", cells.size(), columns_.size()));
  rows_.push_back(std::move(cells));
}

std::string to_text(const Table& table) {
  std::vector<std::string> titles, rules;
  std::vector<std::size_t> widths;
  for (std::size_t i = 0; i < table.columns_.size(); ++i) {
    std::size_t width = columns_of(table.columns_[i].title);
    for (const auto& row : table.rows_) width = std::max(width, columns_of(row[i]));
    titles.push_back(table.columns_[i].title);
    rules.emplace_back(width, '-');
    widths.push_back(width);
  }
  std::string text;
  const auto add_line = [&](const std::vector<std::string>& cells) {
    std::string line;
    for (std::size_t i = 0; i < cells.size(); ++i)
      line += (i == 0 ? "" : "  ") + padded(cells[i], widths[i], table.columns_[i].align);
    line.erase(line.find_last_not_of(' ') + 1);
    text += line + '\n';
  };
  add_line(titles);
  add_line(rules);
  for (const auto& row : table.rows_) add_line(row);
  return text;
}

}  // namespace laconic
