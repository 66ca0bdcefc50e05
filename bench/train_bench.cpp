// Speed of one training step in this process, in parts: forward and backward, norm, AdamW.
//
//   train_bench FAMILY LAYERS WIDTH HEADS TOKENS VOCABULARY BATCH DROPOUT STEPS
//
// FAMILY is gpt, llama (two heads of keys), bert, seq2seq or gnmt (as many layers in the decoder),
// or lstm, of which HEADS are the cells, with a recurrent projection where they are more than the
// width. Prints one JSON line: medians over the steps, in milliseconds, and the peak memory. The
// peer with the same arguments and output is bench/peers/torch_train.py; bench/run puts them side
// by side.
#include <ATen/Parallel.h>
#include <ATen/ops/arange.h>
#include <ATen/ops/rand.h>
#include <ATen/ops/randint.h>
#include <ATen/ops/zeros_like.h>
#include <fmt/format.h>

#include <algorithm>
#include <cstdlib>
#include <string>

#include "laconic/base/clock.hpp"
#include "laconic/base/denormals.hpp"
#include "laconic/base/target.hpp"
#include "laconic/runtime/stage.hpp"
#include "laconic/train/loop.hpp"
#include "laconic/update/optimiser.hpp"

namespace laconic {
namespace {

double median(std::vector<double> values) {
  std::sort(values.begin(), values.end());
  return values[values.size() / 2];
}

struct Times {
  std::vector<double> pass, norm, update, total;
};

void step(Weights& weights, OptimiserState& state, const Batch& batch, const Pass& pass,
          Times& times) {
  const Stopwatch watch;
  forward_backward(weights, batch, pass, 1);
  const double after_pass = watch.seconds();
  const double norm = global_norm(weights.parameters);
  const double after_norm = watch.seconds();
  apply({}, state, weights.parameters, 1e-4, norm > 1 ? 1 / norm : 1);
  const double after_update = watch.seconds();
  clear_gradients(weights);
  times.pass.push_back(1e3 * after_pass);
  times.norm.push_back(1e3 * (after_norm - after_pass));
  times.update.push_back(1e3 * (after_update - after_norm));
  times.total.push_back(1e3 * watch.seconds());
}

struct Sizes {
  std::int64_t layers, width, heads, tokens, vocabulary, batch;
};

Family family_of(const std::string& name, const Sizes& s) {
  if (name == "llama")
    return LlamaShape{.layers = s.layers,
                      .width = s.width,
                      .heads = s.heads,
                      .key_heads = 2,
                      .head_width = s.width / s.heads,
                      .hidden = (8 * s.width / 3 + 63) / 64 * 64,
                      .context = s.tokens,
                      .vocabulary = s.vocabulary};
  if (name == "bert")
    return BertShape{.layers = s.layers,
                     .width = s.width,
                     .heads = s.heads,
                     .hidden = 4 * s.width,
                     .context = s.tokens,
                     .vocabulary = s.vocabulary};
  if (name == "seq2seq")
    return Seq2SeqShape{.layers = s.layers,
                        .decoder_layers = s.layers,
                        .width = s.width,
                        .heads = s.heads,
                        .hidden = 4 * s.width,
                        .context = s.tokens,
                        .target_context = s.tokens,
                        .vocabulary = s.vocabulary};
  if (name == "lstm")
    return LstmShape{
        .layers = s.layers,
        .width = s.width,
        .hidden = s.heads,
        .context = s.tokens,
        .vocabulary = s.vocabulary,
        .projection = s.heads > s.width ? LstmProjection::recurrent : LstmProjection::none};
  if (name == "gnmt")
    return GnmtShape{.layers = s.layers,
                     .decoder_layers = s.layers,
                     .width = s.width,
                     .context = s.tokens,
                     .target_context = s.tokens,
                     .vocabulary = s.vocabulary};
  return GptShape{.layers = s.layers,
                  .width = s.width,
                  .heads = s.heads,
                  .context = s.tokens,
                  .vocabulary = s.vocabulary};
}

// Random tokens. Samples that may be padded have half the context and more; a bert's have 15 % of
// their tokens hidden.
Batch random_batch(const Family& family, const Sizes& s) {
  const auto draw = [&](std::int64_t tokens) {
    return at::randint(s.vocabulary, {s.batch, tokens}, at::kLong);
  };
  const at::Tensor length = at::randint(s.tokens / 2, s.tokens + 1, {s.batch, 1}, at::kLong);
  if (std::holds_alternative<BertShape>(family)) {
    const at::Tensor ids = draw(s.tokens);
    const at::Tensor is_padding = at::arange(s.tokens, at::kLong).unsqueeze(0).ge(length);
    const at::Tensor is_shown = at::rand({s.batch, s.tokens}).ge(0.15).logical_or(is_padding);
    return {{"ids", ids},
            {"types", at::zeros_like(ids)},
            {"length", length},
            {"targets", ids.masked_fill(is_shown, kNoTarget)}};
  }
  if (translates(family))
    return {{"source", draw(s.tokens)},
            {"source_length", length},
            {"ids", draw(s.tokens)},
            {"targets", draw(s.tokens)}};
  const at::Tensor ids = draw(s.tokens + 1);
  return {{"ids", ids.narrow(1, 0, s.tokens).contiguous()},
          {"targets", ids.narrow(1, 1, s.tokens).contiguous()}};
}

int bench(char** argv) {
  const Sizes sizes{std::atoll(argv[2]), std::atoll(argv[3]), std::atoll(argv[4]),
                    std::atoll(argv[5]), std::atoll(argv[6]), std::atoll(argv[7])};
  const Family family = family_of(argv[1], sizes);
  const double dropout = std::atof(argv[8]);
  const int steps = std::atoi(argv[9]);
  Weights weights = make_weights(family, 1, at::TensorOptions().dtype(at::kFloat));
  OptimiserState state = make_optimiser_state(weights.parameters);
  std::vector<std::int64_t> names;
  for (std::int64_t s = 0; s < sizes.batch; ++s) names.push_back(s);
  Times times;
  for (int i = 0; i < steps + 2; ++i) {
    if (i == 2) times = {};  // the first two warm up
    step(weights, state, random_batch(family, sizes),
         {.dropout = dropout,
          .sample_keys = dropout_keys(1, i, names),
          .label_smoothing = translates(family) ? 0.1 : 0},
         times);
  }
  fmt::print(
      "{{\"threads\": {}, \"pass_ms\": {:.2f}, \"norm_ms\": {:.2f}, \"adamw_ms\": {:.2f}, "
      "\"step_ms\": {:.2f}, "
      "\"step_ms_least\": {:.2f}, \"step_ms_most\": {:.2f}, \"tokens_per_second\": {:.1f}, "
      "\"peak_mb\": {:.1f}}}\n",
      at::get_num_threads(), median(times.pass), median(times.norm), median(times.update),
      median(times.total), *std::min_element(times.total.begin(), times.total.end()),
      *std::max_element(times.total.begin(), times.total.end()),
      1e3 * static_cast<double>(sizes.batch * sizes.tokens) / median(times.total),
      static_cast<double>(peak_memory_bytes()) / 1e6);
  return 0;
}

}  // namespace
}  // namespace laconic

int main(int argc, char** argv) {
  if (argc != 10) {
    fmt::print(
        stderr,
        "usage: train_bench FAMILY LAYERS WIDTH HEADS TOKENS VOCABULARY BATCH DROPOUT STEPS\n");
    return 2;
  }
  laconic::flush_denormals();
  return laconic::bench(argv);
}
