#include "laconic/codec/kernel/factor_batch.hpp"

#include <algorithm>
#include <cstring>

#include "laconic/codec/kernel/matrix.hpp"
#include "laconic/codec/kernel/projection.hpp"

namespace laconic::kernel {

namespace {

std::uint64_t parts(std::uint64_t count, std::uint64_t size) {
  return count / size + (count % size != 0 ? 1 : 0);
}

std::uint64_t work_of(BatchWork work, const BatchMatrix& m) {
  const std::uint64_t wide = parts(m.rank, kProductWide);
  switch (work) {
    case BatchWork::inputs: return parts(m.rows * m.columns, kBatchTile);
    case BatchWork::left: return parts(m.rows * m.rank, kFactorTile);
    case BatchWork::right: return parts(m.columns * m.rank, kFactorTile);
    case BatchWork::left_columns:
      return parts(parts(m.rows, kColumnStep) * kColumnStep * m.rank, kBatchTile);
    case BatchWork::right_columns:
      return parts(parts(m.columns, kColumnStep) * kColumnStep * m.rank, kBatchTile);
    case BatchWork::left_blocks: return parts(m.rows, kGramRows);
    case BatchWork::right_blocks: return parts(m.columns, kGramRows);
    case BatchWork::multiply:
      return parts(m.rows, kMultiplyRows) * parts(m.columns, kSumBlock) * wide;
    case BatchWork::transposed:
      return parts(m.columns, kTransposedColumns) * parts(m.rows, kSumBlock) * wide;
    case BatchWork::expand:
      return parts(m.columns, kTransposedColumns) * parts(m.rows, kExpandRows);
  }
  return 0;
}

// A phase has either columns of doubles or parts of sums at a time.
std::uint64_t place_scratch(std::vector<BatchMatrix>& matrices) {
  std::uint64_t left_columns = 0, right_columns = 0, left_parts = 0, right_parts = 0;
  for (BatchMatrix& m : matrices) {
    m.left_columns = left_columns;
    m.right_columns = right_columns;
    m.left_parts = left_parts;
    m.right_parts = right_parts;
    left_columns += subspace_doubles(m.rows, m.rank);
    right_columns += subspace_doubles(m.columns, m.rank);
    left_parts += parts(m.columns, kSumBlock) * m.rows * m.rank;
    right_parts += parts(m.rows, kSumBlock) * m.columns * m.rank;
  }
  return std::max(std::max(left_columns, right_columns) * sizeof(double),
                  std::max(left_parts, right_parts) * sizeof(float));
}

template <class T>
const T* append(std::vector<std::byte>& bytes, std::span<const T> values) {
  const std::size_t at = bytes.size();
  static_assert(sizeof(T) % 8 == 0);
  bytes.resize(at + values.size_bytes());
  if (!values.empty()) std::memcpy(bytes.data() + at, values.data(), values.size_bytes());
  return reinterpret_cast<const T*>(at);
}

template <class T>
const T* moved(const T* offset, const std::byte* device) {
  return reinterpret_cast<const T*>(device + reinterpret_cast<std::uintptr_t>(offset));
}

}  // namespace

// Columns, padded; products of each block; those of all, scales, lengths and dot products; a flag.
std::uint64_t subspace_doubles(std::uint64_t rows, std::uint64_t r) {
  return parts(rows, kColumnStep) * kColumnStep * r + parts(rows, kGramRows) * (r * (r + 1) / 2) +
         r * r + 3 * r + 2;
}

FactorBatch BatchTable::at(const std::byte* device) const {
  FactorBatch batch = view;
  batch.matrices = moved(view.matrices, device);
  batch.pieces = moved(view.pieces, device);
  batch.first = moved(view.first, device);
  batch.first_piece = moved(view.first_piece, device);
  return batch;
}

// Blocks of threads begin in order, and columns are made orthonormal by one block for each matrix:
// the longest should not be the last.
BatchTable batch_table(std::vector<BatchMatrix> matrices, std::span<const BatchPiece> pieces) {
  std::ranges::stable_sort(matrices, std::ranges::greater(), [](const BatchMatrix& m) {
    return std::max(m.rows, m.columns) * m.rank;
  });
  BatchTable table;
  FactorBatch& view = table.view;
  view.count = matrices.size();
  view.piece_count = pieces.size();
  view.scratch_bytes = place_scratch(matrices);
  std::vector<std::uint64_t> first, first_piece;
  for (std::size_t work = 0; work < kBatchWorks; ++work) {
    std::uint64_t& sum = view.works[work];
    for (const BatchMatrix& m : matrices) {
      first.push_back(sum);
      sum += work_of(static_cast<BatchWork>(work), m);
    }
    first.push_back(sum);
  }
  for (const BatchPiece& piece : pieces) {
    first_piece.push_back(view.piece_works);
    view.piece_works += parts(piece.elements, kBatchTile);
  }
  first_piece.push_back(view.piece_works);
  view.matrices = append(table.bytes, std::span<const BatchMatrix>(matrices));
  view.pieces = append(table.bytes, pieces);
  view.first = append(table.bytes, std::span<const std::uint64_t>(first));
  view.first_piece = append(table.bytes, std::span<const std::uint64_t>(first_piece));
  return table;
}

}  // namespace laconic::kernel
