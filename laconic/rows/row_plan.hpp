// rows/row_plan.hpp — which rows and columns of an embedding table go where: pure functions.
//
// A table [rows, width] is cut by columns: of N ranks, rank j has columns
// [width j / N, width (j + 1) / N) of every row. Columns give all of them the same work and
// bytes, whatever the ids; ranges of rows would not, since few tokens are most of a text. Or rows
// are dealt, as at parameter servers: rank j has rows j, j + N, ... whole. Or it is whole on all.
//
// In a step every rank looks up some rows. Everybody knows the ids of everybody,
// so that messages need none: both ends of one list the same rows, in ascending order.
//
//   forward    rank w sends rank i the rows of i, as far as w holds them
//   backward   rank w sends rank j the gradients of its own rows, as far as j holds these,
//              which adds those of all ranks in rank order
//
// The rows that a step changes are the rows that it has read. Those that the next step reads, on
// any rank, are prior: their gradients must be there before. Nobody reads the others, the delayed
// ones, before the step after it. This holds for the union of the ids of all ranks only.
#pragma once

#include <cstdint>
#include <span>
#include <vector>

#include "laconic/layout/layout.hpp"
#include "laconic/layout/replica_cut.hpp"

namespace laconic {

// Rows of a table, ascending, each once.
using RowIds = std::vector<std::int64_t>;

RowIds unique_rows(std::span<const std::int64_t> ids);
RowIds union_of(std::span<const RowIds> lists);
// Where each of `rows` stands in `all`. Requires: it is there.
std::vector<std::int64_t> places_in(const RowIds& all, const RowIds& rows);

// The columns of a member.
Range table_columns(std::int64_t width, int members, int member);

// What each member holds of a table, and updates.
struct TableShares {
  ReplicaCut cut = ReplicaCut::whole;
  int members = 1;
  std::int64_t width = 0;

  // Of each row that it holds.
  Range columns(int member) const;
  bool holds(std::int64_t row, int member) const;
  // Which of a list of rows a member holds, by their places in it, and these rows.
  std::vector<std::int64_t> held_places(const RowIds& rows, int member) const;
  RowIds held(const RowIds& rows, int member) const;
  // Elements of them.
  std::uint64_t held_elements(const RowIds& rows, int member) const;
  // Where rows lie at the member that holds them.
  RowIds stored(RowIds rows) const;
};

// Rows of a list, by their places in it. Together they are all of them.
struct RowSplit {
  std::vector<std::int64_t> prior, delayed;
  bool operator==(const RowSplit&) const = default;
};
// `next` are the rows that the next step reads, on all ranks. Without such a step all are delayed.
RowSplit split_rows(const RowIds& rows, const RowIds& next);
RowIds rows_at(const RowIds& rows, std::span<const std::int64_t> places);

// Bytes that one member sends in a step, elements alone: every counter must equal these.
struct RowBytes {
  std::uint64_t forward = 0;
  std::uint64_t backward = 0;
  bool operator==(const RowBytes&) const = default;
};
// By columns, with a width that the members divide, all of them together send (N - 1) / N of all
// rows each way. Of a table that is whole everywhere only gradients travel, to everybody.
RowBytes bytes_sent(const TableShares& shares, std::span<const RowIds> by_member,
                    std::size_t element_bytes, int member);

}  // namespace laconic
