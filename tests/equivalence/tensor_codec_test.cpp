// What codecs do to the messages of a tensor grid: numbers that are the same wherever and whenever
// they are decoded, feedback of weights' gradients, and codecs that are changed on the way.
#include <ATen/ops/zeros.h>
#include <fmt/format.h>
#include <gtest/gtest.h>

#include <algorithm>
#include <cmath>
#include <map>
#include <mutex>
#include <optional>

#include "laconic/model/grid_ops.hpp"
#include "tensor_codec.hpp"

namespace laconic::tensor_codec {
namespace {

// --- decoding

// The same message twice is what backward and recomputation ask for.
TEST(TensorCodec, WhatIsSentTwiceIsDecodedTheSame) {
  const GridPlan plan{TensorMethod::one_d, {.tp = {1, 3, 1}}, TableCut::split};
  for (const char* text : {"low_rank:rank=2", "low_rank:rank=2,factors=bf16", "random_k:keep=0.2",
                           "top_k:keep=0.1", "quantise:bits=4,rounding=stochastic,grid=ends"}) {
    SCOPED_TRACE(text);
    const GridCodec codec{.codec = parse_codec(text)};
    std::mutex mutex;
    std::map<int, Tensor> first;
    on_ranks(plan, by_class(Traffic::tp_activation, codec), [&](TensorGrid& grid) {
      const Tensor x = normal({8, 20}, 10 + static_cast<std::uint64_t>(grid.index({Axis::tp1})));
      const GridSite site{.block = 1, .columns = 20};
      int call = 0;
      std::vector<Tensor> seen;
      for (const std::uint64_t microbatch : {0, 0, 1}) {
        grid.begin(3, microbatch);
        for (const Tensor& y : {grid.gather(x, equal_rows(8, 3), {Axis::tp1}, site),
                                grid.sum(x, {Axis::tp1}, site)}) {
          seen.push_back(y);
          const std::lock_guard lock(mutex);
          const auto [found, is_new] = first.try_emplace(call++, y);
          EXPECT_TRUE(found->second.equal(y)) << call << " on another rank";
        }
      }
      EXPECT_TRUE(seen[0].equal(seen[2]) && seen[1].equal(seen[3]));
      // Another message draws other numbers, where any are drawn.
      EXPECT_EQ(seen[0].equal(seen[4]), std::string(text).starts_with("top_k"));
      const Tensor elsewhere =
          grid.gather(x, equal_rows(8, 3), {Axis::tp1}, {.block = 1, .place = 1, .columns = 20});
      EXPECT_EQ(seen[4].equal(elsewhere), std::string(text).starts_with("top_k"));
    });
  }
}

// In the all-gather form a sum is that of what each has sent, rounded once: what everybody would
// get by gathering the same, and adding it in the order of ranks. In two steps it is rounded again.
TEST(TensorCodec, GatheredSumsAreThoseOfWhatEachHasSentOnce) {
  constexpr std::int64_t kHeight = 16, kWidth = 20;
  for (const int ranks : {2, 3, 4})
    for (const char* text : {"quantise:bits=2,group=channel,scale=f16,grid=artefact",
                             "quantise:bits=8", "top_k:keep=0.1", "half"}) {
      SCOPED_TRACE(fmt::format("{} of {}", text, ranks));
      const GridPlan plan{TensorMethod::one_d, {.tp = {1, ranks, 1}}, TableCut::split};
      const auto sum_on = [&](bool is_gathered) {
        const GridCodec codec{.codec = parse_codec(text), .is_gathered = is_gathered};
        std::mutex mutex;
        std::optional<Tensor> first;
        bool is_of_once = true;
        on_ranks(plan, by_class(Traffic::tp_activation, codec), [&](TensorGrid& grid) {
          const Axes axes = {Axis::tp1};
          const GridSite site{.block = 1, .columns = kWidth};
          const Tensor x =
              normal({kHeight, kWidth}, 10 + static_cast<std::uint64_t>(grid.index(axes)));
          const auto all = grid.gather(x, equal_rows(kHeight, ranks), axes, site).chunk(ranks);
          Tensor wanted = all[0];
          for (std::size_t r = 1; r < all.size(); ++r) wanted = wanted.add(all[r]);
          grid.clear_counts();
          const Tensor y = grid.sum(x, axes, site);
          const std::lock_guard lock(mutex);
          is_of_once = is_of_once && y.equal(wanted);
          if (!first) first = y;
          EXPECT_TRUE(y.equal(*first)) << "on another rank";
          const GridCount count = grid.counts().at({GridCall::sum, Traffic::tp_activation, axes});
          EXPECT_EQ(count.calls, 1U);
          const double share = is_gathered ? 1 : 2.0 / ranks;
          EXPECT_NEAR(static_cast<double>(count.elements),
                      share * static_cast<double>((ranks - 1) * kHeight * kWidth), 2.0 * kWidth);
        });
        return is_of_once;
      };
      EXPECT_TRUE(sum_on(true));
      EXPECT_FALSE(sum_on(false));
    }
}

// Where messages are raw, by the class or for a while, there is nothing to gather.
TEST(TensorCodec, SumsThatAreRawAreNotGathered) {
  const GridPlan plan{TensorMethod::one_d, {.tp = {1, 4, 1}}, TableCut::split};
  const Axes axes = {Axis::tp1};
  const GridSite site{.block = 1, .columns = 6};
  const auto expect_plain = [&](TensorGrid& grid) {
    const Tensor x = normal({8, 6}, 4);
    grid.clear_counts();
    EXPECT_TRUE(grid.sum(x, axes, site).equal(x.add(x).add(x).add(x)));
    EXPECT_EQ(grid.counts().at({GridCall::sum, Traffic::tp_activation, axes}).elements,
              2 * 3 * 12U);
  };
  on_ranks(plan, by_class(Traffic::tp_activation, {.codec = Raw{}, .is_gathered = true}),
           expect_plain);
  on_ranks(plan,
           by_class(Traffic::tp_activation, {.codec = parse_codec("half"), .is_gathered = true}),
           [&](TensorGrid& grid) {
             grid.set_exact(true);
             expect_plain(grid);
             grid.set_exact(false);
             grid.override_codec(Traffic::tp_activation, {.is_bypassed = true});
             expect_plain(grid);
           });
}

// Rows or columns of a matrix, each a tenth of the one before: with a scale for each of them
// nothing is off by more than a step of its own, however the matrix travels, as one or flat.
TEST(TensorCodec, ScalesAreThoseOfTheRowsOrColumnsOfMatrices) {
  const GridPlan plan{TensorMethod::one_d, {.tp = {1, 2, 1}}, TableCut::split};
  constexpr std::int64_t kLines = 8, kLength = 20;
  for (const bool is_row : {true, false}) {
    SCOPED_TRACE(is_row);
    const GridCodec codec{
        .codec = parse_codec(fmt::format("quantise:bits=8,group={}", is_row ? "row" : "channel"))};
    on_ranks(plan, by_class(Traffic::tp_activation, codec), [&](TensorGrid& grid) {
      Tensor lines = normal({kLines, kLength}, 3);
      for (std::int64_t line = 0; line < kLines; ++line)
        lines.select(0, line).mul_(std::pow(10.0, -static_cast<double>(line)));
      const Tensor x = (is_row ? lines : lines.t()).contiguous();
      const GridSite site{.block = 1, .columns = static_cast<int>(x.size(1))};
      const Tensor gathered = grid.gather(x, equal_rows(x.size(0), 2), {Axis::tp1}, site);
      const Tensor flat = grid.gather(x.reshape({-1}), equal_rows(x.numel(), 2), {Axis::tp1}, site);
      const Tensor sum = grid.sum(x, {Axis::tp1}, site).div(2);
      for (const Tensor& all : {gathered, flat.view({-1, x.size(1)}), sum.repeat({2, 1})})
        for (const Tensor& y : all.chunk(2)) {
          const Tensor off = (is_row ? y.sub(x) : y.sub(x).t()).abs();
          for (std::int64_t line = 0; line < kLines; ++line)
            EXPECT_LT(off[line].max().item<double>(), 0.02 * lines[line].abs().max().item<double>())
                << line;
        }
    });
  }
}

TEST(TensorCodec, LowRankOfFullRankLosesNothing) {
  const GridPlan plan{TensorMethod::one_d, {.tp = {1, 2, 1}}, TableCut::split};
  on_ranks(plan, by_class(Traffic::tp_activation, {.codec = LowRank{.rank = 6}}),
           [&](TensorGrid& grid) {
             const Tensor x = normal({12, 6}, 4);
             const Tensor y = grid.sum(x, {Axis::tp1}, {.block = 1, .columns = 6});
             EXPECT_LT(distance_between(y, x.mul(2)), 1e-5);
           });
}

// Whole numbers below 256 are those of bfloat16, too: what goes through a codec that does not
// change them has the bits of what goes raw, with a codec or without.
TEST(TensorCodec, WhatACodecDoesNotChangeIsAsIfItWereNot) {
  const GridPlan plan{TensorMethod::three_d, {.tp = {1, 2, 1}}, TableCut::split};
  std::mutex mutex;
  std::map<std::string, std::vector<Tensor>> first;  // by call and rank
  for (const GridCodecs& codecs :
       {GridCodecs(), by_class(Traffic::tp_activation, {.codec = Raw{}}),
        by_class(Traffic::tp_activation, {.codec = parse_codec("half")})})
    on_ranks(plan, codecs, [&](TensorGrid& grid) {
      const int me = grid.index({Axis::tp1});
      const Tensor x = normal({8, 20}, 10 + static_cast<std::uint64_t>(me)).mul(20).round();
      const GridSite site{.block = 1, .columns = 20};
      const std::map<std::string, Tensor> made = {
          {"gather", grid.gather(x, equal_rows(8, 2), {Axis::tp1}, site)},
          {"scatter", grid.scatter_sum(x, equal_rows(4, 2), {Axis::tp1}, site)},
          {"sum", grid.sum(x, {Axis::tp1}, site)}};
      const std::lock_guard lock(mutex);
      for (const auto& [call, y] : made) {
        std::vector<Tensor>& wanted = first[call + std::to_string(me)];
        if (wanted.empty()) wanted.push_back(y);
        EXPECT_TRUE(y.equal(wanted[0])) << call << " on rank " << me;
      }
    });
  EXPECT_EQ(first.size(), 6U);
}

// Half a step of the largest magnitude that a message may have.
double half_step(const Tensor& largest) {
  return largest.abs().max().item<double>() / 254 * 1.001;
}

// Each number of a map's input and weight is off by half a step at most, and so is each partial
// sum, and a sum that is made for all. What follows for outputs is what they may be off by.
void expect_bounded(const GridPlan& plan, Role role) {
  SCOPED_TRACE(fmt::format("{} {}", name_of(plan.method), static_cast<int>(role)));
  const LinearPlan way = linear_plan(plan, role);
  const Tensor all_x = normal({kRows, kInputs}, 1), all_w = normal({kInputs, kOutputs}, 2);
  const Tensor exact = all_x.matmul(all_w);
  const Tensor x = all_x.abs().add(half_step(all_x)), w = all_w.abs().add(half_step(all_w));
  const Tensor most = x.matmul(w);
  const int partial = extent(plan.mesh, way.out.axes);
  const Tensor bound =
      most.sub(all_x.abs().matmul(all_w.abs())).add((partial + 1) * half_step(most));
  const GridCodecs codecs = [](const GridSite&, GridCall) {
    return GridCodec{.codec = Quantise{.bits = 8}};
  };
  std::mutex mutex;
  double largest = 0;
  on_ranks(plan, codecs, [&](TensorGrid& grid) {
    const bool gathers = way.in.kind == MoveKind::gather_features;
    Axes inputs = gathers ? Axes() : way.from.features;
    inputs.insert(inputs.end(), way.weight.begin(), way.weight.end());
    const Tensor weight = part_of(grid, all_w, inputs, way.to.features);
    const std::vector<std::int64_t> rows(static_cast<std::size_t>(grid.extent(way.weight)),
                                         weight.size(0));
    const Tensor y =
        grid_products({grid, 1, 0}, way, part_of(grid, all_x, way.from.rows, way.from.features),
                      {{.weight = weight, .rows = rows}}, {kRows, 1}, nullptr)[0];
    const auto output = [&](const Tensor& t) {
      return part_of(grid, t, way.to.rows, way.to.features);
    };
    const Tensor off = y.detach().sub(output(exact)).abs();
    const std::lock_guard lock(mutex);
    EXPECT_TRUE(off.le(output(bound)).all().item<bool>())
        << off.div(output(bound)).max().item<double>();
    largest = std::max(largest, off.max().item<double>());
  });
  EXPECT_GT(largest, 1e-4);
  EXPECT_LT(bound.max().item<double>(), 0.2 * most.max().item<double>());
}

TEST(TensorCodec, EightBitsOfWhatMovesBoundWhatAMapIsOffBy) {
  expect_bounded({TensorMethod::one_d, {.tp = {1, 4, 1}}, TableCut::split}, Role::down);
  expect_bounded({TensorMethod::one_d_sequence, {.tp = {1, 2, 1}}, TableCut::split}, Role::up);
  expect_bounded({TensorMethod::two_d, {.tp = {2, 2, 1}}, TableCut::gathered}, Role::up);
  expect_bounded({TensorMethod::two_and_half_d, {.tp = {2, 2, 2}}, TableCut::gathered}, Role::down);
  expect_bounded({TensorMethod::three_d, {.tp = {2, 2, 2}}, TableCut::split}, Role::up);
  expect_bounded({TensorMethod::three_d, {.tp = {2, 2, 2}}, TableCut::split}, Role::down);
}

// --- feedback

// The mean of what arrived of one gradient again and again: what a step loses the next one sends.
double mean_error(const GridCodec& codec, int steps) {
  const GridPlan plan{TensorMethod::three_d, {.tp = {2, 1, 1}}, TableCut::split};
  double error = 0;
  on_ranks(plan, by_class(Traffic::tp_weight, codec), [&](TensorGrid& grid) {
    const Tensor g = normal({32, 16}, 20 + static_cast<std::uint64_t>(grid.index({Axis::tp0})));
    const Tensor both = normal({32, 16}, 20).add(normal({32, 16}, 21));
    const GridSite site{.traffic = Traffic::tp_weight, .block = 1, .columns = 16};
    Tensor sum = at::zeros({16, 16});
    for (int step = 0; step < steps; ++step) {
      grid.begin(static_cast<std::uint64_t>(step), 0);
      sum.add_(grid.scatter_sum(g, equal_rows(16, 2), {Axis::tp0}, site));
      grid.commit();
    }
    if (grid.index({Axis::tp0}) == 0)
      error = sum.div(static_cast<double>(steps))
                  .sub(both.narrow(0, 0, 16))
                  .norm()
                  .div(both.narrow(0, 0, 16).norm())
                  .item<double>();
  });
  return error;
}

TEST(TensorCodec, FeedbackOfWeightGradientsSendsLaterWhatWasLost) {
  for (const char* text : {"quantise:bits=2", "top_k:keep=0.1", "sign", "low_rank:rank=4"}) {
    SCOPED_TRACE(text);
    const CodecSpec codec = parse_codec(text);
    const double without = mean_error({.codec = codec}, 64);
    const double with = mean_error({.codec = codec, .has_feedback = true}, 64);
    EXPECT_GT(without, 0.1);
    EXPECT_LT(with, 0.5 * without);
    EXPECT_LT(with, 0.25);
  }
}

// --- warm starts

// Singular values fall by 0.6: one power step from anywhere finds the largest of them badly.
Tensor falling_gradient(std::uint64_t number) {
  Tensor sum = at::zeros({32, 16});
  for (std::uint64_t i = 0; i < 16; ++i)
    sum.add_(normal({32, 1}, 100 * number + i).mm(normal({1, 16}, 100 * number + 50 + i)),
             std::pow(0.6, static_cast<double>(i)));
  return sum;
}

TEST(TensorCodec, LowRankGradientsOfWeightsBeginWhereTheLastOneEnded) {
  const GridPlan plan{TensorMethod::three_d, {.tp = {2, 1, 1}}, TableCut::split};
  for (const bool has_feedback : {false, true}) {
    const GridCodec codec{.codec = LowRank{.rank = 4}, .has_feedback = has_feedback};
    NamedFloats saved[2];
    Tensor eighth[2];
    const auto sum = [&](TensorGrid& grid, std::uint64_t step) {
      const auto me = static_cast<std::uint64_t>(grid.index({Axis::tp0}));
      grid.begin(step, 0);
      return grid.scatter_sum(falling_gradient(7 + me), equal_rows(16, 2), {Axis::tp0},
                              {.traffic = Traffic::tp_weight, .block = 1, .columns = 16});
    };
    const Tensor both = falling_gradient(7).add(falling_gradient(8));
    on_ranks(plan, by_class(Traffic::tp_weight, codec), [&](TensorGrid& grid) {
      const int me = grid.index({Axis::tp0});
      std::vector<double> errors;
      for (std::uint64_t step = 0; step < 8; ++step) {
        const Tensor before = sum(grid, step);  // of a step that is left out
        grid.abandon();
        const Tensor after = sum(grid, step);
        EXPECT_TRUE(after.equal(before)) << step;
        grid.commit();
        errors.push_back(distance_between(after, both.narrow(0, 16 * me, 16)));
        if (step == 5) saved[me] = grid.save();
        if (step == 7) eighth[me] = after;
      }
      EXPECT_EQ(grid.save().size(), has_feedback ? 2U : 1U);
      EXPECT_TRUE(has_feedback || errors[7] < 0.7 * errors[0]) << errors[7] << " of " << errors[0];
    });
    on_ranks(plan, by_class(Traffic::tp_weight, codec), [&](TensorGrid& grid) {
      const int me = grid.index({Axis::tp0});
      grid.load(saved[me]);
      for (const std::uint64_t step : {6, 7}) {
        const Tensor after = sum(grid, step);
        grid.commit();
        EXPECT_TRUE(step < 7 || after.equal(eighth[me]));
      }
    });
    // What was saved for another rank begins anew.
    on_ranks(plan,
             by_class(Traffic::tp_weight, {.codec = LowRank{.rank = 3}, .has_feedback = true}),
             [&](TensorGrid& grid) {
               grid.load(saved[grid.index({Axis::tp0})]);
               EXPECT_TRUE(sum(grid, 6).isfinite().all().item<bool>());
             });
  }
}

// --- steering

// A raw sum has what was owed in it, once, and a step that never was pays nothing.
TEST(TensorCodec, BypassedSumsPayWhatTheyOwe) {
  const GridPlan plan{TensorMethod::three_d, {.tp = {2, 1, 1}}, TableCut::split};
  const GridCodec codec{.codec = parse_codec("top_k:keep=0.1"), .has_feedback = true};
  on_ranks(plan, by_class(Traffic::tp_weight, codec), [&](TensorGrid& grid) {
    const Tensor g = normal({32, 16}, 20 + static_cast<std::uint64_t>(grid.index({Axis::tp0})));
    const Tensor both = normal({32, 16}, 20).add(normal({32, 16}, 21));
    const GridSite site{.traffic = Traffic::tp_weight, .block = 1, .columns = 16};
    const Tensor wanted = both.narrow(0, 16 * grid.index({Axis::tp0}), 16);
    const auto sum = [&](std::uint64_t step) {
      grid.begin(step, 0);
      return grid.scatter_sum(g, equal_rows(16, 2), {Axis::tp0}, site);
    };
    Tensor all = sum(0);
    grid.commit();
    EXPECT_GT(distance_between(all, wanted), 0.1);
    EXPECT_EQ(grid.save().size(), 1U);
    grid.override_codec(Traffic::tp_weight, {.is_bypassed = true});
    EXPECT_EQ(grid.save().size(), 1U);
    const NamedFloats owed = grid.save();
    sum(1);
    grid.abandon();
    EXPECT_EQ(grid.save(), owed);
    const Tensor paid = sum(2);
    const Tensor second = sum(2);  // another microbatch of the step
    grid.commit();
    EXPECT_TRUE(grid.save().empty());
    EXPECT_LT(distance_between(second, wanted), 1e-5);
    EXPECT_LT(distance_between(all.add(paid), wanted.mul(2)), 1e-5);
    // Encoded again, it begins without debts; another codec takes them over.
    grid.override_codec(Traffic::tp_weight, {});
    sum(3);
    grid.commit();
    const NamedFloats before = grid.save();
    grid.override_codec(Traffic::tp_weight, {.codec = Quantise{.bits = 8}});
    EXPECT_EQ(grid.save(), before);
    sum(4);
    grid.commit();
    EXPECT_NE(grid.save(), before);
  });
}

TEST(TensorCodec, FidelityIsMeasuredByClassAndOnlyWhenAsked) {
  const GridPlan plan{TensorMethod::one_d, {.tp = {1, 2, 1}}, TableCut::split};
  on_ranks(plan, by_class(Traffic::tp_activation, {.codec = Quantise{.bits = 2}}),
           [&](TensorGrid& grid) {
             const Tensor x = normal({8, 16}, 3);
             const auto sum = [&](std::uint64_t step) {
               grid.begin(step, 0);
               grid.sum(x, {Axis::tp1}, {.block = 1, .columns = 16});
               grid.sum(x, {Axis::tp1},
                        {.traffic = Traffic::tp_gradient, .block = 1, .columns = 16});
               grid.commit();
             };
             sum(0);
             for (const Traffic traffic : {Traffic::tp_activation, Traffic::tp_gradient})
               grid.measure_fidelity(traffic, true);
             sum(1);
             for (const Traffic traffic : {Traffic::tp_activation, Traffic::tp_gradient})
               grid.measure_fidelity(traffic, false);
             sum(2);
             const Fidelity found = grid.fidelity(Traffic::tp_activation);
             EXPECT_EQ(found.messages, 2U);  // a contribution, and a result
             EXPECT_GT(found.cosine(), 0.5);
             EXPECT_LT(found.cosine(), 0.999);
             EXPECT_EQ(grid.fidelity(Traffic::tp_gradient).messages, 0U);
           });
}

}  // namespace
}  // namespace laconic::tensor_codec
