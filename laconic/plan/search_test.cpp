#include <gtest/gtest.h>

#include <algorithm>
#include <cstdlib>

#include "laconic/base/error.hpp"
#include "laconic/hosts/hosts_file.hpp"
#include "laconic/plan/search.hpp"

namespace laconic {
namespace {

std::string plan_presets() {
  const char* source = std::getenv("LACONIC_SOURCE");
  return std::string(source != nullptr ? source : ".") + "/presets";
}

RunConfig planned_config() {
  RunConfig config;
  config.model.layers = 4;
  config.model.width = 64;
  config.model.heads = 4;
  config.model.context = 32;
  config.model.vocabulary = 500;
  config.train.batch = 8;
  config.data.train = "none";
  return config;
}

PlanRequest planned_request(const std::string& hosts) {
  return {.base = planned_config(),
          .hosts = read_hosts(hosts, plan_presets()),
          .policies = read_policies(plan_presets() + "/plan/losses.toml")};
}

TEST(Plan, SearchFindsWhatTryingAllFinds) {
  for (const char* hosts : {"lab", "two-sites", "home-fibre"}) {
    PlanRequest request = planned_request(hosts);
    request.hosts.groups[0].hosts = std::min(request.hosts.groups[0].hosts, 4);
    const PlanSpace space = space_of(request);
    StepModel model(space);
    const SearchLimits limits{.plans = 200, .with_variants = true};
    const SearchResult all = try_all_plans(space, model, limits),
                       found = search_plans(space, model, limits);
    ASSERT_EQ(all.plans.size(), 200U) << hosts;
    EXPECT_EQ(found.plans, all.plans) << hosts;
    printf("%s: all %ld opened %ld timed %ld refused %ld large %ld\n", hosts, long(all.timed),
           long(found.opened), long(found.timed), long(all.refused), long(all.too_large));
  }
}

TEST(Plan, BoundsAreNeverAboveWhatTheyBound) {
  for (const char* hosts : {"lab", "two-sites"}) {
    const PlanSpace space = space_of(planned_request(hosts));
    StepModel model(space);
    for (const Candidate& whole : candidates(space)) {
      if (!model.problems(whole).empty()) continue;
      const double seconds = model.seconds(whole);
      Candidate open = whole;
      for (std::size_t depth = kPlanDims; depth-- > 0;) {
        open.choice[depth] = kOpen;
        ASSERT_LE(model.lower_bound(open), seconds) << hosts << " at depth " << depth;
      }
    }
  }
}

}  // namespace
}  // namespace laconic
