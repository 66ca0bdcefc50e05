// Speed of the operations of model/ops.hpp, forward and backward, in float.
//
//   ops_bench ROUNDS
//
// Prints one JSON line: the least of the rounds, in milliseconds, by operation: what the machine
// can do, others being at work on it or not. The peer with the same operations, sizes and output is
// bench/peers/torch_ops.py; bench/run puts them side by side.
#include <ATen/Parallel.h>
#include <ATen/ops/arange.h>
#include <ATen/ops/ones.h>
#include <ATen/ops/outer.h>
#include <ATen/ops/randint.h>
#include <ATen/ops/randn.h>
#include <ATen/ops/tensor.h>
#include <fmt/format.h>

#include <algorithm>
#include <cstdlib>
#include <functional>

#include "laconic/base/clock.hpp"
#include "laconic/base/denormals.hpp"
#include "laconic/model/gpt.hpp"
#include "laconic/model/ops.hpp"

namespace laconic {
namespace {

constexpr std::int64_t kSamples = 8, kTokens = 256, kWidth = 384, kRows = kSamples * kTokens;

// Standard normals that want a gradient.
at::Tensor leaf(std::int64_t rows, std::int64_t columns) {
  return at::randn({rows, columns}).requires_grad_(true);
}

double least_ms(int rounds, const std::vector<at::Tensor>& leaves,
                const std::function<at::Tensor()>& operation) {
  const at::Tensor gradient = at::ones(operation().sizes());
  std::vector<double> times;
  for (int i = 0; i < rounds + 3; ++i) {
    const Stopwatch watch;
    operation().backward(gradient);
    if (i >= 3) times.push_back(1e3 * watch.seconds());  // the first three warm up
    for (at::Tensor x : leaves) x.mutable_grad() = at::Tensor();
  }
  return *std::min_element(times.begin(), times.end());
}

struct Attention {
  const char* name;
  AttentionShape shape;
  std::vector<std::int64_t> lengths;
  double dropout = 0;
};

void bench_attention(int rounds, const Attention& a) {
  const std::int64_t key_width = kWidth / a.shape.heads * a.shape.key_heads;
  const at::Tensor q = leaf(kRows, kWidth), k = leaf(kRows, key_width), v = leaf(kRows, key_width);
  const at::Tensor lengths = a.lengths.empty() ? at::Tensor() : at::tensor(a.lengths);
  const Dropout dropout{a.dropout, dropout_keys(1, 0, {0, 1, 2, 3, 4, 5, 6, 7})};
  fmt::print(", \"{}\": {:.3f}", a.name, least_ms(rounds, {q, k, v}, [&] {
               return attention(q, k, v, a.shape, lengths, dropout);
             }));
}

int bench(int rounds) {
  fmt::print("{{\"threads\": {}", at::get_num_threads());
  const auto print = [&](const char* name, const std::vector<at::Tensor>& leaves,
                         const std::function<at::Tensor()>& operation) {
    fmt::print(", \"{}\": {:.3f}", name, least_ms(rounds, leaves, operation));
  };
  const std::vector<std::int64_t> lengths = {256, 64, 192, 128, 224, 96, 160, 256};
  bench_attention(rounds, {"attention, causal", {kSamples, 6, 6, true}, {}});
  bench_attention(rounds, {"attention, causal, dropout 0.1", {kSamples, 6, 6, true}, {}, 0.1});
  bench_attention(rounds, {"attention, bidirectional", {kSamples, 6, 6, false}, {}});
  bench_attention(rounds, {"attention, bidirectional, padded", {kSamples, 6, 6, false}, lengths});
  bench_attention(rounds, {"attention, causal, 8 heads, 2 key heads", {kSamples, 8, 2, true}, {}});
  bench_attention(rounds, {"attention, crossed, padded", {kSamples, 6, 6, false}, lengths});
  const at::Tensor x = leaf(kRows, kWidth), weight = leaf(1, kWidth), shift = leaf(1, kWidth);
  // What a layer does with the stream: two norms, and two sums with what comes back from branches.
  print("stream", {x, weight, shift}, [&] {
    const Forked a = fork_layer_norm(x, weight.view({kWidth}), shift.view({kWidth}), 1e-5);
    const Forked b =
        add_layer_norm(a.beside, a.normed, {}, weight.view({kWidth}), shift.view({kWidth}), 1e-5);
    return dropout_add(b.beside, b.normed, {});
  });
  print("rms_norm", {x, weight}, [&] { return rms_norm(x, weight.view({kWidth}), 1e-5); });
  const at::Tensor angle = at::outer(at::arange(kTokens, at::kFloat), at::randn({32}));
  const at::Tensor cosines = angle.cos(), sines = angle.sin();
  print("rotate", {x}, [&] { return rotate(x, kSamples, 6, cosines, sines); });
  const at::Tensor gate = leaf(kRows, 1024), up = leaf(kRows, 1024);
  print("swiglu", {gate, up}, [&] { return swiglu(gate, up); });
  const at::Tensor hidden = leaf(kRows, 4 * kWidth);
  print("exact_gelu", {hidden}, [&] { return exact_gelu(hidden); });
  const at::Tensor head = leaf(8192, kWidth), targets = at::randint(8192, {kRows}, at::kLong);
  print("cross_entropy, smoothed", {x, head},
        [&] { return cross_entropy(x, head, targets, nullptr, 0.1); });
  fmt::print("}}\n");
  return 0;
}

}  // namespace
}  // namespace laconic

int main(int argc, char** argv) {
  if (argc != 2) {
    fmt::print(stderr, "usage: ops_bench ROUNDS\n");
    return 2;
  }
  laconic::flush_denormals();
  return laconic::bench(std::atoi(argv[1]));
}
