// A step that is not finite leaves everything as it was: parameters, moments, and what sums
// remember.
#include <fmt/ranges.h>

#include "rule_ranks.hpp"

namespace laconic::test {
namespace {

constexpr std::int64_t kBad = 2;  // the step that is not finite

at::Tensor damaged_gradient(const Parameter& p, std::int64_t step, int replica, End end) {
  at::Tensor gradient = random_gradient(p, step, replica, end);
  if (step == kBad && replica == 1 && p.number == 3) gradient.fill_(INFINITY);
  return gradient;
}

void expect_same_rank(const Ended& expected, const Ended& actual) {
  const std::string where = to_text(actual.coord);
  for (const auto member : {&Ended::values, &Ended::moment1, &Ended::moment2})
    expect_same_tensors(expected.*member, actual.*member, where);
  EXPECT_EQ(expected.saved.size(), actual.saved.size()) << where;
  for (const auto& [name, tensor] : expected.saved) {
    ASSERT_TRUE(actual.saved.contains(name)) << where << ": " << name;
    EXPECT_TRUE(actual.saved.at(name).equal(tensor)) << where << ": " << name;
  }
}

const std::vector<std::vector<std::string>> kRules = {
    {},
    {"dp.gradient.codec=quantise:bits=3", "embedding.tied.codec=quantise:bits=3"},
    {"dp.gradient.codec=quantise:bits=3", "dp.gradient.overlap=false", "embedding.tied.fused=false",
     "embedding.tied.codec=sign"},
    {"dp.gradient.codec=top_k:keep=0.1", "dp.gradient.down=quantise:bits=4"},
    {"dp.gradient.codec=random_k:keep=0.2"},
    {"dp.gradient.method=power_sgd", "dp.gradient.rank=2", "embedding.tied.codec=sign"},
    {"dp.gradient.method=power_sgd", "dp.gradient.rank=2", "dp.gradient.by_block=true",
     "dp.gradient.codec=quantise:bits=6"},
    {"dp.gradient.method=compressed_adam", "dp.gradient.codec=sign", "dp.gradient.warmup=1"}};

// With a class that is bypassed from the bad step on, what is owed would leave in it, and must be
// owed still.
TEST(SkippedStep, LeavesParametersMomentsAndResidualsAsTheyWere) {
  const std::vector<RuleRun::Change> bypassed = {
      {kBad, Traffic::dp_gradient, {.is_bypassed = true}},
      {kBad, Traffic::embedding_tied, {.is_bypassed = true}}};
  for (const Mesh& mesh : {Mesh{.dp = 2}, Mesh{.pp = 2, .dp = 2}})
    for (const auto& sets : kRules)
      for (const auto& changes : {std::vector<RuleRun::Change>(), bypassed}) {
        SCOPED_TRACE(
            fmt::format("{}: {}, {} changes", to_text(mesh), fmt::join(sets, " "), changes.size()));
        const RunConfig config = config_for(mesh, sets);
        RuleRun good{mesh, config, kBad, damaged_gradient}, bad = good;
        bad.steps = kBad + 1;
        bad.changes = changes;
        const auto before = run_rules(good), after = run_rules(bad);
        for (std::size_t r = 0; r < before.size(); ++r) {
          EXPECT_TRUE(after[r].measured.back().is_skipped);
          expect_same_rank(before[r], after[r]);
        }
        // What is remembered beside what is saved has gone back, too: the next step is that of a
        // run which begins there.
        bad.steps = kBad + 2;
        RuleRun resumed{mesh, config, 1, damaged_gradient};
        resumed.first_step = kBad + 1;
        resumed.from = before;
        resumed.changes = changes;
        if (config.dp_gradient.method == GradientMethod::compressed_adam) continue;  // `updates`
        const auto whole = run_rules(bad), parts = run_rules(resumed);
        for (std::size_t r = 0; r < whole.size(); ++r)
          for (const auto& [number, gradient] : whole[r].gradients)
            EXPECT_TRUE(gradient.equal(parts[r].gradients.at(number)))
                << to_text(whole[r].coord) << ", parameter " << number;
      }
}

// A replica that leaves a step of its round out has made one update fewer than the others, with a
// checkpoint between, too.
TEST(SkippedStep, OfOneReplicaAloneIsRememberedByIt) {
  const Mesh mesh{.dp = 2};
  for (const char* method : {"diloco", "streaming_diloco", "linear", "sparse_loco"}) {
    SCOPED_TRACE(method);
    const RunConfig config = config_for(
        mesh, {fmt::format("local.method={}", method), "local.steps=4", "local.warmup=0"});
    RuleRun run{.mesh = mesh,
                .config = config,
                .steps = 8,
                .gradient = damaged_gradient,
                .is_settled = true};
    const auto whole = run_rules(run);
    EXPECT_TRUE(whole[1].measured[kBad].is_skipped);
    EXPECT_FALSE(whole[0].measured[kBad].is_skipped);
    RuleRun half = run;
    half.steps = 4;
    RuleRun rest = half;
    rest.first_step = 4;
    rest.from = run_rules(half);
    const auto parts = run_rules(rest);
    for (std::size_t r = 0; r < whole.size(); ++r) expect_same_rank(whole[r], parts[r]);
  }
}

}  // namespace
}  // namespace laconic::test
