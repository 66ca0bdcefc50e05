#include "laconic/reduce/sparse_change.hpp"

#include <algorithm>
#include <array>
#include <cmath>
#include <cstring>

#include "laconic/base/error.hpp"

namespace laconic {

namespace {

constexpr std::size_t kTable = 4;

// Rows and columns of a chunk that begins at `first` of a tensor whose rows are `stride` long.
struct SparseChunk {
  std::int64_t first = 0, rows = 1, columns = 0, stride = 0;
  std::int64_t size() const { return rows * columns; }
  std::int64_t kept() const { return std::min(size(), kSparseKept); }
  // Of a vector a chunk is one long row.
  std::int64_t width() const { return rows == 1 && stride == 0 ? size() : kSparseEdge; }
  std::int64_t place(std::int64_t index) const {
    return first + index / width() * stride + index % width();
  }
};

std::vector<SparseChunk> chunks_of(const TensorSpec& tensor) {
  const auto elements = static_cast<std::int64_t>(elements_of(tensor));
  std::vector<SparseChunk> chunks;
  if (tensor.shape.size() < 2) {
    constexpr std::int64_t kLong = kSparseEdge * kSparseEdge;
    for (std::int64_t first = 0; first < elements; first += kLong)
      chunks.push_back({.first = first, .columns = std::min(kLong, elements - first)});
    return chunks;
  }
  const std::int64_t rows = tensor.shape[0], columns = rows > 0 ? elements / rows : 0;
  for (std::int64_t r = 0; r < rows; r += kSparseEdge)
    for (std::int64_t c = 0; c < columns; c += kSparseEdge)
      chunks.push_back({.first = r * columns + c,
                        .rows = std::min(kSparseEdge, rows - r),
                        .columns = std::min(kSparseEdge, columns - c),
                        .stride = columns});
  return chunks;
}

std::size_t index_bytes(std::int64_t kept) {
  return static_cast<std::size_t>((kept + 1) / 2 * 3);
}
std::size_t code_bytes(std::int64_t kept) {
  return static_cast<std::size_t>((kept + 3) / 4);
}

// Indices of the largest magnitudes, rising.
std::vector<std::int64_t> largest_of(const SparseChunk& chunk, std::span<const float> values) {
  std::vector<std::int64_t> indices;
  for (std::int64_t r = 0; r < chunk.rows; ++r)
    for (std::int64_t c = 0; c < chunk.columns; ++c) indices.push_back(r * chunk.width() + c);
  const auto magnitude = [&](std::int64_t i) {
    return std::abs(values[static_cast<std::size_t>(chunk.place(i))]);
  };
  const auto end = indices.begin() + chunk.kept();
  std::nth_element(indices.begin(), end, indices.end(), [&](std::int64_t a, std::int64_t b) {
    const float x = magnitude(a), y = magnitude(b);
    return x != y ? x > y : a < b;
  });
  indices.erase(end, indices.end());
  std::ranges::sort(indices);
  return indices;
}

// Where a value belongs among four bins of 1.5 standard deviations.
struct Bins {
  double mean = 0, width = 0;
  std::size_t of(float value) const {
    if (width == 0) return 2;
    const double bin = std::floor((static_cast<double>(value) - mean) / width) + 2;
    return static_cast<std::size_t>(std::clamp(bin, 0.0, 3.0));
  }
};

Bins bins_of(const std::vector<float>& values) {
  if (values.empty()) return {};
  double sum = 0, squares = 0;
  for (const float v : values) sum += v;
  const double mean = sum / static_cast<double>(values.size());
  for (const float v : values) squares += (v - mean) * (v - mean);
  return {mean, 6.0 / kTable * std::sqrt(squares / static_cast<double>(values.size()))};
}

std::array<float, kTable> table_of(const std::vector<float>& values, const Bins& bins) {
  std::array<double, kTable> sums{};
  std::array<std::int64_t, kTable> counts{};
  for (const float v : values) {
    sums[bins.of(v)] += v;
    ++counts[bins.of(v)];
  }
  std::array<float, kTable> table{};
  for (std::size_t i = 0; i < kTable; ++i)
    if (counts[i] > 0) table[i] = static_cast<float>(sums[i] / static_cast<double>(counts[i]));
  return table;
}

void put_indices(const std::vector<std::int64_t>& indices, Bytes& out) {
  for (std::size_t i = 0; i < indices.size(); i += 2) {
    const auto low = static_cast<unsigned>(indices[i]);
    const auto high = i + 1 < indices.size() ? static_cast<unsigned>(indices[i + 1]) : 0U;
    out.push_back(static_cast<std::byte>(low & 0xFF));
    out.push_back(static_cast<std::byte>(low >> 8 | (high & 0xF) << 4));
    out.push_back(static_cast<std::byte>(high >> 4));
  }
}

std::int64_t index_at(ByteView bytes, std::size_t i) {
  const auto byte = [&](std::size_t at) { return std::to_integer<unsigned>(bytes[at]); };
  const std::size_t at = i / 2 * 3;
  return i % 2 == 0 ? byte(at) | (byte(at + 1) & 0xF) << 8 : byte(at + 1) >> 4 | byte(at + 2) << 4;
}

double norm_of_elements(const std::vector<SparseElement>& elements) {
  double squares = 0;
  for (const SparseElement& e : elements) squares += static_cast<double>(e.value) * e.value;
  return std::sqrt(squares);
}

double median(std::vector<double> values) {
  std::ranges::sort(values);
  return values[(values.size() - 1) / 2];
}

}  // namespace

std::size_t sparse_bytes(const TensorSpec& tensor) {
  std::size_t bytes = kTable * sizeof(float);
  for (const SparseChunk& chunk : chunks_of(tensor))
    bytes += index_bytes(chunk.kept()) + code_bytes(chunk.kept());
  return bytes;
}

void encode_sparse(const TensorSpec& tensor, std::span<float> values, Bytes& out) {
  const std::vector<SparseChunk> chunks = chunks_of(tensor);
  std::vector<std::vector<std::int64_t>> kept;
  std::vector<float> sent;
  for (const SparseChunk& chunk : chunks) {
    kept.push_back(largest_of(chunk, values));
    for (const std::int64_t i : kept.back())
      sent.push_back(values[static_cast<std::size_t>(chunk.place(i))]);
  }
  const Bins bins = bins_of(sent);
  const std::array<float, kTable> table = table_of(sent, bins);
  const ByteView head = as_bytes(std::span(table));
  out.insert(out.end(), head.begin(), head.end());
  for (std::size_t c = 0; c < chunks.size(); ++c) {
    put_indices(kept[c], out);
    const std::size_t codes = out.size();
    out.resize(codes + code_bytes(chunks[c].kept()), std::byte{0});
    for (std::size_t i = 0; i < kept[c].size(); ++i) {
      float& value = values[static_cast<std::size_t>(chunks[c].place(kept[c][i]))];
      const std::size_t code = bins.of(value);
      out[codes + i / 4] |= static_cast<std::byte>(code << (2 * (i % 4)));
      value -= table[code];
    }
  }
}

std::vector<SparseElement> decode_sparse(const TensorSpec& tensor, ByteView& payload) {
  const std::size_t bytes = sparse_bytes(tensor);
  if (payload.size() < bytes)
    throw WireError(payload.size(), "sparse change", "is shorter than its tensor's");
  std::array<float, kTable> table{};
  std::memcpy(table.data(), payload.data(), sizeof(table));
  std::size_t at = sizeof(table);
  std::vector<SparseElement> elements;
  for (const SparseChunk& chunk : chunks_of(tensor)) {
    const ByteView indices = payload.subspan(at, index_bytes(chunk.kept()));
    const ByteView codes = payload.subspan(at + indices.size(), code_bytes(chunk.kept()));
    std::int64_t before = -1;
    for (std::int64_t i = 0; i < chunk.kept(); ++i) {
      const auto n = static_cast<std::size_t>(i);
      const std::int64_t index = index_at(indices, n);
      if (index <= before || index / chunk.width() >= chunk.rows ||
          index % chunk.width() >= chunk.columns)
        throw WireError(at + n / 2 * 3, "sparse change", "has an index outside of its chunk");
      before = index;
      const unsigned code = std::to_integer<unsigned>(codes[n / 4]) >> (2 * (n % 4)) & 3;
      elements.push_back({chunk.place(index), table[code]});
    }
    at += indices.size() + codes.size();
  }
  payload = payload.subspan(bytes);
  return elements;
}

void aggregate_sparse(const std::vector<std::vector<SparseElement>>& ranks, SparseAggregate how,
                      std::span<float> into) {
  std::ranges::fill(into, 0.0F);
  std::vector<double> scales(ranks.size(), 1.0 / static_cast<double>(ranks.size()));
  std::vector<int> choosers;
  if (how == SparseAggregate::choosers) {
    std::vector<double> norms;
    for (const auto& elements : ranks) norms.push_back(norm_of_elements(elements));
    const double middle = median(norms);
    for (std::size_t r = 0; r < ranks.size(); ++r)
      scales[r] = norms[r] > middle ? middle / norms[r] : 1;
    choosers.resize(into.size());
  }
  for (std::size_t r = 0; r < ranks.size(); ++r)
    for (const SparseElement& e : ranks[r]) {
      const auto place = static_cast<std::size_t>(e.place);
      into[place] += static_cast<float>(scales[r] * static_cast<double>(e.value));
      if (!choosers.empty()) ++choosers[place];
    }
  for (std::size_t i = 0; i < choosers.size(); ++i)
    if (choosers[i] > 1) into[i] /= static_cast<float>(choosers[i]);
}

}  // namespace laconic
