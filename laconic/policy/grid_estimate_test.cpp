#include "laconic/policy/grid_estimate.hpp"

#include <gtest/gtest.h>

#include <algorithm>

#include "laconic/config/grid_choice.hpp"
#include "laconic/config/model_family.hpp"
#include "laconic/policy/grid_policy.hpp"

namespace laconic {
namespace {

constexpr GridMachine kSlowLinks{.flops_per_second = 30e9, .bytes_per_second = 12.5e6};

RunConfig estimated_config(std::int64_t width, std::int64_t tokens) {
  RunConfig config;
  config.model.layers = 2;
  config.model.width = width;
  config.model.heads = 8;
  config.model.context = tokens;
  config.model.vocabulary = 256;
  config.train.batch = 8;
  return config;
}

std::vector<GridCandidate> search(const RunConfig& config, int ranks) {
  return search_grids(config, family_of(config, {}), ranks, kSlowLinks);
}

std::vector<std::string> texts_of(const std::vector<GridCandidate>& candidates, bool possible) {
  std::vector<std::string> texts;
  for (const GridCandidate& c : candidates)
    if (c.estimate.has_value() == possible)
      texts.push_back(std::string(name_of(c.method)) + " " + std::to_string(c.grid[0]) +
                      std::to_string(c.grid[1]) + std::to_string(c.grid[2]));
  std::ranges::sort(texts);
  return texts;
}

TEST(GridEstimate, ASearchHasEveryArrangementOnce) {
  const auto found = search(estimated_config(64, 16), 8);
  EXPECT_EQ(texts_of(found, true),
            (std::vector<std::string>{"1d 181", "1d-sequence 181", "2.5d 222", "3d 118", "3d 124",
                                      "3d 142", "3d 214", "3d 222", "3d 241", "3d 412", "3d 421",
                                      "3d 811"}));
  EXPECT_EQ(texts_of(found, false), (std::vector<std::string>{"2d 000"}));
  const auto of_four = search(estimated_config(64, 16), 4);
  EXPECT_EQ(texts_of(of_four, false), (std::vector<std::string>{"2.5d 000"})) << "2d is 2 x 2";
}

TEST(GridEstimate, WhatCannotBeSaysWhyAndComesLast) {
  RunConfig config = estimated_config(64, 16);
  config.train.batch = 4;
  config.model.heads = 4;
  const auto found = search(config, 8);
  bool was_impossible = false;
  double before = 0;
  for (const GridCandidate& c : found) {
    EXPECT_NE(c.estimate.has_value(), !c.problems.empty());
    EXPECT_FALSE(was_impossible && c.estimate) << "possible ones come first";
    was_impossible = !c.estimate;
    if (!c.estimate) continue;
    EXPECT_GE(c.estimate->step.total(), before);
    before = c.estimate->step.total();
  }
  EXPECT_EQ(texts_of(found, true),
            (std::vector<std::string>{"2.5d 222", "3d 124", "3d 142", "3d 222"}));
}

// Section 4.4 of the specification: few tokens want activations moved, many want weights moved.
TEST(GridEstimate, WideModelsWantAnotherGridThanLongOnes) {
  const GridCandidate wide = search(estimated_config(512, 8), 4)[0];
  const GridCandidate longer = search(estimated_config(64, 1024), 4)[0];
  EXPECT_EQ(wide.method, TensorMethod::one_d);
  EXPECT_EQ(longer.method, TensorMethod::three_d);
  EXPECT_EQ(longer.grid, (std::array{4, 1, 1}));
}

// Weights that are gathered again in backward are of their class, and so are inputs.
TEST(GridEstimate, CodecsShortenTheirClassWhereverItMoves) {
  RunConfig config = estimated_config(64, 16);
  config.mesh.tp = "2,2,2";
  const Family family = family_of(config, {});
  const auto bytes_of_codecs = [&](const char* activation, const char* gradient) {
    config.tp_activation.codec = activation;
    config.tp_gradient.codec = gradient;
    return estimate_grid(config, family, kSlowLinks).step.bytes;
  };
  const double raw = bytes_of_codecs("raw", "raw");
  const ModelSpec spec = model_spec(family, 16);
  double activations = 0, gradients = 0;
  for (const GridTraffic& t : grid_traffic(spec, grid_plan_of(config, family), {.samples = 8})) {
    const bool is_layer = t.block > 0 && t.block + 1 < spec.blocks.size();
    if (!is_layer || t.map == kNoMap || t.use == CollectiveUse::weight) continue;
    const bool is_again = t.use == CollectiveUse::input &&
                          t.collective == GridCollective::all_gather && t.is_backward;
    (t.is_backward && !is_again ? gradients : activations) += 4 * t.elements;
  }
  EXPECT_NEAR(bytes_of_codecs("half", "raw"), raw - activations / 2, 1e-6);
  EXPECT_NEAR(bytes_of_codecs("raw", "half"), raw - gradients / 2, 1e-6);
}

// Of g ranks 2 (g - 1) / g of a partial sum come in two steps, and g - 1 whole ones gathered.
TEST(GridEstimate, GatheredSumsAreWholeFromEveryOther) {
  RunConfig config = estimated_config(64, 16);
  config.tensor.method = TensorMethod::one_d;
  config.tp_activation.codec = config.tp_gradient.codec = "quantise:bits=8";
  for (const int ranks : {2, 4}) {
    config.mesh.tp = std::to_string(ranks);
    const Family family = family_of(config, {});
    const auto step_of = [&](SumForm activation, SumForm gradient) {
      config.tp_activation.sum = activation;
      config.tp_gradient.sum = gradient;
      return estimate_grid(config, family, kSlowLinks).step;
    };
    const GridTime two_step = step_of(SumForm::two_step, SumForm::two_step);
    const GridTime forward = step_of(SumForm::gathered, SumForm::two_step);
    const GridTime backward = step_of(SumForm::two_step, SumForm::gathered);
    // Two sums of a layer each way, of 8 samples of 16 tokens of 64 numbers: a byte for each, and
    // the scale of each block of 256.
    const double layers = static_cast<double>(config.model.layers);
    const double sums = 2 * layers * 8 * 16 * 64 * (1 + 4.0 / 256);
    const double more = sums * ((ranks - 1) - 2.0 * (ranks - 1) / ranks);
    for (const GridTime& gathered : {forward, backward}) {
      EXPECT_NEAR(gathered.bytes, two_step.bytes + more, 1e-6) << ranks;
      EXPECT_EQ(gathered.messages, two_step.messages - 2 * layers * (ranks - 1)) << ranks;
      EXPECT_EQ(gathered.calls, two_step.calls) << ranks;
    }
  }
}

// Four codecs that cannot be taken for one another; what sums remember and masks belong to one
// each.
TEST(GridPolicy, EveryWayHasTheCodecOfItsSection) {
  RunConfig config = estimated_config(64, 16);
  config.model.layers = 4;
  config.tp_activation.codec = "top_k:keep=0.25";
  config.tp_activation.layers = "last half";
  config.tp_activation.masked = true;
  config.tp_gradient.codec = "quantise:bits=8";
  config.tp_gradient.sum = SumForm::gathered;
  config.tp_weight.codec = "half";
  config.tp_weight.gradient = "sign";
  const ModelSpec spec = model_spec(family_of(config, {}), 16);
  const GridPolicy policy = grid_policy_of(config, spec);
  EXPECT_EQ(to_text(policy.activation.codec), to_text(parse_codec("top_k:keep=0.25")));
  EXPECT_EQ(to_text(policy.gradient.codec), to_text(parse_codec("quantise:bits=8")));
  EXPECT_EQ(to_text(policy.weight.codec), "half");
  EXPECT_EQ(to_text(policy.weight_gradient.codec), "sign");
  EXPECT_EQ(policy.activation.blocks, (std::vector<bool>{false, false, false, true, true, false}));
  EXPECT_EQ(policy.gradient.blocks, (std::vector<bool>{false, true, true, true, true, false}));
  for (const GridClassPolicy* one :
       {&policy.activation, &policy.gradient, &policy.weight, &policy.weight_gradient}) {
    EXPECT_EQ(one->is_masked, one == &policy.activation);
    EXPECT_EQ(one->is_gathered, one == &policy.gradient);
    EXPECT_EQ(one->has_feedback, one == &policy.weight_gradient);
  }
  config.tp_weight.feedback = false;
  EXPECT_FALSE(grid_policy_of(config, spec).weight_gradient.has_feedback);
}

}  // namespace
}  // namespace laconic
