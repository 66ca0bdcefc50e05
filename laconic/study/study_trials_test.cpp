// Expansion of study files into trials, and the files in studies/ and examples/.
#include "laconic/study/study_trials.hpp"

#include <gtest/gtest.h>

#include <algorithm>
#include <cstdlib>
#include <filesystem>
#include <map>
#include <set>

#include "laconic/base/error.hpp"

namespace laconic {
namespace {

const std::string kAxes = R"(
[base]
model.layers = 4
mesh.pp = 2
[models.small]
set.model.width = 64
[models.large]
set = { model.width = 512, mesh.dp = 3 }
[[axis]]
name = "rate"
settings = [{ name = "fast", rate = "1gbit" }, { name = "slow", rate = "20mbit" }]
[[axis]]
name = "codec"
settings = ["none", { name = "Q1", warmup = 9, preset = "rotated", set = { train.batch = 4, a.b = 1 } }, { name = "peer", program = "ddp", set = { hook = "fp16" } }]
[[axis]]
name = "size"
settings = ["usual", { name = "large", model = "large" }]
)";

StudyFile expanded_study(const std::string& parts) {
  StudyFile study;
  apply_study(kAxes + parts, "mine.toml", study);
  refuse(check_study(study, "mine.toml"));
  return study;
}

std::vector<std::string> ids_of(const std::string& parts) {
  std::vector<std::string> ids;
  for (const StudyTrial& one : expand(expanded_study(parts))) ids.push_back(id_of(one.trial));
  return ids;
}

using Ids = std::vector<std::string>;

TEST(TrialsOfAStudy, AreTheProductOfAxesByRound) {
  const std::string part = "[[part]]\nname='p'\nmodel='small'\nrounds=2\n";
  EXPECT_EQ(ids_of(part + "axes=['rate','codec']"),
            (Ids{"p/1gbit/none/1", "p/1gbit/q1/1", "p/1gbit/peer/1", "p/20mbit/none/1",
                 "p/20mbit/q1/1", "p/20mbit/peer/1", "p/1gbit/none/2", "p/1gbit/q1/2",
                 "p/1gbit/peer/2", "p/20mbit/none/2", "p/20mbit/q1/2", "p/20mbit/peer/2"}));
  EXPECT_EQ(ids_of("[[part]]\nname='p'\nmodel='small'\naxes=['codec','size']\n"
                   "only=[{codec='none'},{codec='Q1',size='large'}]"),
            (Ids{"p/none/none-usual/1", "p/none/none-large/1", "p/none/q1-large/1"}));
  EXPECT_EQ(ids_of("[[part]]\nname='p'\nmodel='small'\naxes=['codec','size']\n"
                   "without=[{codec=['none','peer']},{codec='Q1',size='large'}]"),
            (Ids{"p/none/q1-usual/1"}));
  EXPECT_EQ(ids_of("[[part]]\nname='p'\nmodel='small'\naxes=['codec','rate']\n"
                   "list=[['Q1','slow'],['none','fast']]"),
            (Ids{"p/20mbit/q1/1", "p/1gbit/none/1"}));
  EXPECT_EQ(ids_of("[[part]]\nname='p'\nmodel='small'"), (Ids{"p/none/all/1"}));
}

// Every subset of settings of three axes, chosen by filters, is exactly what is expanded.
TEST(TrialsOfAStudy, AreWhatFiltersLeaveWhateverTheySay) {
  const StudyFile whole =
      expanded_study("[[part]]\nname='p'\nmodel='small'\naxes=['rate','codec','size']");
  const std::vector<std::vector<std::string>> names = {
      {"fast", "slow"}, {"none", "Q1", "peer"}, {"usual", "large"}};
  for (unsigned mask = 1; mask < 128; ++mask) {  // a bit for each setting
    Choice choice;
    std::size_t expected = 1, bit = 0;
    for (std::size_t axis = 0; axis < 3; ++axis) {
      std::vector<std::string> some;
      for (const std::string& name : names[axis])
        if ((mask >> bit++ & 1) != 0) some.push_back(name);
      choice[whole.parts[0].axes[axis]] = some;
      expected *= some.size();
    }
    StudyFile study = whole;
    study.parts[0].only = {choice};
    const std::size_t found = expected == 0 ? 0 : expand(study).size();
    if (expected == 0) {
      EXPECT_THROW(expand(study), ConfigError);
    }
    EXPECT_EQ(found, expected) << mask;
    study.parts[0].only.clear();
    study.parts[0].without = {choice};
    if (expected < 12) {
      EXPECT_EQ(expand(study).size(), 12 - expected) << mask;
    }
  }
}

TEST(TrialsOfAStudy, TakeWhatWinsFromPartSettingAndAmendment) {
  const auto trials = expand(expanded_study(R"(
[[part]]
name = "p"
model = "small"
axes = ["codec", "size"]
seeds = [7]
warmup = 2
steps = 5
set = { train.batch = 2, a.c = 3 }
amend = [{ of = { codec = "Q1", size = "large" }, set = { a.b = 8 } }]
)"));
  ASSERT_EQ(trials.size(), 6u);
  EXPECT_EQ(trials[0].trial.set, (Keys{{"train.batch", "2"}, {"a.c", "3"}, {"run.seed", "7"}}));
  EXPECT_EQ(trials[0].trial.hosts, 2);
  EXPECT_EQ(trials[0].trial.warmup, 2);
  EXPECT_EQ(trials[0].seed, 7);
  EXPECT_EQ(trials[0].settings.at("size"), "usual");
  const Trial& large = trials[3].trial;
  EXPECT_EQ(large.method, "Q1, large");
  EXPECT_EQ(large.preset, "rotated");
  EXPECT_EQ(large.model, "large");
  EXPECT_EQ(large.hosts, 6);
  EXPECT_EQ(large.warmup, 9);
  EXPECT_EQ(large.set, (Keys{{"train.batch", "4"}, {"a.b", "8"}, {"a.c", "3"}, {"run.seed", "7"}}));
  EXPECT_EQ(trials[4].trial.program, Program::ddp);
  EXPECT_EQ(trials[4].trial.set, (Keys{{"hook", "fp16"}}));
  EXPECT_EQ(count_settings(trials), 6u);
}

TEST(TrialsOfAStudy, HaveNamesOfTheirOwnAndAModel) {
  EXPECT_THROW(ids_of("[[part]]\nname='p'\nmodel='small'\n[[part]]\nname='p'\nmodel='small'"),
               ConfigError);
  EXPECT_THROW(ids_of("[[part]]\nname='p'"), ConfigError);
  EXPECT_THROW(ids_of("[[part]]\nname='p'\nmodel='small'\naxes=['codec']\nonly={codec=[]}"),
               ConfigError);
}

TEST(TrialsOfAStudy, HaveFewerStepsWhereTheseTakeLong) {
  StudyFile study = expanded_study(
      "[[part]]\nname='p'\nmodel='small'\nwarmup=4\nsteps=9\n"
      "long={over=3,warmup=1,steps=2}");
  EXPECT_EQ(expand(study)[0].trial.steps, 9);
  study.models[0].step_seconds = 4;
  EXPECT_EQ(expand(study)[0].trial.steps, 2);
  EXPECT_EQ(expand(study)[0].trial.warmup, 1);
}

TEST(TrialsOfAStudy, HaveEveryKindOfStepsWhateverTheseTake) {
  StudyFile study = expanded_study(R"(
[[axis]]
name = "method"
settings = ["plain", { name = "rounds", warmup = 8, kinds = [{ steps = 4, share = 1 }, { steps = 12, share = 15 }] }]
[[part]]
name = "p"
model = "small"
axes = ["method"]
warmup = 4
steps = 9
long = { over = 3, warmup = 1, steps = 2 }
)");
  study.models[0].step_seconds = 4;
  const auto trials = expand(study);
  EXPECT_EQ(trials[0].trial.steps, 2);
  EXPECT_TRUE(trials[0].trial.kinds.empty());
  EXPECT_EQ(trials[1].trial.steps, 16);
  study.parts[0].warmup = 0;  // or 100: rounds begin where they begin
  EXPECT_EQ(expand(study)[1].trial.warmup, 8);
  study.parts[0].warmup = 100;
  EXPECT_EQ(expand(study)[1].trial.warmup, 8);
  EXPECT_EQ(trials[1].trial.warmup, 8);
  EXPECT_EQ(trials[1].trial.kinds, (std::vector<CountedSteps>{{4, 1}, {12, 15}}));
}

TEST(ChosenByWords, AreThoseThatAllOfThemFit) {
  const StudyFile study =
      expanded_study("[[part]]\nname='p'\nmodel='small'\naxes=['rate','codec']");
  const auto all = expand(study);
  const auto count = [&](const Ids& words) { return chosen(study, all, words).size(); };
  EXPECT_EQ(count({}), 6u);
  EXPECT_EQ(count({"codec=none,Q1"}), 4u);
  EXPECT_EQ(count({"codec=none,Q1", "rate=slow"}), 2u);
  EXPECT_EQ(count({"part=p", "20mbit/q"}), 1u);
  for (const Ids& words : {Ids{"codecs=none"}, Ids{"codec=Q2"}, Ids{"part=q"}, Ids{"nothing"}})
    EXPECT_THROW(count(words), ConfigError) << words[0];
}

std::string source_tree() {
  return std::getenv("LACONIC_SOURCE");
}

Problems problems_of(const std::string& file, std::size_t least_settings) {
  const StudyFile study = read_study(source_tree() + "/" + file);
  const auto planned = expand(study);
  EXPECT_GE(count_settings(planned), least_settings) << file;
  std::vector<Trial> first;  // seeds alone differ in later rounds
  for (const StudyTrial& one : planned)
    if (one.trial.round == 1) first.push_back(one.trial);
  const Places places{
      .laconic = "laconic", .python = "python3", .source = source_tree(), .work = "work"};
  return check_trials(study, first, places, source_tree() + "/presets");
}

TEST(StudyFiles, HaveTrialsThatTheConfigurationCheckerAccepts) {
  const std::map<std::string, std::size_t> small = {{"block-update", 8},
                                                    {"local-losses-long", 4},
                                                    {"local-rates", 6},
                                                    {"pipeline-losses", 8},
                                                    {"precision", 12},
                                                    {"row-bits", 12},
                                                    {"twenty-megabits", 16},
                                                    {"twenty-megabits-124m", 10},
                                                    {"twenty-megabits-others", 11}};
  for (const auto& entry : std::filesystem::directory_iterator(source_tree() + "/studies")) {
    if (entry.path().extension() != ".toml") continue;
    const auto found = small.find(entry.path().stem());
    const std::size_t least = found == small.end() ? 15 : found->second;
    EXPECT_EQ(to_text(problems_of("studies/" + entry.path().filename().string(), least)), "")
        << entry.path();
  }
  EXPECT_EQ(to_text(problems_of("examples/study/study.toml", 6)), "");
}

// What evaluations say by the task; everything else is measured of every run.
std::map<std::string, std::set<std::string>> tasks_with_measures() {
  return {{"accuracy", {"classify", "masked"}},
          {"f1", {"classify", "span"}},
          {"matthews", {"classify"}},
          {"majority", {"classify"}},
          {"pearson", {"regress"}},
          {"spearman", {"regress"}},
          {"exact_match", {"span"}},
          {"next_accuracy", {"masked"}},
          {"perplexity", {"causal"}},
          {"bits_per_byte", {"causal", "masked"}}};
}

std::string task_of(const Trial& trial, const StudyFile& study) {
  const Places places{.laconic = "laconic", .source = source_tree(), .work = "work"};
  const Keys keys = keys_of(trial, study, places, "folder");
  const auto value = [&](const char* key) {
    const auto found = keys.find(key);
    return found == keys.end() ? std::string() : found->second;
  };
  if (!value("task.kind").empty()) return value("task.kind");
  return value("model.kind") == "bert" ? "masked" : "causal";
}

// A rule of accuracy that also fits a language model could never be kept: those trials have none.
TEST(StudyFiles, HaveNoRuleWhoseMeasureItsTasksLack) {
  std::size_t judged = 0;
  for (const auto& entry : std::filesystem::directory_iterator(source_tree() + "/studies")) {
    if (entry.path().extension() != ".toml") continue;
    const StudyFile study = read_study(entry.path());
    const auto planned = expand(study);
    const auto tasks = tasks_with_measures();
    for (const Rule& rule : study.rules) {
      const auto having = tasks.find(rule.measure);
      if (having == tasks.end()) continue;
      for (const StudyTrial& one : planned) {
        const bool is_in_part =
            rule.parts.empty() || std::ranges::count(rule.parts, one.trial.part) > 0;
        if (!is_in_part || !fits(rule.where, one.settings)) continue;
        if (!fits(rule.of, one.settings) && !fits(rule.against, one.settings)) continue;
        ++judged;
        EXPECT_TRUE(having->second.contains(task_of(one.trial, study)))
            << entry.path() << ": rule '" << rule.name << "' asks " << id_of(one.trial) << " for "
            << rule.measure;
      }
    }
  }
  EXPECT_GT(judged, 0u);
}

TEST(StudyFiles, HaveTheSettingsOfThePaperOnActivationsOfModelParallelTraining) {
  const StudyFile study = read_study(source_tree() + "/studies/mp-compression.toml");
  EXPECT_GE(count_settings(expand(study)), 200u);
  for (const char* name :
       {"none", "A1", "A2", "T1", "T2", "T3", "T4", "R1", "R2", "R3", "R4", "Q1", "Q2", "Q3"})
    EXPECT_NE(find_setting(*find_axis(study, "compressor"), name), nullptr) << name;
}

TEST(CheckedTrials, TellAProblemOfSeveralOnce) {
  StudyFile study = expanded_study(
      "[[part]]\nname='p'\nmodel='small'\naxes=['codec','size']\n"
      "only={codec='none'}\nset={model.heads=5,data.train='x'}");
  const Problems problems = check_trials(study, trials_of(expand(study)), {.work = "w"}, "presets");
  ASSERT_EQ(problems.size(), 2u) << to_text(problems);  // 64 and 512 are both no multiple of 5
  study.models[1].set["model.width"] = "64";
  const Problems one = check_trials(study, trials_of(expand(study)), {.work = "w"}, "presets");
  ASSERT_GE(one.size(), 1u);
  EXPECT_NE(one[0].what.find("heads"), std::string::npos) << to_text(one);
}

}  // namespace
}  // namespace laconic
