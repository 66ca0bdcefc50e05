// Whole models on the 27 ranks of the paper's next cube.
#include "grid_cases.hpp"

namespace laconic {
namespace {

// The family's case with nine samples: rows are cut in nine.
GridCase with_nine_samples(Family family, std::int64_t vocabulary) {
  return {"nine samples", std::move(family),
          Batch{{"ids", numbers({9, kGridTokens}, vocabulary, 1)},
                {"targets", numbers({9, kGridTokens}, vocabulary, 5)}}};
}

TEST(TensorCube, TrainsTheModelOfOneProcessOn27Ranks) {
  const std::vector<GridCase> cases = {
      with_nine_samples(
          GptShape{.layers = 2, .width = 54, .heads = 6, .context = 6, .vocabulary = 29}, 29),
      with_nine_samples(LlamaShape{.layers = 1,
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

}  // namespace
}  // namespace laconic
