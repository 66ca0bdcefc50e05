// data/test_bpe.hpp — for tests only: a vocabulary learned from one text.
#pragma once

#include <string_view>

#include "laconic/data/bpe_train.hpp"

namespace laconic {

inline BpeTraining train_bpe_on(std::string_view text, std::int32_t vocabulary_size) {
  PieceCounts pieces;
  pieces.add(text);
  return train_bpe(pieces, vocabulary_size);
}

}  // namespace laconic
