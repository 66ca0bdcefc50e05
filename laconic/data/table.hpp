// data/table.hpp — rows of TSV and CSV files.
//
// TSV: a line is a row, tabs separate, and quotes mean nothing, as in GLUE's files. CSV: as RFC
// 4180 says; a field in quotes may hold commas, line breaks and "" for a quote. Blank lines are no
// rows, \r before a line break belongs to it, and so does a byte order mark to the file.
#pragma once

#include <cstdint>
#include <string>
#include <string_view>
#include <vector>

namespace laconic {

enum class TableFormat : std::uint8_t { tsv, csv };

class TableReader {
 public:
  // `name` is for messages. Requires: the text outlives the reader.
  TableReader(std::string_view text, std::string name, TableFormat format);

  // Takes the next row; false: there is none. Throws FileError as "name:line" for quotes that do
  // not match.
  bool next(std::vector<std::string>& fields);
  std::uint64_t line() const { return row_line_; }  // where the last row began, from 1
  std::string where() const;                        // "name:line"

 private:
  bool next_tsv(std::vector<std::string>& fields);
  bool next_csv(std::vector<std::string>& fields);
  std::string quoted_field(std::size_t column);
  std::string plain_field(std::size_t column);
  bool ends_line() const;
  void skip_line_end();
  [[noreturn]] void refuse_quote(std::size_t column, const std::string& what) const;

  std::string_view rest_;
  std::string name_;
  TableFormat format_;
  std::uint64_t line_ = 1;  // of the rest
  std::uint64_t row_line_ = 0;
};

}  // namespace laconic
