#include "laconic/data/bpe.hpp"

#include <algorithm>
#include <bit>
#include <cstring>
#include <queue>
#include <utility>

#include "laconic/data/piece.hpp"

namespace laconic {

namespace {

constexpr std::size_t kShortPiece = 48;

std::uint64_t pack(std::int32_t left, std::int32_t right) {
  return std::uint64_t{static_cast<std::uint32_t>(left)} << 32 | static_cast<std::uint32_t>(right);
}

// Fibonacci hashing: the high bits of the product depend on all bits of the key.
std::uint64_t scatter(std::uint64_t key) {
  return key * 0x9E3779B97F4A7C15;
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

// Remembers the tokens of short pieces. Direct-mapped: a piece has one slot and evicts who is
// there, so the size is fixed and there is nothing to tune. A slot is one cache line.
class PieceCache {
 public:
  struct alignas(64) Slot {
    std::uint8_t bytes = 0;  // 0: free, since no piece is empty
    std::uint8_t count = 0;
    char piece[30];
    std::int32_t tokens[8];
  };

  // The piece's slot, which may hold another piece.
  Slot& slot_of(std::string_view piece) {
    std::uint64_t hash = piece.size();
    for (std::size_t i = 0; i < piece.size(); i += 8) {
      std::uint64_t word = 0;
      std::memcpy(&word, piece.data() + i, std::min<std::size_t>(8, piece.size() - i));
      hash = scatter(std::rotl(hash, 23) ^ word);
    }
    return slots_[hash >> (64 - kBits)];
  }
  static bool fits(std::string_view piece) { return piece.size() <= sizeof Slot::piece; }

 private:
  static constexpr int kBits = 16;
  std::vector<Slot> slots_ = std::vector<Slot>(std::size_t{1} << kBits);
};

bool holds(const PieceCache::Slot& slot, std::string_view piece) {
  return slot.bytes == piece.size() && std::memcmp(slot.piece, piece.data(), piece.size()) == 0;
}

void remember(PieceCache::Slot& slot, std::string_view piece,
              const std::vector<std::int32_t>& tokens) {
  if (tokens.size() > std::size(slot.tokens)) return;
  slot.bytes = static_cast<std::uint8_t>(piece.size());
  slot.count = static_cast<std::uint8_t>(tokens.size());
  std::copy(piece.begin(), piece.end(), slot.piece);
  std::copy(tokens.begin(), tokens.end(), slot.tokens);
}

}  // namespace

void merge_long_piece(const BpeMergeTable& table, std::vector<std::int32_t>& tokens) {
  LongPiece(table, tokens).merge_all();
}

struct Bpe::Scratch {
  PieceSplitter splitter;
  PieceCache cache;
  std::vector<std::int32_t> tokens;
};

Bpe::Bpe(BpeVocabulary vocabulary)
    : vocabulary_(std::move(vocabulary)), table_(vocabulary_.merges) {
  std::int32_t id = 0;
  for (const std::string& token : vocabulary_.tokens) {
    if (token.size() == 1) token_of_byte_[static_cast<unsigned char>(token[0])] = id;
    ++id;
  }
}

Bpe::~Bpe() = default;

std::unique_ptr<Bpe::Scratch> Bpe::borrow() const {
  const std::lock_guard lock(mutex_);
  if (pool_.empty()) return std::make_unique<Scratch>();
  std::unique_ptr<Scratch> scratch = std::move(pool_.back());
  pool_.pop_back();
  return scratch;
}

void Bpe::encode(std::string_view text, std::vector<std::int32_t>& out) const {
  std::unique_ptr<Scratch> scratch = borrow();
  scratch->splitter.start(text);
  for (auto piece = scratch->splitter.next(); !piece.empty(); piece = scratch->splitter.next())
    encode_piece(piece, *scratch, out);
  const std::lock_guard lock(mutex_);
  pool_.push_back(std::move(scratch));
}

void Bpe::encode_piece(std::string_view piece, Scratch& scratch,
                       std::vector<std::int32_t>& out) const {
  PieceCache::Slot* slot = nullptr;
  if (PieceCache::fits(piece)) {
    slot = &scratch.cache.slot_of(piece);
    if (holds(*slot, piece)) {
      out.insert(out.end(), slot->tokens, slot->tokens + slot->count);
      return;
    }
  }
  std::vector<std::int32_t>& tokens = scratch.tokens;
  tokens.clear();
  for (const char c : piece) tokens.push_back(token_of_byte_[static_cast<unsigned char>(c)]);
  if (piece.size() <= kShortPiece) {
    merge_short_piece(table_, tokens);
  } else {
    merge_long_piece(table_, tokens);
  }
  if (slot) remember(*slot, piece, tokens);
  out.insert(out.end(), tokens.begin(), tokens.end());
}

}  // namespace laconic
