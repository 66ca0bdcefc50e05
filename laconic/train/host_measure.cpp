#include "laconic/train/host_measure.hpp"

#include <ATen/Parallel.h>
#include <ATen/ops/empty.h>
#include <ATen/ops/empty_like.h>
#include <ATen/ops/zeros.h>
#include <fmt/format.h>

#include <algorithm>
#include <cstring>
#include <limits>
#include <optional>
#include <set>
#include <string>
#include <vector>

#include "laconic/base/clock.hpp"
#include "laconic/base/denormals.hpp"
#include "laconic/base/host_name.hpp"
#include "laconic/base/philox.hpp"
#include "laconic/base/text.hpp"
#include "laconic/checkpoint/resume.hpp"
#include "laconic/codec/codec.hpp"
#include "laconic/codec/kernel/matrix.hpp"
#include "laconic/codec/subspace.hpp"
#include "laconic/codec/transform_basis.hpp"
#include "laconic/config/model_family.hpp"
#include "laconic/link/link.hpp"
#include "laconic/tensor/gpu.hpp"
#include "laconic/train/pipeline_plan.hpp"
#include "laconic/update/optimiser.hpp"

namespace laconic {

namespace {

constexpr std::int64_t kRows = 1024, kColumns = 1024;  // 4 MiB: a block's gradient, about
constexpr std::int64_t kMatrices = 16;                 // more than caches hold
constexpr std::int64_t kFarSamples = 8;                // of a batch that has them
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

// Forward and backward: of all blocks, and of one block of each kind, which is what is computed.
struct PassSeconds {
  double of_all = 0;
  double of_each_kind = 0;
};

PassSeconds pass_seconds(RunConfig config, std::int64_t samples, const Family& family,
                         const at::TensorOptions& options) {
  config.train.microbatch = samples;
  const ModelSpec spec = model_spec(family, config.model.context);
  const std::vector<BlockTimes> times = measure_blocks(config, family, options);
  PassSeconds seconds;
  std::set<std::string> kinds;
  for (std::size_t b = 0; b < times.size(); ++b) {
    const double pass = times[b].forward + times[b].backward;
    seconds.of_all += pass;
    if (kinds.insert(spec.blocks[b].kind).second) seconds.of_each_kind += pass;
  }
  return seconds;
}

// A pass of n samples takes (n + pass_samples) * work of a sample / rate.
struct PassLine {
  double multiply_adds_per_second = 0;
  double pass_samples = 0;
  std::int64_t samples = 1;       // that were measured at once, of those of a microbatch
  std::int64_t microbatch = 1;    // or what is measured where nobody says how large
  double microbatch_seconds = 0;  // that it would have taken to measure that
};

// Through a single sample and a microbatch, or as much of it as there is time for. Where nobody
// says how large that is, a rank's share of the batch, but more than one or two samples: a line
// through neighbours is mostly noise.
PassLine measure_passes(const RunConfig& config, const Family& family,
                        const at::TensorOptions& options, double longest_seconds) {
  double work = 0;  // of a sample
  for (const BlockSpec& block : model_spec(family, config.model.context).blocks)
    work += 3 * block.multiply_adds;
  PassLine line{.microbatch = config.train.microbatch > 0
                                  ? config.train.microbatch
                                  : std::max(config.local_batch(),
                                             std::min(config.train.batch, kFarSamples))};
  (void)pass_seconds(config, 1, family, options);  // the first is slower: memory is new
  const PassSeconds one = pass_seconds(config, 1, family, options);
  const double sample_costs = kBlockTimings * one.of_each_kind;
  line.microbatch_seconds = static_cast<double>(line.microbatch) * sample_costs;
  line.samples =
      line.microbatch_seconds <= longest_seconds
          ? line.microbatch
          : std::max<std::int64_t>(1, static_cast<std::int64_t>(longest_seconds / sample_costs));
  const auto samples = static_cast<double>(line.samples);
  const double many =
      line.samples > 1 ? pass_seconds(config, line.samples, family, options).of_all : one.of_all;
  const double more = line.samples > 1 ? (many - one.of_all) / (samples - 1) : many;
  const double sample_seconds = std::max(more, many / (10.0 * samples));
  if (sample_seconds <= 0) return line;
  line.multiply_adds_per_second = work / sample_seconds;
  line.pass_samples = std::max(0.0, many / sample_seconds - samples);
  return line;
}

// "bfloat16: 5.4 GFLOP/s, a pass costs 0.3 samples more (8 samples, 2.1 s)"
std::string describe(RunPrecision precision, const PassLine& line, double seconds) {
  const std::string samples =
      line.samples == line.microbatch
          ? fmt::format("{} samples", line.samples)
          : fmt::format("{} of {} samples, which would take {}", line.samples, line.microbatch,
                        human_seconds(line.microbatch_seconds));
  return fmt::format("  {:<9}{:>9.4g} GFLOP/s, a pass costs {:.2g} samples more ({}; {})",
                     name_in(kRunPrecisionNames, precision), 2e-9 * line.multiply_adds_per_second,
                     line.pass_samples, samples, human_seconds(seconds));
}

// Those that the device can train in, and that differ there: tf32 is float32 on a processor.
std::vector<RunPrecision> precisions_on(const RunConfig& config, int local_rank) {
  if (!config.run.device.is_cuda())
    return {RunPrecision::float32, RunPrecision::bfloat16, RunPrecision::float64};
  const GpuFacts gpu = examine_gpu(tensor_options(config, local_rank).device().index());
  std::vector<RunPrecision> precisions;
  for (const Named<RunPrecision>& row : kRunPrecisionNames)
    if (check_gpu(gpu, {.bfloat16 = row.value == RunPrecision::bfloat16,
                        .tf32 = row.value == RunPrecision::tf32})
            .empty())
      precisions.push_back(row.value);
  return precisions;
}

PassRates measure_model(const HostMeasure& asked, const RunConfig& model) {
  const auto at = [](RunPrecision precision) { return static_cast<std::size_t>(precision); };
  const Family family = family_of(model, {});
  asked.tell(fmt::format("{}:", to_text(family)));
  PassRates rates;
  for (const RunPrecision precision : precisions_on(model, asked.local_rank)) {
    RunConfig config = model;
    config.run.precision = precision;
    const Stopwatch watch;
    const PassLine line = measure_passes(config, family, tensor_options(config, asked.local_rank),
                                         asked.longest_seconds);
    rates.multiply_adds_per_second[at(precision)] = line.multiply_adds_per_second;
    rates.pass_samples[at(precision)] = line.pass_samples;
    asked.tell(describe(precision, line, watch.seconds()));
  }
  if (model.run.device.is_cuda()) return rates;
  for (ByPrecision* numbers : {&rates.multiply_adds_per_second, &rates.pass_samples})
    (*numbers)[at(RunPrecision::tf32)] = (*numbers)[at(RunPrecision::float32)];
  return rates;
}

// Of all parameters, which caches do not hold.
void measure_copies(MeasuredRank& rank) {
  const std::vector<float> from(static_cast<std::size_t>(kMatrices * kRows * kColumns), 1);
  std::vector<float> to(from.size());
  rank.copy_bytes_per_second =
      kMatrices * bytes_per_second([&] { std::memcpy(to.data(), from.data(), 4 * from.size()); });
}

// Gradients are many matrices, which caches do not hold. Of a codec that learns from rows these are
// as wide as the model.
CodecRate measure_codec(const std::string& name, std::int64_t width) {
  const CodecSpec codec = parse_codec(name);
  const auto* transform = std::get_if<Transform>(&codec);
  const std::int64_t columns = transform != nullptr ? std::min(width, kColumns) : kColumns;
  const TensorSpec tensor{Dtype::f32, {kRows * kColumns / columns, columns}};
  const auto elements = static_cast<std::size_t>(tensor.shape[0] * columns);
  std::vector<float> all(kMatrices * elements);
  fill_normal(key_of(1), 0, 0.0, 1.0, std::span<float>(all));
  CodecInput input{.seed = 1};
  std::optional<TransformBasis> basis;
  if (transform != nullptr)
    basis = make_basis(all.data(), static_cast<std::size_t>(tensor.shape[0]),
                       static_cast<std::size_t>(columns), transform->bits, 1);
  if (basis) input.transform = &*basis;
  std::vector<std::byte> payload(max_payload_bytes(codec, tensor));
  std::size_t size = 0;
  const auto rate_of = [&](const auto& act) {
    const double seconds = best_seconds([&] {
      for (std::int64_t i = 0; i < kMatrices; ++i)
        act(i, all.data() + i * std::ssize(all) / kMatrices);
    });
    return 4.0 * static_cast<double>(all.size()) / seconds;
  };
  CodecRate rate{.codec = name};
  rate.encode = rate_of([&](std::int64_t, const float* x) {
    size = encode(codec, {tensor, x}, input, std::span(payload));
  });
  std::vector<Sender> senders;
  const LinkSpec link{.name = "measured", .codec = codec, .memory = ErrorFeedback{}};
  for (std::int64_t i = 0; i < kMatrices && check(link).empty(); ++i) senders.emplace_back(link);
  std::uint64_t step = 0;
  if (!senders.empty())
    rate.feedback = rate_of([&](std::int64_t i, const float* x) {
      Sender& sender = senders[static_cast<std::size_t>(i)];
      sender.begin(++step);
      (void)sender.pack({tensor, x});
      sender.commit();
    });
  rate.decode = rate_of([&](std::int64_t i, const float*) {
    decode(codec, ByteView(payload).first(size), input,
           {tensor, all.data() + i * std::ssize(all) / kMatrices});
  });
  return rate;
}

void measure_codecs(std::int64_t width, MeasuredRank& rank) {
  for (std::size_t i = 0; i < MeasuredRank::kCodecs.size(); ++i) {
    const CodecRate rate = measure_codec(MeasuredRank::kCodecs[i], width);
    rank.encode[i] = rate.encode;
    rank.decode[i] = rate.decode;
    rank.feedback[i] = rate.feedback;
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

void measure_rank(const HostMeasure& asked, MeasuredRank& rank) {
  const RunConfig& own = asked.models.front();
  for (const RunConfig& model : asked.models) {
    const auto kind = static_cast<std::size_t>(model.model.kind);
    PassRates& rates = &model == &own ? rank.passes : rank.families[kind];
    rates = measure_model(asked, model);
  }
  asked.tell("copies, codecs, updates and factors");
  const at::TensorOptions options = tensor_options(own, asked.local_rank);
  measure_copies(rank);
  measure_codecs(own.model.width, rank);
  measure_updates(options, rank);
  if (!rank.is_gpu) measure_factors(rank);
  if (rank.is_gpu) {
    rank.gpu_memory_bytes = static_cast<double>(examine_gpu(options.device().index()).total_bytes);
    // Those of the host say nothing about a GPU, whose codecs go about as copies do.
    rank.encode = rank.decode = rank.feedback = {};
    const at::Tensor from = at::empty({kRows * kMatrices, kColumns}, options.dtype(at::kFloat)),
                     to = at::empty_like(from);
    rank.copy_bytes_per_second = kMatrices * bytes_per_second([&] {
                                   to.copy_(from);
                                   (void)to.view({-1})[0].item<float>();
                                 });
  }
}

}  // namespace

std::vector<MeasuredRank> measure_for_hosts(World& world, const HostMeasure& asked) {
  MeasuredRank rank{.is_gpu = asked.models.front().run.device.is_cuda(),
                    .cores = asked.cores,
                    .threads = at::get_num_threads(),
                    .memory_bytes = static_cast<double>(asked.memory_bytes)};
  const std::string name = host_name();
  std::memcpy(rank.host.data(), name.data(), std::min(name.size(), rank.host.size() - 1));
  HostMeasure mine = asked;
  if (!world.is_first()) mine.tell = [](const std::string&) {};
  std::vector<MeasuredRank> all = world.gather_values(rank);
  const std::vector<int> turns = turns_of(all);
  const int last = std::ranges::max(turns);
  for (int turn = 0; turn <= last; ++turn) {
    if (turn > 0) mine.tell(fmt::format("ranks of turn {} of {}", turn + 1, last + 1));
    if (turns[static_cast<std::size_t>(world.rank())] == turn) measure_rank(mine, rank);
    all = world.gather_values(rank);
  }
  return all;
}

}  // namespace laconic
