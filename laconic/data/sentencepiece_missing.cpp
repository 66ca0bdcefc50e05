#include "laconic/base/error.hpp"
#include "laconic/data/sentencepiece.hpp"

namespace laconic {

struct SentencePiece::Library {};

SentencePiece::SentencePiece(std::string, const std::string& path) {
  throw FileError(path, "", "this laconic was built without SentencePiece",
                  "apt-get install libsentencepiece-dev, and build it again");
}

SentencePiece::~SentencePiece() = default;
void SentencePiece::encode(std::string_view, std::vector<std::int32_t>&) const {}
std::string SentencePiece::decode(std::span<const std::int32_t>) const {
  return {};
}
std::string SentencePiece::text_behind(std::int32_t) const {
  return {};
}
std::int32_t SentencePiece::size() const {
  return 0;
}
SpecialTokens SentencePiece::special() const {
  return {};
}

bool has_sentencepiece() {
  return false;
}

}  // namespace laconic
