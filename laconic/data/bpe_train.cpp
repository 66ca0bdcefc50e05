#include "laconic/data/bpe_train.hpp"

#include <fmt/format.h>

#include <queue>
#include <unordered_set>
#include <utility>

#include "laconic/base/error.hpp"
#include "laconic/data/byte_symbol.hpp"

namespace laconic {

void PieceCounts::add(std::string_view text) {
  splitter_.start(text);
  for (auto piece = splitter_.next(); !piece.empty(); piece = splitter_.next()) {
    const auto found = counts_.find(piece);
    if (found != counts_.end())
      ++found->second;
    else
      counts_.emplace(piece, 1);
  }
}

namespace {

constexpr std::int64_t kLeastCount = 2;

using Pair = std::uint64_t;  // left id << 32 | right id: compares as the pair of ids does

Pair pair_of(std::int32_t left, std::int32_t right) {
  return Pair{static_cast<std::uint32_t>(left)} << 32 | static_cast<std::uint32_t>(right);
}

// Invariant between merges: uses_[p].count is how often p occurs in the words, weighted by how
// often these occur, and uses_[p].words names every word that holds p (and perhaps some that did).
// The heap has, for each pair, an entry of at least that count; one that is too high is corrected
// when it comes to the top.
class Trainer {
 public:
  explicit Trainer(const PieceCounts& pieces) {
    std::int32_t token_of_byte[256];
    for (const std::uint8_t byte : bytes_in_symbol_order())
      token_of_byte[byte] = token_for(std::string(1, static_cast<char>(byte)));
    for (const auto& [piece, count] : pieces.counts()) {
      Word word{{}, count};
      for (const char c : piece)
        word.tokens.push_back(token_of_byte[static_cast<unsigned char>(c)]);
      words_.push_back(std::move(word));
    }
    for (std::uint32_t i = 0; i < words_.size(); ++i) count_pairs(i, kAny);
    push_grown();
  }

  // False when no pair is frequent enough.
  bool learn_until(std::size_t token_count) {
    while (vocabulary_.tokens.size() < token_count) {
      if (heap_.empty()) return false;
      const Candidate top = heap_.top();
      heap_.pop();
      const std::int64_t count = uses_[top.pair].count;
      if (count < kLeastCount) continue;
      if (count == top.count)
        merge(top.pair);
      else
        heap_.push({count, top.pair});
    }
    return true;
  }

  BpeVocabulary finish() && {
    vocabulary_.end_of_text = token_for(std::string(kEndOfText));
    return std::move(vocabulary_);
  }

 private:
  static constexpr std::int32_t kAny = -1;
  struct Word {
    std::vector<std::int32_t> tokens;
    std::int64_t count = 0;
  };
  struct Uses {
    std::int64_t count = 0;
    std::vector<std::uint32_t> words;
  };
  struct Candidate {
    std::int64_t count;
    Pair pair;
    bool operator<(const Candidate& other) const {  // the heap's top is the largest
      return count != other.count ? count < other.count : pair > other.pair;
    }
  };

  // Two different merges may spell the same token ("a" "bc" and "ab" "c"): it has one id.
  std::int32_t token_for(const std::string& bytes) {
    const auto next = static_cast<std::int32_t>(vocabulary_.tokens.size());
    const auto [entry, is_new] = id_of_.emplace(bytes, next);
    if (is_new) vocabulary_.tokens.push_back(bytes);
    return entry->second;
  }

  void uncount_pairs(const Word& word) {
    for (std::size_t i = 0; i + 1 < word.tokens.size(); ++i)
      uses_[pair_of(word.tokens[i], word.tokens[i + 1])].count -= word.count;
  }

  // Only pairs with `fresh` can be new to the word (kAny: all can).
  void count_pairs(std::uint32_t index, std::int32_t fresh) {
    const Word& word = words_[index];
    for (std::size_t i = 0; i + 1 < word.tokens.size(); ++i) {
      const std::int32_t left = word.tokens[i], right = word.tokens[i + 1];
      Uses& uses = uses_[pair_of(left, right)];
      uses.count += word.count;
      if (fresh != kAny && left != fresh && right != fresh) continue;
      grown_.insert(pair_of(left, right));
      if (uses.words.empty() || uses.words.back() != index) uses.words.push_back(index);
    }
  }

  void push_grown() {
    for (const Pair pair : grown_) heap_.push({uses_[pair].count, pair});
    grown_.clear();
  }

  void merge(Pair pair) {
    const auto left = static_cast<std::int32_t>(pair >> 32);
    const auto right = static_cast<std::int32_t>(pair & 0xffffffff);
    const std::int32_t product = token_for(vocabulary_.tokens[left] + vocabulary_.tokens[right]);
    // A pair can come back when its parts are spelled by a later merge; its rank stays the first.
    if (learned_.insert(pair).second) vocabulary_.merges.push_back({left, right, product});
    const std::vector<std::uint32_t> words = std::move(uses_[pair].words);
    uses_[pair].words.clear();
    for (const std::uint32_t index : words) {
      uncount_pairs(words_[index]);
      replace(words_[index].tokens, left, right, product);
      count_pairs(index, product);
    }
    push_grown();
  }

  static void replace(std::vector<std::int32_t>& tokens, std::int32_t left, std::int32_t right,
                      std::int32_t product) {
    std::size_t kept = 0;
    for (std::size_t i = 0; i < tokens.size(); ++i) {
      const bool is_pair = tokens[i] == left && i + 1 < tokens.size() && tokens[i + 1] == right;
      tokens[kept++] = is_pair ? product : tokens[i];
      if (is_pair) ++i;
    }
    tokens.resize(kept);
  }

  BpeVocabulary vocabulary_;
  std::unordered_map<std::string, std::int32_t> id_of_;
  std::vector<Word> words_;
  std::unordered_map<Pair, Uses> uses_;
  std::unordered_set<Pair> grown_;
  std::unordered_set<Pair> learned_;
  std::priority_queue<Candidate> heap_;
};

}  // namespace

BpeTraining train_bpe(const PieceCounts& pieces, std::int32_t vocabulary_size) {
  if (vocabulary_size < 257)
    throw ConfigError(fmt::format("a vocabulary of {} is too small: 256 bytes and {} are 257",
                                  vocabulary_size, kEndOfText));
  Trainer trainer(pieces);
  BpeTraining result;
  const bool is_full = trainer.learn_until(static_cast<std::size_t>(vocabulary_size) - 1);
  result.vocabulary = std::move(trainer).finish();
  if (!is_full)
    result.note = fmt::format(
        "the vocabulary has {} tokens, not {}: no further pair of neighbours occurs {} times",
        result.vocabulary.tokens.size(), vocabulary_size, kLeastCount);
  return result;
}

}  // namespace laconic
