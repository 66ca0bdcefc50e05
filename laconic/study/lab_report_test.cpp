// The study files of `laconic lab report`.

#include <gtest/gtest.h>

#include <algorithm>
#include <cstdlib>
#include <map>
#include <set>

#include "laconic/base/error.hpp"
#include "laconic/config/read.hpp"
#include "laconic/lab/lab_spec.hpp"
#include "laconic/study/study_trials.hpp"
#include "laconic/study/trial_estimate.hpp"

namespace laconic {
namespace {

using Names = std::set<std::string>;

enum class Size : std::uint8_t { brief, full, quality };

const Size kSizes[] = {Size::brief, Size::full};

std::string source() {
  return std::getenv("LACONIC_SOURCE");
}

Places places() {
  return {.laconic = "laconic", .python = "python3", .source = source(), .work = "out/scratch"};
}

const StudyFile& study_of(Size size) {
  static const StudyFile studies[] = {read_study(source() + "/studies/lab-report-short.toml"),
                                      read_study(source() + "/studies/lab-report.toml"),
                                      read_study(source() + "/studies/lab-report-quality.toml")};
  return studies[static_cast<std::size_t>(size)];
}

const std::vector<Trial>& lab_report_trials(Size size) {
  static const std::vector<Trial> trials[] = {trials_of(expand(study_of(Size::brief))),
                                              trials_of(expand(study_of(Size::full))),
                                              trials_of(expand(study_of(Size::quality)))};
  return trials[static_cast<std::size_t>(size)];
}

double seconds_of(Size size) {
  return estimated_seconds(lab_report_trials(size), study_of(size).models);
}

constexpr int kPipelineSamples = 208;  // studies/lab-report.toml cuts its text so

RunConfig config_of(const Trial& trial, Size size) {
  ConfigSource from{.presets_folder = source() + "/presets"};
  if (!trial.preset.empty()) from.path = from.presets_folder + "/" + trial.preset + ".toml";
  for (const auto& [key, value] : keys_of(trial, study_of(size), places(), "folder"))
    from.sets.push_back(key + "=" + value);
  return read_config(from);
}

Names methods_of(Size size, const std::string& part, const std::string& rate) {
  Names names;
  for (const Trial& trial : lab_report_trials(size))
    if (trial.part == part && trial.rate == rate) names.insert(trial.method);
  return names;
}

Names rates_of(Size size, const std::string& part) {
  Names names;
  for (const Trial& trial : lab_report_trials(size))
    if (trial.part == part) names.insert(trial.rate);
  return names;
}

const Size kAllSizes[] = {Size::brief, Size::full, Size::quality};

TEST(LabReport, HasTrialsWhoseNamesAreTheirOwn) {
  for (const Size size : kAllSizes) {
    Names ids;
    for (const Trial& trial : lab_report_trials(size))
      EXPECT_TRUE(ids.insert(id_of(trial)).second) << id_of(trial);
  }
}

TEST(LabReport, AsksForRunsThatCanBe) {
  for (const Size size : kAllSizes)
    for (const Trial& trial : lab_report_trials(size)) {
      SCOPED_TRACE(id_of(trial));
      EXPECT_GE(trial.steps, 2);
      EXPECT_TRUE(trial.rate == "none" || parse_rate(trial.rate));
      if (trial.program == Program::ddp) continue;
      RunConfig config;
      ASSERT_NO_THROW(config = config_of(trial, size));
      EXPECT_EQ(config.mesh.pp * config.mesh.dp, trial.hosts);
      EXPECT_EQ(config.train.steps, trial.warmup + trial.steps);
      EXPECT_FALSE(config.checkpoint.at_end);
      const bool is_measured = config.dp_gradient.stages == "auto" ||
                               config.pp_gradient.when == When::critical ||
                               config.steering.bypass == BypassMode::automatic;
      EXPECT_EQ(config.network.preflight, is_measured);
    }
}

TEST(LabReport, CountsStepsOfLaterEpochsWhereLinksRemember) {
  for (const Size size : kSizes)
    for (const Trial& trial : lab_report_trials(size)) {
      if (trial.program == Program::ddp || trial.part.find("loss") != std::string::npos) continue;
      SCOPED_TRACE(id_of(trial));
      const RunConfig config = config_of(trial, size);
      if (config.remembers_samples()) {
        EXPECT_GE(trial.warmup * config.train.batch, kPipelineSamples);
      }
      if (config.steering.bypass == BypassMode::automatic) {
        EXPECT_GT(trial.warmup, config.steering.after);
      }
      EXPECT_LT(config.dp_gradient.warmup, trial.warmup + 1);
    }
}

TEST(LabReport, ComparesLossesOfQualityBySeedAtOneBatch) {
  std::map<std::string, Names> seeds;
  for (const Trial& trial : lab_report_trials(Size::quality)) {
    SCOPED_TRACE(id_of(trial));
    const RunConfig config = config_of(trial, Size::quality);
    EXPECT_EQ(trial.rate, "none");
    EXPECT_EQ(config.train.batch, 32);
    EXPECT_EQ(config.run.seed, trial.round);
    EXPECT_EQ(config.data.valid, config.data.train + "-valid");
    EXPECT_EQ(config.evaluate.samples, 256);
    EXPECT_EQ(config.microbatches(), trial.model == "wikitext-tiny" ? 16 : 4);
    EXPECT_FALSE(config.network.preflight);  // or losses would depend on the machine
    EXPECT_FALSE(find_model(study_of(Size::quality).models, trial.model)->needs.empty());
    seeds[trial.part + trial.method].insert(trial.set.at("run.seed"));
  }
  EXPECT_EQ(seeds.size(), 19u);
  for (const auto& [method, of_method] : seeds) EXPECT_EQ(of_method.size(), 3u) << method;
}

// Bypassing decides later; whatever else is compared has warmed up alike.
TEST(LabReport, WarmsMethodsUpAlikeWhereStepsAreShort) {
  for (const Size size : kSizes) {
    std::map<std::string, std::int64_t> warmups;
    for (const Trial& trial : lab_report_trials(size)) {
      if (trial.part.find("loss") != std::string::npos || trial.set.contains("steering.bypass"))
        continue;
      SCOPED_TRACE(id_of(trial));
      const std::int64_t brief = size == Size::brief ? 3 : 5, few = size == Size::brief ? 2 : 3;
      EXPECT_TRUE(trial.steps == brief || trial.steps == few);
      EXPECT_GE(trial.warmup, trial.steps == brief ? 4 : 2);
      if (trial.steps == few) continue;
      const std::string key = trial.part + " of " + trial.rate;
      EXPECT_EQ(warmups.try_emplace(key, trial.warmup).first->second, trial.warmup);
    }
    EXPECT_EQ(warmups.at("bandwidth of unshaped"), 7);
    EXPECT_EQ(warmups.at("data-parallel of 1gbit"), 4);
  }
}

// One loss stands for all rates, so nothing in it may depend on the rate.
TEST(LabReport, ComparesLossesOfWhatTheNetworkDoesNotDecideOrWhereItDecides) {
  for (const Size size : kSizes)
    for (const Trial& trial : lab_report_trials(size)) {
      if (trial.part == "loss") {
        EXPECT_FALSE(needs_preflight(trial.preset, trial.set)) << id_of(trial);
      }
      if (trial.part == "optimus-cc loss") {
        EXPECT_EQ(trial.rate, "138mbit") << id_of(trial);
      }
    }
}

// Outcomes that are kept are known by these names.
TEST(LabReport, HasThePartsMethodsAndRatesThatPagesShow) {
  const Names bandwidth = {"fp32",
                           "fp16",
                           "DirectQ, 3 and 6 bits",
                           "DirectQ, 4 and 8 bits",
                           "AC-SGD, 2 and 4 bits",
                           "AC-SGD, 3 and 6 bits",
                           "AC-SGD, 4 and 8 bits",
                           "ac-sgd",
                           "rotated",
                           "ac-sgd, bypass auto"};
  const Names end_to_end = {"nothing", "activations only", "gradients only", "both"};
  const Names optimus = {"base",
                         "CB",
                         "CB + LEP",
                         "CB + LEP + FE",
                         "CB + LEP + FE + SC",
                         "optimus-cc",
                         "CB + LEP, critical"};
  const Names losses = {"DDP",
                        "DDP, 5 MB buckets",
                        "DDP, our allocator settings",
                        "DDP, fp16 hook",
                        "DDP, fp16 hook, 5 MB buckets",
                        "DDP, PowerSGD hook rank 32",
                        "laconic, raw",
                        "laconic, 16 bits",
                        "laconic, 16 bits, Huffman",
                        "laconic, 4 bits",
                        "laconic, 3 bits",
                        "laconic, PowerSGD rank 32, 8 bits",
                        "laconic, compressed Adam, sign"};
  Names replicas = losses;
  replicas.insert("laconic, 4 bits, bypass auto");
  Names slow_replicas = replicas;  // where it does not matter how a peer cuts its buckets
  for (const char* name :
       {"DDP, 5 MB buckets", "DDP, our allocator settings", "DDP, fp16 hook, 5 MB buckets"})
    slow_replicas.erase(name);
  const Names schedules = {"gpipe", "1f1b", "zero_bubble", "interleaved"};
  const std::map<std::string, std::pair<Names, Names>> parts = {
      {"bandwidth",
       {bandwidth,
        {"unshaped", "10gbit", "1gbit", "500mbit", "300mbit", "100mbit", "50mbit", "14mbit"}}},
      {"end-to-end", {end_to_end, {"unshaped", "100mbit", "14mbit"}}},
      {"optimus-cc", {optimus, {"unshaped", "138mbit"}}},
      {"data-parallel", {replicas, {"unshaped", "1gbit", "100mbit", "20mbit"}}},
      {"loss", {losses, {"unshaped"}}},
      {"optimus-cc loss", {optimus, {"138mbit"}}}};
  for (const auto& [part, expected] : parts) {
    EXPECT_EQ(rates_of(Size::full, part), expected.second) << part;
    for (const std::string& rate : expected.second) {
      const bool is_slow = part == "data-parallel" && rate == "20mbit";
      EXPECT_EQ(methods_of(Size::full, part, rate), is_slow ? slow_replicas : expected.first)
          << part << " " << rate;
    }
  }
  EXPECT_EQ(rates_of(Size::full, "honesty"), (Names{"none", "unshaped", "100mbit", "20mbit"}));
  for (const char* rate : {"none", "unshaped"})
    EXPECT_EQ(methods_of(Size::full, "honesty", rate), (Names{"fp32", "ac-sgd"}));
  for (const char* rate : {"100mbit", "20mbit"})
    EXPECT_EQ(methods_of(Size::full, "honesty", rate), schedules);
  EXPECT_EQ(rates_of(Size::brief, "bandwidth"), (Names{"unshaped", "100mbit", "14mbit"}));
  EXPECT_EQ(rates_of(Size::brief, "end-to-end"), (Names{"100mbit"}));
  EXPECT_EQ(rates_of(Size::brief, "optimus-cc"), (Names{"unshaped", "138mbit"}));
  EXPECT_EQ(methods_of(Size::brief, "optimus-cc", "unshaped"), (Names{"base"}));
  EXPECT_EQ(methods_of(Size::brief, "optimus-cc", "138mbit"), (Names{"base", "optimus-cc"}));
  EXPECT_EQ(methods_of(Size::brief, "loss", "unshaped"),
            (Names{"DDP", "laconic, raw", "laconic, 4 bits"}));
  EXPECT_EQ(rates_of(Size::brief, "data-parallel"), (Names{"1gbit", "100mbit"}));
}

TEST(LabReport, IsShorterWhenShortButOfTheSameKind) {
  for (const Trial& brief : lab_report_trials(Size::brief)) {
    EXPECT_EQ(brief.round, 1);
    EXPECT_TRUE(methods_of(Size::full, brief.part, brief.rate).contains(brief.method))
        << id_of(brief);
  }
  // Ten minutes, with preparations.
  EXPECT_LT(seconds_of(Size::brief), 540);
  EXPECT_GT(seconds_of(Size::full), 3600);
  EXPECT_LT(seconds_of(Size::full), 3 * 3600);
}

TEST(LabReport, AlternatesMethodsInsideARound) {
  const std::vector<Trial> trials = lab_report_trials(Size::full);
  std::map<std::string, int> rounds;  // begun, by part and rate
  std::string last;
  for (const Trial& trial : trials) {
    const std::string key = trial.part + " " + trial.rate;
    const bool is_new = key != last || rounds[key] != trial.round;
    if (is_new) {
      EXPECT_EQ(trial.round, ++rounds[key]) << id_of(trial);
    }
    last = key;
  }
  // Where another would be the same, or take too long.
  const auto has_one = [](const std::string& key) {
    return key.find("loss") != std::string::npos || key == "data-parallel 20mbit" ||
           key == "honesty 100mbit" || key == "honesty 20mbit";
  };
  for (const auto& [key, count] : rounds) EXPECT_EQ(count, has_one(key) ? 1 : 2) << key;
  EXPECT_TRUE(rounds.contains("data-parallel 20mbit"));
}

// A machine is not alike at all times: all rates of one round come before the next.
TEST(LabReport, KeepsRoundsOfAPartApart) {
  const std::vector<Trial> all = lab_report_trials(Size::full);
  for (const char* part : {"bandwidth", "end-to-end", "optimus-cc"}) {
    std::vector<Trial> trials = all;
    std::erase_if(trials, [&](const Trial& trial) { return trial.part != part; });
    EXPECT_TRUE(std::is_sorted(trials.begin(), trials.end(), [](const Trial& a, const Trial& b) {
      return a.round < b.round;
    })) << part;
    EXPECT_EQ(trials.back().round, 2) << part;
  }
}

TEST(LabReport, IsEstimatedToTakeLongerOnSlowerLinksAndLessWithFewerBytes) {
  const auto at = [](const std::string& part, const std::string& method, const std::string& rate) {
    for (const Trial& trial : lab_report_trials(Size::full))
      if (trial.part == part && trial.method == method && trial.rate == rate)
        return estimated_seconds(trial, study_of(Size::full).models) /
               static_cast<double>(trial.warmup + trial.steps);
    ADD_FAILURE() << part << method << rate;
    return 0.0;
  };
  EXPECT_GT(at("bandwidth", "fp32", "50mbit"), at("bandwidth", "fp32", "100mbit"));
  EXPECT_GT(at("bandwidth", "fp32", "100mbit"), at("bandwidth", "fp32", "unshaped"));
  EXPECT_GT(at("bandwidth", "fp32", "50mbit"), at("bandwidth", "fp16", "50mbit"));
  EXPECT_GT(at("bandwidth", "fp16", "50mbit"), at("bandwidth", "DirectQ, 4 and 8 bits", "50mbit"));
  EXPECT_GT(at("data-parallel", "DDP", "20mbit"), at("data-parallel", "DDP, fp16 hook", "20mbit"));
  EXPECT_GT(at("data-parallel", "laconic, raw", "20mbit"),
            at("data-parallel", "laconic, 4 bits", "20mbit"));
  EXPECT_GT(at("end-to-end", "nothing", "14mbit"), at("end-to-end", "both", "14mbit"));
}

std::vector<Trial> some_trials(Size size, const std::vector<std::string>& words) {
  return trials_of(chosen(study_of(size), expand(study_of(size)), words));
}

TEST(ChosenTrials, AreThoseOfThePartsRatesAndMethodsThatWereNamed) {
  Names parts, methods;
  for (const Trial& trial : some_trials(Size::full, {"part=loss,data-parallel", "PowerSGD"})) {
    parts.insert(trial.part);
    methods.insert(trial.method);
  }
  EXPECT_EQ(parts, (Names{"loss", "data-parallel"}));
  EXPECT_EQ(methods, (Names{"DDP, PowerSGD hook rank 32", "laconic, PowerSGD rank 32, 8 bits"}));
  // Of a part that has no axis of rates, too.
  EXPECT_EQ(some_trials(Size::brief, {"rate=none"}).size(), 1u);
  for (const Trial& trial : some_trials(Size::full, {"rate=20mbit", "4 bits"}))
    EXPECT_EQ(trial.rate, "20mbit");
  EXPECT_THROW(some_trials(Size::full, {"rate=1000mbit"}), ConfigError);
}

TEST(ListOfTrials, HasALineForEachAndATotal) {
  const std::vector<Trial> some = some_trials(Size::brief, {"part=optimus-cc"});
  const std::string text = to_text(some, study_of(Size::brief).models);
  for (const Trial& trial : some) EXPECT_NE(text.find(id_of(trial)), std::string::npos);
  EXPECT_NE(text.find("3 trials, about "), std::string::npos) << text;
}

}  // namespace
}  // namespace laconic
