// Parameters that several ranks of a pipeline share, in models that no family has yet: three
// holders, several sets, two sets that begin in one block.
#include <ATen/ops/full.h>
#include <c10/core/GradMode.h>
#include <fmt/format.h>
#include <gtest/gtest.h>

#include "laconic/config/read.hpp"
#include "laconic/policy/class_policy.hpp"
#include "laconic/transport/in_process.hpp"
#include "laconic/update/residual_state.hpp"
#include "laconic/update/update_rule.hpp"

namespace laconic {
namespace {

constexpr int kRanks = 3;

// One block a rank. "all" is used by all three, "ends" by the first and the last, "left" and "more"
// by the first two; each block also has one of its own. Three sets begin in block 0.
ModelSpec chain() {
  ModelSpec spec;
  spec.parameters = {{"all", {6}},  {"ends", {4}}, {"left", {3}}, {"more", {5}},
                     {"own0", {2}}, {"own1", {2}}, {"own2", {2}}};
  const std::vector<SeamTensor> x = {{"x", {1}}};
  spec.blocks = {{.name = "first", .kind = "first", .uses = {0, 1, 2, 3, 4}, .out = x},
                 {.name = "middle", .kind = "middle", .uses = {0, 2, 3, 5}, .out = x},
                 {.name = "last", .kind = "last", .uses = {0, 1, 6}, .out = {}}};
  return spec;
}

double given(std::size_t number, int pp, int dp) {
  return static_cast<double>(100 * number + 10 * static_cast<std::size_t>(pp) + 1) +
         0.5 * static_cast<double>(dp);
}

// What all that hold the parameter have given, which is what each must get.
double expected(const ModelSpec& spec, std::size_t number, int dp) {
  double sum = 0;
  for (const std::int64_t block : users_of(spec, number))
    for (int d = 0; d < dp; ++d) sum += given(number, static_cast<int>(block), d);
  return sum;
}

void expect_sums(int dp, const std::vector<std::string>& sets, at::ScalarType sum_type) {
  RunConfig config;
  config.mesh.pp = kRanks;
  config.mesh.dp = dp;
  config.train.batch = 24;
  for (const std::string& set : sets) ASSERT_TRUE(apply_set(set, config).empty()) << set;
  const Mesh mesh{.pp = kRanks, .dp = dp};
  run_ranks(size(mesh), [&](Transport& transport) {
    Engine engine(transport, {.deadline = std::chrono::seconds(20)});
    ProgressThread progress_thread(engine);
    World world(mesh, progress_thread);
    HeldBlocks held(kRanks, false);
    held[static_cast<std::size_t>(world.pp_member())] = true;
    Weights weights = make_empty_weights(GptShape{}, chain(), at::TensorOptions(), held);
    weights.precision.sum = sum_type;
    const auto rule = make_update_rule({.config = config,
                                        .weights = weights,
                                        .world = world,
                                        .shared = shared_parameters(weights.spec, {0, 1, 2}),
                                        .encoded = kRanks});
    for (std::int64_t step = 0; step < 2; ++step) {
      rule->begin(step);
      for (Parameter& p : weights.parameters)
        p.gradient = at::full(p.value.sizes(),
                              given(p.number, world.pp_member(), world.dp_member()), sum_type);
      rule->block_done(world.pp_member());
      rule->measure(1, 0);
      for (const Parameter& p : weights.parameters) {
        EXPECT_TRUE(p.gradient.eq(expected(weights.spec, p.number, dp)).all().item<bool>())
            << p.name << " at " << to_text(world.coord()) << ": "
            << p.gradient.flatten()[0].item<double>() << ", not "
            << expected(weights.spec, p.number, dp);
        EXPECT_EQ(p.gradient.scalar_type(), sum_type);
      }
      rule->abandon();
      clear_gradients(weights);
    }
    engine.flush();
    world.gather({});
    engine.flush();
  });
}

TEST(SharedParameters, AreSummedOverAllRanksThatUseThem) {
  const std::vector<SharedParameters> sets = shared_parameters(chain(), {0, 1, 2});
  ASSERT_EQ(sets.size(), 3U);
  EXPECT_EQ(sets[0].holders, (std::vector<int>{0, 1, 2}));
  for (const int dp : {1, 2})
    for (const char* fused : {"embedding.tied.fused=true", "embedding.tied.fused=false"})
      for (const char* overlap : {"dp.gradient.overlap=true", "dp.gradient.overlap=false"}) {
        SCOPED_TRACE(fmt::format("dp {}, {}, {}", dp, fused, overlap));
        expect_sums(dp, {fused, overlap}, at::kFloat);
      }
}

// Parameters are floats here, and their gradients add up in doubles, between ranks too.
TEST(SharedParameters, GradientsOfMorePrecisionTravelWithAllOfIt) {
  for (const char* fused : {"embedding.tied.fused=true", "embedding.tied.fused=false"})
    expect_sums(2, {fused}, at::kDouble);
}

TEST(SharedParameters, ForgettingThemIsNoticedAtOnce) {
  RunConfig config;
  config.mesh.pp = kRanks;
  run_ranks(kRanks, [&](Transport& transport) {
    Engine engine(transport, {.deadline = std::chrono::seconds(20)});
    ProgressThread progress_thread(engine);
    World world({.pp = kRanks}, progress_thread);
    HeldBlocks held(kRanks, false);
    held[static_cast<std::size_t>(world.pp_member())] = true;
    Weights weights = make_empty_weights(GptShape{}, chain(), at::TensorOptions(), held);
    EXPECT_ANY_THROW(make_update_rule({config, weights, world, {}, kRanks}));
  });
}

}  // namespace
}  // namespace laconic
