// data/tokenizer_json.hpp — reads Hugging Face's tokenizer.json.
//
// Read are byte-level BPE (GPT-2, Llama 3, Qwen, SmolLM) and BERT's WordPiece. What
// a file asks for beyond that, and would change a token, is refused by name, all
// of it at once. Truncation, padding and the post-processor are not looked at:
// they say which special tokens to put around a text, which encode() never does.
#pragma once

#include <cstdint>
#include <map>
#include <string>
#include <string_view>
#include <variant>

#include "laconic/data/bpe.hpp"
#include "laconic/data/wordpiece.hpp"

namespace laconic {

struct BpeParts {
  BpeVocabulary vocabulary;  // end_of_text is not set: tokenizer.json does not say which it is
  BpeRules rules;
};

struct WordPieceParts {
  WordPieceVocabulary vocabulary;
  WordPieceRules rules;
};

struct TokenizerJson {
  std::variant<BpeParts, WordPieceParts> model;
  std::map<std::string, std::int32_t> added;  // the texts of all added tokens, special or not
};

// Throws FileError: for what is not supported, and for a vocabulary with holes, doubles, or merges
// of unknown tokens. `path` is for messages.
TokenizerJson parse_tokenizer_json(std::string_view text, const std::string& path);

}  // namespace laconic
