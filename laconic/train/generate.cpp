#include "laconic/train/generate.hpp"

#include <algorithm>
#include <cmath>
#include <numeric>
#include <stdexcept>

#include "laconic/base/philox.hpp"
#include "laconic/model/decode.hpp"

namespace laconic {

namespace {

// The first `count` ids by falling logit.
std::vector<std::int64_t> best_ids(std::span<const double> logits, std::size_t count) {
  std::vector<std::int64_t> ids(logits.size());
  std::iota(ids.begin(), ids.end(), 0);
  const auto by_logit = [&](std::int64_t a, std::int64_t b) {
    const double la = logits[static_cast<std::size_t>(a)], lb = logits[static_cast<std::size_t>(b)];
    return la != lb ? la > lb : a < b;
  };
  std::partial_sort(ids.begin(), ids.begin() + static_cast<std::ptrdiff_t>(count), ids.end(),
                    by_logit);
  ids.resize(count);
  return ids;
}

}  // namespace

std::int64_t pick_token(std::span<const double> logits, const SamplingRule& rule, double draw) {
  // With a NaN there is no order of logits to speak of.
  if (!std::all_of(logits.begin(), logits.end(), [](double x) { return std::isfinite(x); }))
    throw std::runtime_error("logits are not finite: the model is broken, perhaps it diverged");
  if (rule.temperature == 0) return best_ids(logits, 1)[0];
  const std::size_t count =
      rule.top_k > 0 ? std::min<std::size_t>(static_cast<std::size_t>(rule.top_k), logits.size())
                     : logits.size();
  const std::vector<std::int64_t> ids = best_ids(logits, count);
  std::vector<double> mass;  // exp((logit - largest) / temperature), most likely first
  for (const std::int64_t id : ids)
    mass.push_back(
        std::exp((logits[static_cast<std::size_t>(id)] - logits[static_cast<std::size_t>(ids[0])]) /
                 rule.temperature));
  const double total = std::accumulate(mass.begin(), mass.end(), 0.0);
  double kept = 0;
  std::size_t last = 0;  // tokens [0, last) are in
  while (last < mass.size() && (last == 0 || kept < rule.top_p * total)) kept += mass[last++];
  double left = draw * kept;
  for (std::size_t i = 0; i + 1 < last; ++i) {
    left -= mass[i];
    if (left < 0) return ids[i];
  }
  return ids[last - 1];
}

std::vector<std::int64_t> generate(const Weights& weights, const GenerateRequest& request,
                                   const std::function<bool(std::int64_t)>& each,
                                   const ModelRanks& ranks) {
  const auto context = static_cast<std::size_t>(context_of(weights.family));
  const Key key = derive(key_of(request.seed), "generate");
  std::vector<std::int64_t> text = request.prompt;
  Decoder decoder(weights, ranks.grid);
  std::size_t read =
      text.size() > context ? text.size() - context : 0;  // what the decoder has seen
  for (std::int64_t i = 0; i < request.tokens; ++i) {
    if (static_cast<std::size_t>(decoder.length()) + (text.size() - read) > context) {
      decoder.reset();
      read = text.size() - std::max<std::size_t>(1, context / 2);
    }
    const at::Tensor logits =
        decoder.read(std::span(text).subspan(read)).to(at::kCPU, at::kDouble).contiguous();
    read = text.size();
    const std::int64_t picked =
        pick_token({logits.data_ptr<double>(), static_cast<std::size_t>(logits.numel())},
                   request.rule, uniform_at(key, static_cast<std::uint64_t>(i)));
    const std::int64_t id = ranks.of_first(std::vector{picked}).front();
    if (id == request.stop) break;
    text.push_back(id);
    if (!each(id)) break;
  }
  text.erase(text.begin(), text.begin() + static_cast<std::ptrdiff_t>(request.prompt.size()));
  return text;
}

}  // namespace laconic
