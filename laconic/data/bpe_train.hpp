// data/bpe_train.hpp — makes a byte-level BPE vocabulary from text.
//
// Ids: 0..255 are the bytes in GPT-2's order, then one id per merge in the order
// of learning, and last kEndOfText, as in GPT-2. Deterministic: the most
// frequent pair of neighbours is merged next, on a tie the pair of lower ids,
// as Hugging Face's BpeTrainer does. A pair seen only once is not merged.
#pragma once

#include <cstdint>
#include <span>
#include <string>
#include <string_view>
#include <unordered_map>

#include "laconic/data/bpe.hpp"
#include "laconic/data/piece.hpp"

namespace laconic {

// How often each piece occurs. The sum over any split of a corpus into texts is the same as long as
// the texts are cut where next_cut says. One thread at a time.
class PieceCounts {
 public:
  void add(std::string_view text);
  const auto& counts() const { return counts_; }

 private:
  struct Hash : std::hash<std::string_view> {
    using is_transparent = void;
  };
  PieceSplitter splitter_;
  std::unordered_map<std::string, std::int64_t, Hash, std::equal_to<>> counts_;
};

struct BpeTraining {
  BpeVocabulary vocabulary;
  std::string note;  // why the vocabulary is smaller than asked for; empty if it is not
};

// The least size is 257: the bytes and the end of text. Throws ConfigError below that.
BpeTraining train_bpe(const PieceCounts& pieces, std::int32_t vocabulary_size);

}  // namespace laconic
