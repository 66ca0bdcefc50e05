// report/table.hpp — a small aligned text table, for the end of a run.
//
//   class       bytes   ratio
//   ----------  ------  -----
//   gradient    1.2 GB  31.8x
#pragma once

#include <string>
#include <utility>
#include <vector>

#include "laconic/report/column.hpp"

namespace laconic {

struct Column {
  std::string title;
  Align align = Align::right;  // numbers; Align::left for texts
};

class Table {
 public:
  explicit Table(std::vector<Column> columns) : columns_(std::move(columns)) {}
  // Requires: one cell per column.
  void add(std::vector<std::string> cells);
  bool is_empty() const { return rows_.empty(); }
  // Lines without blanks at their end, each closed by a newline.
  friend std::string to_text(const Table& table);

 private:
  std::vector<Column> columns_;
  std::vector<std::vector<std::string>> rows_;
};

std::string to_text(const Table& table);

}  // namespace laconic
