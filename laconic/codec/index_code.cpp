#include "laconic/codec/index_code.hpp"

#include <fmt/format.h>

#include <algorithm>
#include <array>
#include <bit>

#include "laconic/base/error.hpp"
#include "laconic/codec/bit_stream.hpp"

namespace laconic {

namespace {

constexpr int kMaxRice = 47;

constexpr std::uint64_t bytes_for(std::uint64_t bits) {
  return bits / 8 + (bits % 8 != 0 ? 1 : 0);
}

std::uint8_t fixed_width(std::uint64_t elements) {
  return static_cast<std::uint8_t>(std::max<int>(std::bit_width(elements - 1), 1));
}

[[noreturn]] void refuse(std::uint64_t offset, const std::string& what) {
  throw WireError(kIndexHeader + offset, "payload.indices", what);
}

// --- the Rice parameter.
//
// With w, gap g takes 1 + w + floor(g / 2^w) bits. The sum of the floors lies between G / 2^w -
// kept (not reached) and G / 2^w, where G is the sum of the gaps, which follows from the last
// index. So few w can be the best, and only for those are the floors summed.
struct RiceRange {
  int first = 0, last = 0;
};

RiceRange possible_rice(std::uint64_t kept, std::uint64_t gap_sum) {
  std::uint64_t least = ~std::uint64_t{0};
  for (std::uint64_t w = 0; w <= kMaxRice; ++w)
    least = std::min(least, kept * (1 + w) + (gap_sum >> w));
  RiceRange range{kMaxRice + 1, 0};
  for (int w = 0; w <= kMaxRice; ++w) {
    const std::uint64_t floors = (gap_sum >> w) - std::min(gap_sum >> w, kept - 1);
    if (kept * (1 + static_cast<std::uint64_t>(w)) + floors > least) continue;
    range.first = std::min(range.first, w);
    range.last = w;
  }
  return range;
}

// walk(use) calls use(index) for every index.
template <class Walk>
IndexPlan best_gaps(std::uint64_t kept, std::uint64_t last_index, const Walk& walk) {
  const auto [first, last] = possible_rice(kept, last_index + 1 - kept);
  std::array<std::uint64_t, kMaxRice + 1> floors{};
  std::uint64_t next = 0;
  walk([&, first = first, last = last](std::uint64_t index) {
    for (int w = first; w <= last; ++w) floors[static_cast<std::size_t>(w)] += (index - next) >> w;
    next = index + 1;
  });
  IndexPlan best{IndexMethod::gaps, 0, 0};
  std::uint64_t least = ~std::uint64_t{0};
  for (int w = first; w <= last; ++w) {
    const std::uint64_t bits =
        kept * (1 + static_cast<std::uint64_t>(w)) + floors[static_cast<std::size_t>(w)];
    if (bits < least) best.width = static_cast<std::uint8_t>(w);
    least = std::min(least, bits);
  }
  best.bytes = bytes_for(least);
  return best;
}

template <class Walk>
IndexPlan best_plan(std::uint64_t elements, std::uint64_t kept, std::uint64_t last_index,
                    const Walk& walk) {
  const std::uint8_t width = fixed_width(elements);
  const IndexPlan plans[] = {{IndexMethod::bitmap, 0, bytes_for(elements)},
                             {IndexMethod::fixed, width, bytes_for(kept * width)},
                             best_gaps(kept, last_index, walk)};
  return *std::min_element(std::begin(plans), std::end(plans), [](const auto& a, const auto& b) {
    return a.bytes < b.bytes;  // of equals the first
  });
}

// --- reading: each walks over the indices in a code, and refuses what no writer makes.

template <class Use>
void walk_bitmap(ByteView code, std::uint64_t elements, std::uint64_t kept, const Use& use) {
  std::uint64_t found = 0;
  for (std::uint64_t at = 0; at < code.size(); at += 8) {
    std::uint64_t word = 0;
    std::memcpy(&word, code.data() + at, std::min<std::uint64_t>(8, code.size() - at));
    for (; word != 0; word &= word - 1) {
      const std::uint64_t index = 8 * at + static_cast<std::uint64_t>(std::countr_zero(word));
      if (index >= elements)
        refuse(index / 8, fmt::format("bit {} of a bitmap of {}", index, elements));
      if (++found > kept) refuse(index / 8, fmt::format("more than {} bits are set", kept));
      use(index);
    }
  }
  if (found < kept) refuse(0, fmt::format("{} bits are set instead of {}", found, kept));
}

void check_end(const BitReader& in, ByteView code) {
  if (bytes_for(in.position()) != code.size())
    refuse(bytes_for(in.position()), "there are bytes after the last index");
  if (!in.rest_is_zero()) refuse(code.size() - 1, "the padding is not zero");
}

template <class Use>
void walk_fixed(ByteView code, int width, std::uint64_t elements, std::uint64_t kept,
                const Use& use) {
  BitReader in(code);
  std::uint64_t next = 0;
  for (std::uint64_t j = 0; j < kept; ++j) {
    const std::uint64_t offset = in.position() / 8;
    const std::uint64_t index = in.read(width);
    if (index < next || index >= elements)
      refuse(offset, fmt::format("index {} after {} of {} elements", index,
                                 static_cast<std::int64_t>(next) - 1, elements));
    use(index);
    next = index + 1;
  }
  check_end(in, code);
}

template <class Use>
void walk_gaps(ByteView code, int width, std::uint64_t elements, std::uint64_t kept,
               const Use& use) {
  BitReader in(code);
  std::uint64_t next = 0;
  for (std::uint64_t j = 0; j < kept; ++j) {
    const std::uint64_t offset = in.position() / 8;
    const auto ones = in.read_ones(elements >> width);
    if (!ones || in.left() < static_cast<std::uint64_t>(width))
      refuse(offset, fmt::format("gap {} of {} is too long or cut off", j + 1, kept));
    const std::uint64_t gap = (*ones << width) + in.read(width);
    if (gap >= elements - next)
      refuse(offset, fmt::format("a gap of {} after {} of {} elements", gap, next, elements));
    use(next + gap);
    next += gap + 1;
  }
  check_end(in, code);
}

template <class Use>
void walk_indices(const IndexPlan& plan, ByteView code, std::uint64_t elements, std::uint64_t kept,
                  const Use& use) {
  switch (plan.method) {
    case IndexMethod::bitmap: return walk_bitmap(code, elements, kept, use);
    case IndexMethod::fixed: return walk_fixed(code, plan.width, elements, kept, use);
    case IndexMethod::gaps: return walk_gaps(code, plan.width, elements, kept, use);
  }
}

// Method, width and size as far as they can be judged without reading the indices.
IndexPlan claimed_plan(ByteView header, ByteView code, std::uint64_t elements, std::uint64_t kept) {
  const auto method = get<std::uint8_t>(header, 0), width = get<std::uint8_t>(header, 1);
  if (method > 2) throw WireError(0, "payload.method", fmt::format("{} is none", method));
  const IndexPlan plan{static_cast<IndexMethod>(method), width, code.size()};
  const bool is_gaps = plan.method == IndexMethod::gaps;
  const std::uint8_t fixed = fixed_width(elements);
  const int expected = plan.method == IndexMethod::fixed ? fixed : 0;
  if (is_gaps ? width > kMaxRice : width != expected)
    throw WireError(1, "payload.width", fmt::format("{} does not fit method {}", width, method));
  const std::uint64_t bits = plan.method == IndexMethod::fixed ? kept * fixed : elements;
  if (!is_gaps && code.size() != bytes_for(bits))
    refuse(0, fmt::format("{} bytes instead of {}", code.size(), bytes_for(bits)));
  return plan;
}

void write_bitmap(std::span<const std::uint64_t> indices, std::uint64_t bytes, std::byte* out) {
  std::memset(out, 0, bytes);
  for (const std::uint64_t index : indices) out[index / 8] |= std::byte{1} << (index % 8);
}

void write_gaps(std::span<const std::uint64_t> indices, int width, BitWriter& to) {
  std::uint64_t next = 0;
  for (const std::uint64_t index : indices) {
    const std::uint64_t gap = index - next;
    to.write_ones(gap >> width);
    to.write_long(gap & ((std::uint64_t{1} << width) - 1), static_cast<unsigned>(width));
    next = index + 1;
  }
}

}  // namespace

IndexPlan plan_indices(std::span<const std::uint64_t> indices, std::uint64_t elements) {
  return best_plan(elements, indices.size(), indices.back(), [&](const auto& use) {
    for (const std::uint64_t index : indices) use(index);
  });
}

void write_indices(const IndexPlan& plan, std::span<const std::uint64_t> indices, std::byte* out) {
  if (plan.method == IndexMethod::bitmap) return write_bitmap(indices, plan.bytes, out);
  BitWriter to(out);
  if (plan.method == IndexMethod::fixed)
    for (const std::uint64_t index : indices) to.write_long(index, plan.width);
  else
    write_gaps(indices, plan.width, to);
  to.finish();
}

IndexPlan check_indices(ByteView header, ByteView code, std::uint64_t elements,
                        std::uint64_t kept) {
  const IndexPlan claimed = claimed_plan(header, code, elements, kept);
  std::uint64_t last = 0;
  walk_indices(claimed, code, elements, kept, [&](std::uint64_t index) { last = index; });
  const IndexPlan best = best_plan(elements, kept, last, [&](const auto& use) {
    walk_indices(claimed, code, elements, kept, use);
  });
  if (best.method != claimed.method)
    throw WireError(
        0, "payload.method",
        fmt::format("method {} takes {} bytes, method {} only {}", static_cast<int>(claimed.method),
                    claimed.bytes, static_cast<int>(best.method), best.bytes));
  if (best.width != claimed.width)
    throw WireError(1, "payload.width",
                    fmt::format("{} is shorter than {}", best.width, claimed.width));
  return claimed;
}

void read_indices(const IndexPlan& plan, ByteView code, std::uint64_t elements, std::uint64_t kept,
                  std::uint32_t* out) {
  walk_indices(plan, code, elements, kept,
               [&](std::uint64_t index) { *out++ = static_cast<std::uint32_t>(index); });
}

void scatter(const IndexPlan& plan, ByteView code, std::uint64_t elements, std::uint64_t kept,
             const float* values, float* out) {
  walk_indices(plan, code, elements, kept, [&](std::uint64_t index) { out[index] = *values++; });
}

}  // namespace laconic
