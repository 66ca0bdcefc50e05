#include "laconic/train/host_measure.hpp"

#include <ATen/Parallel.h>
#include <ATen/ops/empty.h>
#include <ATen/ops/empty_like.h>
#include <ATen/ops/zeros.h>
#include <fmt/format.h>

#include <algorithm>
#include <cstring>
#include <limits>
#include <vector>

#include "laconic/base/clock.hpp"
#include "laconic/base/denormals.hpp"
#include "laconic/base/host_name.hpp"
#include "laconic/base/philox.hpp"
#include "laconic/codec/codec.hpp"
#include "laconic/codec/kernel/matrix.hpp"
#include "laconic/codec/subspace.hpp"
#include "laconic/tensor/gpu.hpp"
#include "laconic/train/pipeline_plan.hpp"
#include "laconic/update/optimiser.hpp"

namespace laconic {

namespace {

constexpr std::int64_t kRows = 1024, kColumns = 1024;  // 4 MiB: a block's gradient, about
constexpr std::int64_t kMatrices = 16;                 // more than caches hold
constexpr int kRounds = 3;                             // the best counts

template <class Act>
double best_seconds(const Act& act) {
  double best = std::numeric_limits<double>::infinity();
  for (int round = 0; round < kRounds; ++round) {
    const Stopwatch watch;
    act();
    best = std::min(best, watch.seconds());
  }
  return best;
}

template <class Act>
double bytes_per_second(const Act& act) {
  return 4.0 * kRows * kColumns / best_seconds(act);
}

// Forward and backward of all blocks with so many samples.
double pass_seconds(RunConfig config, std::int64_t samples, const Family& family,
                    const at::TensorOptions& options) {
  config.train.microbatch = samples;
  double seconds = 0;
  for (const BlockTimes& times : measure_blocks(config, family, options))
    seconds += times.forward + times.backward;
  return seconds;
}

// A pass of n samples takes (n + pass_samples) * work of a sample / rate: a line through a single
// sample and a microbatch, or, where nobody says how large these are, a rank's share of the batch.
void measure_passes(const RunConfig& config, const Family& family, const at::TensorOptions& options,
                    MeasuredRank& rank) {
  double work = 0;  // of a sample
  for (const BlockSpec& block : model_spec(family, config.model.context).blocks)
    work += 3 * block.multiply_adds;
  const std::int64_t samples =
      config.train.microbatch > 0 ? config.train.microbatch : config.local_batch();
  const double many = pass_seconds(config, samples, family, options);
  const double one = samples > 1 ? pass_seconds(config, 1, family, options) : many;
  const double more = samples > 1 ? (many - one) / static_cast<double>(samples - 1) : many;
  const double sample_seconds = std::max(more, many / (10.0 * static_cast<double>(samples)));
  if (sample_seconds <= 0) return;
  rank.multiply_adds_per_second = work / sample_seconds;
  rank.pass_samples = std::max(0.0, many / sample_seconds - static_cast<double>(samples));
}

// Of all parameters, which caches do not hold.
void measure_copies(MeasuredRank& rank) {
  const std::vector<float> from(static_cast<std::size_t>(kMatrices * kRows * kColumns), 1);
  std::vector<float> to(from.size());
  rank.copy_bytes_per_second =
      kMatrices * bytes_per_second([&] { std::memcpy(to.data(), from.data(), 4 * from.size()); });
}

void measure_codecs(MeasuredRank& rank) {
  const TensorSpec tensor{Dtype::f32, {kRows, kColumns}};
  std::vector<float> x(static_cast<std::size_t>(kRows * kColumns)), back(x.size());
  fill_normal(key_of(1), 0, 0.0, 1.0, std::span<float>(x));
  for (std::size_t i = 0; i < MeasuredRank::kCodecs.size(); ++i) {
    const CodecSpec codec = parse_codec(MeasuredRank::kCodecs[i]);
    std::vector<std::byte> payload(max_payload_bytes(codec, tensor));
    std::size_t size = 0;
    rank.encode[i] = bytes_per_second([&] {
      size = encode(codec, {tensor, x.data()}, {.seed = 1}, std::span(payload));
    });
    rank.decode[i] = bytes_per_second([&] {
      decode(codec, ByteView(payload).first(size), {.seed = 1}, {tensor, back.data()});
    });
  }
}

// Three products, as of a gradient that travels by power_sgd, and the factor between them.
void measure_factors(MeasuredRank& rank) {
  constexpr std::size_t kSide = kRows, kRank = 32;
  static_assert(kRows == kColumns);
  const ScopedDenormals flush(true);
  std::vector<float> matrix(kSide * kSide), right(kSide * kRank), left(kSide * kRank);
  fill_normal(key_of(2), 0, 0.0, 1.0, std::span<float>(matrix));
  fill_normal(key_of(3), 0, 0.0, 1.0, std::span<float>(right));
  std::vector<float> product(matrix.size());
  const double products = best_seconds([&] {
    kernel::multiply(matrix.data(), kSide, kSide, right.data(), kRank, left.data());
    kernel::multiply_transposed(matrix.data(), kSide, kSide, left.data(), kRank, right.data());
    kernel::multiply_factors(left.data(), kSide, right.data(), kSide, kRank, product.data());
  });
  rank.factors.product = 3.0 * kSide * kSide * kRank / products;
  fill_normal(key_of(3), 0, 0.0, 1.0, std::span<float>(left));
  const double columns = best_seconds([&] {
    right = left;
    orthonormalise(right.data(), kSide, kRank);
  });
  rank.factors.orthonormal = 2.0 * kSide * kRank * kRank / columns;
}

// On a GPU asking for the norm waits for the update before it.
void measure_updates(const at::TensorOptions& options, MeasuredRank& rank) {
  std::vector<Parameter> parameters;
  for (std::int64_t i = 0; i < kMatrices; ++i) {
    const auto zeros = [&] { return at::zeros({kRows, kColumns}, options.dtype(at::kFloat)); };
    parameters.push_back({.name = fmt::format("{}", i), .value = zeros(), .gradient = zeros()});
    parameters.back().gradient.fill_(1e-3);
    parameters.back().copy = parameters.back().value;
  }
  OptimiserState state = make_optimiser_state(parameters);
  (void)global_norm(parameters);
  const double seconds = best_seconds([&] {
    apply({}, state, parameters, 1e-4, 1);
    (void)global_norm(parameters);
  });
  rank.updates_per_second = static_cast<double>(kMatrices * kRows * kColumns) / seconds;
}

void measure_rank(const RunConfig& config, const Family& family, const at::TensorOptions& options,
                  MeasuredRank& rank) {
  measure_passes(config, family, options, rank);
  measure_copies(rank);
  measure_codecs(rank);
  measure_updates(options, rank);
  if (!rank.is_gpu) measure_factors(rank);
  if (rank.is_gpu) {
    rank.gpu_memory_bytes = static_cast<double>(examine_gpu(options.device().index()).total_bytes);
    // Those of the host say nothing about a GPU, whose codecs go about as copies do.
    rank.encode = rank.decode = {};
    const at::Tensor from = at::empty({kRows * kMatrices, kColumns}, options.dtype(at::kFloat)),
                     to = at::empty_like(from);
    rank.copy_bytes_per_second = kMatrices * bytes_per_second([&] {
                                   to.copy_(from);
                                   (void)to.view({-1})[0].item<float>();
                                 });
  }
}

}  // namespace

std::vector<MeasuredRank> measure_for_hosts(World& world, const RunConfig& config,
                                            const Family& family, const at::TensorOptions& options,
                                            std::int64_t memory_bytes, int cores) {
  MeasuredRank rank{.is_gpu = options.device().is_cuda(),
                    .cores = cores,
                    .threads = at::get_num_threads(),
                    .precision = config.run.precision,
                    .memory_bytes = static_cast<double>(memory_bytes)};
  const std::string name = host_name();
  std::memcpy(rank.host.data(), name.data(), std::min(name.size(), rank.host.size() - 1));
  std::vector<MeasuredRank> all = world.gather_values(rank);
  const std::vector<int> turns = turns_of(all);
  for (int turn = 0; turn <= std::ranges::max(turns); ++turn) {
    if (turns[static_cast<std::size_t>(world.rank())] == turn)
      measure_rank(config, family, options, rank);
    all = world.gather_values(rank);
  }
  return all;
}

}  // namespace laconic
