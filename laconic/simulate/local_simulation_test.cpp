// Local updates: what a round comes to, step by step.
#include <gtest/gtest.h>

#include "laconic/base/index.hpp"
#include "laconic/reduce/sparse_change.hpp"
#include "laconic/simulate/run_picture.hpp"
#include "laconic/simulate/test_subject.hpp"
#include "laconic/wire/frame.hpp"

namespace laconic {
namespace {

RunConfig local_config(int pp, int dp, std::int64_t steps,
                       LocalMethod method = LocalMethod::diloco) {
  RunConfig config = lab_config(pp, dp);
  config.model.layers = 2;
  config.local.steps = steps;
  config.local.method = method;
  config.local.refresh = 1000000;
  return config;
}

Subject local_subject(const RunConfig& config, double bytes_per_second = 2e6) {
  return Subject(config, bare_hosts(8, bytes_per_second, 1e-4));
}

// Seconds of every block, so that nothing but messages takes any other time.
constexpr BlockTimes kBlockTimes{0.01, 0.02};

double seconds_of(const Subject& subject, Folding folding = Folding::never) {
  return subject.run(folding, std::vector<BlockTimes>(subject.spec.blocks.size(), kBlockTimes))
      .step_seconds;
}

double computing_of(const Subject& subject) {
  return static_cast<double>(subject.spec.blocks.size()) *
         static_cast<double>(subject.config.microbatches()) *
         (kBlockTimes.forward + kBlockTimes.backward);
}

double bytes_of_class(const Subject& subject, Traffic traffic) {
  return static_cast<double>(subject.sent(traffic).wire_bytes);
}

TEST(LocalUpdates, ARoundIsItsStepsAndOneSum) {
  for (const LocalMethod method :
       {LocalMethod::diloco, LocalMethod::linear, LocalMethod::sparse_loco}) {
    const auto take = [&](std::int64_t steps) {
      return seconds_of(local_subject(local_config(1, 4, steps, method)));
    };
    const double inner = computing_of(local_subject(local_config(1, 4, 1, method)));
    const double sum = take(2) - inner;  // by two
    EXPECT_GT(sum, 0);
    // Of linear ones a millionth of all rounds begins together.
    const double tolerance = method == LocalMethod::linear ? 1e-4 : kRounding;
    for (const std::int64_t steps : {4, 50})
      EXPECT_NEAR(take(steps), inner + 2 * sum / static_cast<double>(steps), tolerance)
          << name_in(kLocalMethodNames, method) << ", " << steps;
  }
}

TEST(LocalUpdates, ChangesTravelAsGradientsDo) {
  for (const char* codec : {"raw", "quantise:bits=4"}) {
    RunConfig plain = local_config(1, 4, 0), local = local_config(1, 4, 5);
    plain.dp_gradient.codec = local.dp_gradient.codec = codec;
    EXPECT_NEAR(5 * bytes_of_class(local_subject(local), Traffic::dp_gradient),
                bytes_of_class(local_subject(plain), Traffic::dp_gradient), 5)
        << codec;
  }
}

// Stages share the table of tokens: its gradient is summed within each replica in every step, and
// changes of it once a round, after those of the replicas.
TEST(LocalUpdates, StagesOfAReplicaSumWhatTheyShareInEveryStep) {
  RunConfig plain = local_config(2, 2, 0), local = local_config(2, 2, 4);
  plain.embedding_tied.fused = false;
  const double tied = bytes_of_class(local_subject(plain), Traffic::embedding_tied);
  EXPECT_NEAR(bytes_of_class(local_subject(local), Traffic::embedding_tied), 1.25 * tied, 1);
  EXPECT_NEAR(4 * bytes_of_class(local_subject(local), Traffic::dp_gradient),
              bytes_of_class(local_subject(plain), Traffic::dp_gradient), 4);
  EXPECT_NEAR(bytes_of_class(local_subject(local), Traffic::pp_activation),
              bytes_of_class(local_subject(plain), Traffic::pp_activation), 0);
}

TEST(LocalUpdates, SparseChangesHaveTheBytesOfTheirFormat) {
  const Subject subject = local_subject(local_config(1, 4, 2, LocalMethod::sparse_loco));
  std::size_t payload = 0;
  for (const ParameterSpec& p : subject.spec.parameters)
    payload += sparse_bytes({Dtype::f32, p.sizes});
  const FrameHeader header{.codec = Raw{},
                           .tensor = {Dtype::u8, {static_cast<std::int64_t>(payload)}}};
  const double least = 4 * 3 * static_cast<double>(max_frame_bytes(header)) / 2;
  EXPECT_GE(bytes_of_class(subject, Traffic::dp_gradient), least);
  EXPECT_LE(bytes_of_class(subject, Traffic::dp_gradient), least * 1.001);
}

// What the meters of runs of preset:gpt-tiny counted in rounds of 4 steps, by step: a run of 16
// steps less one of 8, on 2026-11-18.
TEST(LocalUpdates, BytesAreThoseThatRunsHaveCounted) {
  struct Counted {
    int pp;
    LocalMethod method;
    const char* codec;
    std::vector<std::pair<Traffic, std::uint64_t>> wire_bytes;
  };
  using enum Traffic;
  for (const Counted& counted : std::vector<Counted>{
           {1, LocalMethod::diloco, "raw", {{dp_gradient, 876'184}}},
           {2,
            LocalMethod::diloco,
            "raw",
            {{dp_gradient, 941'976}, {pp_activation, 524'592}, {embedding_tied, 658'600}}},
           {2, LocalMethod::diloco, "quantise:bits=4", {{dp_gradient, 121'846}}},
           {1, LocalMethod::linear, "raw", {{dp_gradient, 1'752'368}}},
           {2, LocalMethod::linear, "raw", {{dp_gradient, 1'752'368}, {embedding_tied, 724'664}}},
           {1, LocalMethod::sparse_loco, "raw", {{dp_gradient, 7'314}}}}) {
    RunConfig config = local_config(counted.pp, 2, 4, counted.method);
    config.model.width = 128;
    config.model.context = 64;
    config.model.vocabulary = 257;
    config.train.batch = 16;
    config.local.refresh = 1;
    config.dp_gradient.codec = counted.codec;
    const Subject subject = local_subject(config);
    for (const auto& [traffic, bytes] : counted.wire_bytes)
      EXPECT_EQ(subject.sent(traffic).wire_bytes, bytes)
          << name_in(kLocalMethodNames, counted.method) << ", pp " << counted.pp << ", "
          << counted.codec << ", " << name_of(traffic);
  }
}

// Changes that travel beside steps cost no time, as long as these take longer.
TEST(LocalUpdates, OverlapHidesWhatTravels) {
  const auto of = [](std::int64_t overlap, double rate) {
    RunConfig config = local_config(1, 4, 8, LocalMethod::linear);
    config.local.overlap = overlap;
    return local_subject(config, rate);
  };
  const double inner = computing_of(of(0, 2e6));
  EXPECT_GT(seconds_of(of(0, 2e6)), 1.05 * inner);
  EXPECT_NEAR(seconds_of(of(8, 2e6)), inner, 1e-3 * inner);
  double before = seconds_of(of(0, 2e5));
  for (const std::int64_t overlap : {1, 2, 4, 8}) {
    const double now = seconds_of(of(overlap, 2e5));
    EXPECT_LT(now, before) << overlap;
    EXPECT_NEAR(before - now, inner / 8 * static_cast<double>(overlap - overlap / 2), 1e-3 * now)
        << overlap;
    before = now;
  }
}

// Parts of the model at different steps: the bytes of a round are the same, and what a link carries
// in all steps of a round is hidden behind one of them.
TEST(LocalUpdates, PartsAtDifferentStepsHideWhatARoundCarries) {
  const auto of = [](bool spread, std::int64_t overlap, double rate) {
    RunConfig config = local_config(1, 4, 4, LocalMethod::linear);
    config.model.layers = 3;
    config.local.spread = spread;
    config.local.overlap = overlap;
    return local_subject(config, rate);
  };
  const double whole = bytes_of_class(of(false, 1, 2e6), Traffic::dp_gradient);
  EXPECT_NEAR(bytes_of_class(of(true, 1, 2e6), Traffic::dp_gradient), whole, 1e-5 * whole);
  const double inner = computing_of(of(true, 1, 2e6));
  // A link that is busy for half of the time: at the end of a round that is two steps.
  const double sum = 4 * (seconds_of(of(false, 0, 2e6)) - inner);
  const double rate = 2e6 * sum / (2 * inner);
  EXPECT_GT(seconds_of(of(false, 1, rate)), 1.15 * inner);
  EXPECT_LT(seconds_of(of(true, 1, rate)), 1.05 * inner);
  EXPECT_LT(seconds_of(of(true, 1, 2e5)), seconds_of(of(false, 1, 2e5)));
  // Where nothing is hidden both wait for the same bytes.
  EXPECT_NEAR(seconds_of(of(true, 0, 2e5)) / seconds_of(of(false, 0, 2e5)), 1, 0.02);
}

TEST(LocalUpdates, FragmentsOfStreamingDiLoCoAreDiLoCosBytes) {
  const auto of = [](LocalMethod method) {
    RunConfig config = local_config(1, 4, 6, method);
    config.local.fragment = 1;
    if (method == LocalMethod::streaming_diloco) config.local.overlap = 2;
    return local_subject(config);
  };
  const Subject streaming = of(LocalMethod::streaming_diloco), whole = of(LocalMethod::diloco);
  EXPECT_NEAR(
      bytes_of_class(streaming, Traffic::dp_gradient) / bytes_of_class(whole, Traffic::dp_gradient),
      1, 1e-5);
  EXPECT_LT(seconds_of(streaming), seconds_of(whole));
  EXPECT_GE(seconds_of(streaming), computing_of(streaming) * (1 - 1e-9));
}

TEST(LocalUpdates, RoundsThatRenewTheSecondMomentCostASum) {
  const auto of = [](std::int64_t refresh) {
    RunConfig config = local_config(1, 4, 4, LocalMethod::linear);
    config.local.refresh = refresh;
    return local_subject(config);
  };
  const double never = bytes_of_class(of(1000000), Traffic::dp_gradient);
  EXPECT_NEAR(bytes_of_class(of(1), Traffic::dp_gradient), 2 * never, 1e-4 * never);
  EXPECT_NEAR(bytes_of_class(of(4), Traffic::dp_gradient), 1.25 * never, 1e-4 * never);
  EXPECT_GT(seconds_of(of(1)), seconds_of(of(4)));
}

TEST(LocalUpdates, RanksFoldAndPartsAddUp) {
  for (const LocalMethod method : {LocalMethod::diloco, LocalMethod::linear})
    for (const int pp : {1, 2}) {
      const Subject subject = local_subject(local_config(pp, 4, 6, method));
      EXPECT_NEAR(seconds_of(subject, Folding::always) / seconds_of(subject), 1, 0.02) << pp;
      const RunSimulation run = subject.run();
      const RankSpent mean = mean_spent(run);
      double sum = mean.bubble + mean.idle;
      for (const double part : mean.work) sum += part;
      for (const double part : mean.exposed) sum += part;
      EXPECT_NEAR(sum / run.step_seconds, 1, 1e-6) << pp;
      EXPECT_GT(mean.exposed[index(static_cast<int>(Traffic::dp_gradient))], 0);
    }
}

}  // namespace
}  // namespace laconic
