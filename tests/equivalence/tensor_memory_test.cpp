// What forward keeps for backward on a tensor grid, counted in the allocator, against the formulas
// that estimates of memory have.
#include <barrier>
#include <numeric>

#include "grid_cases.hpp"
#include "laconic/architecture/grid_memory.hpp"
#include "laconic/tensor/test_alive.hpp"

namespace laconic {
namespace {

// Large enough for what a rank keeps to be activations: no vector and no statistic counts. Nor does
// what the head of 1d has of the whole stream, a norm: the formulas leave it out.
GridCase wide_case() {
  constexpr std::int64_t kTokens = 16, kWords = 1024;
  return {"gpt",
          GptShape{.layers = 3, .width = 128, .heads = 4, .context = 16, .vocabulary = kWords},
          Batch{{"ids", numbers({kGridSamples, kTokens}, kWords, 1)},
                {"targets", numbers({kGridSamples, kTokens}, kWords, 2)}}};
}
constexpr std::int64_t kWideTokens = 16;

// Elements that one rank keeps, in the mean over all. The second microbatch counts: what
// collectives keep to use again is there since the first.
double kept_in_a_run(const GridCase& c, const GridPlan& plan, bool recomputes) {
  const AliveBytes alive;
  std::barrier meet(size(plan.mesh));
  std::size_t before = 0, after = 0;
  on_grid(plan, [&](TensorGrid& grid, Rank rank) {
    Pass pass = pass_of(c, 0);
    pass.grid = &grid;
    Weights weights =
        make_weights(c.family, 7, kInDouble, {}, kWideTokens, {plan, coord_of(plan.mesh, rank)});
    const StageOptions options{.recompute = recomputes};
    forward_backward(weights, c.batch, pass, 1.0, options);
    clear_gradients(weights);
    Stage stage(weights, {0, block_count(weights.spec)}, options);
    meet.arrive_and_wait();
    if (rank == 0) before = AliveBytes::now();
    meet.arrive_and_wait();
    stage.forward(0, c.batch, pass, {});
    meet.arrive_and_wait();
    if (rank == 0) after = AliveBytes::now();
    meet.arrive_and_wait();
  });
  return static_cast<double>(after - before) / sizeof(double) / size(plan.mesh);
}

double predicted_kept(const GridCase& c, const GridPlan& plan, bool recomputes) {
  const ModelSpec spec = model_spec(c.family, kWideTokens);
  double kept = 0;
  for (const BlockSpec& block : spec.blocks)
    kept += kept_on_a_rank(plan, block, recomputes) * kGridSamples;
  const KeptGathered more = kept_gathered_on_a_rank(spec, plan, kGridSamples, recomputes);
  return std::accumulate(more.kept.begin(), more.kept.end(), kept);
}

TEST(TensorMemory, ForwardKeepsWhatTheFormulasSay) {
  const GridCase c = wide_case();
  const GridPlan cube{TensorMethod::three_d, {.tp = {2, 2, 2}}, TableCut::split},
      square{TensorMethod::two_d, {.tp = {2, 2, 1}}, TableCut::gathered},
      line{TensorMethod::one_d, {.tp = {1, 4, 1}}, TableCut::split},
      sequence{TensorMethod::one_d_sequence, {.tp = {1, 4, 1}}, TableCut::split};
  for (const GridPlan& plan :
       {cube, GridPlan{TensorMethod::three_d, {.tp = {2, 2, 2}}, TableCut::gathered}, square, line,
        kept(cube), kept(square), kept(line), kept(sequence)})
    for (const bool recomputes : {false, true}) {
      SCOPED_TRACE(fmt::format("{} recomputes {}", to_text(plan), recomputes));
      const double wanted = predicted_kept(c, plan, recomputes);
      const double kept = kept_in_a_run(c, plan, recomputes);
      EXPECT_NEAR(kept / wanted, 1, 0.1) << kept << " and " << wanted;
    }
}

}  // namespace
}  // namespace laconic
