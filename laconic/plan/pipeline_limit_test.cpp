// Where no pipeline can be both fast and exact.
#include "laconic/plan/pipeline_limit.hpp"

#include <gtest/gtest.h>

#include "laconic/hosts/known_device.hpp"
#include "laconic/plan/test_request.hpp"

namespace laconic {
namespace {

// Four hosts, and GPT-2: 124 million parameters, width 768.
PlanSpace space_of_hosts(const std::string& device, double bits_per_second, int hosts = 4) {
  PlanRequest request = planned_request("lab");
  request.base.model.layers = 12;
  request.base.model.width = 768;
  request.base.model.heads = 12;
  request.base.model.context = 1024;
  request.base.model.vocabulary = 50257;
  HostGroup& group = request.hosts.groups.at(0);
  group.hosts = hosts;
  group.ranks_per_host = 1;
  group.cores = 0;
  group.uplink.reset();
  group.card.bits_per_second = bits_per_second;
  group.device = *known_device(device);
  return space_of(request);
}

TEST(PipelineLimit, IsWhatLinksCarryOfWhatTokensNeed) {
  const PlanSpace space = space_of_hosts("h200", 20e6);
  const PipelineLimit limit = pipeline_limit(space);
  EXPECT_DOUBLE_EQ(limit.needed_bytes, 1008);  // 1.3125 of 768
  const double rank = multiply_adds_of(space.hosts.groups[0], space.base.run.precision);
  EXPECT_NEAR(limit.tokens_per_second, 4 * rank / (3 * 124.4e6), 0.01 * limit.tokens_per_second);
  EXPECT_DOUBLE_EQ(limit.carried_bytes * limit.tokens_per_second, 20e6 / 8);
  EXPECT_DOUBLE_EQ(pipeline_limit(space_of_hosts("h200", 40e6)).share(), 2 * limit.share());
}

TEST(PipelineLimit, IsToldOfFastDevicesOnSlowLinksAlone) {
  const std::string told = pipeline_warning(space_of_hosts("h200", 20e6));
  EXPECT_NE(told.find("No pipeline keeps both speed and loss here"), std::string::npos) << told;
  EXPECT_NE(told.find("1008 bytes a token"), std::string::npos) << told;
  EXPECT_EQ(pipeline_warning(space_of_hosts("h200", 100e9)), "");
  EXPECT_EQ(pipeline_warning(space_of_hosts("core", 20e6)), "");
  EXPECT_EQ(pipeline_warning(space_of_hosts("h200", 20e6, 1)), "");
}

}  // namespace
}  // namespace laconic
