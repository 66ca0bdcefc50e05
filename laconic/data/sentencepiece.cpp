#include "laconic/data/sentencepiece.hpp"

#include <fmt/format.h>

#include <cmath>
#include <stdexcept>
#include <utility>

#include "laconic/base/error.hpp"
#include "laconic/base/plugin.hpp"
#include "laconic/data/piece_cache.hpp"
#include "laconic/data/scratch_pool.hpp"
#include "laconic/data/sentencepiece_engine.hpp"

namespace laconic {

namespace {

constexpr std::string_view kSpaceMark = "\u2581";
constexpr std::size_t kSentencePart = 4096;

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

MakeSentencePieceEngine load_module() {
  static const auto make = reinterpret_cast<MakeSentencePieceEngine>(
      open_plugin({kSentencePieceModule, kSentencePieceInterface,
                   "it belongs to laconic and needs libsentencepiece: install both again"}));
  return make;
}

}  // namespace

struct SentencePiece::Library {
  std::unique_ptr<SentencePieceEngine> engine;
  SentencePieceFacts facts;
  mutable ScratchPool<PieceCache> pool;

  static void require(const std::string& complaint) {
    if (!complaint.empty()) throw std::runtime_error("SentencePiece: " + complaint);
  }
  std::vector<int> encode(std::string_view text) const {
    std::vector<int> ids;
    require(engine->encode(text, ids));
    return ids;
  }
  PieceFacts piece(int id) const {
    PieceFacts facts;
    require(engine->describe(id, facts));
    return facts;
  }

  // Whether "x y" has the pieces of "x" and then those of "y": the model puts a space in front of a
  // text, which is a piece if nothing else, and no piece goes on behind a space.
  bool may_cut() const {
    const std::vector<int> ids = encode("a");
    if (ids.empty() || !piece(ids[0]).text.starts_with(kSpaceMark)) return false;
    bool has_space = false;
    for (int id = 0; id < facts.size; ++id) {
      const std::string text = piece(id).text;
      if (has_inner_space(text)) return false;
      has_space |= text == kSpaceMark;
    }
    return has_space;
  }

  // Whether sums of scores have no rounding that would depend on the words before, as in all BPE
  // models.
  bool has_whole_scores() const {
    for (int id = 0; id < facts.size; ++id)
      if (const float score = piece(id).score; std::trunc(score) != score) return false;
    return true;
  }
};

SentencePiece::SentencePiece(std::string model, const std::string& path)
    : model_(std::move(model)), library_(std::make_unique<Library>()) {
  std::string error;
  library_->engine.reset(load_module()(model_, error));
  if (!library_->engine)
    throw FileError(path, "", fmt::format("no SentencePiece model: {}", error), "fetch it again");
  library_->facts = library_->engine->facts();
  if (!library_->may_cut()) return;
  least_part_ = library_->has_whole_scores() ? 1 : kSentencePart;
}

SentencePiece::~SentencePiece() = default;

void SentencePiece::encode(std::string_view text, std::vector<std::int32_t>& out) const {
  auto cache = library_->pool.borrow([] { return std::make_unique<PieceCache>(); });
  cache->expect(text.size());
  const auto encode_part = [&](std::string_view part) {
    PieceCache::Slot* slot = part.empty() ? nullptr : cache->slot_of(part);
    if (slot && slot->holds(part)) {
      out.insert(out.end(), slot->tokens, slot->tokens + slot->count);
      return;
    }
    const std::vector<int> ids = library_->encode(part);
    if (slot) PieceCache::remember(*slot, part, ids);
    out.insert(out.end(), ids.begin(), ids.end());
  };
  while (least_part_ > 0 && text.size() > 2 * least_part_) {
    const std::size_t cut = find_space(text, least_part_);
    if (cut == text.size()) break;
    encode_part(text.substr(0, cut));
    text.remove_prefix(cut + 1);
  }
  encode_part(text);
  library_->pool.give_back(std::move(cache));
}

std::string SentencePiece::decode(std::span<const std::int32_t> tokens) const {
  std::string text;
  Library::require(library_->engine->decode({tokens.begin(), tokens.end()}, text));
  return text;
}

std::string SentencePiece::text_behind(std::int32_t token) const {
  const PieceFacts piece = library_->piece(token);
  if (piece.is_control) return {};
  if (piece.is_unknown) return decode({&token, 1});
  if (piece.is_byte) return {byte_of_piece(piece.text)};
  std::string text = piece.text;
  for (std::size_t at = 0; (at = text.find(kSpaceMark, at)) != std::string::npos; ++at)
    text.replace(at, kSpaceMark.size(), " ");
  return text;
}

std::int32_t SentencePiece::size() const {
  return library_->facts.size;
}

SpecialTokens SentencePiece::special() const {
  const SentencePieceFacts& facts = library_->facts;
  return {.pad = facts.pad, .bos = facts.bos, .eos = facts.eos, .unk = facts.unk};
}

bool has_sentencepiece() {
  return true;
}

}  // namespace laconic
