// Whole reports in a temporary folder: of an invented study, of its parts, and of nothing.
#include <gtest/gtest.h>

#include <cctype>
#include <cstdlib>
#include <filesystem>
#include <fstream>
#include <functional>
#include <limits>
#include <sstream>

#include "laconic/file/test_folder.hpp"
#include "laconic/lab/tool.hpp"
#include "laconic/study/report.hpp"
#include "laconic/study/report_pages.hpp"
#include "laconic/study/test_outcomes.hpp"

namespace laconic {
namespace {

namespace fs = std::filesystem;

constexpr double kNothing = std::numeric_limits<double>::quiet_NaN();
constexpr double kEndless = std::numeric_limits<double>::infinity();
const ReportFacts kFacts = {
    "2026-11-15", "a machine", "abc1234", "laconic study --out x", "full", 1};
const std::vector<std::string> kPages = {"README.md",        "bandwidth.md", "end-to-end.md",
                                         "optimus-cc.md",    "pays.md",      "honesty.md",
                                         "data-parallel.md", "targets.md",   "commands.txt"};

std::string read(const std::string& path) {
  std::ifstream file(path);
  std::stringstream text;
  text << file.rdbuf();
  return text.str();
}

// Words of letters, in lower case.
bool has_word(const std::string& text, const std::string& wanted) {
  std::string word;
  for (const char letter : text + " ") {
    if (std::isalpha(static_cast<unsigned char>(letter)) != 0) {
      word += static_cast<char>(std::tolower(letter));
      continue;
    }
    if (word == wanted) return true;
    word.clear();
  }
  return false;
}

void expect_numbers_alone(const std::string& folder) {
  for (const auto& entry : fs::recursive_directory_iterator(folder)) {
    const std::string kind = entry.path().extension();
    if (kind != ".md" && kind != ".dat" && kind != ".gp" && kind != ".txt") continue;
    const std::string text = read(entry.path());
    EXPECT_FALSE(text.empty()) << entry.path();
    for (const char* word : {"nan", "inf"}) EXPECT_FALSE(has_word(text, word)) << entry.path();
  }
}

// Links of a page to files beside it, but for raw/, which is the runner's.
void expect_links(const std::string& page) {
  const std::string text = read(page);
  for (std::size_t at = text.find("]("); at != std::string::npos; at = text.find("](", at + 1)) {
    const std::string link = text.substr(at + 2, text.find(')', at) - at - 2);
    if (link == "raw/") continue;
    EXPECT_TRUE(fs::exists(fs::path(page).parent_path() / link)) << page << ": " << link;
  }
}

// A gnuplot that only fails, in front of any other.
class FailingGnuplot {
 public:
  FailingGnuplot() : path_(std::getenv("PATH")) {
    std::ofstream(folder_ / "gnuplot") << "#!/bin/sh\nexit 3\n";
    fs::permissions(folder_ / "gnuplot", fs::perms::owner_all);
    ::setenv("PATH", (folder_.path() + ":" + path_).c_str(), 1);
  }
  ~FailingGnuplot() { ::setenv("PATH", path_.c_str(), 1); }

 private:
  TemporaryFolder folder_;
  std::string path_;
};

TEST(StudyReport, AWholeStudyIsAFolder) {
  TemporaryFolder temporary;
  const char* kept = std::getenv("LACONIC_REPORT_SAMPLE");  // to look at it
  const std::string results = kept ? kept : temporary / "it's here/docs/results";
  const std::string folder = results + "/2026-11-15";
  const std::vector<Outcome> outcomes = testing::invented_study();
  write_report(folder, outcomes, kFacts);
  for (const std::string& page : kPages) {
    EXPECT_TRUE(fs::exists(folder + "/" + page)) << page;
    expect_links(folder + "/" + page);
    for (const char* missing : {"No run of part", "Nothing of part"})
      EXPECT_EQ(read(folder + "/" + page).find(missing), std::string::npos) << page;
  }
  expect_links(folder + "/summary.md");
  if (!kept) expect_links(results + "/README.md");
  expect_numbers_alone(results);
  for (const Figure& figure : figures_of(outcomes)) {
    EXPECT_TRUE(has_data(figure)) << figure.name;
    EXPECT_LE(figure.curves.size(), kMostCurves);
    const std::string path = folder + "/figures/" + figure.name;
    EXPECT_TRUE(fs::exists(path + ".dat"));
    if (find_tool("gnuplot").empty())
      continue;  // expect_links() has seen that nothing points there
    EXPECT_NE(read(path + ".svg").find("</svg>"), std::string::npos) << path;
    EXPECT_EQ(read(path + ".png").substr(0, 4), "\x89PNG") << path;
  }
}

TEST(StudyReport, WithoutDrawingsThereAreSentencesAndData) {
  const FailingGnuplot failing;
  TemporaryFolder temporary;
  write_report(temporary / "docs/results/2026-11-15", testing::invented_study(), kFacts);
  const std::string page = read(temporary / "docs/results/README.md");
  EXPECT_NE(page.find("not drawn, since gnuplot ended with code 3; the "
                      "[data](2026-11-15/figures/speed.dat) are there."),
            std::string::npos)
      << page;
  expect_links(temporary / "docs/results/README.md");
  EXPECT_TRUE(fs::exists(temporary / "docs/results/2026-11-15/figures/speed.gp"));
}

TEST(StudyReport, ASecondTimeItIsTheSame) {
  const FailingGnuplot failing;
  TemporaryFolder temporary;
  const std::vector<Outcome> outcomes = testing::invented_study();
  for (const char* name : {"a", "b"})
    write_report(temporary / name, outcomes, {"d", "m", "c", "w", "short", 1});
  for (const std::string& page : kPages) {
    EXPECT_EQ(read(temporary / ("a/" + page)), read(temporary / ("b/" + page)));
  }
}

// A README.md beside the folder is only replaced by a whole study without failures, and only where
// it is ours.
TEST(StudyReport, OnlyAWholeFullOneInDocsResultsReplacesThePagePeopleRead) {
  const FailingGnuplot failing;
  ReportFacts brief = kFacts, half = kFacts;
  brief.size = "short";
  half.trials = testing::invented_study().size() + 1;
  const struct {
    ReportFacts facts;
    const char* beside;
    bool is_replaced;
    const char* failure = "";  // of its last trial
  } cases[] = {{kFacts, "docs/results", true},         {kFacts, "results", false},
               {kFacts, "docs/result", false},         {kFacts, "", false},
               {brief, "docs/results", false},         {half, "docs/results", false},
               {kFacts, "docs/results", false, "lost"}};
  for (const auto& c : cases) {
    TemporaryFolder temporary;
    const fs::path beside = fs::path(temporary.path()) / c.beside;
    fs::create_directories(beside);
    std::ofstream(beside / "README.md") << "mine";
    std::vector<Outcome> outcomes = testing::invented_study();
    outcomes.back().failure = c.failure;
    write_report(beside / "2026-11-15/", outcomes, c.facts);
    EXPECT_EQ(read(beside / "README.md") != "mine", c.is_replaced) << beside;
    expect_links(beside / "2026-11-15/summary.md");
  }
}

TEST(StudyReport, OfNothingItHasSentences) {
  TemporaryFolder temporary;
  write_report(temporary / "2026-11-15/", {}, kFacts);
  for (const std::string& page : kPages) {
    if (page != "commands.txt") expect_links(temporary / ("2026-11-15/" + page));
  }
  expect_links(temporary / "2026-11-15/summary.md");
  const std::string page = read(temporary / "2026-11-15/bandwidth.md");
  EXPECT_NE(page.find("Nothing of part \"bandwidth\" was run: "), std::string::npos);
  for (const Target& target : targets_of({})) {
    EXPECT_EQ(target.judgement, Judgement::not_measured) << target.name;
    EXPECT_FALSE(target.why.empty()) << target.name;
  }
}

// Every part alone, every part missing, and every run failed.
TEST(StudyReport, PartsMayBeMissing) {
  const std::vector<Outcome> all = testing::invented_study();
  std::vector<std::string> parts;
  for (const Outcome& outcome : all) {
    if (parts.empty() || parts.back() != outcome.trial.part) parts.push_back(outcome.trial.part);
  }
  const auto check = [](const std::vector<Outcome>& outcomes) {
    const Drawn drawn;
    for (const std::string& page :
         {bandwidth_page(outcomes, drawn), end_to_end_page(outcomes), optimus_page(outcomes),
          data_parallel_page(outcomes, drawn), pays_page(outcomes, drawn), honesty_page(outcomes),
          targets_page(outcomes), contents_page(outcomes, kFacts),
          summary_page(outcomes, kFacts, drawn, "")}) {
      EXPECT_FALSE(has_word(page, "nan") || has_word(page, "inf")) << page;
    }
    for (const Figure& figure : figures_of(outcomes)) data_text(figure);
  };
  for (const std::string& part : parts) {
    SCOPED_TRACE(part);
    std::vector<Outcome> alone = all;
    std::erase_if(alone, [&](const Outcome& one) { return one.trial.part != part; });
    check(alone);
    std::vector<Outcome> others = all;
    std::erase_if(others, [&](const Outcome& one) { return one.trial.part == part; });
    check(others);
  }
  std::vector<Outcome> failed = all;
  for (Outcome& outcome : failed) outcome.failure = "lost";
  check(failed);
}

// What a run may leave behind when things go badly, in every run at once.
TEST(StudyReport, DamagedNumbersNeverShow) {
  const std::vector<std::function<void(Outcome&)>> damages = {
      [](Outcome& one) { one.steps.clear(); },
      [](Outcome& one) { one.traffic.clear(); },
      [](Outcome& one) { one.command.clear(), one.trial.set.clear(); },
      [](Outcome& one) { one.samples = 0; },
      [](Outcome& one) { one.interface_packets = one.interface_sent_bytes = 0; },
      [](Outcome& one) { one.computing_seconds.assign(8, kNothing); },
      [](Outcome& one) { one.interface_packets = one.interface_sent_bytes = kNothing; },
      [](Outcome& one) {
        for (StepRow& row : one.steps) row = {row.step, 0, kNothing, kNothing, kEndless};
      },
      [](Outcome& one) {
        for (StepRow& row : one.steps) row.seconds = kNothing;
      },
      [](Outcome& one) {
        for (ClassTotal& total : one.traffic)
          total.raw_bytes = total.wire_bytes = total.codec_seconds = kNothing;
      },
      [](Outcome& one) {
        for (ClassTotal& total : one.traffic)
          total.raw_bytes = total.wire_bytes = total.codec_seconds = 0;
      },
  };
  for (std::size_t i = 0; i < damages.size(); ++i) {
    SCOPED_TRACE(i);
    TemporaryFolder temporary;
    std::vector<Outcome> outcomes = testing::invented_study();
    for (Outcome& outcome : outcomes) damages[i](outcome);
    for (const std::string& page :
         {bandwidth_page(outcomes, {}), end_to_end_page(outcomes), optimus_page(outcomes),
          data_parallel_page(outcomes, {}), pays_page(outcomes, {}), honesty_page(outcomes),
          targets_page(outcomes), summary_page(outcomes, kFacts, {}, "")}) {
      EXPECT_FALSE(has_word(page, "nan") || has_word(page, "inf")) << page.substr(0, 60);
    }
    for (const Figure& figure : figures_of(outcomes)) {
      EXPECT_FALSE(has_word(data_text(figure), "nan")) << figure.name;
    }
  }
}

}  // namespace
}  // namespace laconic
