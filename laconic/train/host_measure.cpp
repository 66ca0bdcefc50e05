#include "laconic/train/host_measure.hpp"

#include <ATen/Parallel.h>
#include <ATen/ops/empty.h>
#include <ATen/ops/empty_like.h>

#include <algorithm>
#include <cstring>
#include <vector>

#include "laconic/base/clock.hpp"
#include "laconic/base/host_name.hpp"
#include "laconic/base/philox.hpp"
#include "laconic/codec/codec.hpp"
#include "laconic/tensor/gpu.hpp"
#include "laconic/train/pipeline_plan.hpp"

namespace laconic {

namespace {

constexpr std::int64_t kRows = 1024, kColumns = 1024;  // 4 MiB: a block's gradient, about
constexpr int kRounds = 3;                             // the best counts

template <class Act>
double bytes_per_second(const Act& act) {
  double best = 0;
  for (int round = 0; round < kRounds; ++round) {
    const Stopwatch watch;
    act();
    best = std::max(best, 4.0 * kRows * kColumns / watch.seconds());
  }
  return best;
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

void measure_codecs(MeasuredRank& rank) {
  const TensorSpec tensor{Dtype::f32, {kRows, kColumns}};
  std::vector<float> x(static_cast<std::size_t>(kRows * kColumns)), back(x.size());
  fill_normal(key_of(1), 0, 0.0, 1.0, std::span<float>(x));
  rank.copy_bytes_per_second =
      bytes_per_second([&] { std::memcpy(back.data(), x.data(), 4 * x.size()); });
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

void measure_rank(const RunConfig& config, const Family& family, const at::TensorOptions& options,
                  MeasuredRank& rank) {
  measure_passes(config, family, options, rank);
  measure_codecs(rank);
  if (rank.is_gpu) {
    rank.gpu_memory_bytes = static_cast<double>(examine_gpu(options.device().index()).total_bytes);
    // Those of the host say nothing about a GPU, whose codecs go about as copies do.
    rank.encode = rank.decode = {};
    const at::Tensor from = at::empty({kRows * 16, kColumns}, options.dtype(at::kFloat)),
                     to = at::empty_like(from);
    rank.copy_bytes_per_second = 16 * bytes_per_second([&] {
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
