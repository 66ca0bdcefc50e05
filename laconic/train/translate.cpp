#include "laconic/train/translate.hpp"

#include <ATen/ops/tensor.h>
#include <ATen/ops/zeros.h>
#include <fmt/format.h>

#include <algorithm>
#include <cmath>

#include "laconic/base/error.hpp"
#include "laconic/model/target_cache.hpp"

namespace laconic {

namespace {

// The hypotheses of one text.
struct Beam {
  std::vector<Translation> open;
  std::vector<Translation> ended;
};

// One more token for a hypothesis.
struct Extension {
  std::size_t beam = 0;
  std::size_t hypothesis = 0;  // of the beam
  std::int64_t id = 0;
  double log_probability = 0;  // of the whole
};

double score_of(const Translation& t, double penalty) {
  const auto length = static_cast<double>(t.ids.size() + (t.is_ended ? 1 : 0));
  return t.log_probability / std::pow(std::max(length, 1.0), penalty);
}

// The `count` best extensions of a beam's open hypotheses. `log_p`: a row for each.
std::vector<Extension> best_extensions(std::size_t beam, const std::vector<Translation>& open,
                                       const double* log_p, std::int64_t vocabulary,
                                       std::size_t count) {
  std::vector<Extension> all;
  for (std::size_t h = 0; h < open.size(); ++h)
    for (std::int64_t id = 0; id < vocabulary; ++id)
      all.push_back(
          {beam, h, id,
           open[h].log_probability + log_p[static_cast<std::int64_t>(h) * vocabulary + id]});
  count = std::min(count, all.size());
  const auto is_better = [](const Extension& a, const Extension& b) {
    if (a.log_probability != b.log_probability) return a.log_probability > b.log_probability;
    return a.hypothesis != b.hypothesis ? a.hypothesis < b.hypothesis : a.id < b.id;
  };
  std::partial_sort(all.begin(), all.begin() + static_cast<std::ptrdiff_t>(count), all.end(),
                    is_better);
  all.resize(count);
  return all;
}

// Those of all beams, one behind the other. `log_p`: a row for each open hypothesis. Half of what
// is found might be ends.
std::vector<Extension> best_extensions(const std::vector<Beam>& beams, const at::Tensor& log_p,
                                       std::size_t count) {
  std::vector<Extension> all;
  const std::int64_t vocabulary = log_p.size(1);
  const double* row = log_p.data_ptr<double>();
  for (std::size_t b = 0; b < beams.size(); ++b) {
    const std::vector<Translation>& open = beams[b].open;
    const std::vector<Extension> best = best_extensions(b, open, row, vocabulary, count);
    all.insert(all.end(), best.begin(), best.end());
    row += static_cast<std::int64_t>(open.size()) * vocabulary;
  }
  return all;
}

// Takes the extensions into the beam. Returns, for each hypothesis that is open now, the one that
// it continues.
std::vector<std::size_t> extend(Beam& beam, const std::vector<Extension>& best,
                                const TranslationRule& rule) {
  const auto width = static_cast<std::size_t>(rule.beam);
  std::vector<Translation> open;
  std::vector<std::size_t> from;
  for (std::size_t i = 0; i < best.size() && open.size() < width; ++i) {
    Translation next = beam.open[best[i].hypothesis];
    next.log_probability = best[i].log_probability;
    if (best[i].id == rule.end) {
      next.is_ended = true;
      if (i < width) beam.ended.push_back(std::move(next));  // others would not have been kept
    } else {
      next.ids.push_back(best[i].id);
      open.push_back(std::move(next));
      from.push_back(best[i].hypothesis);
    }
  }
  beam.open = std::move(open);
  if (beam.ended.size() >= width) beam.open.clear();
  return beam.open.empty() ? std::vector<std::size_t>{} : from;
}

Translation best_of(const Beam& beam, double penalty) {
  const std::vector<Translation>& all = beam.ended.empty() ? beam.open : beam.ended;
  return *std::ranges::max_element(all, {},
                                   [&](const Translation& t) { return score_of(t, penalty); });
}

TargetCache encode(const Weights& weights, const std::vector<std::vector<std::int64_t>>& sources,
                   const Pass& pass) {
  std::size_t longest = 0;
  const std::int64_t context = context_of(weights.family);
  for (const auto& source : sources) {
    LACONIC_ASSERT(!source.empty() && static_cast<std::int64_t>(source.size()) <= context,
                   fmt::format("a source of {} tokens, context {}", source.size(), context));
    longest = std::max(longest, source.size());
  }
  const auto rows = static_cast<std::int64_t>(sources.size());
  at::Tensor ids = at::zeros({rows, static_cast<std::int64_t>(longest)}, at::kLong);
  std::vector<std::int64_t> lengths;
  for (std::int64_t r = 0; r < rows; ++r) {
    const auto& source = sources[static_cast<std::size_t>(r)];
    std::ranges::copy(source, ids[r].data_ptr<std::int64_t>());
    lengths.push_back(static_cast<std::int64_t>(source.size()));
  }
  return encode_sources(weights, ids.to(weights.device()), at::tensor(lengths).to(weights.device()),
                        pass);
}

}  // namespace

std::vector<Translation> translate(const Weights& weights,
                                   const std::vector<std::vector<std::int64_t>>& sources,
                                   const TranslationRule& rule, const ModelRanks& ranks) {
  if (!translates(weights.family))
    throw ConfigError(fmt::format("this model ({}) translates nothing: only encoder-decoders do",
                                  to_text(weights.family)));
  if (sources.empty()) return {};
  const Pass pass{.grid = ranks.grid};
  TargetCache cache = encode(weights, sources, pass);
  std::vector<Beam> beams(sources.size());
  for (Beam& beam : beams) beam.open.push_back({});
  std::vector<std::int64_t> last(sources.size(), rule.begin);  // token of each row of the cache
  const std::int64_t context = target_context_of(weights.family);
  const std::int64_t most = rule.tokens > 0 ? std::min(rule.tokens, context) : context;
  for (std::int64_t t = 0; t < most && !last.empty(); ++t) {
    const at::Tensor log_p =
        read_targets(weights, at::tensor(last).to(weights.device()), cache, pass)
            .to(at::kCPU, at::kDouble)
            .log_softmax(-1)
            .contiguous();
    const std::vector<Extension> best =
        ranks.of_first(best_extensions(beams, log_p, static_cast<std::size_t>(2 * rule.beam)));
    std::vector<std::int64_t> rows;
    last.clear();
    std::int64_t first = 0;  // row of the beam's first hypothesis
    auto next = best.begin();
    for (Beam& beam : beams) {
      const auto open = static_cast<std::int64_t>(beam.open.size());
      if (open == 0) continue;
      const auto end =
          std::find_if(next, best.end(), [&](const Extension& e) { return e.beam != next->beam; });
      for (const std::size_t from : extend(beam, {next, end}, rule))
        rows.push_back(first + static_cast<std::int64_t>(from));
      for (const Translation& hypothesis : beam.open) last.push_back(hypothesis.ids.back());
      first += open;
      next = end;
    }
    if (!rows.empty()) select_rows(weights, cache, at::tensor(rows).to(weights.device()), pass);
  }
  std::vector<Translation> translations;
  for (const Beam& beam : beams) translations.push_back(best_of(beam, rule.length_penalty));
  return translations;
}

}  // namespace laconic
