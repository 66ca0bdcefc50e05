// tests/equivalence/pipeline_ranks.hpp — small runs over pipelines, their ranks as threads.
#pragma once

#include <c10/core/GradMode.h>
#include <fmt/format.h>
#include <gtest/gtest.h>

#include <filesystem>
#include <fstream>
#include <map>
#include <string>

#include "laconic/base/error.hpp"
#include "laconic/config/read.hpp"
#include "laconic/data/prepare.hpp"
#include "laconic/engine/progress_thread.hpp"
#include "laconic/file/mapped_file.hpp"
#include "laconic/file/test_folder.hpp"
#include "laconic/train/common_start.hpp"
#include "laconic/train/run_hooks.hpp"
#include "laconic/transport/faulty.hpp"
#include "laconic/transport/in_process.hpp"
#include "laconic/transport/shaped.hpp"

namespace laconic {

class PipelineParallel : public testing::Test {
 protected:
  // `data` has 377 samples; `few` has 36, so that each comes again after two or three steps.
  PipelineParallel() {
    for (const auto& [name, lines] : {std::pair{"data", 260}, {"few", 26}}) {
      std::string text;
      for (int i = 0; i < lines; ++i)
        text += fmt::format("Line {} of a text that repeats itself. ", i % 37);
      std::ofstream(folder_ / "text.txt") << text;
      prepare(
          {.inputs = {folder_ / "text.txt"}, .output = folder_ / name, .validation_share = 0.1});
    }
  }

  RunConfig config(const std::string& name, std::int64_t pp, std::int64_t dp = 1) {
    RunConfig c;
    c.run.folder = folder_ / name;
    c.model = {.layers = 6, .width = 16, .heads = 2, .context = 24, .dropout = 0.1};
    c.data.train = folder_ / "data";
    c.data.valid = folder_ / "data-valid";
    c.train.steps = 3;
    c.train.batch = 16;
    c.train.microbatch = 2;
    c.optimiser.lr = 1e-2;
    c.optimiser.min_lr = 1e-3;
    c.optimiser.warmup = 2;
    c.report.tensorboard = false;
    c.mesh.pp = pp;
    c.mesh.dp = dp;
    return c;
  }

  static void set(RunConfig& c, const std::vector<std::string>& assignments) {
    for (const std::string& set : assignments) {
      const Problems problems = apply_set(set, c);
      ASSERT_TRUE(problems.empty()) << to_text(problems);
    }
  }

  // All ranks as threads; the summary of rank 0.
  static TrainSummary run(const RunConfig& c, const std::string& resume = "none",
                          const std::map<std::int64_t, CodecOverrides>& changes = {}) {
    return run_hooked(c, {.changes = changes}, resume);
  }
  static TrainSummary run_hooked(const RunConfig& c, const RunHooks& hooks,
                                 const std::string& resume = "none") {
    std::vector<std::unique_ptr<Transport>> transports = make_in_process(size(mesh_of(c)));
    for (std::unique_ptr<Transport>& transport : transports)
      transport = make_faulty(std::move(transport), parse_faults(c.network.faults));
    return run_over(transports, c, hooks, resume);
  }
  // Over links of this shape.
  static TrainSummary run_shaped(const RunConfig& c, const std::string& shape) {
    std::vector<std::unique_ptr<Transport>> transports = make_in_process(size(mesh_of(c)));
    for (std::unique_ptr<Transport>& transport : transports)
      transport = make_shaped(std::move(transport), parse_shape(shape));
    return run_over(transports, c, {}, "none");
  }
  static TrainSummary run_over(std::vector<std::unique_ptr<Transport>>& transports,
                               const RunConfig& c, const RunHooks& hooks,
                               const std::string& resume) {
    TrainSummary first;
    const Problems problems = check(c);
    EXPECT_TRUE(problems.empty()) << to_text(problems);
    run_ranks(transports, [&](Transport& transport) {
      Engine engine(transport, {.deadline = std::chrono::seconds(20)});
      ProgressThread progress_thread(engine);
      World world(mesh_of(c), progress_thread);
      const TrainSummary summary =
          train({.config = c, .start = {.resume = resume}, .world = &world}, hooks);
      engine.flush();
      world.gather({});
      engine.flush();
      if (transport.rank() == 0) first = summary;
    });
    return first;
  }

  static std::string model_bytes(const std::string& checkpoint) {
    std::string bytes;
    for (const char* file : {"/model.safetensors", "/optimiser.safetensors"})
      bytes += MappedFile(checkpoint + file).text();
    return bytes;
  }

  // What ranks have in files of their own: residuals of sums and links, references. By name.
  static std::map<std::string, std::string> rank_files(const std::string& checkpoint) {
    std::map<std::string, std::string> files;
    for (const auto& entry : std::filesystem::directory_iterator(checkpoint))
      if (const std::string name = entry.path().filename().string(); name.starts_with("rank-"))
        files[name] = MappedFile(entry.path().string()).text();
    return files;
  }

  static double largest_difference(const std::string& a, const std::string& b, const RunConfig& c) {
    const Weights left = read_model(a, tensor_options(c)), right = read_model(b, tensor_options(c));
    const at::NoGradGuard no_grad;
    double most = 0;
    for (std::size_t p = 0; p < left.parameters.size(); ++p)
      most = std::max(
          most, left.parameters[p].value.sub(right.parameters[p].value).abs().max().item<double>());
    return most;
  }

  const TemporaryFolder folder_;
};

}  // namespace laconic
