// train/test_runs.hpp — small runs of one process in a temporary folder.
#pragma once

#include <fmt/format.h>
#include <gtest/gtest.h>

#include <fstream>
#include <map>
#include <nlohmann/json.hpp>
#include <string>

#include "laconic/data/prepare.hpp"
#include "laconic/file/test_folder.hpp"
#include "laconic/train/run_hooks.hpp"

namespace laconic {

// A folder with a small dataset in bytes, and runs beside it.
class Runs : public testing::Test {
 protected:
  Runs() {
    std::string text;
    for (int i = 0; i < 400; ++i)
      text += fmt::format("Line {} of a text that repeats itself. ", i % 37);
    std::ofstream(folder_ / "text.txt") << text;
    prepare(
        {.inputs = {folder_ / "text.txt"}, .output = folder_ / "data", .validation_share = 0.1});
  }

  RunConfig config(const std::string& name) {
    RunConfig c;
    c.run.folder = folder_ / name;
    c.model.layers = 2;
    c.model.width = 16;
    c.model.heads = 2;
    c.model.context = 24;
    c.model.dropout = 0.1;
    c.data.train = folder_ / "data";
    c.data.valid = folder_ / "data-valid";
    c.train.steps = 7;
    c.train.batch = 4;
    c.train.microbatch = 2;
    c.optimiser.lr = 1e-2;
    c.optimiser.min_lr = 1e-3;
    c.optimiser.warmup = 2;
    c.report.tensorboard = false;
    return c;
  }

  // Another dataset: 4 samples and no more.
  std::string four_samples() {
    std::ofstream(folder_ / "short.txt") << std::string(2 * 24, 'a') + std::string(2 * 24, 'b');
    prepare({.inputs = {folder_ / "short.txt"}, .output = folder_ / "short"});
    return folder_ / "short";
  }

  TrainSummary run(const RunConfig& c, const std::string& resume = "none",
                   const RunHooks& hooks = {}) {
    return train({.config = c, .start = {.resume = resume}}, hooks);
  }

  // The losses in a run's log, by step; -1 where there was none.
  std::map<std::int64_t, double> losses(const std::string& name) {
    std::map<std::int64_t, double> all;
    std::ifstream file(folder_ / (name + "/log.jsonl"));
    for (std::string line; std::getline(file, line);) {
      const nlohmann::json json = nlohmann::json::parse(line);
      if (!json.contains("loss")) continue;
      EXPECT_FALSE(all.contains(json["step"])) << "step twice in the log";
      all[json["step"]] = json["loss"].is_null() ? -1 : json["loss"].get<double>();
    }
    return all;
  }

  static void expect_equal_files(const std::string& a, const std::string& b) {
    for (const char* name : {"model.safetensors", "optimiser.safetensors"})
      EXPECT_EQ(bytes(a + "/" + name), bytes(b + "/" + name)) << name;
  }
  static std::string bytes(const std::string& path) {
    std::ifstream file(path, std::ios::binary);
    return {std::istreambuf_iterator<char>(file), {}};
  }

  const TemporaryFolder folder_;
};

}  // namespace laconic
