#include "laconic/cli/layout_report.hpp"

#include <gtest/gtest.h>

#include <algorithm>
#include <cstdlib>
#include <fstream>
#include <nlohmann/json.hpp>
#include <sstream>

#include "laconic/architecture/grid_cost.hpp"

namespace laconic {
namespace {

LayoutSubject small_gpt(TensorMethod method, std::array<int, 3> grid) {
  const Family family =
      GptShape{.layers = 2, .width = 16, .heads = 2, .context = 4, .vocabulary = 10};
  const Mesh mesh{.tp = grid};
  return {.name = to_text(family),
          .spec = model_spec(family, 4),
          .plan = {.method = method, .mesh = mesh},
          .mesh = mesh,
          .samples = 8,
          .tokens = 4};
}

std::string read_golden(const std::string& name) {
  const char* root = std::getenv("LACONIC_SOURCE");
  std::ifstream file(std::string(root != nullptr ? root : ".") + "/tests/golden/layout/" + name);
  std::stringstream text;
  text << file.rdbuf();
  return text.str();
}

TEST(LayoutReport, ReadsAsItAlwaysDid) {
  EXPECT_EQ(describe(small_gpt(TensorMethod::three_d, {2, 2, 2})), read_golden("gpt-2x2x2.txt"));
}

// But for ranks that a short vocabulary leaves nothing to.
TEST(LayoutReport, EveryCellHasRanksAndNoRankHasTwo) {
  for (const auto& [method, grid] : {std::pair{TensorMethod::three_d, std::array{2, 2, 2}},
                                     {TensorMethod::three_d, {4, 2, 1}},
                                     {TensorMethod::one_d, {1, 2, 1}},
                                     {TensorMethod::two_d, {2, 2, 1}}})
    for (const LayoutPicture& picture : pictures_of(small_gpt(method, grid))) {
      Group all;
      for (const std::vector<Group>& row : picture.cells)
        for (const Group& cell : row) {
          EXPECT_FALSE(cell.empty()) << picture.title;
          all.insert(all.end(), cell.begin(), cell.end());
        }
      std::ranges::sort(all);
      EXPECT_EQ(std::ranges::adjacent_find(all), all.end()) << picture.title;
    }
}

TEST(LayoutReport, JsonHasTheSameNumbers) {
  const LayoutSubject subject = small_gpt(TensorMethod::three_d, {2, 2, 2});
  const nlohmann::ordered_json json = to_json(subject);
  double all = 0;
  for (const auto& row : json["blocks"])
    all += row["elements"].get<double>() * row["blocks"].get<double>();
  EXPECT_EQ(all, elements_of(grid_traffic(subject.spec, subject.plan, {.samples = 8})));
  EXPECT_EQ(json["kinds"][0]["names"][0], "wte.weight");
  EXPECT_EQ(json["kinds"][0]["shards"].size(), 8U);
  EXPECT_EQ(json["kinds"][0]["shards"][7].dump(), "[[9,10],[8,16]]");
}

// Of four ranks each gets three whole sums instead of six quarters of one.
TEST(LayoutReport, GatheredSumsAreCountedAsTheyAre) {
  LayoutSubject subject = small_gpt(TensorMethod::one_d, {1, 4, 1});
  const auto forward_of_a_layer = [&] {
    const nlohmann::ordered_json json = to_json(subject);
    return json["blocks"][2]["elements"].get<double>();
  };
  const double in_two_steps = forward_of_a_layer();
  const std::vector<bool> layers = {false, true, true, false};
  subject.policy.activation = {.codec = Half{}, .is_gathered = true, .blocks = layers};
  EXPECT_EQ(forward_of_a_layer(), 2 * in_two_steps);
}

}  // namespace
}  // namespace laconic
