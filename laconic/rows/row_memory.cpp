#include "laconic/rows/row_memory.hpp"

#include <cstring>
#include <string>
#include <vector>

#include "laconic/base/accumulate.hpp"
#include "laconic/base/error.hpp"

namespace laconic {

RowStretch stretch_of(std::byte* matrix, std::int64_t width, std::size_t element_bytes,
                      const Range& columns) {
  return {.first = matrix + static_cast<std::size_t>(columns.begin) * element_bytes,
          .row_bytes = static_cast<std::size_t>(width) * element_bytes,
          .bytes = static_cast<std::size_t>(columns.size()) * element_bytes};
}

namespace {

// Rows of a large table are in nobody's cache, and where the next one lies no processor guesses.
constexpr std::size_t kAhead = 8, kLine = 64;

template <int kIsWritten>
void prefetch(const std::byte* first, std::size_t bytes) {
  for (std::size_t at = 0; at < bytes; at += kLine) __builtin_prefetch(first + at, kIsWritten);
}

}  // namespace

void gather_rows(const RowStretch& from, std::span<const std::int64_t> rows, std::byte* to) {
  if (from.bytes == 0) return;
  const auto row_at = [&](std::size_t i) {
    return from.first + static_cast<std::size_t>(rows[i]) * from.row_bytes;
  };
  for (std::size_t i = 0; i < rows.size(); ++i, to += from.bytes) {
    if (i + kAhead < rows.size()) prefetch<0>(row_at(i + kAhead), from.bytes);
    std::memcpy(to, row_at(i), from.bytes);
  }
}

void put_rows(const std::byte* from, std::span<const std::int64_t> rows, const RowStretch& to) {
  if (to.bytes == 0) return;
  const auto row_at = [&](std::size_t i) {
    return to.first + static_cast<std::size_t>(rows[i]) * to.row_bytes;
  };
  for (std::size_t i = 0; i < rows.size(); ++i, from += to.bytes) {
    if (i + kAhead < rows.size()) prefetch<1>(row_at(i + kAhead), to.bytes);
    std::memcpy(row_at(i), from, to.bytes);
  }
}

// Every message is read once from its beginning to its end, and every sum is written once: those of
// a row are at hand together.
template <class T>
void sum_rows(std::span<const RowIds> lists, std::span<const T* const> from, const RowIds& all,
              std::int64_t width, T* sums) {
  std::vector<std::size_t> at(lists.size(), 0);
  for (const std::int64_t row : all) {
    bool has_begun = false;
    for (std::size_t m = 0; m < lists.size(); ++m) {
      if (at[m] == lists[m].size() || lists[m][at[m]] != row) continue;
      const T* x = from[m] + static_cast<std::int64_t>(at[m]++) * width;
      if (has_begun)
        accumulate(x, width, sums);
      else
        begin_sum(x, width, sums);
      has_begun = true;
    }
    LACONIC_ASSERT(has_begun, "nobody has row " + std::to_string(row));
    sums += width;
  }
}
template void sum_rows<float>(std::span<const RowIds>, std::span<const float* const>, const RowIds&,
                              std::int64_t, float*);
template void sum_rows<double>(std::span<const RowIds>, std::span<const double* const>,
                               const RowIds&, std::int64_t, double*);

}  // namespace laconic
