// reduce/sparse_change.hpp — the coder of SparseLoCo: a few large elements of every chunk, in 14
// bits each.
//
// A tensor is cut into chunks of at most 4096 elements: 64 x 64 of a matrix (a tensor of more dims
// is one of its first dim and all others), 4096 of a vector. Of each the 64 elements of the largest
// magnitude are kept; of equals those that come first. Values lose all but two bits: a tensor has a
// table of four numbers, the means of its kept values in four bins around their mean, which are 1.5
// standard deviations wide.
//
//   payload  tensor after tensor: table, 4 x f32; then of every chunk indices and codes
//   indices  rising, 12 bits (row * 64 + column in a matrix), two in three bytes, the low one first
//   codes    2 bits, four in a byte, the low ones first
//
// Pure; all numbers little-endian. What an odd number leaves of the last bytes is 0.
#pragma once

#include <cstdint>
#include <span>
#include <vector>

#include "laconic/base/bytes.hpp"
#include "laconic/codec/spec.hpp"

namespace laconic {

inline constexpr std::int64_t kSparseKept = 64;
inline constexpr std::int64_t kSparseEdge = 64;  // of a chunk of a matrix; a vector has its square

// Bytes of the payload of one tensor: they depend on its shape alone.
std::size_t sparse_bytes(const TensorSpec& tensor);

// Appends the payload of `values`, and replaces them by what they lose.
void encode_sparse(const TensorSpec& tensor, std::span<float> values, Bytes& out);

// An element that was sent.
struct SparseElement {
  std::int64_t place = 0;  // in the tensor
  float value = 0;
};
// Takes one tensor's payload off the front. Throws WireError when it is none.
std::vector<SparseElement> decode_sparse(const TensorSpec& tensor, ByteView& payload);

// How contributions of ranks become one.
enum class SparseAggregate : std::uint8_t {
  mean,      // their sum by the number of ranks
  choosers,  // by how many chose the element, each scaled down to the median norm first
};
// Adds in the order of ranks: the same bits for all. `into` is overwritten.
void aggregate_sparse(const std::vector<std::vector<SparseElement>>& ranks, SparseAggregate how,
                      std::span<float> into);

}  // namespace laconic
