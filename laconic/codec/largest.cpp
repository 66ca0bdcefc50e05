#include "laconic/codec/largest.hpp"

#include <algorithm>
#include <array>
#include <cmath>
#include <functional>
#include <optional>

#include "laconic/base/error.hpp"
#include "laconic/codec/kernel/candidate.hpp"

namespace laconic {

namespace {

using kernel::Candidates;
using kernel::rank_key;

constexpr std::uint64_t kMostAtOnce = std::uint64_t{1} << 31;  // what one collect() may see
constexpr std::uint64_t kSmall = 1 << 16;                      // not worth a sample
constexpr std::uint64_t kMaxSamples = 1 << 16;
constexpr std::uint64_t kAllTies = ~std::uint64_t{0};

// The k largest are all above `threshold` and the first `ties` of those equal to it.
struct Cut {
  std::uint32_t threshold;
  std::uint64_t ties;
};

// One digit of the k-th largest key, from the highest down: counts the keys that share the digits
// found so far by their next digit. Two tables, because equal keys one after the other would wait
// for each other's increment.
struct Digit {
  static constexpr std::size_t kBins = 2048;
  std::array<std::array<std::uint64_t, kBins>, 2> counts{};

  void count_keys(const float* x, std::uint64_t count, std::uint32_t prefix, int prefix_shift,
                  int shift) {
    const std::uint32_t mask = (1u << (prefix_shift - shift)) - 1;
    for (std::uint64_t i = 0; i < count; ++i) {
      const std::uint32_t key = rank_key(x[i]);
      if (key >> prefix_shift == prefix) ++counts[i % 2][key >> shift & mask];
    }
  }
  // The digit of the key that has `rank` - 1 larger ones; takes those in larger bins off `rank`.
  std::uint32_t find(std::uint64_t& rank) const {
    for (std::size_t bin = kBins; bin-- > 0;) {
      const std::uint64_t size = counts[0][bin] + counts[1][bin];
      if (rank <= size) return static_cast<std::uint32_t>(bin);
      rank -= size;
    }
    LACONIC_ASSERT(false, "fewer elements than are to be kept");
    return 0;
  }
};

// Clearing and searching the bins of three digits takes longer than this.
constexpr std::uint64_t kFew = 1024;

Cut exact_cut_of_few(const float* x, std::uint64_t count, std::uint64_t k) {
  std::array<std::uint32_t, kFew> keys;
  std::transform(x, x + count, keys.begin(), rank_key);
  const auto nth = keys.begin() + static_cast<std::ptrdiff_t>(k - 1);
  std::nth_element(keys.begin(), nth, keys.begin() + static_cast<std::ptrdiff_t>(count),
                   std::greater<>());
  const auto above = std::count_if(keys.begin(), nth, [&](auto key) { return key > *nth; });
  return {*nth, k - static_cast<std::uint64_t>(above)};
}

// By three passes over x, whatever it holds. Requires: 0 < k <= count.
Cut exact_cut(const float* x, std::uint64_t count, std::uint64_t k) {
  if (count <= kFew) return exact_cut_of_few(x, count, k);
  std::uint32_t prefix = 0;
  int prefix_shift = 31;
  for (const int shift : {20, 10, 0}) {
    Digit digit;
    digit.count_keys(x, count, prefix, prefix_shift, shift);
    prefix = prefix << (prefix_shift - shift) | digit.find(k);
    prefix_shift = shift;
  }
  return {prefix, k};
}

struct Found {
  Largest elements;
  bool is_complete = true;  // otherwise there was no room for all
};

Found collect_all(const float* x, std::uint64_t count, Cut cut, std::uint64_t room) {
  Scratch<std::uint32_t> index(room + kernel::kCandidateSlack);
  Found found;
  found.elements.value.resize(room + kernel::kCandidateSlack);
  Candidates c{cut.threshold, cut.ties, room, index.data(), found.elements.value.data(), 0};
  found.elements.index.reserve(room);
  for (std::uint64_t begin = 0; begin < count && found.is_complete; begin += kMostAtOnce) {
    const std::size_t before = c.size;
    found.is_complete = kernel::collect(x + begin, std::min(kMostAtOnce, count - begin), c);
    if (!found.is_complete) break;
    for (std::size_t i = before; i < c.size; ++i) found.elements.index.push_back(begin + index[i]);
  }
  found.elements.value.resize(c.size);
  return found;
}

// A threshold that very likely has k elements above it and not many more. Samples are taken one
// from each stretch of the tensor, at a place that looks random: a fixed stride might meet one
// column of a matrix only.
struct Guess {
  std::uint32_t threshold;
  std::uint64_t room;
};

std::optional<Guess> guess_threshold(const float* x, std::uint64_t count, std::uint64_t k) {
  const std::uint64_t samples = std::min(kMaxSamples, count / 16);
  const double expected =
      static_cast<double>(k) / static_cast<double>(count) * static_cast<double>(samples);
  const auto rank = static_cast<std::uint64_t>(expected + 4 * std::sqrt(expected) + 8);
  if (rank > samples / 4) return std::nullopt;
  const std::uint64_t stretch = count / samples;
  Scratch<std::uint32_t> keys(samples);
  for (std::uint64_t i = 0; i < samples; ++i) {
    const std::uint64_t random = i * 0x9E3779B97F4A7C15u >> 32;
    keys[i] = rank_key(x[i * stretch + (random * stretch >> 32)]);
  }
  const auto nth = keys.begin() + static_cast<std::ptrdiff_t>(rank - 1);
  std::nth_element(keys.begin(), nth, keys.end(), std::greater<>());
  return Guess{*nth, rank * stretch * 3 / 2 + 4096};
}

// Reduces candidates that surely contain the k largest to those, in place.
void keep_largest(Largest& candidates, std::uint64_t k) {
  Cut cut = exact_cut(candidates.value.data(), candidates.value.size(), k);
  std::size_t kept = 0;
  for (std::size_t i = 0; i < candidates.value.size(); ++i) {
    const float value = candidates.value[i];
    const std::uint32_t key = rank_key(value);
    const bool is_tie = key == cut.threshold && cut.ties > 0;
    candidates.index[kept] = candidates.index[i];
    candidates.value[kept] = value;
    cut.ties -= is_tie ? 1 : 0;
    kept += key > cut.threshold || is_tie ? 1 : 0;
  }
  candidates.index.resize(kept);
  candidates.value.resize(kept);
}

// So many elements equal the guess that there was no room for them all. Then the k-th largest may
// be one of them, and two passes are enough; if not, nothing is found.
std::optional<Largest> among_ties(const float* x, std::uint64_t count, std::uint64_t k,
                                  std::uint32_t threshold) {
  Found above = collect_all(x, count, {threshold, 0}, k);
  if (!above.is_complete) return std::nullopt;
  const std::uint64_t ties = k - above.elements.value.size();
  if (ties == 0) return std::move(above.elements);
  return collect_all(x, count, {threshold, ties}, k).elements;
}

std::optional<Largest> by_sample(const float* x, std::uint64_t count, std::uint64_t k) {
  const auto guess = guess_threshold(x, count, k);
  if (!guess) return std::nullopt;
  Found found = collect_all(x, count, {guess->threshold, kAllTies}, guess->room);
  if (!found.is_complete) return among_ties(x, count, k, guess->threshold);
  if (found.elements.value.size() < k) return std::nullopt;
  keep_largest(found.elements, k);
  return std::move(found.elements);
}

}  // namespace

Largest largest(const float* x, std::uint64_t count, std::uint64_t k) {
  if (k == 0) return {};
  if (count >= kSmall)
    if (auto found = by_sample(x, count, k)) return *std::move(found);
  return collect_all(x, count, exact_cut(x, count, k), k).elements;
}

}  // namespace laconic
