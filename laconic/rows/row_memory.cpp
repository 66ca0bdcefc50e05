#include "laconic/rows/row_memory.hpp"

#include <cstring>

namespace laconic {

RowStretch stretch_of(std::byte* matrix, std::int64_t width, std::size_t element_bytes,
                      const Range& columns) {
  return {.first = matrix + static_cast<std::size_t>(columns.begin) * element_bytes,
          .row_bytes = static_cast<std::size_t>(width) * element_bytes,
          .bytes = static_cast<std::size_t>(columns.size()) * element_bytes};
}

void gather_rows(const RowStretch& from, std::span<const std::int64_t> rows, std::byte* to) {
  if (from.bytes == 0) return;
  for (const std::int64_t row : rows) {
    std::memcpy(to, from.first + static_cast<std::size_t>(row) * from.row_bytes, from.bytes);
    to += from.bytes;
  }
}

void put_rows(const std::byte* from, std::span<const std::int64_t> rows, const RowStretch& to) {
  if (to.bytes == 0) return;
  for (const std::int64_t row : rows) {
    std::memcpy(to.first + static_cast<std::size_t>(row) * to.row_bytes, from, to.bytes);
    from += to.bytes;
  }
}

template <class T>
void add_rows(const T* from, std::span<const std::int64_t> places, std::int64_t width, T* sums) {
  for (std::size_t i = 0; i < places.size(); ++i) {
    const T* row = from + static_cast<std::int64_t>(i) * width;
    T* sum = sums + places[i] * width;
    for (std::int64_t c = 0; c < width; ++c) sum[c] += row[c];
  }
}
template void add_rows<float>(const float*, std::span<const std::int64_t>, std::int64_t, float*);
template void add_rows<double>(const double*, std::span<const std::int64_t>, std::int64_t, double*);

}  // namespace laconic
