// Times against closed forms: what a wire carries divided by its rate, and what overlaps.
#include "laconic/architecture/grid_time.hpp"

#include <gtest/gtest.h>

#include "laconic/architecture/grid_memory.hpp"

namespace laconic {
namespace {

constexpr double kTimedSamples = 8, kTimedTokens = 4, kTimedWidth = 16, kTimedLayers = 2,
                 kTimedVocabulary = 32;
constexpr double kTimedBsh = kTimedSamples * kTimedTokens * kTimedWidth,
                 kTimedSquare = kTimedWidth * kTimedWidth;
constexpr double kTimedRate = 1e6, kTimedFlops = 1e9;

ModelSpec timed_gpt() {
  return model_spec(GptShape{.layers = 2, .width = 16, .heads = 4, .context = 4, .vocabulary = 32},
                    4);
}
GridPlan timed_plan(TensorMethod method, std::array<int, 3> grid) {
  return {.method = method, .mesh = {.tp = grid}};
}
GridWire four_bytes_each(const GridTraffic& t) {
  return {.bytes = 4 * t.elements};
}

std::vector<GridBlockTime> timed_blocks(const GridPlan& plan, const GridMachine& machine,
                                        const GridPasses& passes = {.prefetches = false}) {
  return grid_times(timed_gpt(), plan, {.samples = 8}, machine, four_bytes_each, passes);
}
GridTime timed_step(const GridPlan& plan, const GridMachine& machine,
                    const GridPasses& passes = {.prefetches = false}) {
  return grid_step_time(timed_blocks(plan, machine, passes), 1, 0, machine);
}

// Multiply-adds of a layer: four maps, and the scores that a causal mask leaves.
constexpr double kLayerWork =
    kTimedSamples * kTimedTokens * (12 * kTimedSquare + kTimedTokens * kTimedWidth);
constexpr double kHeadWork = kTimedBsh * kTimedVocabulary;

TEST(GridTime, ComputingIsSixOperationsForAMultiplyAddSharedByAllRanks) {
  for (const auto& [method, grid] : {std::pair{TensorMethod::three_d, std::array{1, 1, 1}},
                                     {TensorMethod::three_d, {2, 2, 2}},
                                     {TensorMethod::one_d, {1, 4, 1}},
                                     {TensorMethod::two_d, {2, 2, 1}},
                                     {TensorMethod::two_and_half_d, {2, 2, 2}}}) {
    const GridPlan plan = timed_plan(method, grid);
    const GridTime step = timed_step(plan, {.flops_per_second = kTimedFlops});
    const double work = 6 * (kTimedLayers * kLayerWork + kHeadWork) / tp_size(plan.mesh);
    EXPECT_NEAR(step.compute, work / kTimedFlops, 1e-12) << to_text(plan.mesh);
    EXPECT_EQ(step.exposed_on_all(), 0);
    EXPECT_NEAR(step.total(), step.compute, 1e-15);
  }
}

TEST(GridTime, NormsTakeAsLongWithOneDAsWithoutAGrid) {
  constexpr double kNorms = 2 * kTimedLayers + 1;
  for (const auto& [plan, parts] : {std::pair{GridPlan{}, 1},
                                    {timed_plan(TensorMethod::one_d, {1, 4, 1}), 1},
                                    {timed_plan(TensorMethod::three_d, {2, 2, 2}), 8}}) {
    const GridTime step = timed_step(plan, {.elements_per_second = kTimedRate});
    EXPECT_NEAR(step.compute, kNorms * kTimedBsh / parts / kTimedRate, 1e-12) << to_text(plan.mesh);
  }
}

// Without anything to compute nothing can be hidden: bytes / rate, whatever is in the background.
TEST(GridTime, LinksAloneTakeTheirBytes) {
  for (const auto& [method, grid] : {std::pair{TensorMethod::three_d, std::array{2, 2, 2}},
                                     {TensorMethod::three_d, {4, 1, 1}},
                                     {TensorMethod::one_d, {1, 4, 1}},
                                     {TensorMethod::one_d_sequence, {1, 4, 1}},
                                     {TensorMethod::two_d, {2, 2, 1}},
                                     {TensorMethod::two_and_half_d, {2, 2, 2}}}) {
    const GridPlan plan = timed_plan(method, grid);
    const auto traffic = grid_traffic(timed_gpt(), plan, {.samples = 8});
    const GridTime step = timed_step(plan, {.bytes_per_second = kTimedRate});
    EXPECT_EQ(step.bytes, 4 * elements_of(traffic)) << to_text(plan.mesh);
    EXPECT_NEAR(step.total(), 4 * elements_of(traffic) / kTimedRate, 1e-9) << to_text(plan.mesh);
    int calls = 0;
    for (const GridTraffic& t : traffic) calls += t.calls;
    EXPECT_EQ(step.calls, calls);
  }
}

TEST(GridTime, EveryAxisExposesWhatItCarries) {
  for (const std::array<int, 3> grid : {std::array{1, 2, 2}, {2, 2, 2}, {4, 2, 1}}) {
    const GridPlan plan = timed_plan(TensorMethod::three_d, grid);
    const auto carry = carried(grid_traffic(timed_gpt(), plan, {.samples = 8}), plan.mesh);
    const GridTime step = timed_step(plan, {.bytes_per_second = kTimedRate});
    for (std::size_t axis = 0; axis < 3; ++axis)
      EXPECT_NEAR(step.exposed.at(axis), 4 * carry.at(axis) / kTimedRate, 1e-9)
          << to_text(plan.mesh) << ", axis " << axis;
    EXPECT_NEAR(step.hidden, 0, 1e-9);
  }
}

// Of a layer of 1d: two all-reduces of bsh forward, which nothing hides; two backward, each while
// the gradients of the weights of its map (3 h^2 and 4 h^2) are computed.
TEST(GridTime, SumsOfInputsGradientsHideBehindThoseOfWeights) {
  const GridPlan plan = timed_plan(TensorMethod::one_d, {1, 4, 1});
  const double sum = 4 * 2 * 3.0 / 4 * kTimedBsh / kTimedRate;
  const double queries = 2 * kTimedBsh * 3 * kTimedWidth / 4,
               up = 2 * kTimedBsh * 4 * kTimedWidth / 4;
  for (const double flops : {1e4, 1e6, 1e8}) {
    const GridMachine machine{.flops_per_second = flops, .bytes_per_second = kTimedRate};
    const GridBlockTime layer = timed_blocks(plan, machine)[1];
    EXPECT_NEAR(layer.forward.exposed[1], 2 * sum, 1e-9);
    const double exposed = std::max(0.0, sum - queries / flops) + std::max(0.0, sum - up / flops);
    EXPECT_NEAR(layer.backward.exposed[1], exposed, 1e-9) << flops;
    EXPECT_NEAR(layer.backward.hidden, 2 * sum - exposed, 1e-9) << flops;
  }
}

// Of 4 x 1 x 1 (FSDP) a map's weights, w bytes gathered, come before its product; backward brings
// them again while dW is computed, and takes dW away while dX is.
TEST(GridTime, WeightsComeWhileTheirGradientIsComputed) {
  const GridPlan plan = timed_plan(TensorMethod::three_d, {4, 1, 1});
  for (const double flops : {1e4, 1e6, 1e8}) {
    const GridMachine machine{.flops_per_second = flops, .bytes_per_second = kTimedRate};
    const GridBlockTime layer = timed_blocks(plan, machine)[1];
    const double vectors = 4 * 3.0 / 4 * 13 * kTimedWidth / kTimedRate;
    double forward = 0, backward = 0;
    for (const double outputs : {3.0, 1.0, 4.0, 4.0}) {
      const double move = 4 * 3.0 / 4 * outputs * kTimedSquare / kTimedRate;
      const double product = 2 * kTimedBsh * outputs * kTimedWidth / 4 / flops;
      forward += move;
      // W and dW go one after the other; dX begins when W is there.
      const double w_ends = std::max(move, product), dw_ends = std::max(move, product) + move;
      const double dx_ends = w_ends + product;
      backward += (w_ends - product) + std::max(0.0, dw_ends - dx_ends);
    }
    EXPECT_NEAR(layer.forward.exposed_on_all(), forward + vectors, 1e-9) << flops;
    EXPECT_NEAR(layer.backward.exposed_on_all(), backward + vectors, 1e-9) << flops;
  }
}

// With prefetch, forward of 4 x 1 x 1: where computing a map takes longer than bringing the next
// one's weights, only the very first are waited for, and vectors.
TEST(GridTime, AllWeightsButTheFirstComeWhileTheMapBeforeIsComputed) {
  const GridPlan plan = timed_plan(TensorMethod::three_d, {4, 1, 1});
  const GridMachine slow{.flops_per_second = 1e4, .bytes_per_second = kTimedRate};
  const auto ahead = timed_blocks(plan, slow, {}), asked = timed_blocks(plan, slow);
  const double vectors = 4 * 3.0 / 4 * 13 * kTimedWidth / kTimedRate;
  const double queries = 4 * 3.0 / 4 * 3 * kTimedSquare / kTimedRate;
  EXPECT_NEAR(ahead[1].forward.exposed_on_all(), vectors + queries, 1e-9);
  EXPECT_NEAR(ahead[2].forward.exposed_on_all(), vectors, 1e-9);
  EXPECT_NEAR(ahead[2].backward.exposed_on_all(), vectors, 1e-9) << "dW leaves meanwhile, too";
  EXPECT_NEAR(asked[2].forward.exposed_on_all(), vectors + 4 * queries, 1e-9);
  for (const double flops : {1e3, 1e5, 1e6, 1e7, 1e9}) {
    const GridMachine machine{.flops_per_second = flops, .bytes_per_second = kTimedRate};
    for (const bool recomputes : {false, true}) {
      const GridTime with = timed_step(plan, machine, {.recomputes = recomputes}),
                     without =
                         timed_step(plan, machine, {.recomputes = recomputes, .prefetches = false});
      EXPECT_LE(with.total(), without.total() + 1e-9) << flops;
      EXPECT_EQ(with.bytes, without.bytes);
      EXPECT_NEAR(with.exposed_on_all() + with.hidden, with.bytes / kTimedRate, 1e-9) << flops;
    }
  }
}

// What is waited for now goes before weights that will be: an all-gather of activations takes no
// longer because weights are under way.
TEST(GridTime, WhatIsAheadDelaysNothing) {
  const GridPlan plan = timed_plan(TensorMethod::three_d, {2, 2, 1});
  const GridMachine slow{.flops_per_second = 1e4, .bytes_per_second = kTimedRate};
  const auto ahead = timed_blocks(plan, slow, {}), asked = timed_blocks(plan, slow);
  EXPECT_NEAR(ahead[2].forward.exposed[1], asked[2].forward.exposed[1], 1e-9);
  // Along the axis of weights vectors alone are waited for: all weights came behind what somebody
  // waited for.
  auto vectors = grid_traffic(timed_gpt(), plan, {.samples = 8});
  std::erase_if(vectors, [](const GridTraffic& t) {
    return t.block != 2 || t.is_backward || t.map != kNoMap;
  });
  EXPECT_NEAR(ahead[2].forward.exposed[0], 4 * carried(vectors, plan.mesh)[0] / kTimedRate, 1e-9);
}

// Large messages go round a ring: a latency for each, and no queue overflows.
TEST(GridTime, RingsPayALatencyForEveryMessageAndOverflowNothing) {
  const GridPlan plan = timed_plan(TensorMethod::three_d, {4, 1, 1});
  const GridMachine machine{.latency = 0.5, .queue_bytes = 1, .loss_seconds = 8};
  const auto forward = [&](double bytes_each, bool is_encoded) {
    return grid_times(timed_gpt(), plan, {.samples = 8}, machine,
                      [&](const GridTraffic& t) {
                        return GridWire{.bytes = 3 * t.calls * bytes_each,
                                        .is_encoded = is_encoded};
                      },
                      {.prefetches = false})[1];
  };
  const double calls = forward(64 << 10, false).forward.calls;
  EXPECT_DOUBLE_EQ(forward(64 << 10, false).forward.total(), 0.5 * 3 * calls);
  EXPECT_DOUBLE_EQ(forward(64 << 10, true).forward.total(), 0.5 * 3 * calls) << "gathers all";
  EXPECT_DOUBLE_EQ(forward((64 << 10) - 1, false).forward.total(), (0.5 + 8) * calls);
  EXPECT_GT(forward(64 << 10, true).backward.total(), forward(64 << 10, false).backward.total())
      << "encoded sums are direct";
}

TEST(GridTime, LatencyIsPaidOncePerRound) {
  const double latency = 0.5;
  const GridTime sums =
      timed_step(timed_plan(TensorMethod::one_d, {1, 4, 1}), {.latency = latency});
  // Layers: 4 all-reduces of two rounds each. Ends: a look-up (2), the gradient of the head's input
  // (2), and the loss's gather (1).
  EXPECT_DOUBLE_EQ(sums.total(), latency * (kTimedLayers * 4 * 2 + 2 + 2 + 1));
  const GridTime gathers =
      timed_step(timed_plan(TensorMethod::one_d_sequence, {1, 4, 1}), {.latency = latency});
  EXPECT_DOUBLE_EQ(gathers.total(), latency * gathers.calls) << "one round each, one after another";
}

TEST(GridTime, HandlingOccupiesTheProcessorWhateverIsHidden) {
  const GridPlan plan = timed_plan(TensorMethod::two_d, {2, 2, 1});
  const GridMachine slow{.flops_per_second = 1e3, .bytes_per_second = kTimedRate};
  GridMachine handled = slow;
  handled.handled_bytes_per_second = 1e5;
  const GridTime without = timed_step(plan, slow), with = timed_step(plan, handled);
  EXPECT_NEAR(with.handling, with.bytes / 1e5, 1e-9);
  EXPECT_NEAR(with.compute, without.compute, 1e-9);
  EXPECT_GE(with.total(), without.total());
  // What links do, they do: exposed or hidden.
  for (const GridTime& step : {without, with})
    EXPECT_NEAR(step.exposed_on_all() + step.hidden, step.bytes / kTimedRate, 1e-9);
}

// Forward of 1d waits for all of its sums: each takes as long as the slower of link and handling.
// What is computed while something is under way has the rest of the processor: with half of it, as
// long as the link is busy, it takes twice as long.
TEST(GridTime, BytesAreHandledWhileTheyCome) {
  const GridPlan plan = timed_plan(TensorMethod::one_d, {1, 4, 1});
  for (const double factor : {0.25, 0.5, 1.0, 2.0, 8.0}) {
    const GridMachine machine{.bytes_per_second = kTimedRate,
                              .handled_bytes_per_second = factor * kTimedRate};
    const GridTime forward = timed_blocks(plan, machine)[1].forward;
    const double link = forward.bytes / kTimedRate;
    EXPECT_NEAR(forward.total(), std::max(link, link / factor), 1e-9) << factor;
    EXPECT_NEAR(forward.handling, link / factor, 1e-9) << factor;
    EXPECT_NEAR(forward.exposed_on_all(), std::max(0.0, link - link / factor), 1e-9) << factor;
  }
  GridMachine slow{.flops_per_second = 1e3, .bytes_per_second = kTimedRate};
  const double alone = timed_blocks(plan, slow)[1].backward.total();
  slow.handled_bytes_per_second = 2 * kTimedRate;
  const GridTime shared = timed_blocks(plan, slow)[1].backward;
  EXPECT_NEAR(shared.total(), alone + shared.bytes / kTimedRate / 2, 1e-9);
}

// 1d on 4 ranks: 8 all-reduces of layers and 2 of the ends, 2 x 3 messages each; a gather of 3.
TEST(GridTime, EveryMessageIsHandled) {
  const GridTime step =
      timed_step(timed_plan(TensorMethod::one_d, {1, 4, 1}), {.message_seconds = 0.5});
  EXPECT_EQ(step.messages, (kTimedLayers * 4 + 2) * 6 + 3);
  EXPECT_DOUBLE_EQ(step.total(), 0.5 * step.messages);
  EXPECT_DOUBLE_EQ(step.handling, step.total());
  const GridTime woken =
      timed_step(timed_plan(TensorMethod::one_d, {1, 4, 1}), {.call_seconds = 0.5});
  EXPECT_DOUBLE_EQ(woken.total(), 0.5 * ((kTimedLayers * 4 + 2) * 2 + 1));
}

// All-reduces of bsh by 4 ranks: in each of both rounds 3/4 bsh come, from three others. Of 2 ranks
// only one sends.
TEST(GridTime, WhatOverflowsAQueueIsLostOnceARound) {
  const double round = 4 * 3.0 / 4 * kTimedBsh;
  const GridPlan four = timed_plan(TensorMethod::one_d, {1, 4, 1});
  const auto forward = [&](const GridPlan& plan, double queue) {
    return timed_blocks(plan, {.queue_bytes = queue, .loss_seconds = 0.5})[1].forward.total();
  };
  EXPECT_DOUBLE_EQ(forward(four, round - 1), 0.5 * 2 * 2) << "two all-reduces of two rounds";
  EXPECT_DOUBLE_EQ(forward(four, round), 0);
  EXPECT_DOUBLE_EQ(forward(timed_plan(TensorMethod::one_d, {1, 2, 1}), 1), 0);
}

TEST(GridTime, RecomputationAddsAForwardOfEachBlockButTheLast) {
  const GridPlan plan = timed_plan(TensorMethod::three_d, {2, 2, 2});
  const GridMachine machine{.flops_per_second = kTimedFlops, .bytes_per_second = kTimedRate};
  const auto once = timed_blocks(plan, machine),
             twice = timed_blocks(plan, machine, {.recomputes = true, .prefetches = false});
  for (std::size_t b = 0; b < once.size(); ++b) {
    const double more = b + 1 < once.size() ? once[b].forward.bytes : 0;
    EXPECT_NEAR(twice[b].backward.bytes, once[b].backward.bytes + more, 1e-9);
    const double seconds = b + 1 < once.size() ? once[b].forward.total() : 0;
    EXPECT_NEAR(twice[b].backward.total(), once[b].backward.total() + seconds, 1e-9);
  }
}

TEST(GridTime, AStepHasItsMicrobatchesAndTheUpdate) {
  const GridPlan plan = timed_plan(TensorMethod::one_d, {1, 4, 1});
  const GridMachine machine{
      .flops_per_second = kTimedFlops, .bytes_per_second = kTimedRate, .updates_per_second = 100};
  const auto times = timed_blocks(plan, machine);
  const double one = grid_step_time(times, 1, 0, machine).total();
  EXPECT_NEAR(grid_step_time(times, 3, 50, machine).total(), 3 * one + 0.5, 1e-9);
}

// Section 4.3 of the specification: 12 h^2 + 13 h of a layer, an eighth on each of eight ranks; in
// 1d besides the 6 h of norms and of biases of the maps out of a branch.
TEST(GridMemory, ParametersAreAnEighth) {
  const ModelSpec spec = timed_gpt();
  const double all = static_cast<double>(parameter_count(spec));
  const GridHolding cube = grid_holding(spec, timed_plan(TensorMethod::three_d, {2, 2, 2}), {});
  EXPECT_EQ(cube.parameters, all / 8);
  const GridHolding one = grid_holding(spec, timed_plan(TensorMethod::one_d, {1, 4, 1}), {});
  const double whole =
      kTimedLayers * 6 * kTimedWidth + 2 * kTimedWidth + kTimedTokens * kTimedWidth;
  EXPECT_EQ(one.parameters, (all - whole) / 4 + whole);
}

// Transients of the widest map: MK / (pi pc) + 2 KN / (pa pc) + MN / (pi pa).
TEST(GridMemory, OneMapIsGatheredAtATime) {
  const ModelSpec spec = timed_gpt();
  const auto gathered =
      gathered_on_a_rank(spec, timed_plan(TensorMethod::three_d, {2, 2, 2}), 8, false);
  EXPECT_EQ(gathered[1], kTimedBsh / 4 + 2 * 4 * kTimedSquare / 4 + 4 * kTimedBsh / 4);
  const auto ahead =
      gathered_on_a_rank(spec, timed_plan(TensorMethod::three_d, {2, 2, 2}), 8, true);
  EXPECT_EQ(ahead[1], gathered[1] + 2 * 4 * kTimedSquare / 4) << "of the next map and the last";
  const auto nothing =
      gathered_on_a_rank(spec, timed_plan(TensorMethod::one_d, {1, 4, 1}), 8, true);
  EXPECT_EQ(nothing[1], 0) << "1d has everything where it is used";
}

// 1d-sequence gathers the inputs of two maps of a layer, and that of the head: three quarters of
// each are others'.
TEST(GridMemory, WhatIsKeptComesOnTop) {
  const ModelSpec spec = timed_gpt();
  GridPlan plan = timed_plan(TensorMethod::one_d_sequence, {1, 4, 1});
  const auto held = [&](bool recomputes) {
    return grid_holding(spec, plan, {.samples = 8, .recomputes = recomputes}).activations;
  };
  const double all = held(false), recomputed = held(true);
  plan.keep = GridKeep::gathered;
  EXPECT_EQ(held(false) - all, (2 * kTimedLayers + 1) * kTimedBsh * 3 / 4);
  EXPECT_EQ(held(true) - recomputed, (2 + 1) * kTimedBsh * 3 / 4)
      << "of one layer, and of the head";
}

TEST(GridMemory, ActivationsAreSharedButForTheStreamOfOneD) {
  const ModelSpec spec = timed_gpt();
  const BlockSpec& layer = spec.blocks[1];
  const auto kept = static_cast<double>(layer.kept);
  const double stream = 4 * kTimedTokens * kTimedWidth;
  EXPECT_EQ(kept_on_a_rank(timed_plan(TensorMethod::three_d, {2, 2, 2}), layer, false), kept / 8);
  EXPECT_EQ(kept_on_a_rank(timed_plan(TensorMethod::one_d, {1, 4, 1}), layer, false),
            stream + (kept - stream) / 4);
  EXPECT_EQ(kept_on_a_rank(timed_plan(TensorMethod::three_d, {2, 2, 2}), layer, true),
            kTimedTokens * kTimedWidth / 8);
}

}  // namespace
}  // namespace laconic
