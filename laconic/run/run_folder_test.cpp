#include "laconic/run/run_folder.hpp"

#include <gtest/gtest.h>

#include <filesystem>
#include <fstream>

#include "laconic/file/test_folder.hpp"

namespace laconic {
namespace {

namespace fs = std::filesystem;

void make_checkpoint(const std::string& path) {
  fs::create_directories(path);
  std::ofstream(path + "/state.json") << "{}";
}

TEST(RunFolder, FindsStepsByNameNewestFirst) {
  const TemporaryFolder folder;
  EXPECT_TRUE(step_folders(folder / "none").empty());
  for (const char* name :
       {"step-00000002", "step-00000010", "step-00000004.writing", "step-x", "other"})
    fs::create_directories(folder / name);
  std::ofstream(folder / "step-00000099") << "a file";
  EXPECT_EQ(step_folders(folder.path()),
            (std::vector<std::string>{folder / "step-00000010", folder / "step-00000002"}));
  EXPECT_EQ(step_of_folder("a/step-00000010/"), 10);
  EXPECT_EQ(step_folder_name(10), "step-00000010");
}

TEST(RunFolder, ResumeMeansARunAFolderOfCheckpointsOrOneOfThem) {
  const TemporaryFolder folder;
  make_checkpoint(folder / "runs/a/checkpoints/step-00000002");
  const std::string inside = folder / "runs/a/checkpoints";
  EXPECT_EQ(checkpoints_meant(folder / "runs/a"), inside);
  EXPECT_EQ(checkpoints_meant(folder / "runs/a/"), inside);
  EXPECT_EQ(checkpoints_meant(inside), inside);
  EXPECT_EQ(checkpoints_meant(inside + "/step-00000002"), std::nullopt);
  EXPECT_EQ(checkpoints_meant(folder / "runs"), std::nullopt);
  EXPECT_EQ(checkpoints_meant(folder / "nowhere"), std::nullopt);
}

TEST(RunFolder, AResumeThatCannotBeIsRefusedWithASuggestion) {
  const TemporaryFolder folder;
  EXPECT_TRUE(check_resume("none", true).empty());
  EXPECT_TRUE(check_resume("auto", false).empty());
  EXPECT_TRUE(check_resume(folder.path(), true).empty());
  const Problems typo = check_resume("atuo", false);
  ASSERT_EQ(typo.size(), 1u);
  EXPECT_TRUE(typo[0].what.ends_with("; did you mean 'auto'?")) << typo[0].what;
  const Problems nowhere = check_resume("runs/quickstart/checkpoints/step-00000100", false);
  ASSERT_EQ(nowhere.size(), 1u);
  EXPECT_EQ(nowhere[0].what.find("did you mean"), std::string::npos) << nowhere[0].what;
  EXPECT_EQ(check_resume("auto", true).size(), 1u);
}

TEST(RunFolder, IsVacantWhenNothingStandsInTheWay) {
  const TemporaryFolder folder;
  const std::string run = folder / "runs/a";
  const std::string mine = run + "/checkpoints/step-0000000";
  for (const char* step : {"2", "4", "6"}) make_checkpoint(mine + step);
  make_checkpoint(folder / "runs/b/checkpoints/step-00000009");
  const auto in_the_way = [&](const std::string& resume) {
    return checkpoints_in_the_way(run, resume).size();
  };
  EXPECT_EQ(in_the_way("none"), 3u);
  EXPECT_EQ(in_the_way("auto"), 0u);
  EXPECT_EQ(in_the_way(run), 0u);
  EXPECT_EQ(in_the_way(run + "/checkpoints/"), 0u);
  EXPECT_EQ(in_the_way(mine + "6"), 0u);
  EXPECT_EQ(in_the_way(mine + "4/"), 1u);
  EXPECT_EQ(in_the_way(folder / "runs/b"), 3u);
  EXPECT_EQ(in_the_way(folder / "runs/b/checkpoints/step-00000009"), 3u);

  EXPECT_TRUE(check_vacant(folder / "runs/new", "none", false).empty());
  EXPECT_TRUE(check_vacant(run, "none", true).empty());
  const Problems taken = check_vacant(run, "none", false);
  ASSERT_EQ(taken.size(), 1u);
  EXPECT_NE(taken[0].what.find("already holds step-00000006"), std::string::npos);
}

}  // namespace
}  // namespace laconic
