#include "laconic/launch/restart.hpp"

#include <gtest/gtest.h>

#include <filesystem>

#include "laconic/file/test_folder.hpp"

namespace laconic {
namespace {

namespace fs = std::filesystem;
using Words = std::vector<std::string>;

TEST(Restart, ResumeAndOverwriteGiveWayToAuto) {
  const Words resumed = {"laconic", "train", "a.toml", "--resume", "auto"};
  for (const Words& words :
       {Words{"laconic", "train", "a.toml"}, Words{"laconic", "train", "a.toml", "--overwrite"},
        Words{"laconic", "train", "--resume", "runs/a/b", "a.toml"},
        Words{"laconic", "train", "--resume=none", "--overwrite", "a.toml"},
        Words{"laconic", "train", "a.toml", "--resume", "auto"}})
    EXPECT_EQ(words_to_resume(words), resumed);
  EXPECT_EQ(
      words_to_resume({"l", "train", "a", "--set", "run.folder=--overwrite-me", "--ranks", "3"}),
      (Words{"l", "train", "a", "--set", "run.folder=--overwrite-me", "--ranks", "3", "--resume",
             "auto"}));
}

TEST(Restart, OnlyCheckpointsOfThisLifeAreNew) {
  const TemporaryFolder folder;
  EXPECT_TRUE(saved_checkpoints(folder / "none").empty());
  fs::create_directory(folder / "step-00000002");
  const SavedCheckpoints before = saved_checkpoints(folder.path());
  EXPECT_EQ(before.size(), 1U);
  EXPECT_FALSE(has_new(before, saved_checkpoints(folder.path())));
  fs::create_directory(folder / "step-00000004.writing");
  EXPECT_FALSE(has_new(before, saved_checkpoints(folder.path())));
  fs::rename(folder / "step-00000004.writing", folder / "step-00000004");
  EXPECT_TRUE(has_new(before, saved_checkpoints(folder.path())));
  fs::remove(folder / "step-00000004");
  EXPECT_FALSE(has_new(before, saved_checkpoints(folder.path())));
}

TEST(Restart, ACheckpointWrittenAnewIsNew) {
  const TemporaryFolder folder;
  fs::create_directory(folder / "step-00000002");
  const SavedCheckpoints before = saved_checkpoints(folder.path());
  fs::create_directory(folder / "other");
  fs::remove(folder / "step-00000002");
  fs::rename(folder / "other", folder / "step-00000002");
  EXPECT_TRUE(has_new(before, saved_checkpoints(folder.path())));
}

TEST(Restart, WhatOverwriteRemovesIsNotNew) {
  const TemporaryFolder folder;
  fs::create_directory(folder / "step-00000002");
  const SavedCheckpoints before = saved_checkpoints(folder.path());
  fs::remove(folder / "step-00000002");
  EXPECT_FALSE(has_new(before, saved_checkpoints(folder.path())));
}

}  // namespace
}  // namespace laconic
