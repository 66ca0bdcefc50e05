// data/sentencepiece.hpp — SentencePiece models (Llama 2, Mistral, T5), through the library itself.
//
// Where laconic was built without the library (sentencepiece_missing.cpp), the
// constructor throws and nothing else is ever called. Control symbols such as <s>
// are never made from text; user-defined symbols are, as the model asks.
//
// Texts are encoded part by part, cut at single spaces between ASCII words: no piece of an ordinary
// model has a space behind a letter, so the best pieces of the parts are those of the whole. Where
// all scores are whole numbers (BPE) a part is a word, and common words are remembered. Else it has
// 4 kB at least, since the library adds up the scores of a text in float: near ties may depend on
// what came before, and after some hundred kilobytes no precision is left.
//
// Threads: const calls may run in any number of threads at once.
#pragma once

#include <cstdint>
#include <memory>
#include <span>
#include <string>
#include <string_view>
#include <vector>

#include "laconic/data/special_tokens.hpp"

namespace laconic {

class SentencePiece {
 public:
  // `model` holds the bytes of tokenizer.model. Throws FileError with what the library says.
  SentencePiece(std::string model, const std::string& path);
  ~SentencePiece();

  void encode(std::string_view text, std::vector<std::int32_t>& out) const;  // appends
  // Requires: ids within the vocabulary.
  std::string decode(std::span<const std::int32_t> tokens) const;
  // What a token adds behind another: its text with a space for each U+2581, or its byte.
  std::string text_behind(std::int32_t token) const;

  std::int32_t size() const;
  SpecialTokens special() const;
  const std::string& model() const { return model_; }

 private:
  struct Library;
  std::string model_;
  std::unique_ptr<Library> library_;
  std::size_t least_part_ = 0;  // bytes of a part of a text; 0: texts are not cut
};

// False where laconic was built without the library.
bool has_sentencepiece();

}  // namespace laconic
