#include "laconic/rows/row_plan.hpp"

#include <algorithm>

#include "laconic/base/error.hpp"
#include "laconic/base/index.hpp"

namespace laconic {

RowIds unique_rows(std::span<const std::int64_t> ids) {
  RowIds rows(ids.begin(), ids.end());
  std::ranges::sort(rows);
  rows.erase(std::ranges::unique(rows).begin(), rows.end());
  return rows;
}

RowIds union_of(std::span<const RowIds> lists) {
  RowIds all;
  for (const RowIds& list : lists) all.insert(all.end(), list.begin(), list.end());
  return unique_rows(all);
}

std::vector<std::int64_t> places_in(const RowIds& all, const RowIds& rows) {
  std::vector<std::int64_t> places;
  places.reserve(rows.size());
  std::size_t at = 0;
  for (const std::int64_t row : rows) {
    while (at < all.size() && all[at] < row) ++at;
    LACONIC_ASSERT(at < all.size() && all[at] == row, std::to_string(row) + " is not there");
    places.push_back(static_cast<std::int64_t>(at));
  }
  return places;
}

Range table_columns(std::int64_t width, int members, int member) {
  return share_of(width, members, member);
}

RowSplit split_rows(const RowIds& rows, const RowIds& next) {
  RowSplit split;
  std::size_t at = 0;
  for (std::size_t i = 0; i < rows.size(); ++i) {
    while (at < next.size() && next[at] < rows[i]) ++at;
    const bool is_prior = at < next.size() && next[at] == rows[i];
    (is_prior ? split.prior : split.delayed).push_back(static_cast<std::int64_t>(i));
  }
  return split;
}

RowIds rows_at(const RowIds& rows, std::span<const std::int64_t> places) {
  RowIds some;
  some.reserve(places.size());
  for (const std::int64_t place : places) some.push_back(rows[static_cast<std::size_t>(place)]);
  return some;
}

RowBytes bytes_sent(std::span<const std::uint64_t> rows, std::int64_t width,
                    std::size_t element_bytes, int member) {
  const int members = static_cast<int>(rows.size());
  const auto mine = static_cast<std::uint64_t>(table_columns(width, members, member).size());
  std::uint64_t of_others = 0;
  for (const std::uint64_t count : rows) of_others += count;
  of_others -= rows[index(member)];
  const std::uint64_t columns_of_others = static_cast<std::uint64_t>(width) - mine;
  return {.forward = of_others * mine * element_bytes,
          .backward = rows[index(member)] * columns_of_others * element_bytes};
}

}  // namespace laconic
