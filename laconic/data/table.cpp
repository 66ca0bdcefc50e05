#include "laconic/data/table.hpp"

#include <fmt/format.h>

#include <algorithm>
#include <utility>

#include "laconic/base/error.hpp"
#include "laconic/base/text.hpp"

namespace laconic {

TableReader::TableReader(std::string_view text, std::string name, TableFormat format)
    : rest_(text), name_(std::move(name)), format_(format) {
  if (rest_.starts_with("\xEF\xBB\xBF")) rest_.remove_prefix(3);
}

bool TableReader::next(std::vector<std::string>& fields) {
  fields.clear();
  return format_ == TableFormat::tsv ? next_tsv(fields) : next_csv(fields);
}

std::string TableReader::where() const {
  return fmt::format("{}:{}", name_, row_line_);
}

bool TableReader::next_tsv(std::vector<std::string>& fields) {
  while (!rest_.empty()) {
    const std::size_t end = std::min(rest_.find('\n'), rest_.size());
    std::string_view row = rest_.substr(0, end);
    rest_.remove_prefix(std::min(end + 1, rest_.size()));
    row_line_ = line_++;
    if (row.ends_with('\r')) row.remove_suffix(1);
    if (row.empty()) continue;
    fields = split(row, '\t');
    return true;
  }
  return false;
}

bool TableReader::ends_line() const {
  return rest_.empty() || rest_.front() == '\n' || rest_.starts_with("\r\n") || rest_ == "\r";
}

void TableReader::skip_line_end() {
  if (rest_.starts_with('\r')) rest_.remove_prefix(1);
  if (rest_.starts_with('\n')) rest_.remove_prefix(1);
  ++line_;
}

void TableReader::refuse_quote(std::size_t column, const std::string& what) const {
  throw FileError(where(), fmt::format("column {}", column + 1), what,
                  "quote whole fields, and write a quote inside them twice");
}

// Requires: the rest begins with a quote.
std::string TableReader::quoted_field(std::size_t column) {
  std::string field;
  rest_.remove_prefix(1);
  while (true) {
    const std::size_t quote = rest_.find('"');
    if (quote == std::string_view::npos) refuse_quote(column, "the quote is never closed");
    line_ += static_cast<std::uint64_t>(std::ranges::count(rest_.substr(0, quote), '\n'));
    field += rest_.substr(0, quote);
    rest_.remove_prefix(quote + 1);
    if (!rest_.starts_with('"')) break;
    field += '"';
    rest_.remove_prefix(1);
  }
  if (!ends_line() && !rest_.starts_with(','))
    refuse_quote(column, "there is text behind the closing quote");
  return field;
}

std::string TableReader::plain_field(std::size_t column) {
  std::size_t end = std::min(rest_.find_first_of(",\n\""), rest_.size());
  if (end < rest_.size() && rest_[end] == '"')
    refuse_quote(column, "a quote inside of a field that does not begin with one");
  const bool ends_row = end == rest_.size() || rest_[end] == '\n';
  if (ends_row && end > 0 && rest_[end - 1] == '\r') --end;
  std::string field(rest_.substr(0, end));
  rest_.remove_prefix(end);
  return field;
}

bool TableReader::next_csv(std::vector<std::string>& fields) {
  while (!rest_.empty() && ends_line()) skip_line_end();
  if (rest_.empty()) return false;
  row_line_ = line_;
  while (true) {
    const std::size_t column = fields.size();
    fields.push_back(rest_.starts_with('"') ? quoted_field(column) : plain_field(column));
    if (!rest_.starts_with(',')) break;
    rest_.remove_prefix(1);
  }
  skip_line_end();
  return true;
}

}  // namespace laconic
