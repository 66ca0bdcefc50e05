// rows/row_memory.hpp — the copies and sums that rows go through, on plain memory: one pass each.
//
// A matrix is its first byte and the bytes of a row; parts of its columns are ranges of bytes of
// every row. Single-threaded, unless it says so.
#pragma once

#include <cstddef>
#include <cstdint>
#include <span>

#include "laconic/rows/row_plan.hpp"

namespace laconic {

// Rows of a matrix of which a stretch of columns is meant.
struct RowStretch {
  std::byte* first = nullptr;  // of the columns in row 0
  std::size_t row_bytes = 0;   // from one row to the next
  std::size_t bytes = 0;       // of the columns
};
// Columns `columns` of a matrix of elements of so many bytes.
RowStretch stretch_of(std::byte* matrix, std::int64_t width, std::size_t element_bytes,
                      const Range& columns);

// Copies rows of a matrix, one behind the other: to[i] = from[rows[i]].
void gather_rows(const RowStretch& from, std::span<const std::int64_t> rows, std::byte* to);
// Copies rows that lie behind each other into rows of a matrix: to[rows[i]] = from[i].
void put_rows(const std::byte* from, std::span<const std::int64_t> rows, const RowStretch& to);

// Adds rows of numbers that several members have sent, in their order. from[m] has the rows
// lists[m] one behind the other; sums[i] becomes the sum of row all[i]. Requires: `all` is
// union_of(lists).
template <class T>
void sum_rows(std::span<const RowIds> lists, std::span<const T* const> from, const RowIds& all,
              std::int64_t width, T* sums);

}  // namespace laconic
