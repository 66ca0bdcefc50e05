#include "laconic/architecture/model_spec.hpp"

#include <gtest/gtest.h>

#include <cmath>
#include <set>

namespace laconic {
namespace {

constexpr GptShape kShape{.layers = 3, .width = 8, .heads = 2, .context = 6, .vocabulary = 11};

TEST(ModelSpec, GptHasTheNumbersOfParametersThatGptTwoHas) {
  const Family small =
      GptShape{.layers = 12, .width = 768, .heads = 12, .context = 1024, .vocabulary = 50257};
  EXPECT_EQ(parameter_count(model_spec(small, 1024)), 124'439'808);  // as published
}

// As GPT-2 has it: 0.02, and what branches add to the residual stream shrunk by the root of their
// number, two a layer.
TEST(ModelSpec, AGptBeginsWithTheDeviationsThatGptTwoHas) {
  for (const ParameterSpec& p : model_spec(kShape, 6).parameters) {
    const bool is_branch = p.name.ends_with("c_proj.weight"), is_matrix = p.sizes.size() == 2;
    const bool is_gain = p.name.find("ln_") != std::string::npos && p.name.ends_with("weight");
    EXPECT_DOUBLE_EQ(p.deviation, is_branch   ? 0.02 / std::sqrt(6.0)
                                  : is_matrix ? 0.02
                                              : 0.0)
        << p.name;
    EXPECT_EQ(p.mean, is_gain ? 1 : 0) << p.name;
  }
}

TEST(ModelSpec, EveryParameterIsUsedAndBlocksListTheirsInAscendingOrder) {
  const ModelSpec spec = model_spec(kShape, 6);
  std::set<std::size_t> used;
  for (const BlockSpec& block : spec.blocks) {
    EXPECT_TRUE(std::ranges::is_sorted(block.uses)) << block.name;
    used.insert(block.uses.begin(), block.uses.end());
  }
  EXPECT_EQ(used.size(), spec.parameters.size());
  EXPECT_EQ(*used.rbegin(), spec.parameters.size() - 1);
}

TEST(ModelSpec, BlocksFormAChainThatEndsInTheLoss) {
  const ModelSpec spec = model_spec(kShape, 4);
  ASSERT_EQ(block_count(spec), 5);
  for (std::size_t b = 0; b + 1 < spec.blocks.size(); ++b) {
    ASSERT_EQ(spec.blocks[b].out.size(), 1U);
    EXPECT_EQ(spec.blocks[b].out[0].per_sample, (std::vector<std::int64_t>{4, 8}));
    EXPECT_EQ(elements_of(spec.blocks[b].out[0]), 32);
  }
  EXPECT_TRUE(spec.blocks.back().out.empty());
  EXPECT_EQ(spec.blocks[2].name, "layer 1");
  EXPECT_EQ(spec.blocks[2].kind, "layer");
}

TEST(ModelSpec, WorkIsCountedPerSampleAndGrowsWithItsLength) {
  const ModelSpec spec = model_spec(kShape, 4), longer = model_spec(kShape, 6);
  EXPECT_EQ(spec.blocks[1].multiply_adds, 4.0 * (12 * 64 + 8 * 4));
  EXPECT_EQ(spec.blocks[4].multiply_adds, 4.0 * 8 * 11);
  EXPECT_GT(longer.blocks[1].multiply_adds, spec.blocks[1].multiply_adds * 6 / 4);
}

TEST(ModelSpec, OnlyTheTokenEmbeddingOfAGptIsShared) {
  const ModelSpec spec = model_spec(kShape, 6);
  EXPECT_EQ(users_of(spec, 0), (std::vector<std::int64_t>{0, 4}));
  EXPECT_EQ(first_user(spec, 0), 0);
  for (std::size_t p = 1; p < spec.parameters.size(); ++p) EXPECT_EQ(users_of(spec, p).size(), 1U);
}

TEST(SharedParameters, AreThoseOfSeveralRanks) {
  const ModelSpec spec = model_spec(kShape, 6);
  EXPECT_TRUE(shared_parameters(spec, {0, 0, 0, 0, 0}).empty());
  // A V: the first rank has both ends.
  EXPECT_TRUE(shared_parameters(spec, {0, 1, 1, 0, 0}).empty());
  const SharedParameters ends{.parameters = {0}, .holders = {0, 2}, .first_user = 0};
  EXPECT_EQ(shared_parameters(spec, {0, 0, 1, 1, 2}), std::vector{ends});
}

TEST(SharedParameters, OfTheSameRanksAndBlockComeTogether) {
  ModelSpec spec;
  spec.parameters.resize(4);
  // Two parameters between ranks 0 and 1 and one between 0 and 2, all of block 0; and one between
  // ranks 0, 1 and 2 from block 1 on.
  spec.blocks = {{.name = "a", .uses = {0, 1, 2}},
                 {.name = "b", .uses = {0, 1, 3}},
                 {.name = "c", .uses = {2, 3}},
                 {.name = "d", .uses = {3}}};
  const std::vector<SharedParameters> sets = shared_parameters(spec, {0, 1, 2, 0});
  ASSERT_EQ(sets.size(), 3U);
  EXPECT_EQ(sets[0], (SharedParameters{{0, 1}, {0, 1}, 0}));
  EXPECT_EQ(sets[1], (SharedParameters{{2}, {0, 2}, 0}));
  EXPECT_EQ(sets[2], (SharedParameters{{3}, {0, 1, 2}, 1}));
}

// They leave with the first block that uses them, so those of different blocks are sets of their
// own, whoever holds them.
TEST(SharedParameters, OfDifferentFirstUsersAreSetsOfTheirOwn) {
  ModelSpec spec;
  spec.parameters = {{.name = "p", .sizes = {2}}, {.name = "q", .sizes = {3}}};
  spec.blocks = {
      {.name = "a", .uses = {0}}, {.name = "b", .uses = {1}}, {.name = "c", .uses = {0, 1}}};
  EXPECT_EQ(shared_parameters(spec, {0, 0, 1}),
            (std::vector<SharedParameters>{{{0}, {0, 1}, 0}, {{1}, {0, 1}, 1}}));
}

TEST(ModelSpec, WhatIsNoModelIsRefusedWithAllReasons) {
  EXPECT_TRUE(check(model_spec(kShape, 6)).empty());
  ModelSpec spec = model_spec(kShape, 6);
  std::swap(spec.blocks[1].uses[0], spec.blocks[1].uses[1]);
  spec.blocks[2].out.clear();
  spec.blocks[3].out[0].per_sample.clear();
  spec.blocks[4].uses.push_back(1000);
  spec.parameters.push_back({"nobody.weight", {2}});
  const Problems problems = check(spec);
  ASSERT_EQ(problems.size(), 5U) << to_text(problems);
  EXPECT_EQ(problems[0].where, "layer 0");
  EXPECT_EQ(problems[4].where, "nobody.weight");
}

TEST(Family, MoreLayersThanMessagesHaveNumbersForAreRefused) {
  GptShape shape = kShape;
  shape.layers = kMostLayers;
  EXPECT_TRUE(check(shape).empty());
  ++shape.layers;
  ASSERT_EQ(check(shape).size(), 1U);
  EXPECT_EQ(check(shape)[0].where, "model.layers");
}

TEST(Family, SaysEverySizeThatDiffers) {
  const GptShape found = kShape;
  GptShape wanted = kShape;
  wanted.layers = 4;
  wanted.vocabulary = 12;
  const Problems problems = compare(found, wanted, "runs/a");
  ASSERT_EQ(problems.size(), 2U);
  EXPECT_EQ(problems[0].what, "was made with model.layers = 3, the run asks for 4");
  EXPECT_EQ(problems[1].what, "was made with model.vocabulary = 11, the run asks for 12");
}

Family projected(const Projection& projection) {
  return with_projection(kShape, projection);
}

TEST(ModelSpec, AProjectedBoundaryIsNarrowAndItsParametersComeLast) {
  const ModelSpec plain = model_spec(kShape, 4);
  const ModelSpec spec = model_spec(
      projected(
          {.after = {2}, .rank = 3, .basis = BasisKind::learned, .anchor = AnchorKind::learned}),
      4);
  EXPECT_TRUE(check(spec).empty());
  EXPECT_EQ(spec.blocks[2].out[0].per_sample, (std::vector<std::int64_t>{4, 3}));
  EXPECT_EQ(spec.blocks[1].out[0].per_sample, (std::vector<std::int64_t>{4, 8}));
  // 4 tokens by 3 directions of a width of 8.
  EXPECT_EQ(spec.blocks[2].multiply_adds, plain.blocks[2].multiply_adds + 4 * 3 * 8);
  EXPECT_EQ(spec.blocks[3].multiply_adds, plain.blocks[3].multiply_adds + 4 * 3 * 8);
  EXPECT_NE(spec.blocks[2].kind, spec.blocks[1].kind);
  EXPECT_NE(spec.blocks[3].kind, spec.blocks[1].kind);
  ASSERT_EQ(spec.parameters.size(), plain.parameters.size() + 5);
  for (std::size_t p = 0; p < plain.parameters.size(); ++p)
    EXPECT_EQ(spec.parameters[p].name, plain.parameters[p].name);
  const ProjectedSeam& seam = *projection_behind(spec, 2);
  EXPECT_EQ(users_of(spec, *seam.basis), (std::vector<std::int64_t>{2, 3}));
  EXPECT_EQ(users_of(spec, *seam.sent), std::vector<std::int64_t>{2});
  EXPECT_EQ(users_of(spec, *seam.received), std::vector<std::int64_t>{3});
  EXPECT_EQ(spec.parameters[*seam.sent].sizes, (std::vector<std::int64_t>{11, 3}));
  EXPECT_EQ(spec.parameters[*seam.received_at].sizes, (std::vector<std::int64_t>{6, 8}));
  EXPECT_EQ(projection_behind(spec, 1), nullptr);
  for (std::size_t p = plain.parameters.size(); p < spec.parameters.size(); ++p)
    EXPECT_FALSE(is_hidden_matrix(spec, p)) << spec.parameters[p].name;
}

TEST(ModelSpec, BoundariesThatCannotBeAreRefusedWithTheNumbers) {
  EXPECT_TRUE(check(projected({.after = {1, 3}, .rank = 8})).empty());
  const auto problems = [](const Projection& projection) { return check(projected(projection)); };
  EXPECT_EQ(problems({.after = {0}, .rank = 3}).size(), 1U) << "behind the embedding";
  EXPECT_EQ(problems({.after = {4}, .rank = 3}).size(), 1U) << "of three layers";
  EXPECT_EQ(problems({.after = {2, 2}, .rank = 3}).size(), 1U);
  EXPECT_EQ(problems({.after = {3, 1, 9}, .rank = 9}).size(), 3U);
  EXPECT_EQ(problems({.after = {1}, .rank = 0}).size(), 1U);
  EXPECT_EQ(parse_layer_list("2, 4,6"), (std::vector<std::int64_t>{2, 4, 6}));
  EXPECT_EQ(layer_list({2, 4, 6}), "2,4,6");
  EXPECT_EQ(parse_layer_list(""), std::vector<std::int64_t>{});
  for (const char* text : {"2,,4", "a", "2;4", "2,"}) EXPECT_FALSE(parse_layer_list(text)) << text;
}

// Both have it, so that a run that asks for none does not go on from one that has some.
TEST(ModelSpec, TraitsTellBoundariesApart) {
  const Family with = projected({.after = {1}, .rank = 3}), none = kShape;
  EXPECT_EQ(compare(with, none, "f").size(), 1U);
  EXPECT_EQ(compare(none, with, "f").size(), 1U);
  EXPECT_EQ(compare(projected({.after = {1}, .rank = 4, .anchor = AnchorKind::learned}), with, "f")
                .size(),
            2U);
  EXPECT_TRUE(compare(projected({.after = {1}, .rank = 3, .seed = 8}), with, "f").empty())
      << "which directions they are is the folder's own";
}

}  // namespace
}  // namespace laconic
