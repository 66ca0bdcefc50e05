// Studies of real runs: twelve trials of a tiny model, killed in the middle, gone on with, one of
// them failing, several at once, and their pages made anew.
#include <algorithm>
#include <csignal>
#include <filesystem>
#include <nlohmann/json.hpp>

#include "tests/processes/workplace.hpp"

namespace laconic {
namespace {

namespace fs = std::filesystem;

const std::string kStudy = R"(
title = "Tiny"
model = "tiny"
steps = 3
measures = [{ name = "validation_loss", digits = 3 }, "step_seconds"]
[base]
run.threads = 1
train.batch = 2
checkpoint.at_end = false
report.tensorboard = false
evaluate.samples = 4
[models.tiny]
set = { data.train = "$work/text", data.valid = "$work/text-valid", model.layers = 1, model.width = 16, model.heads = 2, model.context = 16 }
prepare = [{ makes = "$work/text-valid.idx", lines = ["$laconic prepare text.txt --valid 0.1 --overwrite --out $work/text"] }]
[[axis]]
name = "lr"
settings = [{ name = "low", set.optimiser.lr = 0.001 }, { name = "high", set.optimiser.lr = 0.01 }]
[[axis]]
name = "width"
settings = ["16", { name = "32", set.model.width = 32 }]
[[rule]]
name = "within reach"
measure = "validation_loss"
of = { lr = "low" }
against = { lr = "high" }
is = "within 50 %"
[[part]]
name = "p"
axes = ["lr", "width"]
)";

constexpr int kTrials = 12;  // four settings, three seeds

class StudyOfRuns : public Workplace {
 protected:
  StudyOfRuns() { write_text(*this / "study.toml", kStudy + "seeds = [1, 2, 3]\n"); }
  Words words(const Words& more = {}) const { return Words{"study", "study.toml"} + more; }
  int outcomes() const {
    int count = 0;
    std::error_code none;
    for (const auto& entry : fs::directory_iterator(*this / "runs/study/raw", none))
      count += entry.path().extension() == ".json" ? 1 : 0;
    return count;
  }
  std::vector<nlohmann::json> lines() const {
    std::vector<nlohmann::json> all;
    std::istringstream in(text("runs/study/outcomes.jsonl"));
    for (std::string line; std::getline(in, line);) all.push_back(nlohmann::json::parse(line));
    return all;
  }
};

TEST_F(StudyOfRuns, GoesOnAfterItWasKilledAndMakesItsPageFromLines) {
  const ProcessResult list = expect_exit(0, words({"--list"}));
  EXPECT_TRUE(contains(list.out, "p/none/low-16/1")) << list.out;
  EXPECT_TRUE(contains(list.out, "4 settings")) << list.out;
  EXPECT_FALSE(fs::exists(*this / "runs/study"));

  Process first(spec(words()));
  ASSERT_TRUE(wait_until(first, [&] { return outcomes() >= 3; }));
  first.send(SIGKILL);
  first.wait(20);
  const int done = outcomes();
  EXPECT_LT(done, kTrials);

  const ProcessResult second = laconic(words({"--jobs", "2"}));
  EXPECT_EQ(second.exit_code, 0) << to_text(second);
  EXPECT_TRUE(contains(second.out, std::to_string(kTrials - done) + " of them run now"))
      << second.out;
  const std::vector<nlohmann::json> rows = lines();
  ASSERT_EQ(static_cast<int>(rows.size()), kTrials);
  for (const nlohmann::json& row : rows) {
    EXPECT_EQ(row["failure"], "") << row;
    EXPECT_GT(row["measures"]["validation_loss"].get<double>(), 0) << row;
    std::string stem = row["trial"];
    std::replace(stem.begin(), stem.end(), '/', '_');
    for (const char* file : {"command.txt", "run/log.jsonl", "run/config.toml", "summary.json"})
      EXPECT_TRUE(fs::exists(*this / ("runs/study/trials/" + stem + "/" + file))) << stem << file;
  }
  const std::string page = text("runs/study/README.md");
  EXPECT_TRUE(contains(page, "| within reach | validation_loss within 50 % | kept |")) << page;

  fs::remove_all(*this / "runs/study/raw");
  fs::remove(*this / "runs/study/README.md");
  expect_exit(0, words({"--pages-only"}));
  const std::string again = text("runs/study/README.md");
  EXPECT_EQ(again.substr(again.find("## Rules")), page.substr(page.find("## Rules")));
  // One is run anew; lines of the others stay.
  expect_exit(0, words({"--only", "p/none/low-16/1"}));
  EXPECT_EQ(outcomes(), 1);
  EXPECT_EQ(static_cast<int>(lines().size()), kTrials);
}

TEST_F(StudyOfRuns, KeepsAFailureAsARow) {
  write_text(*this / "study.toml",
             kStudy + "seeds = [1]\nlist = [[\"low\", \"16\"]]\nset.data.train = \"nowhere\"\n");
  const ProcessResult outcome = laconic(words());
  EXPECT_EQ(outcome.exit_code, 1) << to_text(outcome);
  ASSERT_EQ(lines().size(), 1u);
  EXPECT_TRUE(contains(lines()[0]["failure"].get<std::string>(), "nowhere")) << lines()[0];
  const std::string page = text("runs/study/README.md");
  EXPECT_TRUE(contains(page, "## Trials that failed")) << page;
  EXPECT_TRUE(contains(page, "cannot be judged")) << page;
}

TEST_F(StudyOfRuns, IsRefusedWithEveryReasonBeforeAnythingRuns) {
  write_text(*this / "study.toml", kStudy + "axs = 1\n[[part]]\nname = \"q\"\naxes = \"rate\"\n");
  const std::string form = expect_exit(2, words()).err;
  EXPECT_TRUE(contains(form, "study.toml:30:7: part 'p': unknown key 'axs'; did you mean 'axes'?"))
      << form;
  write_text(*this / "study.toml", kStudy + "set.model.heads = 3\n");
  const std::string values = expect_exit(2, words()).err;
  EXPECT_TRUE(contains(values, "p/none/low-16/1")) << values;
  EXPECT_TRUE(contains(values, "heads")) << values;
  EXPECT_FALSE(fs::exists(*this / "runs/study"));
  EXPECT_TRUE(contains(expect_exit(2, {"study", "nowhere.toml"}).err, "nowhere.toml"));
}

}  // namespace
}  // namespace laconic
