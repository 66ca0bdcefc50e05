// data/sentencepiece_engine.hpp — what laconic-sentencepiece.so does, the module around the
// library.
//
// A module (base/plugin.hpp), opened when a model is, because libsentencepiece brings along symbols
// of an old protobuf, and libtorch those of a newer one: linked into one program, each would call
// the other's.
#pragma once

#include <string>
#include <string_view>
#include <vector>

namespace laconic {

class SentencePieceEngine {
 public:
  virtual ~SentencePieceEngine() = default;
  virtual std::vector<int> encode(std::string_view text) const = 0;
  virtual std::string decode(const std::vector<int>& ids) const = 0;
  virtual int size() const = 0;
  virtual std::string piece(int id) const = 0;
  virtual float score(int id) const = 0;
  virtual bool is_control(int id) const = 0;
  virtual bool is_unknown(int id) const = 0;
  virtual bool is_byte(int id) const = 0;
  virtual int pad() const = 0;  // -1: the model has none; the same for the next three
  virtual int bos() const = 0;
  virtual int eos() const = 0;
  virtual int unk() const = 0;
};

// The entry of the module. Null, with the library's message in `error`, for bytes that are no
// model. The caller deletes.
using MakeSentencePieceEngine = SentencePieceEngine* (*)(std::string_view model,
                                                         std::string& error);
inline constexpr int kSentencePieceInterface = 1;
inline constexpr const char* kSentencePieceModule = "laconic-sentencepiece.so";

}  // namespace laconic
