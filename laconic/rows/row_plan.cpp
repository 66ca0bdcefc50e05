#include "laconic/rows/row_plan.hpp"

#include <algorithm>
#include <bit>
#include <iterator>
#include <limits>

#include "laconic/base/error.hpp"
#include "laconic/base/index.hpp"

namespace laconic {

RowIds unique_rows(std::span<const std::int64_t> ids) {
  RowIds rows(ids.begin(), ids.end());
  std::ranges::sort(rows);
  rows.erase(std::ranges::unique(rows).begin(), rows.end());
  return rows;
}

namespace {

// By a bit for each row from the first to the last.
RowIds marked_rows(std::span<const RowIds> lists, std::int64_t first, std::size_t words,
                   std::size_t most) {
  std::vector<std::uint64_t> marks(words, 0);
  for (const RowIds& list : lists)
    for (const std::int64_t row : list) {
      const auto bit = static_cast<std::uint64_t>(row - first);
      marks[bit / 64] |= std::uint64_t{1} << bit % 64;
    }
  RowIds all;
  all.reserve(most);
  for (std::size_t w = 0; w < words; ++w)
    for (std::uint64_t bits = marks[w]; bits != 0; bits &= bits - 1)
      all.push_back(first + static_cast<std::int64_t>(64 * w) + std::countr_zero(bits));
  return all;
}

RowIds merged_rows(std::span<const RowIds> lists) {
  if (lists.size() == 1) return lists[0];
  const RowIds a = merged_rows(lists.first(lists.size() / 2)),
               b = merged_rows(lists.subspan(lists.size() / 2));
  RowIds all;
  all.reserve(a.size() + b.size());
  std::ranges::set_union(a, b, std::back_inserter(all));
  return all;
}

}  // namespace

// The lists ascend already. Marks cost a word for 64 rows of the table and no comparison, which is
// less than merging unless the rows lie far apart.
RowIds union_of(std::span<const RowIds> lists) {
  constexpr std::size_t kWordsPerRow = 4;
  std::size_t count = 0;
  std::int64_t first = std::numeric_limits<std::int64_t>::max(), last = -1;
  for (const RowIds& list : lists) {
    LACONIC_ASSERT(std::ranges::is_sorted(list), "rows of a list do not ascend");
    if (list.empty()) continue;
    count += list.size();
    first = std::min(first, list.front());
    last = std::max(last, list.back());
  }
  if (count == 0) return {};
  const std::size_t words = static_cast<std::size_t>(last - first) / 64 + 1;
  return words <= kWordsPerRow * count ? marked_rows(lists, first, words, count)
                                       : merged_rows(lists);
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

Range TableShares::columns(int member) const {
  return cut == ReplicaCut::columns ? table_columns(width, members, member) : Range{0, width};
}

bool TableShares::holds(std::int64_t row, int member) const {
  return cut != ReplicaCut::rows || row % members == member;
}

std::vector<std::int64_t> TableShares::held_places(const RowIds& rows, int member) const {
  std::vector<std::int64_t> places;
  for (std::size_t i = 0; i < rows.size(); ++i)
    if (holds(rows[i], member)) places.push_back(static_cast<std::int64_t>(i));
  return places;
}

RowIds TableShares::held(const RowIds& rows, int member) const {
  RowIds some = rows;
  std::erase_if(some, [&](std::int64_t row) { return !holds(row, member); });
  return some;
}

std::uint64_t TableShares::held_elements(const RowIds& rows, int member) const {
  const auto count =
      std::ranges::count_if(rows, [&](std::int64_t row) { return holds(row, member); });
  return static_cast<std::uint64_t>(count * columns(member).size());
}

RowIds TableShares::stored(RowIds rows) const {
  if (cut == ReplicaCut::rows)
    for (std::int64_t& row : rows) row /= members;
  return rows;
}

RowBytes bytes_sent(const TableShares& shares, std::span<const RowIds> by_member,
                    std::size_t element_bytes, int member) {
  RowBytes sent;
  for (int i = 0; i < shares.members; ++i) {
    if (i == member) continue;
    if (shares.cut != ReplicaCut::whole)
      sent.forward += shares.held_elements(by_member[index(i)], member) * element_bytes;
    sent.backward += shares.held_elements(by_member[index(member)], i) * element_bytes;
  }
  return sent;
}

}  // namespace laconic
