// data/sentencepiece.hpp — SentencePiece models (Llama 2, Mistral, T5), through the library itself.
//
// Where laconic was built without the library (sentencepiece_missing.cpp), the
// constructor throws and nothing else is ever called. Control symbols such as <s>
// are never made from text; user-defined symbols are, as the model asks.
//
// A long text is encoded part by part, cut at single spaces between ASCII words: no piece of an
// ordinary model has a space behind a letter, so the best pieces of the parts are those of the
// whole. (The library adds up the scores of a whole text in float, which have no precision left
// after some hundred kilobytes.)
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
  void encode_part(std::string_view part, std::vector<std::int32_t>& out) const;

  std::string model_;
  std::unique_ptr<Library> library_;
  bool may_cut_ = false;
};

// False where laconic was built without the library.
bool has_sentencepiece();

}  // namespace laconic
