#include "laconic/data/sentencepiece.hpp"

#include <fmt/format.h>
#include <sentencepiece_processor.h>

#include <utility>

#include "laconic/base/error.hpp"

namespace laconic {

namespace {

constexpr std::string_view kSpaceMark = "\u2581";

// "<0x0A>" is the byte 10.
char byte_of_piece(const std::string& piece) {
  return static_cast<char>(std::stoi(piece.substr(3, 2), nullptr, 16));
}

}  // namespace

struct SentencePiece::Library {
  sentencepiece::SentencePieceProcessor processor;
};

SentencePiece::SentencePiece(std::string model, const std::string& path)
    : model_(std::move(model)), library_(std::make_unique<Library>()) {
  const auto status = library_->processor.LoadFromSerializedProto(model_);
  if (!status.ok() || library_->processor.GetPieceSize() < 1)
    throw FileError(path, "", fmt::format("no SentencePiece model: {}", status.ToString()),
                    "fetch it again");
}

SentencePiece::~SentencePiece() = default;

void SentencePiece::encode(std::string_view text, std::vector<std::int32_t>& out) const {
  std::vector<int> ids;
  const auto status = library_->processor.Encode({text.data(), text.size()}, &ids);
  LACONIC_ASSERT(status.ok(), status.ToString());
  out.insert(out.end(), ids.begin(), ids.end());
}

std::string SentencePiece::decode(std::span<const std::int32_t> tokens) const {
  std::string text;
  const auto status =
      library_->processor.Decode(std::vector<int>(tokens.begin(), tokens.end()), &text);
  LACONIC_ASSERT(status.ok(), status.ToString());
  return text;
}

std::string SentencePiece::text_behind(std::int32_t token) const {
  const auto& processor = library_->processor;
  if (processor.IsControl(token)) return {};
  if (processor.IsUnknown(token)) return decode({&token, 1});
  std::string text = processor.IdToPiece(token);
  if (processor.IsByte(token)) return {byte_of_piece(text)};
  for (std::size_t at = 0; (at = text.find(kSpaceMark, at)) != std::string::npos; ++at)
    text.replace(at, kSpaceMark.size(), " ");
  return text;
}

std::int32_t SentencePiece::size() const {
  return library_->processor.GetPieceSize();
}

SpecialTokens SentencePiece::special() const {
  const auto& processor = library_->processor;
  return {.pad = processor.pad_id(),
          .bos = processor.bos_id(),
          .eos = processor.eos_id(),
          .unk = processor.unk_id()};
}

bool has_sentencepiece() {
  return true;
}

}  // namespace laconic
