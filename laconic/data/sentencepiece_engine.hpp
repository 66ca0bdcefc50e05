// data/sentencepiece_engine.hpp — what laconic-sentencepiece.so does, the module around the
// library.
//
// A module (base/plugin.hpp), opened when a model is, because libsentencepiece has an old protobuf
// inside, with all its symbols, and libtorch uses a newer one, Debian's and PyPI's alike: linked
// into one program, each would call the other's.
//
// No function throws. What the library says when something fails comes back as text; an empty text
// means that all is well.
#pragma once

#include <string>
#include <string_view>
#include <vector>

namespace laconic {

struct PieceFacts {
  std::string text;
  float score = 0;
  bool is_control = false;
  bool is_unknown = false;
  bool is_byte = false;
};

struct SentencePieceFacts {
  int size = 0;
  int pad = -1;  // -1: the model has none; the same for the next three
  int bos = -1;
  int eos = -1;
  int unk = -1;
};

class SentencePieceEngine {
 public:
  virtual ~SentencePieceEngine() = default;
  virtual SentencePieceFacts facts() const = 0;
  virtual std::string encode(std::string_view text, std::vector<int>& ids) const = 0;
  virtual std::string decode(const std::vector<int>& ids, std::string& text) const = 0;
  virtual std::string describe(int id, PieceFacts& piece) const = 0;
};

// The entry of the module. Null, with the library's message in `error`, for bytes that are no
// model. The caller deletes.
using MakeSentencePieceEngine = SentencePieceEngine* (*)(std::string_view model,
                                                         std::string& error);
inline constexpr int kSentencePieceInterface = 2;
inline constexpr const char* kSentencePieceModule = "laconic-sentencepiece.so";

}  // namespace laconic
