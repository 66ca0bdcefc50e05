#include "laconic/data/sentencepiece.hpp"

#include <fmt/format.h>
#include <sentencepiece_processor.h>

#include <cmath>
#include <utility>

#include "laconic/base/error.hpp"
#include "laconic/data/piece_cache.hpp"
#include "laconic/data/scratch_pool.hpp"

namespace laconic {

namespace {

constexpr std::string_view kSpaceMark = "\u2581";

constexpr std::size_t kSentencePart = 4096;  // at least, if something can be cut

bool is_ascii_visible(char c) {
  return c > ' ' && c < 0x7f;
}

// Where a single space between two ASCII characters is, at or after `from`; text.size() when
// nowhere.
std::size_t find_space(std::string_view text, std::size_t from) {
  for (std::size_t at = from; at + 1 < text.size(); ++at)
    if (text[at] == ' ' && is_ascii_visible(text[at - 1]) && is_ascii_visible(text[at + 1]))
      return at;
  return text.size();
}

bool has_inner_space(std::string_view piece) {
  while (piece.starts_with(kSpaceMark)) piece.remove_prefix(kSpaceMark.size());
  return piece.find(kSpaceMark) != std::string_view::npos ||
         piece.find(' ') != std::string_view::npos;
}

// "<0x0A>" is the byte 10.
char byte_of_piece(const std::string& piece) {
  return static_cast<char>(std::stoi(piece.substr(3, 2), nullptr, 16));
}

}  // namespace

struct SentencePiece::Library {
  struct Scratch {
    PieceCache cache;
    std::vector<int> ids;
  };
  sentencepiece::SentencePieceProcessor processor;
  mutable ScratchPool<Scratch> pool;

  // Whether "x y" has the pieces of "x" and then those of "y": the model puts a space in front of a
  // text, which is a piece if nothing else, and no piece goes on behind a space.
  bool may_cut() const {
    const std::vector<std::string> pieces = processor.EncodeAsPieces("a");
    if (pieces.empty() || !pieces[0].starts_with(kSpaceMark)) return false;
    if (processor.IsUnknown(processor.PieceToId({kSpaceMark.data(), kSpaceMark.size()})))
      return false;
    for (int id = 0; id < processor.GetPieceSize(); ++id)
      if (has_inner_space(processor.IdToPiece(id))) return false;
    return true;
  }

  // Whether sums of scores have no rounding that would depend on the words before, as in all BPE
  // models.
  bool has_whole_scores() const {
    for (int id = 0; id < processor.GetPieceSize(); ++id)
      if (const float score = processor.GetScore(id); std::trunc(score) != score) return false;
    return true;
  }
};

SentencePiece::SentencePiece(std::string model, const std::string& path)
    : model_(std::move(model)), library_(std::make_unique<Library>()) {
  const auto status = library_->processor.LoadFromSerializedProto(model_);
  if (!status.ok() || library_->processor.GetPieceSize() < 1)
    throw FileError(path, "", fmt::format("no SentencePiece model: {}", status.ToString()),
                    "fetch it again");
  if (!library_->may_cut()) return;
  least_part_ = library_->has_whole_scores() ? 1 : kSentencePart;
}

SentencePiece::~SentencePiece() = default;

void SentencePiece::encode(std::string_view text, std::vector<std::int32_t>& out) const {
  auto scratch = library_->pool.borrow([] { return std::make_unique<Library::Scratch>(); });
  scratch->cache.expect(text.size());
  const auto encode_part = [&](std::string_view part) {
    PieceCache::Slot* slot = part.empty() ? nullptr : scratch->cache.slot_of(part);
    if (slot && slot->holds(part)) {
      out.insert(out.end(), slot->tokens, slot->tokens + slot->count);
      return;
    }
    const auto status = library_->processor.Encode({part.data(), part.size()}, &scratch->ids);
    LACONIC_ASSERT(status.ok(), status.ToString());
    if (slot) PieceCache::remember(*slot, part, scratch->ids);
    out.insert(out.end(), scratch->ids.begin(), scratch->ids.end());
  };
  while (least_part_ > 0 && text.size() > 2 * least_part_) {
    const std::size_t cut = find_space(text, least_part_);
    if (cut == text.size()) break;
    encode_part(text.substr(0, cut));
    text.remove_prefix(cut + 1);
  }
  encode_part(text);
  library_->pool.give_back(std::move(scratch));
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
