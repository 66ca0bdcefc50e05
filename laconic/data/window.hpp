// data/window.hpp — a dataset as samples of fixed length.
//
// Sample s is tokens [s*T, s*T + T]: T inputs, and one more so that targets are
// the inputs shifted by one. Neighbours share that token; the tail that fills no
// window is left out. Documents are not told apart: their end is a token. With a
// stride S below T windows overlap: sample s is tokens [s*S, s*S + T].
#pragma once

#include <cstdint>
#include <memory>
#include <span>

#include "laconic/data/indexed.hpp"
#include "laconic/data/token_set.hpp"

namespace laconic {

// (tokens - 1) / window, and 0 for too few tokens. Requires: window > 0.
std::uint64_t sample_count(std::uint64_t tokens, std::uint64_t window);

// Windows that begin `stride` tokens apart; with stride = window the same as above. Requires: both
// are > 0.
std::uint64_t sample_count(std::uint64_t tokens, std::uint64_t window, std::uint64_t stride);

// Throws FileError when a token is not in [0, vocabulary). Reads all of them once.
void check_vocabulary(const IndexedDataset& tokens, std::int64_t vocabulary);

// Any number of threads may read at once.
class WindowedDataset {
 public:
  // Reads all tokens once, to know that each is an index into the model's embedding.
  // `stride` 0: the window. `set` is what the data's tokeniser knows, if anyone says. Throws
  // ConfigError when there is not even one sample or when the stride is longer than the window,
  // FileError when a token is not in [0, vocabulary).
  WindowedDataset(std::shared_ptr<const IndexedDataset> tokens, std::uint64_t window,
                  std::int64_t vocabulary, std::uint64_t stride = 0, bool has_prompts = false,
                  const TokenSet& set = {});

  std::uint64_t samples() const { return samples_; }
  std::uint64_t window() const { return window_; }
  std::uint64_t stride() const { return stride_; }
  const IndexedDataset& tokens() const { return *tokens_; }
  const TokenSet& set() const { return set_; }
  bool has_prompts() const { return has_prompts_; }  // documents are prompts and completions

  // Requires: sample < samples(), out.size() == window() + 1.
  void read(std::uint64_t sample, std::span<std::int64_t> out) const;
  // Whether each of these tokens belongs to a completion. Requires: as above, has_prompts().
  void find_completions(std::uint64_t sample, std::span<bool> out) const;

 private:
  std::shared_ptr<const IndexedDataset> tokens_;
  std::uint64_t window_;
  std::uint64_t stride_;
  std::uint64_t samples_;
  bool has_prompts_;
  TokenSet set_;
};

}  // namespace laconic
