#include "laconic/checkpoint/checkpoint.hpp"

#include <gtest/gtest.h>

#include <filesystem>
#include <fstream>

#include "laconic/base/error.hpp"
#include "laconic/checkpoint/resume.hpp"
#include "laconic/file/test_file_calls.hpp"
#include "laconic/file/test_folder.hpp"
#include "laconic/file/test_size_limit.hpp"

namespace laconic {
namespace {

namespace fs = std::filesystem;

const GptShape kShape{.layers = 1, .width = 8, .heads = 2, .context = 4, .vocabulary = 7};

struct Model {
  Weights weights = make_weights(kShape, 3, at::TensorOptions().dtype(at::kFloat));
  TrainState state;
  Model() {
    state.optimiser = make_optimiser_state(weights.parameters);
    state.optimiser.updates = 4;
    for (at::Tensor& m : state.optimiser.moment1) m.fill_(0.25);
    for (at::Tensor& v : state.optimiser.moment2) v.fill_(1e-12);
    state.step = 5;
    state.position = 80;
    state.tokens = 1234;
    state.skipped = 1;
  }
};

std::string save(const std::string& folder, std::int64_t step, std::int64_t keep = 0) {
  Model model;
  model.state.step = step;
  return save_checkpoint({.folder = folder, .keep = keep, .config_toml = "[run]\nseed = 1\n"},
                         source_of(model.weights, model.state.optimiser), model.state);
}

std::string complaint(const std::string& folder) {
  try {
    verify_checkpoint(folder);
  } catch (const std::exception& error) {
    return error.what();
  }
  return "(accepted)";
}

TEST(Checkpoint, WhatIsSavedIsLoadedBitForBit) {
  const TemporaryFolder folder;
  const Model saved;
  const std::string path =
      save_checkpoint({.folder = folder.path(), .config_toml = "x"},
                      source_of(saved.weights, saved.state.optimiser), saved.state);
  EXPECT_EQ(fs::path(path).filename(), "step-00000005");
  Weights weights = make_empty_weights(kShape, at::TensorOptions().dtype(at::kFloat));
  TrainState state;
  load_checkpoint(path, weights, state);
  EXPECT_EQ(state.step, 5);
  EXPECT_EQ(state.position, 80);
  EXPECT_EQ(state.tokens, 1234);
  EXPECT_EQ(state.skipped, 1);
  EXPECT_EQ(state.optimiser.updates, 4);
  for (std::size_t i = 0; i < weights.parameters.size(); ++i) {
    EXPECT_TRUE(weights.parameters[i].value.equal(saved.weights.parameters[i].value));
    EXPECT_TRUE(state.optimiser.moment1[i].equal(saved.state.optimiser.moment1[i]));
    EXPECT_TRUE(state.optimiser.moment2[i].equal(saved.state.optimiser.moment2[i]));
  }
  EXPECT_EQ(read_checkpoint_info(path).config_toml, "x");
}

// run.precision was called run.dtype once.
TEST(Checkpoint, ARunOfOlderNamesHasNotChangedWithThem) {
  const TemporaryFolder folder;
  const Model saved;
  const std::string path =
      save_checkpoint({.folder = folder.path(), .config_toml = "[run]\ndtype = \"float64\"\n"},
                      source_of(saved.weights, saved.state.optimiser), saved.state);
  RunConfig config;
  config.run.precision = RunPrecision::float64;
  EXPECT_EQ(changes_since(path, config), std::vector<std::string>());
  config.run.precision = RunPrecision::float32;
  EXPECT_EQ(changes_since(path, config),
            std::vector<std::string>{"run.precision: \"float64\" -> \"float32\""});
}

TEST(Checkpoint, KeepsTheNewestOnes) {
  const TemporaryFolder folder;
  for (std::int64_t step = 1; step <= 12; ++step) save(folder.path(), step, 2);
  EXPECT_TRUE(fs::exists(folder / "step-00000012"));
  EXPECT_TRUE(fs::exists(folder / "step-00000011"));
  EXPECT_EQ(std::distance(fs::directory_iterator(folder.path()), {}), 2);
}

// Later ones are of another attempt, or damaged: they neither count nor go, and what has just been
// written always stays.
TEST(Checkpoint, LaterOnesOfAnotherAttemptAreNotCountedAndStay) {
  for (const std::int64_t keep : {1, 2}) {
    const TemporaryFolder folder;
    for (const std::int64_t step : {2, 4, 9, 10}) save(folder.path(), step);
    fs::resize_file(folder / "step-00000010/model.safetensors", 10);
    const std::string written = save(folder.path(), 5, keep);
    EXPECT_EQ(complaint(written), "(accepted)") << keep;
    EXPECT_EQ(fs::exists(folder / "step-00000004"), keep == 2);
    EXPECT_FALSE(fs::exists(folder / "step-00000002"));
    EXPECT_TRUE(fs::exists(folder / "step-00000009"));
    EXPECT_TRUE(fs::exists(folder / "step-00000010"));
  }
}

// Seen at the C library: no file of a checkpoint that has its name was left to the disk's mercy.
TEST(Checkpoint, EveryFileIsOnTheDiskBeforeTheFolderHasItsName) {
  using enum FileCall::Kind;
  const TemporaryFolder folder;
  const FileCalls calls;
  const std::string path = save(folder.path(), 3), writing = path + ".writing";
  const auto renamed = calls.first(rename, writing), told = calls.last(sync, folder.path());
  ASSERT_TRUE(renamed && told);
  EXPECT_LT(*renamed, *told);
  std::size_t files = 0;
  for (const auto& entry : fs::directory_iterator(path)) {
    const std::string temporary = writing + "/" + entry.path().filename().string() + ".tmp";
    const auto written = calls.last(write, temporary), synced = calls.first(sync, temporary),
               named = calls.first(rename, temporary);
    ASSERT_TRUE(written && synced && named) << temporary;
    EXPECT_LT(*written, *synced) << temporary;
    EXPECT_LT(*synced, *named) << temporary;
    EXPECT_LT(*named, *renamed) << temporary;
    ++files;
  }
  EXPECT_EQ(files, 4U);
  const auto names = calls.last(sync, writing);
  ASSERT_TRUE(names) << "the names in the folder";
  EXPECT_LT(*names, *renamed);
}

TEST(Checkpoint, TheSameStepCanBeSavedAgain) {
  const TemporaryFolder folder;
  save(folder.path(), 3);
  EXPECT_EQ(complaint(save(folder.path(), 3)), "(accepted)");
}

TEST(Checkpoint, EveryDamagedFileIsNamedAndPassedOver) {
  const TemporaryFolder folder;
  save(folder.path(), 1);
  for (const char* name : {"model.safetensors", "optimiser.safetensors", "config.json"}) {
    for (const char* damage : {"flip", "truncate", "remove"}) {
      const std::string path = save(folder.path(), 2);
      const std::string file = path + "/" + name;
      if (damage == std::string("remove")) fs::remove(file);
      if (damage == std::string("truncate")) fs::resize_file(file, fs::file_size(file) - 1);
      if (damage == std::string("flip")) {
        std::fstream stream(file, std::ios::in | std::ios::out | std::ios::binary);
        stream.seekg(static_cast<std::streamoff>(fs::file_size(file) / 2));
        const char byte = static_cast<char>(stream.peek() ^ 1);
        stream.put(byte);
      }
      EXPECT_NE(complaint(path).find(name), std::string::npos) << damage << ": " << complaint(path);
      std::vector<std::string> warnings;
      EXPECT_EQ(fs::path(find_latest_checkpoint(folder.path(), warnings)).filename(),
                "step-00000001");
      EXPECT_EQ(warnings.size(), 1u);
    }
  }
}

TEST(Checkpoint, AStateThatIsNotOursIsRefused) {
  const TemporaryFolder folder;
  EXPECT_NE(complaint(folder.path()).find("not a Laconic checkpoint"), std::string::npos);
  const std::string path = save(folder.path(), 1);
  for (const char* text : {"", "{", "[]", "{}", "{\"format\": 1}", "{\"format\": \"one\"}"}) {
    std::ofstream(path + "/state.json") << text;
    EXPECT_NE(complaint(path).find("state.json"), std::string::npos) << text;
  }
  std::ofstream(path + "/state.json")
      << R"({"format": 9, "step": 1, "position": 1, "skipped": 0, "updates": 1, "dtype": "F32", "config": "", "files": {}})";
  EXPECT_NE(complaint(path).find("format: is 9, this program reads 1"), std::string::npos)
      << complaint(path);
}

TEST(Checkpoint, AnyChangeToTheStateIsNoticed) {
  const TemporaryFolder folder;
  const std::string path = save(folder.path(), 1);
  std::ifstream in(path + "/state.json");
  const std::string text{std::istreambuf_iterator<char>(in), {}};
  for (const auto& [old, changed] : {std::pair{"\"position\": 80", "\"position\": 84"},
                                     {"\"updates\": 4", "\"updates\": 5"},
                                     {"\"config\": \"[run]", "\"config\": \"[ran]"}}) {
    std::string other = text;
    ASSERT_NE(other.find(old), std::string::npos) << old;
    other.replace(other.find(old), std::string(old).size(), changed);
    std::ofstream(path + "/state.json") << other;
    EXPECT_NE(complaint(path).find("state.json: check sum"), std::string::npos) << changed;
  }
  std::ofstream(path + "/state.json") << text;
  EXPECT_EQ(complaint(path), "(accepted)");
}

TEST(Checkpoint, AFullDiskKeepsThePreviousOne) {
  const TemporaryFolder folder;
  const std::string before = save(folder.path(), 1, 1);
  std::string message;
  try {
    const SizeLimit full_disk(1000);  // no file may grow beyond it: writing the model fails
    save(folder.path(), 2, 1);
  } catch (const SystemError& error) {
    message = error.what();
  }
  EXPECT_NE(message.find("cannot write"), std::string::npos) << message;
  EXPECT_EQ(complaint(before), "(accepted)");
  EXPECT_EQ(std::distance(fs::directory_iterator(folder.path()), {}), 1) << "left something behind";
}

TEST(Checkpoint, HalfWrittenOnesAreNotSeen) {
  const TemporaryFolder folder;
  save(folder.path(), 1);
  fs::create_directories(folder / "step-00000009.writing");
  fs::create_directories(folder / "step-abc");
  std::vector<std::string> warnings;
  EXPECT_EQ(fs::path(find_latest_checkpoint(folder.path(), warnings)).filename(), "step-00000001");
  EXPECT_TRUE(warnings.empty());
}

}  // namespace
}  // namespace laconic
