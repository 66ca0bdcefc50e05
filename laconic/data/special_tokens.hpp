// data/special_tokens.hpp — tokens that mean something beside text, and how folders name them.
#pragma once

#include <cstdint>
#include <map>
#include <string>

namespace laconic {

// Ids; -1: the vocabulary has no such token.
struct SpecialTokens {
  std::int32_t pad = -1;
  std::int32_t bos = -1;   // beginning of a sequence
  std::int32_t eos = -1;   // end of a sequence
  std::int32_t cls = -1;   // in front of what is classified
  std::int32_t sep = -1;   // behind each part of a pair
  std::int32_t mask = -1;  // in the place of what is to be guessed
  std::int32_t unk = -1;   // in the place of what the vocabulary cannot say
  bool operator==(const SpecialTokens&) const = default;
};

// "eos" -> "</s>": the texts of special tokens.
using SpecialNames = std::map<std::string, std::string>;

// What tokenizer_config.json and, for keys that it lacks, special_tokens_map.json of a folder say.
// Throws FileError.
SpecialNames read_special_names(const std::string& folder);

// `ids` has the tokens that may be special. A name that is not among them is left at -1.
SpecialTokens find_special_tokens(const SpecialNames& names,
                                  const std::map<std::string, std::int32_t>& ids);

}  // namespace laconic
