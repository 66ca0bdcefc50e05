#include "laconic/simulate/rank_work.hpp"

#include <gtest/gtest.h>

#include "laconic/simulate/test_subject.hpp"

namespace laconic {
namespace {

constexpr double kProduct = 2e9, kOrthonormal = 1e9, kCopy = 4e9;

HostDevice device_with_factors() {
  HostDevice device{.name = "d", .copy_bytes_per_second = kCopy};
  device.multiply_adds_per_second[0] = 8e9;
  device.factors = {kProduct, kOrthonormal};
  return device;
}

FactorWork work_of(std::int64_t rank, const std::vector<std::vector<std::int64_t>>& shapes,
                   double share = 1) {
  FactorWork work;
  for (const auto& shape : shapes)
    add_factors({.rank = rank, .min_ratio = 1}, {Dtype::f32, shape}, share, work);
  return work;
}

TEST(FactorWork, CountsWhatSharedLowRankMakes) {
  const FactorWork work = work_of(10, {{300, 200}, {50}, {12, 12}});
  const std::vector<NamedTensor> tensors = {
      {"a", {Dtype::f32, {300, 200}}}, {"b", {Dtype::f32, {50}}}, {"c", {Dtype::f32, {12, 12}}}};
  const SharedLowRank shared({.rank = 10, .min_ratio = 1}, tensors, 2);
  EXPECT_EQ(work.left, static_cast<double>(shared.counts().left));
  EXPECT_EQ(work.right, static_cast<double>(shared.counts().right));
  EXPECT_EQ(work.raw, static_cast<double>(shared.counts().raw)) << "12 x 12 would not shrink";
  EXPECT_EQ(work.matrices, 300 * 200);
  EXPECT_EQ(work.products, 300 * 200 * 10);
  EXPECT_EQ(work.left_columns, 2 * 300 * 100);
  EXPECT_EQ(work.right_columns, 2 * 200 * 100);
  EXPECT_EQ(work_of(10, {{300, 200}}, 0.5).products, 300 * 200 * 10 / 2);
}

TEST(FactorSeconds, AreProductsColumnsAndPasses) {
  const FactorWork work = work_of(10, {{300, 200}, {50}});
  const double product = 300 * 200 * 10 / kProduct, copy = 4 * 300 * 200 / kCopy,
               raw = 4 * 50 / kCopy;
  const FactorSeconds with = factor_seconds(work, true, device_with_factors());
  EXPECT_DOUBLE_EQ(with.begin, 2 * 200 * 100 / kOrthonormal + product + 2.5 * copy + raw);
  EXPECT_DOUBLE_EQ(with.project, 2 * 300 * 100 / kOrthonormal + product);
  EXPECT_DOUBLE_EQ(with.finish, product + 2.5 * copy + 2 * raw);
  const FactorSeconds without = factor_seconds(work, false, device_with_factors());
  EXPECT_NEAR(with.total() - without.total(), 4 * copy, 1e-12) << "a residual is remembered";
}

// A file that does not know them is not taken for one of a device without any.
TEST(FactorSeconds, OfUnknownRatesAreDerived) {
  HostDevice device = device_with_factors();
  device.factors = {};
  const FactorWork work = work_of(10, {{300, 200}});
  EXPECT_DOUBLE_EQ(factor_seconds(work, false, device).project,
                   300 * 200 * 10 / 8e9 + 2 * 300 * 100 / (2 * kCopy / 8));
}

TEST(ParameterPasses, AreThoseOfTheRules) {
  LocalSection local;
  EXPECT_EQ(parameter_passes(local).together, 1);
  EXPECT_EQ(parameter_passes(local).leaving + parameter_passes(local).arriving, 0);
  local = {.steps = 4, .method = LocalMethod::linear};
  const ParameterPasses at_once = parameter_passes(local);
  local.overlap = 2;
  const ParameterPasses beside = parameter_passes(local);
  EXPECT_EQ(beside.leaving, at_once.leaving + 1) << "what left is kept";
  EXPECT_EQ(beside.arriving, at_once.arriving + 3) << "the difference is added";
  EXPECT_EQ(at_once.together, 2) << "a mean of gradients";
  local.method = LocalMethod::diloco;
  EXPECT_LT(parameter_passes(local).leaving, at_once.leaving) << "no denominator";
}

double simulated_seconds(const RunConfig& config, const HostDevice& device) {
  Hosts hosts = bare_hosts(4, 1e9, 0);
  hosts.groups[0].device = device;
  return Subject(config, hosts).seconds();
}

// Two replicas, nothing but the factors' rates changes: a step takes longer by what they take.
TEST(FactorSeconds, AreInASimulatedStep) {
  RunConfig config = lab_config(1, 2);
  config.dp_gradient.method = GradientMethod::power_sgd;
  config.dp_gradient.rank = 8;
  config.dp_gradient.overlap = config.dp_gradient.by_block = false;
  HostDevice fast = device_with_factors(), slow = fast;
  fast.copy_bytes_per_second = slow.copy_bytes_per_second = 0;
  slow.factors = {kProduct / 2, kOrthonormal / 2};
  FactorWork work;
  for (const ParameterSpec& p : Subject(config, bare_hosts(4, 1e9)).spec.parameters)
    add_factors({.rank = 8, .min_ratio = config.dp_gradient.min_ratio}, {Dtype::f32, p.sizes}, 1,
                work);
  EXPECT_NEAR(simulated_seconds(config, slow) - simulated_seconds(config, fast),
              factor_seconds(work, true, fast).total(),
              1e-3 * factor_seconds(work, true, fast).total());
}

}  // namespace
}  // namespace laconic
