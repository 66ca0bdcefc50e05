#include "laconic/plan/row_option.hpp"

#include <fmt/format.h>
#include <gtest/gtest.h>

#include <algorithm>
#include <cstdlib>
#include <map>
#include <string>

#include "laconic/hosts/known_device.hpp"
#include "laconic/plan/answer.hpp"
#include "laconic/plan/confirm.hpp"
#include "laconic/plan/test_request.hpp"

namespace laconic {
namespace {

// Which ways of rows there are follows from what a run trains by.
TEST(PlanRows, RowsAreOfferedWhereAConfigurationCanHaveThem) {
  using Names = std::vector<std::string>;
  const auto reasons_of = [](const PlanSpace& space) {
    std::string text;
    for (const RefusedPolicy& refused : space.refused)
      text += refused.choice.name + ": " + refused.why + "\n";
    return text;
  };
  PlanRequest request = rows_request(RowsOptimiser::same);
  const Names all = {"exact",
                     "alltoall",
                     "allgather",
                     "server",
                     "alltoall, block by block",
                     "alltoall, 8 bits",
                     "alltoall, 4 bits",
                     "alltoall, 8 bits, block by block",
                     "alltoall, 4 bits, block by block"};
  PlanSpace space = space_of(request);
  EXPECT_EQ(names_of(space, PolicyClass::rows), all);
  EXPECT_EQ(reasons_of(space), "");
  for (const Candidate& whole : candidates(space)) {
    const Arrangement& a = arrangement_of(space, whole);
    if (whole.at(PlanDim::rows_policy) == 0) continue;
    const RunConfig config = config_of(space, whole);
    ASSERT_TRUE(a.dp > 1 && a.tp() == 1 && config.local.steps == 0);
    ASSERT_TRUE(a.pp == 1 || config.train.update == UpdateBy::step);
    ASSERT_TRUE(a.dp == 2 || config.embedding_rows.codec == "raw")
        << "3 does not divide the columns of a row";
    ASSERT_EQ(to_text(StepModel(space).problems(whole)), "");
  }
  // A norm of all gradients is not there block by block.
  request.base.train.clip = 1;
  space = space_of(request);
  EXPECT_EQ(names_of(space, PolicyClass::rows).size(), 6U);
  EXPECT_NE(reasons_of(space).find("alltoall, block by block: update = \"block\" with "
                                   "train.clip = 1"),
            std::string::npos)
      << reasons_of(space);
  // Another algorithm is offered to who asks for what nobody has measured, or names it.
  request = rows_request(RowsOptimiser::lazy_adam);
  space = space_of(request);
  Names lazy = all;
  std::erase(lazy, "allgather");  // which is "exact" there
  EXPECT_EQ(names_of(space, PolicyClass::rows), lazy);
  request.base.embedding_rows.optimiser = RowsOptimiser::same;
  space = space_of(request);
  EXPECT_EQ(names_of(space, PolicyClass::rows), Names{"exact"});
  EXPECT_NE(reasons_of(space).find("alltoall: optimiser = \"same\""), std::string::npos)
      << reasons_of(space);
  request.with_unproven = true;
  space = space_of(request);
  EXPECT_EQ(names_of(space, PolicyClass::rows).size(), 7U);
  for (const Candidate& whole : candidates(space))
    ASSERT_TRUE(whole.at(PlanDim::rows_policy) == 0 || !is_proven(space, whole));
  // Neither a table that is the output's, too, nor rows of a GPU.
  request = rows_request(RowsOptimiser::same);
  request.base.model.tied = true;
  space = space_of(request);
  EXPECT_EQ(names_of(space, PolicyClass::rows), Names{"exact"});
  EXPECT_NE(reasons_of(space).find("no table that is only looked up"), std::string::npos);
  request = rows_request(RowsOptimiser::same);
  request.hosts = read_hosts("campus", plan_presets());
  EXPECT_NE(reasons_of(space_of(request)).find("these hosts have GPUs"), std::string::npos);
  request.base.embedding_rows.optimiser = RowsOptimiser::lazy_adam;
  EXPECT_NE(to_text(check(request)).find("all hosts have GPUs"), std::string::npos);
}

// Where rows are most of what travels, formulas know of them what simulations do: which way, in how
// many bits, and what is hidden.
TEST(PlanRows, RowsTakeAboutAsLongAsInSimulations) {
  for (const double factor : {0.1, 1.0}) {
    PlanRequest request = rows_request(RowsOptimiser::lazy_adam);
    request.base.model.context = 256;
    request.hosts.groups[0].hosts = 2;
    request.hosts.groups[0].cores = 0;
    request.hosts = with_link_rates(request.hosts, factor);
    std::erase_if(request.policies, [](const PolicyChoice& p) { return p.name == "linear 4"; });
    const PlanSpace space = space_of(request);
    StepModel model(space);
    std::map<std::string, double> seconds;
    for (const Candidate& whole : candidates(space)) {
      const Arrangement& a = arrangement_of(space, whole);
      if (a.dp != 2 || a.pp != 1 || whole.at(PlanDim::recompute) != 0 ||
          whole.at(PlanDim::microbatch) != 1 || whole.at(PlanDim::dp_policy) != 1)
        continue;
      const std::string name = names_of(
          space, PolicyClass::rows)[static_cast<std::size_t>(whole.at(PlanDim::rows_policy))];
      seconds[name] = model.seconds(whole);
      const double simulated =
          simulated_plan(config_of(space, whole), space.hosts, seating_of(space, a))
              .seconds.value();
      EXPECT_NEAR(seconds[name] / simulated, 1, 0.1) << describe_plan(space, whole);
    }
    ASSERT_EQ(seconds.size(), 8U);
    if (factor == 1) continue;
    EXPECT_LT(seconds["alltoall, 8 bits"], 0.85 * seconds["alltoall"]);
    EXPECT_LT(seconds["alltoall, block by block"], seconds["alltoall"]);
  }
}

}  // namespace
}  // namespace laconic
