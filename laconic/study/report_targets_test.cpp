// The page "targets": what is judged, by what, and where.
#include <gtest/gtest.h>

#include <stdexcept>

#include "laconic/study/report_pages.hpp"
#include "laconic/study/test_outcomes.hpp"

namespace laconic {
namespace {

using testing::contains;
using testing::invented;
using testing::invented_peer;

const Target& target_of(const std::vector<Target>& targets, const std::string& beginning) {
  for (const Target& target : targets) {
    if (target.name.starts_with(beginning)) return target;
  }
  throw std::runtime_error("no target begins with " + beginning);
}

TEST(StudyPages, AProbeIsMeteredToo) {
  Outcome probed = invented({.method = "probed"});
  probed.interface_sent_bytes += 50e6;
  const std::string name = "byte meter";
  EXPECT_EQ(target_of(targets_of({invented({}), probed}), name).judgement, Judgement::missed);
  probed.traffic.push_back({"preflight", 1, 50e6, 50e6, 0, 0, 0});
  EXPECT_EQ(target_of(targets_of({invented({}), probed}), name).judgement, Judgement::met);
}

Outcome later(const std::string& method, const std::string& rate, double seconds) {
  return invented(
      {.method = method, .rate = rate, .seconds = seconds, .steps = 4, .preset = "ac-sgd"});
}

TEST(StudyPages, TargetsOfTheSweepAreAtItsSlowestRate) {
  Outcomes outcomes = {invented({.rate = "unshaped", .seconds = 1}),
                       invented({.rate = "100mbit", .seconds = 4}),
                       invented({.rate = "50mbit", .seconds = 10}),
                       invented({.method = "fp16", .rate = "50mbit", .seconds = 4}),
                       later("ac-sgd", "unshaped", 1),
                       later("ac-sgd", "100mbit", 1.2),
                       later("ac-sgd", "50mbit", 2)};
  std::vector<Target> targets = targets_of(outcomes);
  EXPECT_EQ(target_of(targets, "ac-sgd against fp32").judgement, Judgement::met);
  EXPECT_EQ(target_of(targets, "ac-sgd against fp32").number,
            "5.00x (n 1); unshaped: 1.00x; 100mbit: 3.33x");
  EXPECT_EQ(target_of(targets, "ac-sgd against fp16").judgement, Judgement::missed);
  EXPECT_TRUE(
      contains(target_of(targets, "ac-sgd against fp16").why, "a step of ac-sgd takes 2000 ms"));
  EXPECT_EQ(target_of(targets, "ac-sgd at 100mbit").number, "83 % (n 1)");
  EXPECT_EQ(target_of(targets, "ac-sgd at 100mbit").judgement, Judgement::met);
  outcomes[2] = invented({.rate = "50mbit", .seconds = 4});  // a quarter of its unshaped speed
  targets = targets_of(outcomes);
  EXPECT_EQ(target_of(targets, "ac-sgd against fp32").judgement, Judgement::not_measured);
  EXPECT_TRUE(contains(target_of(targets, "ac-sgd against fp32").why,
                       "no such rate: at 50mbit, its slowest, fp32 has 25 %"));
}

TEST(StudyPages, OptimusIsJudgedWhereCommunicationIsHalf) {
  const auto run = [](const std::string& method, const std::string& rate, double seconds,
                      double exposed) {
    return invented({.part = "optimus-cc",
                     .method = method,
                     .rate = rate,
                     .seconds = seconds,
                     .exposed_seconds = exposed,
                     .dp = 2});
  };
  const std::string all = "optimus-cc", published = "CB + LEP + FE + SC";
  // What rank 0 waits for is not what is asked: the bubble is in it.
  Outcomes outcomes = {run("base", "138mbit", 2, 1.4),    run("base", "50mbit", 4, 2),
                       run(all, "138mbit", 1.6, 0.2),     run(all, "50mbit", 2, 1),
                       run("base", "unshaped", 1.1, 0.4), run(published, "138mbit", 1, 0.2)};
  const Target target = target_of(targets_of(outcomes), "optimus-cc");
  EXPECT_EQ(target.name,
            "optimus-cc against \"base\", where communication is about half of base's step");
  EXPECT_EQ(target.number,
            "1.25x (n 1); 50mbit: 2.00x; communication is 45 % of base's step (composed)");
  EXPECT_EQ(target.judgement, Judgement::missed);
  EXPECT_EQ(target.why,
            "a step of optimus-cc takes 1600 ms at 138mbit: rank 0 waits 200 ms of it for "
            "others and the network, a rank spends 0 ms on encoding and decoding");
  outcomes[4] = run("base", "unshaped", 1.36, 0.4);  // 32 % at 138mbit, 66 % at 50mbit
  const Target none = target_of(targets_of(outcomes), "optimus-cc");
  EXPECT_EQ(none.judgement, Judgement::not_measured);
  EXPECT_EQ(none.why, "no rate at which communication is 35 to 65 % of base's step");
  outcomes.resize(4);  // without the unshaped one
  EXPECT_EQ(target_of(targets_of(outcomes), "optimus-cc").why,
            "base was not measured both unshaped and at a rate");
}

TEST(StudyPages, BypassMayBeALittleSlowerWithinTheSpread) {
  const auto judged = [](double seconds) {
    return target_of(
        targets_of({invented({.round = 1, .seconds = 1}), invented({.round = 2, .seconds = 1.2}),
                    later("ac-sgd, bypass auto", "100mbit", seconds)}),
        "\"ac-sgd, bypass auto\"");
  };
  EXPECT_EQ(judged(1.12).name,
            "\"ac-sgd, bypass auto\" never slower than fp32, steps after it decided");
  EXPECT_EQ(judged(1.12).wanted, "at least 1x, or 0.97x within the spread");
  EXPECT_EQ(judged(1.1).judgement, Judgement::met);
  EXPECT_EQ(judged(1.1).why, "");
  EXPECT_EQ(judged(1.12).judgement, Judgement::met);
  EXPECT_EQ(judged(1.12).why, "slower within the spread at 100mbit by 1.8 %");
  // Within the spread as well, but that alone says little.
  EXPECT_EQ(judged(1.15).judgement, Judgement::missed);
  EXPECT_EQ(judged(1.15).why, "steps are longer at 100mbit by 4.5 %, and one round has no spread");
  const Target target = judged(1.32);
  EXPECT_EQ(target.judgement, Judgement::missed);
  EXPECT_EQ(target.number, "100mbit: 0.83x (0.76–0.91, n 1) against fp32");
  EXPECT_EQ(target.why, "steps are longer at 100mbit by 20.0 %, and one round has no spread");
}

TEST(StudyPages, RawIsJudgedByMediansAloneAndItsSpreadIsTold) {
  const auto judged = [](const std::vector<double>& peers, const std::vector<double>& ours) {
    Outcomes outcomes;
    for (const double seconds : peers)
      outcomes.push_back(
          invented_peer({.part = "data-parallel", .method = "DDP", .seconds = seconds}));
    for (const double seconds : ours)
      outcomes.push_back(invented({.part = "data-parallel",
                                   .method = "laconic, raw",
                                   .seconds = seconds,
                                   .pp = 1,
                                   .dp = 4}));
    return target_of(targets_of(outcomes), "\"laconic, raw\"");
  };
  EXPECT_EQ(judged({1}, {1}).judgement, Judgement::met);
  EXPECT_EQ(judged({1}, {1.005}).judgement, Judgement::missed);
  EXPECT_EQ(judged({1}, {1.005}).why,
            "steps are longer at 100mbit by 0.5 %, and one round has no spread");
  EXPECT_EQ(judged({1, 1.2}, {1.1, 1.2}).judgement, Judgement::missed);
  EXPECT_EQ(judged({1, 1.2}, {1.1, 1.2}).why,
            "steps are longer at 100mbit by 4.5 %, within the spread");
  EXPECT_EQ(judged({1, 1}, {1.1, 1.2}).why, "steps are longer at 100mbit by 15.0 %");
}

// Six epochs: the first takes 4 s a step, the others 1 s, 1.5 s on average.
TEST(StudyPages, EndToEndTheFirstEpochCounts) {
  const auto run = [](const std::string& method, const std::string& rate, double seconds) {
    return invented({.part = "end-to-end",
                     .method = method,
                     .rate = rate,
                     .seconds = seconds,
                     .steps = 4,
                     .dp = 2,
                     .preset = method == "both" ? "ac-sgd" : ""});
  };
  Outcomes outcomes = {run("nothing", "unshaped", 1), run("nothing", "14mbit", 9),
                       run("both", "14mbit", 1)};
  outcomes[2].steps[1].seconds = 4;
  EXPECT_EQ(target_of(targets_of(outcomes), "end to end").number, "6.00x (n 1)");
  EXPECT_EQ(target_of(targets_of(outcomes), "end to end").judgement, Judgement::met);
  outcomes[2].steps[1].seconds = 7;  // 4.5x
  EXPECT_EQ(target_of(targets_of(outcomes), "end to end").judgement, Judgement::missed);
  outcomes[1] = run("nothing", "14mbit", 4.5);
  EXPECT_EQ(target_of(targets_of(outcomes), "end to end").judgement, Judgement::not_measured);
}

TEST(StudyPages, ThePolicyMustKeepTheLoss) {
  const auto ours = [](const std::string& part, const std::string& method, double seconds) {
    return invented({.part = part, .method = method, .seconds = seconds, .pp = 1, .dp = 4});
  };
  Outcome bad = ours("loss", "laconic, sign", 1);
  for (StepRow& row : bad.steps) row.loss *= 1.01;
  const Outcomes outcomes = {
      invented_peer({.part = "data-parallel", .method = "DDP", .seconds = 8.5}),
      invented_peer({.part = "data-parallel", .method = "DDP, 5 MB buckets", .seconds = 8}),
      invented_peer({.part = "data-parallel", .method = "DDP, fp16 hook", .seconds = 4}),
      ours("data-parallel", "laconic, raw", 9),
      ours("data-parallel", "laconic, 4 bits", 2),
      ours("data-parallel", "laconic, sign", 1),
      invented_peer({.part = "loss", .method = "DDP"}),
      ours("loss", "laconic, 4 bits", 1),
      bad};
  const std::vector<Target> targets = targets_of(outcomes);
  const std::string name =
      "best policy whose loss is at most 0.5 % above DDP's, against the fastest DDP that sends "
      "whole "
      "gradients, at ";
  EXPECT_EQ(
      target_of(targets, name + "100mbit").number,
      "laconic, 4 bits (loss +0.00 % after 4 steps, one seed) against DDP, 5 MB buckets: 4.00x "
      "(n 1); beside it DDP, fp16 hook: 2.00x (n 1)");
  EXPECT_EQ(target_of(targets, name + "100mbit").judgement, Judgement::met);
  EXPECT_EQ(target_of(targets, name + "20mbit").judgement, Judgement::not_measured);
  EXPECT_EQ(target_of(targets, "\"laconic, raw\"").judgement, Judgement::missed);
  EXPECT_EQ(target_of(targets, "\"laconic, raw\"").why,
            "steps are longer at 100mbit by 12.5 %, and one round has no spread");
}

// A rank computes eight microbatches of 0.03 s: 0.24 s.
TEST(StudyPages, EncodingIsJudgedByWhatARankComputes) {
  const auto run = [](const std::string& rate, double codec_seconds) {
    return invented(
        {.method = "ac-sgd", .rate = rate, .codec_seconds = codec_seconds, .preset = "ac-sgd"});
  };
  const std::string name = "encoding and decoding of ac-sgd";
  Outcomes outcomes = {run("unshaped", 0.006), run("100mbit", 0.009)};
  EXPECT_EQ(target_of(targets_of(outcomes), name).judgement, Judgement::met);
  outcomes[1] = run("100mbit", 0.024);
  const Target target = target_of(targets_of(outcomes), name);
  EXPECT_EQ(target.number, "unshaped: 2.5 % (n 1); 100mbit: 10.0 % (n 1)");
  EXPECT_EQ(target.judgement, Judgement::missed);
  EXPECT_EQ(target.why, "more at 100mbit");
  for (Outcome& outcome : outcomes) outcome.computing_seconds.clear();
  EXPECT_EQ(target_of(targets_of(outcomes), name).judgement, Judgement::not_measured);
}

Outcome replica(const std::string& method, const std::string& rate, double seconds) {
  return invented({.part = "data-parallel",
                   .method = method,
                   .rate = rate,
                   .seconds = seconds,
                   .pp = 1,
                   .dp = 4});
}

// DDP's loss is that of "laconic, 4 bits".
Outcomes equal_losses() {
  return {invented_peer({.part = "loss", .method = "DDP"}),
          invented({.part = "loss", .method = "laconic, 4 bits", .pp = 1, .dp = 4})};
}

TEST(StudyPages, ThePolicyMustBeAsFastAsTheFastestHook) {
  const auto judged = [](double hook_seconds) {
    Outcomes outcomes = equal_losses();
    for (const auto& [method, seconds] :
         {std::pair("DDP, fp16 hook", 5.0), std::pair("DDP, PowerSGD hook rank 32", hook_seconds)})
      outcomes.push_back(
          invented_peer({.part = "data-parallel", .method = method, .seconds = seconds}));
    outcomes.push_back(replica("laconic, 4 bits", "100mbit", 2));
    return target_of(targets_of(outcomes),
                     "best policy whose loss is at most 0.5 % above DDP's never slower");
  };
  EXPECT_EQ(judged(4).number, "100mbit: 2.00x (n 1) against DDP, PowerSGD hook rank 32");
  EXPECT_EQ(judged(4).judgement, Judgement::met);
  EXPECT_EQ(judged(1).judgement, Judgement::missed);
  EXPECT_EQ(judged(1).why, "steps are longer at 100mbit by 100.0 %, and one round has no spread");
  EXPECT_EQ(judged(8).number, "100mbit: 2.50x (n 1) against DDP, fp16 hook");
}

TEST(StudyPages, ThePolicyIsJudgedByItsOwnUnshapedSpeed) {
  const auto judged = [](double unshaped_seconds) {
    Outcomes outcomes = equal_losses();
    outcomes.push_back(replica("laconic, 4 bits", "100mbit", 2));
    if (unshaped_seconds > 0)
      outcomes.push_back(replica("laconic, 4 bits", "unshaped", unshaped_seconds));
    return target_of(targets_of(outcomes), "best such policy at 100mbit (laconic, 4 bits), of ");
  };
  EXPECT_EQ(judged(1.8).number, "90 % (n 1)");
  EXPECT_EQ(judged(1.8).judgement, Judgement::met);
  EXPECT_EQ(judged(1).number, "50 % (n 1)");
  EXPECT_EQ(judged(1).judgement, Judgement::missed);
  EXPECT_EQ(judged(1).why,
            "rank 0 waits 0 % of a step for others and the network at 100mbit, 0 % unshaped");
  EXPECT_EQ(judged(0).judgement, Judgement::not_measured);
}

TEST(StudyPages, ReplicasThatBypassAreJudgedByRaw) {
  const auto judged = [](double seconds) {
    return target_of(targets_of({replica("laconic, raw", "1gbit", 2),
                                 replica("laconic, 4 bits, bypass auto", "1gbit", seconds)}),
                     "\"laconic, 4 bits, bypass auto\" never slower than laconic, raw, steps after "
                     "it decided");
  };
  EXPECT_EQ(judged(1.6).number, "1gbit: 1.25x (n 1) against laconic, raw");
  EXPECT_EQ(judged(1.6).judgement, Judgement::met);
  EXPECT_EQ(judged(2.1).judgement, Judgement::missed);
  EXPECT_EQ(judged(2.1).why, "steps are longer at 1gbit by 5.0 %, and one round has no spread");
}

}  // namespace
}  // namespace laconic
