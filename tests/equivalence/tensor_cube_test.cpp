// Whole models on more ranks than quick tests have: the paper's next cube, and squares in layers.
#include "grid_cases.hpp"

namespace laconic {
namespace {

// The family's case with so many samples as rows are cut in, or a multiple.
GridCase with_samples(std::int64_t samples, Family family, std::int64_t vocabulary) {
  return {fmt::format("{} samples", samples), std::move(family),
          Batch{{"ids", numbers({samples, kGridTokens}, vocabulary, 1)},
                {"targets", numbers({samples, kGridTokens}, vocabulary, 5)}}};
}

// Heads, widths and vectors that squares of two, three and four cut, in layers.
std::vector<GridCase> square_cases(std::int64_t samples) {
  return {with_samples(
              samples,
              GptShape{.layers = 1, .width = 144, .heads = 12, .context = 6, .vocabulary = 29}, 29),
          with_samples(samples,
                       LlamaShape{.layers = 1,
                                  .width = 144,
                                  .heads = 12,
                                  .key_heads = 12,
                                  .head_width = 12,
                                  .hidden = 144,
                                  .context = 6,
                                  .vocabulary = 31},
                       31)};
}

TEST(TensorCube, TrainsTheModelOfOneProcessOn27Ranks) {
  const std::vector<GridCase> cases = {
      with_samples(
          9, GptShape{.layers = 2, .width = 54, .heads = 6, .context = 6, .vocabulary = 29}, 29),
      with_samples(9,
                   LlamaShape{.layers = 1,
                              .width = 54,
                              .heads = 6,
                              .key_heads = 3,
                              .head_width = 18,
                              .hidden = 108,
                              .context = 6,
                              .vocabulary = 31},
                   31)};
  for (const GridCase& c : cases)
    for (const TableCut table : {TableCut::split, TableCut::gathered}) {
      const GridPlan plan{TensorMethod::three_d, {.tp = {3, 3, 3}}, table};
      expect_one_process(c, plan, 0, {}, 5);
      expect_one_process(c, plan, 0, {.recompute = true, .is_split = true}, 2);
    }
}

// (q, d) of the specification, section 8.5, beyond those of quick tests.
TEST(TensorCube, SquaresInLayersTrainTheModelOfOneProcess) {
  for (const auto& [q, depth, samples] : {std::tuple{3, 1, 9}, {4, 1, 8}, {2, 4, 8}, {3, 2, 18}})
    for (const GridCase& c : square_cases(samples)) {
      const TensorMethod method = depth == 1 ? TensorMethod::two_d : TensorMethod::two_and_half_d;
      const GridPlan plan{method, {.tp = {q, q, depth}}, TableCut::gathered};
      ASSERT_TRUE(check(plan).empty());
      expect_one_process(c, plan, 0, {}, 2);
    }
}

}  // namespace
}  // namespace laconic
