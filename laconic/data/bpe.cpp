#include "laconic/data/bpe.hpp"

#include <algorithm>
#include <bit>
#include <queue>
#include <utility>

#include "laconic/data/piece.hpp"
#include "laconic/data/piece_cache.hpp"
#include "laconic/data/unicode.hpp"

namespace laconic {

namespace {

constexpr std::size_t kShortPiece = 48;

std::uint64_t pack(std::int32_t left, std::int32_t right) {
  return std::uint64_t{static_cast<std::uint32_t>(left)} << 32 | static_cast<std::uint32_t>(right);
}

}  // namespace

BpeMergeTable::BpeMergeTable(const std::vector<BpeMerge>& merges) {
  const std::size_t slots = std::bit_ceil(2 * merges.size() + 2);  // at most half full
  shift_ = 64 - std::countr_zero(slots);
  entries_.resize(slots);
  std::uint32_t rank = 0;
  for (const BpeMerge& merge : merges) {
    const std::uint64_t pair = pack(merge.left, merge.right);
    entries_[slot_of(pair)] = {pair, rank++, merge.product};
  }
}

// Where the pair is, or the free slot where it would go.
std::size_t BpeMergeTable::slot_of(std::uint64_t pair) const {
  std::size_t slot = scatter(pair ^ pair >> 29) >> shift_;
  while (entries_[slot].rank != kNone && entries_[slot].pair != pair)
    slot = (slot + 1) & (entries_.size() - 1);
  return slot;
}

const BpeMergeTable::Entry& BpeMergeTable::find(std::int32_t left, std::int32_t right) const {
  return entries_[slot_of(pack(left, right))];
}

void merge_short_piece(const BpeMergeTable& table, std::vector<std::int32_t>& tokens) {
  using Entry = BpeMergeTable::Entry;
  // entries[i] is the merge of tokens i and i+1.
  static thread_local std::vector<Entry> entries;
  entries.clear();
  for (std::size_t i = 0; i + 1 < tokens.size(); ++i)
    entries.push_back(table.find(tokens[i], tokens[i + 1]));
  const auto by_rank = [](const Entry& a, const Entry& b) { return a.rank < b.rank; };
  while (!entries.empty()) {
    const auto best = std::min_element(entries.begin(), entries.end(), by_rank);
    if (best->rank == BpeMergeTable::kNone) break;
    const auto at = best - entries.begin();
    tokens[at] = best->product;
    tokens.erase(tokens.begin() + at + 1);
    entries.erase(best);
    const auto last = static_cast<std::ptrdiff_t>(entries.size());
    if (at > 0) entries[at - 1] = table.find(tokens[at - 1], tokens[at]);
    if (at < last) entries[at] = table.find(tokens[at], tokens[at + 1]);
  }
}

namespace {

// A piece as a doubly linked list over its first tokens' places, with a heap of possible merges. A
// heap entry is stale when its left or right neighbour has changed since: then the pair found at
// its place is another one, and the entry is dropped.
class LongPiece {
 public:
  LongPiece(const BpeMergeTable& table, std::vector<std::int32_t>& tokens)
      : table_(table), tokens_(tokens), before_(tokens.size()), after_(tokens.size()) {
    for (std::size_t i = 0; i < tokens.size(); ++i) {
      before_[i] = i - 1;
      after_[i] = i + 1;
    }
    for (std::size_t i = 0; i + 1 < tokens.size(); ++i) consider(i);
  }

  void merge_all() {
    while (!heap_.empty()) {
      const Candidate candidate = heap_.top();
      heap_.pop();
      if (is_fresh(candidate)) apply(candidate);
    }
    std::erase(tokens_, kGone);
  }

 private:
  static constexpr std::int32_t kGone = -1;
  struct Candidate {
    std::uint32_t rank;
    std::int32_t product;
    std::size_t place;
    bool operator<(const Candidate& other) const {  // the heap's top is the largest
      return std::pair(rank, place) > std::pair(other.rank, other.place);
    }
  };

  void consider(std::size_t place) {
    const auto& entry = table_.find(tokens_[place], tokens_[after_[place]]);
    if (entry.rank != BpeMergeTable::kNone) heap_.push({entry.rank, entry.product, place});
  }

  bool is_fresh(const Candidate& candidate) const {
    const std::size_t right = after_[candidate.place];
    return tokens_[candidate.place] != kGone && right < tokens_.size() &&
           table_.find(tokens_[candidate.place], tokens_[right]).rank == candidate.rank;
  }

  void apply(const Candidate& candidate) {
    const std::size_t place = candidate.place;
    const std::size_t gone = after_[place];
    tokens_[place] = candidate.product;
    tokens_[gone] = kGone;
    after_[place] = after_[gone];
    if (after_[place] < tokens_.size()) before_[after_[place]] = place;
    if (before_[place] < tokens_.size()) consider(before_[place]);
    if (after_[place] < tokens_.size()) consider(place);
  }

  const BpeMergeTable& table_;
  std::vector<std::int32_t>& tokens_;
  std::vector<std::size_t> before_;  // SIZE_MAX: none
  std::vector<std::size_t> after_;   // tokens_.size(): none
  std::priority_queue<Candidate> heap_;
};

}  // namespace

void merge_long_piece(const BpeMergeTable& table, std::vector<std::int32_t>& tokens) {
  LongPiece(table, tokens).merge_all();
}

struct Bpe::Scratch {
  std::vector<PieceSplitter> splitters;
  PieceCache cache;
  std::vector<std::int32_t> tokens;
};

const AddedToken* Bpe::Finder::find(std::string_view text, std::size_t& at) const {
  for (; at < text.size(); ++at) {
    if (!begins[static_cast<unsigned char>(text[at])]) continue;
    for (const AddedToken* token : tokens)
      if (text.substr(at).starts_with(token->text)) return token;
  }
  return nullptr;
}

Bpe::Bpe(BpeVocabulary vocabulary, BpeRules rules)
    : vocabulary_(std::move(vocabulary)), rules_(std::move(rules)), table_(vocabulary_.merges) {
  std::vector<bool> is_apart(vocabulary_.tokens.size());  // no piece becomes it
  for (const std::int32_t id : rules_.special) is_apart[id] = true;
  for (const AddedToken& token : rules_.added) {
    is_apart[token.id] = true;
    Finder& finder = token.is_normalised ? normalised_ : raw_;
    finder.tokens.push_back(&token);
    finder.begins[static_cast<unsigned char>(token.text[0])] = true;
    const bool may_be_cut = token.text.find_first_of(" \n", 1) != std::string::npos;
    if (may_be_cut) safe_cut_ = SafeCut::nowhere;
  }
  for (Finder* finder : {&raw_, &normalised_})
    std::ranges::stable_sort(finder->tokens, std::ranges::greater(),
                             [](const AddedToken* token) { return token->text.size(); });
  bool ends_words = false;
  for (const SplitPattern& split : rules_.splits) {
    // Numbers do not care, but somebody else must end pieces there.
    if (split.text() == kDigitSplit || split.text() == kNumberSplit) continue;
    safe_cut_ = std::min(safe_cut_, split.safe_cut());
    ends_words = true;
  }
  if (!ends_words) safe_cut_ = SafeCut::nowhere;
  std::int32_t id = 0;
  for (const std::string& token : vocabulary_.tokens) {
    if (token.size() == 1 && !is_apart[id])
      token_of_byte_[static_cast<unsigned char>(token[0])] = id;
    if (rules_.ignore_merges && !is_apart[id]) whole_.emplace(token, id);
    ++id;
  }
}

Bpe::~Bpe() = default;

std::unique_ptr<Bpe::Scratch> Bpe::make_scratch() const {
  auto scratch = std::make_unique<Scratch>();
  for (const SplitPattern& split : rules_.splits) scratch->splitters.emplace_back(split);
  return scratch;
}

// Calls rest() with what lies between added tokens.
template <class Rest>
void Bpe::take_added(const Finder& finder, std::string_view text, std::vector<std::int32_t>& out,
                     Rest rest) const {
  if (finder.tokens.empty()) return rest(text);
  while (!text.empty()) {
    std::size_t at = 0;
    const AddedToken* token = finder.find(text, at);
    if (at > 0) rest(text.substr(0, at));
    if (!token) return;
    out.push_back(token->id);
    text.remove_prefix(at + token->text.size());
  }
}

void Bpe::encode(std::string_view text, std::vector<std::int32_t>& out) const {
  std::unique_ptr<Scratch> scratch = pool_.borrow([&] { return make_scratch(); });
  scratch->cache.expect(text.size());
  take_added(raw_, text, out, [&](std::string_view part) {
    std::string composed;
    if (rules_.nfc) part = composed = to_nfc(part);
    take_added(normalised_, part, out,
               [&](std::string_view last) { encode_part(last, 0, *scratch, out); });
  });
  pool_.give_back(std::move(scratch));
}

void Bpe::encode_part(std::string_view part, std::size_t split, Scratch& scratch,
                      std::vector<std::int32_t>& out) const {
  if (rules_.splits.empty()) return encode_piece(part, scratch, out);
  PieceSplitter& splitter = scratch.splitters[split];
  const bool is_last = split + 1 == rules_.splits.size();
  splitter.start(part);
  for (auto piece = splitter.next(); !piece.empty(); piece = splitter.next()) {
    if (is_last) {
      encode_piece(piece, scratch, out);
    } else {
      encode_part(piece, split + 1, scratch, out);
    }
  }
}

void Bpe::encode_piece(std::string_view piece, Scratch& scratch,
                       std::vector<std::int32_t>& out) const {
  PieceCache::Slot* slot = scratch.cache.slot_of(piece);
  if (slot && slot->holds(piece)) {
    out.insert(out.end(), slot->tokens, slot->tokens + slot->count);
    return;
  }
  std::vector<std::int32_t>& tokens = scratch.tokens;
  tokens.clear();
  const auto whole = rules_.ignore_merges ? whole_.find(piece) : whole_.end();
  if (whole != whole_.end()) {
    tokens.push_back(whole->second);
  } else {
    for (const char c : piece) tokens.push_back(token_of_byte_[static_cast<unsigned char>(c)]);
    if (piece.size() <= kShortPiece) {
      merge_short_piece(table_, tokens);
    } else {
      merge_long_piece(table_, tokens);
    }
  }
  if (slot) PieceCache::remember(*slot, piece, tokens);
  out.insert(out.end(), tokens.begin(), tokens.end());
}

std::string Bpe::decode(std::span<const std::int32_t> tokens) const {
  std::string text;
  for (const std::int32_t token : tokens) text += vocabulary_.tokens[token];
  return text;
}

}  // namespace laconic
