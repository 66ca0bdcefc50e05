// codec/kernel/factor_batch.hpp — one step of PowerSGD for many matrices at once, on memory of a
// GPU.
//
// As reduce/shared_low_rank.hpp does it, bit by bit, in three phases that each start a few kernels
// however many matrices there are: a model has some hundred, most of them too small to fill a GPU.
// A table says where everything of each matrix begins and which part of a kernel's work is whose;
// it is made on the host, by batch_table(), and uploaded once. What changes from step to step is in
// BatchStep.
//
// All pointers in BatchStep are device memory. Nothing waits.
#pragma once

#include <array>
#include <cstddef>
#include <cstdint>
#include <span>
#include <vector>

#include "laconic/base/philox.hpp"

namespace laconic::kernel {

using Stream = void*;  // a cudaStream_t

// A matrix [rows, columns] that travels as P [rows, rank] and Q [columns, rank]. Where its parts
// begin is counted in elements.
struct BatchMatrix {
  float* gradient = nullptr;  // on the device; the sum comes to lie there, too
  std::uint64_t rows = 0, columns = 0, rank = 0;
  std::uint64_t input = 0;            // in `inputs` and `residuals`
  std::uint64_t left = 0, right = 0;  // P and Q
  std::uint64_t number = 0;           // of its flags
  Key key;                            // of its first subspace
  // Where it has scratch, made by batch_table().
  std::uint64_t left_columns = 0, right_columns = 0;
  std::uint64_t left_parts = 0, right_parts = 0;
};

// Numbers that travel as they are.
struct BatchPiece {
  float* gradient = nullptr;  // on the device
  std::uint64_t offset = 0;   // in the flat buffer
  std::uint64_t elements = 0;
};

// Kinds of work, each cut into pieces for one block of threads.
enum class BatchWork : std::uint8_t {
  inputs,         // elements
  left,           // those of P
  right,          // those of Q
  left_columns,   // those of P as padded columns
  right_columns,  // those of Q
  left_blocks,    // of kGramRows rows of P
  right_blocks,   // of Q
  multiply,       // tiles of products
  transposed,
  expand,
};
inline constexpr std::size_t kBatchWorks = 10;

// The table, as kernels see it.
struct FactorBatch {
  const BatchMatrix* matrices = nullptr;  // the longest first
  const BatchPiece* pieces = nullptr;
  const std::uint64_t* first = nullptr;        // [kBatchWorks][count + 1]: where their work begins
  const std::uint64_t* first_piece = nullptr;  // [piece_count + 1]
  std::uint64_t count = 0, piece_count = 0;
  std::array<std::uint64_t, kBatchWorks> works = {};
  std::uint64_t piece_works = 0;
  std::uint64_t scratch_bytes = 0;  // that a phase needs
};

struct BatchTable {
  std::vector<std::byte> bytes;  // to be copied to the device
  FactorBatch view;              // its pointers are offsets

  FactorBatch at(const std::byte* device) const;
};
BatchTable batch_table(std::vector<BatchMatrix> matrices, std::span<const BatchPiece> pieces);

// What one step works on. Flags are by number of the matrix.
struct BatchStep {
  FactorBatch batch;
  float members = 1;
  float* inputs = nullptr;           // A, which becomes the residual; null: without feedback
  const float* residuals = nullptr;  // of before, read where has_residual
  const float* basis = nullptr;      // Q of before, read where has_basis; finite
  float* next_basis = nullptr;       // first where to look, then the new Q
  const std::uint32_t *has_basis = nullptr, *has_residual = nullptr;
  std::uint32_t *next_has_basis = nullptr, *next_has_residual = nullptr;
  std::uint32_t* is_unsound = nullptr;
  float* left = nullptr;         // P
  std::byte* scratch = nullptr;  // may be another in each phase
};

// raw = the pieces; left = A Q with an orthonormal Q.
void device_begin_factors(const BatchStep& step, float* raw, Stream stream);
// `left` is the sum and becomes orthonormal; right = A^T P, or NaN where the sum is not finite.
void device_project_factors(const BatchStep& step, float* right, Stream stream);
// The gradients become sums: raw ones, or P Q^T with the mean of Q, times the members. What a
// matrix with an unsound factor leaves is NaN, its residual of before, and no basis.
void device_finish_factors(const BatchStep& step, const float* raw, const float* right,
                           std::uint64_t right_count, Stream stream);

// Doubles that making the columns of a matrix [rows, r] orthonormal takes as scratch.
std::uint64_t subspace_doubles(std::uint64_t rows, std::uint64_t r);

// --- parts of these, in product.cu and subspace.cu

void batch_multiply(const BatchStep& step, Stream stream);
void batch_multiply_transposed(const BatchStep& step, float* right, Stream stream);
void batch_expand(const BatchStep& step, Stream stream);
void batch_orthonormalise_start(const BatchStep& step, Stream stream);
void batch_orthonormalise_left(const BatchStep& step, Stream stream);

// --- how work is cut

inline constexpr std::uint64_t kBatchTile = 2048;    // elements
inline constexpr std::uint64_t kFactorTile = 256;    // those of factors, of which there are few
inline constexpr unsigned kProductWide = 16;         // columns of a thin matrix at a time
inline constexpr unsigned kMultiplyRows = 128;       // of a tile of a q
inline constexpr unsigned kTransposedColumns = 128;  // of a tile of a^T p, and of p q^T
inline constexpr unsigned kExpandRows = 16;          // of a tile of p q^T

}  // namespace laconic::kernel
