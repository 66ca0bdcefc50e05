// Codecs that lose nothing change nothing of a model over 1, 2 and 4 tensor-parallel ranks, neither
// its loss nor any gradient; what others send is as long as closed formulas say; and codes keep
// their decoders alike.
#include <fmt/format.h>
#include <gtest/gtest.h>

#include <cmath>
#include <map>
#include <mutex>
#include <set>

#include "laconic/model/grid_ops.hpp"
#include "laconic/model/model.hpp"
#include "laconic/runtime/stage.hpp"
#include "laconic/update/optimiser.hpp"
#include "tensor_codec.hpp"

namespace laconic::tensor_codec {
namespace {

const Family kSmallModel =
    GptShape{.layers = 2, .width = 16, .heads = 4, .context = 6, .vocabulary = 16};
constexpr std::int64_t kTokens = 5;

Batch words(std::int64_t samples, std::uint64_t seed = 1) {
  const Tensor ids = normal({samples, kTokens}, seed).mul(1000).abs().to(at::kLong).remainder(11);
  return Batch{{"ids", ids}, {"targets", ids.roll(1, 1)}};
}

struct Passed {
  double loss = 0;
  std::map<std::string, Tensor> gradients;  // by name, of one process
};

Passed in_one_process(const Batch& batch, at::ScalarType type) {
  Weights weights = make_weights(kSmallModel, 7, at::TensorOptions().dtype(type), {}, kTokens);
  Passed passed{forward_backward(weights, batch, {}, 1.0), {}};
  for (const Parameter& p : weights.parameters) passed.gradients[p.name] = p.gradient.clone();
  return passed;
}

// The farthest that the loss and any gradient of a grid are from those of one process.
double distance_on_grid(const GridPlan& plan, const GridCodecs& codecs, const Batch& batch,
                        const Passed& wanted, at::ScalarType type) {
  double farthest = 0, loss = 0;
  std::size_t compared = 0;
  std::mutex mutex;
  on_ranks(plan, codecs, [&](TensorGrid& grid) {
    const GridPlace place{plan, grid.coord()};
    Weights weights =
        make_weights(kSmallModel, 7, at::TensorOptions().dtype(type), {}, kTokens, place);
    Pass pass;
    pass.grid = &grid;
    const double here = forward_backward(weights, batch, pass, 1.0);
    const std::lock_guard lock(mutex);
    loss += here;
    for (const Parameter& p : weights.parameters) {
      const ParameterSpec& spec = weights.spec.parameters[p.number];
      const auto found = wanted.gradients.find(p.name);
      if (found == wanted.gradients.end()) continue;  // of a code
      const Tensor part = shard_from(found->second, place, spec);
      farthest = std::max(farthest, distance_between(p.gradient, part.view(p.gradient.sizes())));
      ++compared;
    }
  });
  EXPECT_EQ(compared, wanted.gradients.size() * static_cast<std::size_t>(size(plan.mesh)));
  return std::max(farthest, std::abs(loss - wanted.loss));
}

GridPlan ranks_of(int t) {
  return {TensorMethod::one_d, {.tp = {1, t, 1}}, TableCut::split};
}

GridCodecs forward_and_back(const GridCodec& codec) {
  return [=](const GridSite& site, GridCall) {
    return site.traffic == Traffic::tp_activation || site.traffic == Traffic::tp_gradient
               ? codec
               : GridCodec();
  };
}

// "gathered " before a codec: its sums are in the all-gather form.
GridCodec codec_named(std::string text) {
  const bool is_gathered = text.starts_with("gathered ");
  if (is_gathered) text = text.substr(text.find(' ') + 1);
  return {.codec = parse_codec(text), .is_gathered = is_gathered};
}

// Every codec that keeps all elements, forward and back. One that keeps half of them is seen.
TEST(TensorIdentity, CodecsThatLoseNothingChangeNoGradient) {
  const Batch batch = words(8);
  const Passed whole = in_one_process(batch, at::kFloat);
  for (const int t : {1, 2, 4})
    for (const char* text :
         {"raw", "top_k:keep=1", "random_k:keep=1", "random_k:keep=1,unbiased=true",
          "low_rank:rank=16", "gathered top_k:keep=1"}) {
      SCOPED_TRACE(fmt::format("{} over {} ranks", text, t));
      EXPECT_LT(distance_on_grid(ranks_of(t), forward_and_back(codec_named(text)), batch, whole,
                                 at::kFloat),
                2e-5);
    }
  for (const char* text : {"top_k:keep=0.5", "random_k:keep=0.5", "low_rank:rank=2",
                           "quantise:bits=4,group=channel,scale=f16,grid=artefact"})
    EXPECT_GT(distance_on_grid(ranks_of(2), forward_and_back(codec_named(text)), batch, whole,
                               at::kFloat),
              1e-4)
        << text;
}

// Orthonormal maps of full width.
TEST(TensorIdentity, CodesOfFullWidthChangeNoGradient) {
  const Batch batch = words(8);
  const Passed whole = in_one_process(batch, at::kDouble);
  for (const int t : {2, 4}) {
    GridPlan plan = ranks_of(t);
    plan.codes = {
        .size = 16, .is_tied = false, .is_drawn = false, .blocks = {false, true, true, false}};
    EXPECT_LT(distance_on_grid(plan, {}, batch, whole, at::kDouble), 1e-11) << t;
    plan.codes.size = 8;
    EXPECT_GT(distance_on_grid(plan, {}, batch, whole, at::kDouble), 1e-6) << t;
  }
}

// Of a batch that is smaller than those before: nothing is cut to the size of another.
TEST(TensorIdentity, ASmallerLastBatchIsWhatItIs) {
  const GridPlan plan = ranks_of(2);
  const Passed last = in_one_process(words(3, 9), at::kFloat);
  std::mutex mutex;
  GridPlan coded = plan;
  coded.codes = {
      .size = 16, .is_tied = false, .is_drawn = false, .blocks = {false, true, true, false}};
  for (const bool has_codes : {false, true})
    on_ranks(has_codes ? coded : plan,
             has_codes ? GridCodecs() : forward_and_back(codec_named("top_k:keep=1")),
             [&](TensorGrid& grid) {
               const GridPlace place{has_codes ? coded : plan, grid.coord()};
               Weights weights = make_weights(kSmallModel, 7, at::TensorOptions().dtype(at::kFloat),
                                              {}, kTokens, place);
               Pass pass;
               pass.grid = &grid;
               forward_backward(weights, words(8), pass, 1.0);
               for (Parameter& p : weights.parameters) p.gradient.zero_();
               grid.begin(1, 0);
               forward_backward(weights, words(3, 9), pass, 1.0);
               const std::lock_guard lock(mutex);
               for (const Parameter& p : weights.parameters) {
                 const auto found = last.gradients.find(p.name);
                 if (found == last.gradients.end()) continue;
                 const Tensor part =
                     shard_from(found->second, place, weights.spec.parameters[p.number]);
                 EXPECT_LT(distance_between(p.gradient, part.view(p.gradient.sizes())), 2e-5)
                     << p.name << " codes " << has_codes;
               }
             });
}

// The gradient that enters a partial sum is the one that leaves the sum, bit for bit, whatever the
// sum lost, in either form: backward of a map does not read what forward sent.
TEST(TensorIdentity, StraightThroughIsSoToTheLastBit) {
  const GridPlan plan = ranks_of(2);
  const Tensor dy = normal({kRows, kOutputs}, 3);
  std::mutex mutex;
  std::map<int, Tensor> raw;
  for (const char* text :
       {"raw", "top_k:keep=0.1", "random_k:keep=0.1", "low_rank:rank=1",
        "quantise:bits=2,group=channel,scale=f16,grid=artefact", "quantise:bits=2,block=64",
        "gathered quantise:bits=2,group=channel,scale=f16,grid=artefact",
        "gathered top_k:keep=0.1"}) {
    const GridCodec codec = codec_named(text);
    on_ranks(plan, by_class(Traffic::tp_activation, codec), [&](TensorGrid& grid) {
      const LinearPlan way = linear_plan(plan, Role::down);
      const int me = grid.index({Axis::tp1});
      const Tensor x = part_of(grid, normal({kRows, kInputs}, 1), {}, {Axis::tp1}).requires_grad_();
      const Tensor w = part_of(grid, normal({kInputs, kOutputs}, 2), {Axis::tp1}, {});
      grid_products({grid, 1, 0}, way, x, {{.weight = w, .rows = {w.size(0)}}}, {kRows, 1},
                    nullptr)[0]
          .backward(dy);
      const std::lock_guard lock(mutex);
      const Tensor& wanted = raw.try_emplace(me, x.grad()).first->second;
      EXPECT_TRUE(x.grad().equal(wanted)) << text << " on rank " << me;
      EXPECT_TRUE(x.grad().equal(dy.matmul(w.t()))) << text << " on rank " << me;
    });
  }
}

// --- bytes

// What rank 0 sends for one sum of a matrix, forward.
Count sent_for_a_sum(int t, std::int64_t rows, std::int64_t columns, const GridCodec& codec) {
  Count count;
  const GridPlan plan = ranks_of(t);
  run_ranks(t, [&](Transport& transport) {
    Engine engine(transport);
    {
      ProgressThread progress_thread(engine);
      TensorGrid grid(progress_thread, plan, plan.mesh, transport.rank(),
                      by_class(Traffic::tp_activation, codec), 5);
      const Tensor x = normal({rows, columns}, 10 + static_cast<std::uint64_t>(transport.rank()));
      grid.sum(x, {Axis::tp1}, {.block = 1, .columns = static_cast<int>(columns)});
    }
    engine.flush();
    if (transport.rank() == 0) count = sent(engine.meter().read(), Traffic::tp_activation);
  });
  return count;
}

// In two steps: of N elements over t ranks, t - 1 messages of N / t elements go to their owners,
// and t - 1 with the sum come back: 2 (t - 1) payloads. Gathered, t - 1 messages have all of N, so
// that b bits are t b / 32 of an all-reduce of 16 (and the scales). A frame is what a raw message
// has beside its elements. Payloads by the formulas of the format: so no codec's own count is
// asked.
TEST(TensorIdentity, SumsAreAsLongAsClosedFormulasSay) {
  constexpr std::int64_t kMatrixRows = 64, kColumns = 32;
  const auto ceiling = [](double x) { return static_cast<std::uint64_t>(std::ceil(x)); };
  const struct {
    const char* text;
    std::int64_t parameters;                  // bytes of them in a frame
    std::function<double(double n)> payload;  // of n elements in whole rows
  } cases[] = {{"quantise:bits=2,group=channel,scale=f16,grid=artefact", 10,
                [](double n) { return n * 2 / 8 + 2 * kColumns; }},
               {"quantise:bits=4,group=channel,scale=f16,grid=artefact", 10,
                [](double n) { return n * 4 / 8 + 2 * kColumns; }},
               {"quantise:bits=8,group=channel,scale=f16,grid=artefact", 10,
                [](double n) { return n + 2 * kColumns; }},
               {"quantise:bits=2,block=64", 10, [](double n) { return n * 2 / 8 + 4 * n / 64; }},
               {"quantise:bits=4,block=64", 10, [](double n) { return n * 4 / 8 + 4 * n / 64; }},
               {"quantise:bits=8,block=64", 10, [](double n) { return n + 4 * n / 64; }},
               // Of a code, which a sum of 32 columns here is: halves.
               {"half:kind=f16", 1, [](double n) { return 2 * n; }},
               // The seed, and halves of the kept ones.
               {"random_k:keep=0.0469+half:kind=f16", 19,
                [&](double n) { return 8 + 2 * std::ceil(0.0469 * n); }}};
  for (const int t : {2, 4}) {
    const double whole = kMatrixRows * kColumns, part = whole / t;
    const auto others = static_cast<std::uint64_t>(t - 1);
    const Count raw = sent_for_a_sum(t, kMatrixRows, kColumns, {});
    ASSERT_EQ(raw.messages, 2 * others);
    const std::uint64_t frame = raw.wire_bytes / raw.messages - ceiling(4 * part);
    EXPECT_LT(frame, 200U);
    for (const auto& c : cases)
      for (const bool is_gathered : {false, true}) {
        const Count count = sent_for_a_sum(
            t, kMatrixRows, kColumns, {.codec = parse_codec(c.text), .is_gathered = is_gathered});
        ASSERT_EQ(count.messages, is_gathered ? others : 2 * others);
        EXPECT_EQ(count.raw_bytes, raw.raw_bytes) << "what would move instead";
        // Besides, the codec's parameters, and the second number of a matrix's shape.
        const auto beside =
            static_cast<std::int64_t>(count.wire_bytes / count.messages) -
            static_cast<std::int64_t>(frame + ceiling(c.payload(is_gathered ? whole : part)));
        EXPECT_TRUE(beside == c.parameters || beside == c.parameters + 8)
            << c.text << " over " << t << ": " << beside << " bytes";
      }
  }
}

// How short indices of top_k are depends on which they are: never longer than those of fixed width.
TEST(TensorIdentity, SumsOfTheLargestAreNoLongerThanIndicesOfFixedWidth) {
  constexpr std::int64_t kMatrixRows = 64, kColumns = 32;
  constexpr double kShare = 0.0469;
  for (const int t : {2, 4})
    for (const bool is_gathered : {false, true}) {
      const double n = kMatrixRows * kColumns / (is_gathered ? 1.0 : t);
      const double k = std::ceil(kShare * n), width = std::ceil(std::log2(n));
      const Count count = sent_for_a_sum(
          t, kMatrixRows, kColumns,
          {.codec = parse_codec("top_k:keep=0.0469+half:kind=f16"), .is_gathered = is_gathered});
      ASSERT_EQ(count.messages, static_cast<std::uint64_t>((is_gathered ? 1 : 2) * (t - 1)));
      const double each = static_cast<double>(count.wire_bytes / count.messages);
      constexpr double kLeastFrame = 40, kMostFrame = 120;
      EXPECT_GT(each, kLeastFrame + 2 * k) << "the values alone";
      EXPECT_LE(each, kMostFrame + 2 + std::ceil(k * width / 8) + 2 * k);
    }
}

// Gradients of activations are as long with and without a codec of activations.
TEST(TensorIdentity, BackwardIsAsLongWhateverForwardSends) {
  std::map<std::string, Count> first;
  for (const int t : {2, 4})
    for (const char* text : {"raw", "top_k:keep=0.05", "random_k:keep=0.05",
                             "quantise:bits=2,group=channel,scale=f16,grid=artefact"}) {
      const GridPlan plan = ranks_of(t);
      run_ranks(t, [&](Transport& transport) {
        Engine engine(transport);
        {
          ProgressThread progress_thread(engine);
          TensorGrid grid(progress_thread, plan, plan.mesh, transport.rank(),
                          by_class(Traffic::tp_activation, {.codec = parse_codec(text)}), 5);
          Weights weights = make_weights(kSmallModel, 7, at::TensorOptions().dtype(at::kFloat), {},
                                         kTokens, {plan, grid.coord()});
          Pass pass;
          pass.grid = &grid;
          forward_backward(weights, words(8), pass, 1.0);
        }
        engine.flush();
        static std::mutex mutex;
        const std::lock_guard lock(mutex);
        const MeterReading reading = engine.meter().read();
        const Count back = sent(reading, Traffic::tp_gradient);
        const std::string key = fmt::format("{} {}", t, transport.rank());
        const Count& wanted = first.try_emplace(key, back).first->second;
        EXPECT_EQ(back, wanted) << text << " rank " << key;
        EXPECT_GT(back.wire_bytes, 0U);
      });
    }
}

// --- sites

// Of L layers from `start` on, two sums a layer are encoded, the output projection's and the second
// map's; from L on none, and the model is that of raw messages to the bit.
TEST(TensorIdentity, TwoSumsOfEachChosenLayerAreEncoded) {
  constexpr std::int64_t kLayers = 2;
  const GridPlan plan = ranks_of(2);
  const Batch batch = words(8);
  std::vector<Tensor> raw;  // gradients of rank 0
  for (const std::int64_t start : {kLayers, std::int64_t{1}, std::int64_t{0}}) {
    std::mutex mutex;
    std::set<std::pair<std::int64_t, int>> sites;
    const GridCodecs codecs = [&](const GridSite& site, GridCall) {
      // Block 0 is the embedding.
      if (site.traffic != Traffic::tp_activation || site.is_small || site.block < 1 ||
          site.block > kLayers || site.block - 1 < start)
        return GridCodec();
      const std::lock_guard lock(mutex);
      sites.insert({site.block, site.place});
      return GridCodec{.codec = parse_codec("quantise:bits=2,block=64")};
    };
    std::vector<Tensor> gradients;
    on_ranks(plan, codecs, [&](TensorGrid& grid) {
      Weights weights = make_weights(kSmallModel, 7, at::TensorOptions().dtype(at::kFloat), {},
                                     kTokens, {plan, grid.coord()});
      Pass pass;
      pass.grid = &grid;
      forward_backward(weights, batch, pass, 1.0);
      const std::lock_guard lock(mutex);
      if (grid.index({Axis::tp1}) == 0)
        for (const Parameter& p : weights.parameters) gradients.push_back(p.gradient.clone());
    });
    EXPECT_EQ(sites.size(), static_cast<std::size_t>(2 * (kLayers - start))) << start;
    if (raw.empty()) raw = gradients;
    bool is_raw = true;
    for (std::size_t i = 0; i < raw.size(); ++i) is_raw = is_raw && raw[i].equal(gradients[i]);
    EXPECT_EQ(is_raw, start == kLayers);
    if (start == kLayers) {
      std::vector<Tensor> without;
      on_ranks(plan, {}, [&](TensorGrid& grid) {
        Weights weights = make_weights(kSmallModel, 7, at::TensorOptions().dtype(at::kFloat), {},
                                       kTokens, {plan, grid.coord()});
        Pass pass;
        pass.grid = &grid;
        forward_backward(weights, batch, pass, 1.0);
        const std::lock_guard lock(mutex);
        if (grid.index({Axis::tp1}) == 0)
          for (const Parameter& p : weights.parameters) without.push_back(p.gradient.clone());
      });
      for (std::size_t i = 0; i < raw.size(); ++i) EXPECT_TRUE(raw[i].equal(without[i]));
    }
  }
}

// --- codes

// Ours has one encoder for all ranks, where the paper's differ: both maps must stay alike.
TEST(TensorIdentity, MapsAreTheSameOnAllRanksAfterAHundredSteps) {
  GridPlan plan = ranks_of(4);
  plan.codes = {
      .size = 4, .is_tied = false, .is_drawn = true, .blocks = {false, true, true, false}};
  std::mutex mutex;
  std::map<std::string, Tensor> first, before;
  std::size_t compared = 0;
  on_ranks(plan, {}, [&](TensorGrid& grid) {
    Weights weights = make_weights(kSmallModel, 7, at::TensorOptions().dtype(at::kFloat), {},
                                   kTokens, {plan, grid.coord()});
    Pass pass;
    pass.grid = &grid;
    const auto maps = [&](const std::function<void(const Parameter&)>& act) {
      for (const Parameter& p : weights.parameters)
        if (weights.spec.parameters[p.number].code) act(p);
    };
    if (grid.index({Axis::tp1}) == 0)
      maps([&](const Parameter& p) { before[p.name] = p.value.detach().clone(); });
    for (std::uint64_t step = 0; step < 100; ++step) {
      for (Parameter& p : weights.parameters)
        if (p.gradient.defined()) p.gradient.zero_();
      grid.begin(step, 0);
      forward_backward(weights, words(2, step), pass, 1.0);
      for (Parameter& p : weights.parameters) p.value.detach().sub_(p.gradient, 0.05);
      refresh_copies(weights.parameters);
    }
    const std::lock_guard lock(mutex);
    maps([&](const Parameter& p) {
      const Tensor& wanted = first.try_emplace(p.name, p.value.detach().clone()).first->second;
      EXPECT_TRUE(p.value.detach().equal(wanted)) << p.name;
      ++compared;
    });
  });
  EXPECT_EQ(compared, 4 * first.size());
  EXPECT_GE(first.size(), 8U);  // two maps at two sites of two layers
  for (const auto& [name, value] : first) EXPECT_GT(distance_between(value, before.at(name)), 1e-5);
}

}  // namespace
}  // namespace laconic::tensor_codec
