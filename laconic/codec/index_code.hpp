// codec/index_code.hpp — how the rising indices of top_k travel: bitmap, fixed width, or gaps.
//
// docs/wire-format.md has the bytes. One set of indices has one encoding: the
// reader refuses any other, so payloads can be compared and hashed.
#pragma once

#include <cstdint>
#include <span>

#include "laconic/base/bytes.hpp"

namespace laconic {

enum class IndexMethod : std::uint8_t { bitmap = 0, fixed = 1, gaps = 2 };

struct IndexPlan {
  IndexMethod method = IndexMethod::bitmap;
  std::uint8_t width = 0;   // bits of an index (fixed), the Rice parameter (gaps), otherwise 0
  std::uint64_t bytes = 0;  // of all indices
  bool operator==(const IndexPlan&) const = default;
};

inline constexpr std::size_t kIndexHeader = 2;  // method and width

// The shortest. Requires: indices rise, lie below `elements`, and are some but not all of them.
IndexPlan plan_indices(std::span<const std::uint64_t> indices, std::uint64_t elements);
// Requires: `out` has plan.bytes.
void write_indices(const IndexPlan& plan, std::span<const std::uint64_t> indices, std::byte* out);

// The plan that `header` (method and width) and `code` are written by. Throws WireError unless
// `code` holds `kept` rising indices below `elements` in the way that plan_indices() chooses;
// offsets count from the header, which the code follows. Takes time in proportion to the code and
// no memory. Requires: 0 < kept < elements.
IndexPlan check_indices(ByteView header, ByteView code, std::uint64_t elements, std::uint64_t kept);

// The indices themselves. Requires: check_indices() was content, elements <= 2^32.
void read_indices(const IndexPlan& plan, ByteView code, std::uint64_t elements, std::uint64_t kept,
                  std::uint32_t* out);

// out[index j] = values[j]. Requires: check_indices() was content.
void scatter(const IndexPlan& plan, ByteView code, std::uint64_t elements, std::uint64_t kept,
             const float* values, float* out);

}  // namespace laconic
