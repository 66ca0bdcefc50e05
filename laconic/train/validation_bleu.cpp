#include "laconic/train/validation_bleu.hpp"

#include <ATen/ops/tensor.h>
#include <ATen/ops/zeros.h>
#include <fmt/format.h>

#include <algorithm>

#include "laconic/model/target_cache.hpp"

namespace laconic {

namespace {

constexpr std::int64_t kMostTogether = 64;
// A replica whose texts have ended waits for the others no longer than these take them.
constexpr int kTokensBetweenSigns = 8;
// Evaluation has used the numbers from 0 on.
constexpr std::uint64_t kFirstMessage = std::uint64_t{1} << 23;

std::string decoded(const Tokeniser& tokeniser, const std::vector<std::int64_t>& ids) {
  std::vector<std::int32_t> known;
  for (const std::int64_t id : ids)
    if (id < tokeniser.vocabulary_size()) known.push_back(static_cast<std::int32_t>(id));
  return tokeniser.decode(known);
}

at::Tensor ids_tensor(const std::vector<std::int64_t>& ids, const Weights& weights) {
  return at::tensor(ids, at::kLong).to(weights.device());
}

// Texts that the ranks of one replica write together. Every rank knows all tokens; what it has of
// the model it uses.
class Writing {
 public:
  Writing(const Weights& weights, Pipeline& pipeline, TensorGrid* grid, const TokenLists& sources,
          const TranslationRule& rule, std::uint64_t& message)
      : weights_(weights),
        pipeline_(pipeline),
        pass_{.grid = grid},
        rule_(rule),
        message_(message),
        texts_(sources.size()),
        last_(sources.size(), rule.begin) {
    for (std::size_t t = 0; t < sources.size(); ++t) open_.push_back(t);
    if (!sources.empty()) encode(sources);
  }

  bool is_open() const { return !open_.empty(); }
  const TokenLists& texts() const { return texts_; }

  // The likeliest token of each open text, where the last stage is, and of a grid the first rank;
  // elsewhere nothing.
  std::vector<std::int64_t> choose() {
    if (open_.empty()) return {};
    const at::Tensor ids = ids_tensor(last_, weights_);
    const at::Tensor row = ids.view({-1, 1});
    const Seam out = pipeline_.forward({{"source", row}, {"ids", row}}, message_++,
                                       [&](std::int64_t block, const Seam& in) {
                                         return read_block(weights_, block, in, ids, cache_, pass_);
                                       });
    ++cache_.length;
    std::vector<std::int64_t> best;
    if (out.empty() || !speaks()) return best;
    const at::Tensor logits = out[0].to(at::kCPU, at::kDouble).contiguous();
    const double* row_begin = logits.data_ptr<double>();
    for (std::int64_t r = 0; r < logits.size(0); ++r, row_begin += logits.size(1))
      best.push_back(std::max_element(row_begin, row_begin + logits.size(1)) - row_begin);
    return best;
  }

  // Adds a token to each open text.
  void add(const std::vector<std::int64_t>& ids) {
    std::vector<std::size_t> open;
    std::vector<std::int64_t> rows;
    last_.clear();
    for (std::size_t r = 0; r < ids.size(); ++r) {
      if (ids[r] == rule_.end) continue;
      texts_[open_[r]].push_back(ids[r]);
      open.push_back(open_[r]);
      rows.push_back(static_cast<std::int64_t>(r));
      last_.push_back(ids[r]);
    }
    open_ = std::move(open);
    if (cache_.length >= target_context_of(weights_.family))
      open_.clear();  // there is no room left
    if (is_open() && rows.size() < ids.size())
      select_rows(weights_, cache_, ids_tensor(rows, weights_), pass_);
  }

 private:
  bool speaks() const {
    return pass_.grid == nullptr ||
           pass_.grid->index({kTensorAxes.begin(), kTensorAxes.end()}) == 0;
  }

  void encode(const TokenLists& sources) {
    std::size_t longest = 0;
    for (const auto& source : sources) longest = std::max(longest, source.size());
    const auto rows = static_cast<std::int64_t>(sources.size());
    at::Tensor ids = at::zeros({rows, static_cast<std::int64_t>(longest)}, at::kLong);
    std::vector<std::int64_t> lengths;
    for (std::int64_t r = 0; r < rows; ++r) {
      const auto& source = sources[static_cast<std::size_t>(r)];
      std::ranges::copy(source, ids[r].data_ptr<std::int64_t>());
      lengths.push_back(static_cast<std::int64_t>(source.size()));
    }
    ids = ids.to(weights_.device());
    const at::Tensor length = ids_tensor(lengths, weights_);
    cache_ = make_target_cache(weights_, ids, length);
    const Batch batch{{"source", ids},
                      {"source_length", length.view({-1, 1})},
                      {"ids", at::zeros({rows, 1}, ids.options())}};
    pipeline_.forward(batch, message_++, [&](std::int64_t block, const Seam& in) {
      return encode_block(weights_, block, in, batch, cache_, pass_);
    });
  }

  const Weights& weights_;
  Pipeline& pipeline_;
  Pass pass_;
  TranslationRule rule_;
  std::uint64_t& message_;
  TargetCache cache_;
  TokenLists texts_;
  std::vector<std::size_t> open_;   // by row: which text
  std::vector<std::int64_t> last_;  // by row: its last token
};

ByteView bytes_of(const std::vector<std::int64_t>& ids) {
  return as_bytes(std::span<const std::int64_t>(ids));
}

std::vector<std::int64_t> ids_in(const Bytes& bytes) {
  std::vector<std::int64_t> ids;
  for (std::size_t at = 0; at < bytes.size(); at += sizeof(std::int64_t))
    ids.push_back(get<std::int64_t>(bytes, at));
  return ids;
}

// Writes until no replica has an open text, one rank of each choosing: all gather equally often.
void write_by_choosers(Writing& writing, World& world) {
  for (bool is_anybody_open = true; is_anybody_open;) {
    const std::vector<Bytes> all = world.gather(bytes_of(writing.choose()));
    is_anybody_open = false;
    for (std::size_t r = 0; r < all.size(); ++r) {
      is_anybody_open |= !all[r].empty();
      if (coord_of(world.mesh(), static_cast<Rank>(r)).dp == world.dp_member() && !all[r].empty())
        writing.add(ids_in(all[r]));
    }
  }
}

// Every rank chooses its own tokens, until no replica has an open text.
void write_in_replicas(Writing& writing, World& world) {
  for (bool is_anybody_open = true; is_anybody_open;) {
    for (int token = 0; token < kTokensBetweenSigns && writing.is_open(); ++token)
      writing.add(writing.choose());
    is_anybody_open = false;
    for (const std::uint8_t is_open : world.gather_values<std::uint8_t>(writing.is_open() ? 1 : 0))
      is_anybody_open |= is_open != 0;
  }
}

TokenLists write_together(const Weights& weights, Pipeline& pipeline, TensorGrid* grid,
                          const TokenLists& sources, const TranslationRule& rule,
                          std::uint64_t& message, World& world) {
  Writing writing(weights, pipeline, grid, sources, rule, message);
  world.replica().size() == 1 ? write_in_replicas(writing, world)
                              : write_by_choosers(writing, world);
  return writing.texts();
}

// Texts as one list: of each its size, then its ids.
std::vector<std::int64_t> flattened(const TokenLists& texts) {
  std::vector<std::int64_t> flat;
  for (const auto& text : texts) {
    flat.push_back(static_cast<std::int64_t>(text.size()));
    flat.insert(flat.end(), text.begin(), text.end());
  }
  return flat;
}

void append_texts(const std::vector<std::int64_t>& flat, TokenLists& texts) {
  for (auto at = flat.begin(); at != flat.end();) {
    const auto end = at + 1 + *at;
    texts.emplace_back(at + 1, end);
    at = end;
  }
}

// What all replicas wrote, replica by replica; the first rank of each speaks for it.
void append_all(const TokenLists& mine, World& world, TokenLists& all) {
  const bool speaks = world.is_first_of_replica();
  for (const Bytes& bytes :
       world.gather(bytes_of(speaks ? flattened(mine) : std::vector<std::int64_t>())))
    append_texts(ids_in(bytes), all);
}

}  // namespace

TranslationRule translation_rule(const Dataset& data, std::int64_t beam) {
  const SpecialTokens& special = set_in(data).special;
  const std::int64_t end = special.eos >= 0 ? special.eos : special.sep;
  const std::int64_t begin = special.eos >= 0 ? special.bos : special.cls;
  return {.beam = beam, .begin = begin >= 0 ? begin : end, .end = end};
}

TokenLists sources_of(const Dataset& data, std::int64_t first, std::int64_t end) {
  const auto& records = std::get<RecordDataset>(data);
  const auto most = static_cast<std::size_t>(records.context() - 1);
  TokenLists sources;
  for (std::int64_t s = first; s < end; ++s) {
    std::vector<std::int64_t> source = records.part(static_cast<std::uint64_t>(s), 0);
    source.resize(std::min(source.size(), most));
    source.push_back(translation_rule(data, 1).end);
    sources.push_back(std::move(source));
  }
  return sources;
}

Bleu bleu_of(const Dataset& data, const Tokeniser& tokeniser, const TokenLists& translations) {
  const auto& records = std::get<RecordDataset>(data);
  std::vector<std::string> texts;
  std::vector<std::vector<std::string>> references;
  for (std::size_t s = 0; s < translations.size(); ++s) {
    texts.push_back(decoded(tokeniser, translations[s]));
    references.push_back({decoded(tokeniser, records.part(s, 1))});
  }
  return bleu(texts, references);
}

TokenLists translate_samples(const Weights& weights, Pipeline& pipeline, const Dataset& data,
                             const TranslateRequest& request, World& world) {
  const TranslationRule rule = translation_rule(data, 1);
  const std::int64_t replicas = world.mesh().dp, samples = request.samples;
  const std::int64_t most = replicas * std::min(kMostTogether, request.microbatch);
  std::uint64_t message = kFirstMessage;
  TokenLists all;
  if (request.grid != nullptr) request.grid->set_exact(true);
  for (std::int64_t first = 0; first < samples; first += most) {
    // Equal shares of what is left, one replica's behind the other's.
    const std::int64_t together = std::min(most, samples - first);
    const std::int64_t share = (together + replicas - 1) / replicas;
    const std::int64_t begin = std::min(world.dp_member() * share, together);
    const std::int64_t end = std::min(begin + share, together);
    append_all(write_together(weights, pipeline, request.grid,
                              sources_of(data, first + begin, first + end), rule, message, world),
               world, all);
  }
  if (request.grid != nullptr) request.grid->set_exact(false);
  return all;
}

ValidationBleu::ValidationBleu(const std::string& prefix, World& world) {
  const std::string folder = tokeniser_folder_of(prefix);
  const std::string is_there = world.decide_on_rank_0([&] {
    if (has_tokeniser(folder)) tokeniser_.emplace(load_tokeniser(folder));
    return std::string(tokeniser_ ? "yes" : "");
  });
  if (is_there.empty())
    why_not_ =
        fmt::format("no BLEU: {} does not exist, the tokeniser of the validation set", folder);
}

std::optional<double> ValidationBleu::measure(const Weights& weights, Pipeline& pipeline,
                                              const Dataset& data, const TranslateRequest& request,
                                              World& world) const {
  if (!why_not_.empty()) return std::nullopt;
  const TokenLists translations = translate_samples(weights, pipeline, data, request, world);
  if (!tokeniser_) return std::nullopt;
  return bleu_of(data, *tokeniser_, translations).score;
}

}  // namespace laconic
