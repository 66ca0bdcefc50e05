#include "laconic/study/markdown.hpp"

#include <fmt/format.h>

#include "laconic/base/error.hpp"

namespace laconic {

namespace {

std::string cell_text(const std::string& text) {
  std::string escaped;
  for (const char letter : text) {
    if (letter == '|') escaped += '\\';
    escaped += letter == '\n' ? ' ' : letter;
  }
  return escaped;
}

std::string row_text(const std::vector<std::string>& cells) {
  std::string line = "|";
  for (const std::string& cell : cells) line += " " + cell_text(cell) + " |";
  return line + "\n";
}

}  // namespace

std::string markdown_table(const std::vector<Column>& columns,
                           const std::vector<std::vector<std::string>>& rows) {
  std::vector<std::string> titles;
  std::string rule = "|";
  for (const Column& column : columns) {
    titles.push_back(column.title);
    rule += column.align == Align::left ? "---|" : "--:|";
  }
  std::string table = row_text(titles) + rule + "\n";
  for (const auto& row : rows) {
    LACONIC_ASSERT(row.size() == columns.size(),
                   fmt::format("{} cells for {} columns", row.size(), columns.size()));
    table += row_text(row);
  }
  return table + "\n";
}

std::string with_count(std::int64_t count, const char* one, const char* many) {
  return fmt::format("{} {}", count, count == 1 ? one : many);
}

}  // namespace laconic
