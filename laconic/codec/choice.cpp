#include "laconic/codec/choice.hpp"

#include <algorithm>
#include <array>
#include <bit>

#include "laconic/base/philox.hpp"

namespace laconic {

namespace {

constexpr std::uint64_t kStream = 3;  // docs/wire-format.md, "Random numbers"
constexpr std::uint64_t kNarrow = std::uint64_t{1} << 32;
constexpr std::size_t kAhead = 32;  // draws between fetching a word of bits and setting one of them

__extension__ using Wide = unsigned __int128;

// Sets the bits of draws until `wanted` are set. A round never draws more than are still wanted, so
// the bits set are those of the first `wanted` different draws.
class Drawing {
 public:
  Drawing(std::uint64_t seed, std::uint64_t elements, std::uint64_t* bits)
      : key_(derive(key_of(seed), kStream)), elements_(elements), bits_(bits) {}

  void draw(std::uint64_t wanted) {
    while (wanted > 0) wanted -= elements_ <= kNarrow ? narrow_round(wanted) : wide_round(wanted);
  }

 private:
  // Returns how many bits are new.
  std::uint64_t narrow_round(std::uint64_t wanted) {
    const std::size_t draws = std::min<std::uint64_t>(wanted, words_.size());
    fill_words(key_, next_word_, std::span(words_).first(draws));
    next_word_ += draws;
    std::uint64_t fresh = 0;
    for (std::size_t j = 0; j < draws; ++j) {
      // The bits of a large tensor do not fit the nearer caches.
      __builtin_prefetch(bits_ + (words_[std::min(j + kAhead, draws - 1)] * elements_ >> 32) / 64,
                         1);
      fresh += set(words_[j] * elements_ >> 32);
    }
    return fresh;
  }
  std::uint64_t wide_round(std::uint64_t wanted) {
    const std::size_t draws = std::min<std::uint64_t>(wanted, words_.size() / 2);
    fill_words(key_, next_word_, std::span(words_).first(2 * draws));
    next_word_ += 2 * draws;
    std::uint64_t fresh = 0;
    for (std::size_t j = 0; j < draws; ++j) {
      const std::uint64_t word = words_[2 * j] | std::uint64_t{words_[2 * j + 1]} << 32;
      fresh += set(static_cast<std::uint64_t>(Wide{word} * elements_ >> 64));
    }
    return fresh;
  }
  // No branch: misses of the cache overlap.
  std::uint64_t set(std::uint64_t index) {
    const std::uint64_t bit = std::uint64_t{1} << index % 64;
    std::uint64_t& word = bits_[index / 64];
    const std::uint64_t is_new = (word & bit) == 0 ? 1 : 0;
    word |= bit;
    return is_new;
  }

  Key key_;
  std::uint64_t elements_;
  std::uint64_t* bits_;
  std::uint64_t next_word_ = 0;
  std::array<std::uint32_t, 4096> words_;
};

}  // namespace

Choice::Choice(std::uint64_t seed, std::uint64_t elements, std::uint64_t k)
    : kept_(elements / 64 + (elements % 64 != 0 ? 1 : 0)), is_sparse_(k < elements / 64) {
  std::fill(kept_.begin(), kept_.end(), 0);
  const bool is_few = k <= elements - k;
  Drawing(seed, elements, kept_.data()).draw(is_few ? k : elements - k);
  if (is_few) return;
  for (std::uint64_t& word : kept_) word = ~word;
  if (elements % 64 != 0) kept_.back() &= (std::uint64_t{1} << elements % 64) - 1;
}

// kAtOnce indices of each word are written whether they exist or not, which costs less than asking;
// the words that hold more take the loop. The highest bit is set for the search, so that there is
// always one to find.
template <std::size_t kAtOnce, class Use>
void Choice::for_each_batch_of(const Use& use) const {
  constexpr std::size_t kBatch = 1024;
  constexpr std::uint64_t kHighest = std::uint64_t{1} << 63;
  std::array<std::uint64_t, kBatch + 64> batch;
  std::size_t size = 0;
  for (std::size_t at = 0; at < kept_.size(); ++at) {
    std::uint64_t word = kept_[at];
    const auto count = static_cast<std::size_t>(std::popcount(word));
    std::size_t j = 0;
    do {
      for (const std::size_t end = j + kAtOnce; j < end; ++j, word &= word - 1)
        batch[size + j] = 64 * at + static_cast<std::size_t>(__builtin_ctzll(word | kHighest));
    } while (j < count);
    size += count;
    if (size < kBatch) continue;
    use(batch.data(), size);
    size = 0;
  }
  use(batch.data(), size);
}

template <class Use>
void Choice::for_each_batch(const Use& use) const {
  if (is_sparse_)
    for_each_batch_of<2>(use);
  else
    for_each_batch_of<4>(use);
}

void Choice::gather(const float* x, float* values) const {
  for_each_batch([&](const std::uint64_t* indices, std::size_t count) {
    for (std::size_t j = 0; j < count; ++j) *values++ = x[indices[j]];
  });
}

void Choice::scatter(const float* values, float* x) const {
  for_each_batch([&](const std::uint64_t* indices, std::size_t count) {
    for (std::size_t j = 0; j < count; ++j) x[indices[j]] = *values++;
  });
}

}  // namespace laconic
