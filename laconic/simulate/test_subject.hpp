// simulate/test_subject.hpp — configurations and hosts that tests simulate.
#pragma once

#include <functional>
#include <utility>
#include <vector>

#include "laconic/architecture/grid_codes.hpp"
#include "laconic/architecture/grid_time.hpp"
#include "laconic/config/grid_choice.hpp"
#include "laconic/config/model_family.hpp"
#include "laconic/simulate/row_load.hpp"
#include "laconic/simulate/run_simulation.hpp"

namespace laconic {

inline constexpr double kRounding = 1e-9;  // relative

// Hosts that compute in no time, joined by cards of so many bytes per second that messages see.
inline Hosts bare_hosts(int count, double bytes_per_second, double latency = 0) {
  HostGroup group{.name = "bare", .hosts = count};
  group.device.name = "none";
  group.device.is_gpu = true;
  group.card = {8 * bytes_per_second / kTcpShare, latency / 2, true};
  return {{group}};
}

// A configuration with everything that a simulation asks for.
struct Subject {
  explicit Subject(RunConfig its_config, Hosts its_hosts)
      : config(std::move(its_config)), hosts(std::move(its_hosts)) {
    const Family family = family_of(config, {});
    grid = grid_plan_of(config, family);
    spec = model_spec(family, context_of(family));
    add_grid_codes(spec, grid);
    decide_rows_for(config, spec, hosts, rows_read);
    decisions = decide_for(config, spec, hosts);
  }
  SimulationRequest request(Folding folding = Folding::never,
                            std::vector<BlockTimes> blocks = {}) const {
    return {.config = config,
            .spec = spec,
            .grid = grid,
            .decisions = decisions,
            .hosts = hosts,
            .blocks = std::move(blocks),
            .rows_read = rows_read,
            .folding = folding};
  }
  RunSimulation run(Folding folding = Folding::never, std::vector<BlockTimes> blocks = {}) const {
    return simulate(request(folding, std::move(blocks)));
  }
  double seconds(Folding folding = Folding::never) const { return run(folding).step_seconds; }
  ClassBytes sent(Traffic traffic) const {
    return run().sent.at(static_cast<std::size_t>(traffic));
  }

  RunConfig config;
  Hosts hosts;
  GridPlan grid;
  ModelSpec spec;
  PipelineDecisions decisions;
  double rows_read = 0;
};

// The pipeline of the lab report.
inline RunConfig lab_config(int pp, int dp) {
  RunConfig config;
  config.model.layers = 8;
  config.model.width = 256;
  config.model.heads = 4;
  config.model.context = 128;
  config.model.vocabulary = 2048;
  config.mesh.pp = pp;
  config.mesh.dp = dp;
  config.train.batch = 32 * dp;
  config.train.microbatch = 4;
  return config;
}

inline std::vector<Subject> various(double rate, double latency) {
  std::vector<Subject> subjects;
  const auto add = [&](const std::function<void(RunConfig&)>& set, int pp, int dp) {
    RunConfig config = lab_config(pp, dp);
    config.model.layers = 2;
    set(config);
    Hosts hosts = bare_hosts(8, rate, latency);
    hosts.groups[0].device.multiply_adds_per_second[0] = 40e9;
    subjects.emplace_back(config, hosts);
  };
  add([](RunConfig&) {}, 1, 4);
  add([](RunConfig& c) { c.dp_gradient.codec = "quantise:bits=4"; }, 1, 8);
  add(
      [](RunConfig& c) {
        c.dp_gradient.method = GradientMethod::power_sgd;
        c.dp_gradient.codec = "quantise:bits=8";
      },
      1, 4);
  add([](RunConfig& c) { c.dp_gradient.overlap = false; }, 2, 2);
  add([](RunConfig& c) { c.train.update = UpdateBy::block; }, 1, 4);
  add([](RunConfig& c) { c.pipeline.schedule = "gpipe"; }, 4, 2);
  add([](RunConfig& c) { c.embedding_tied.fused = false; }, 2, 2);
  add(
      [](RunConfig& c) {
        c.mesh.tp = "1,2,1";
        c.tensor.method = TensorMethod::one_d;
      },
      4, 1);
  add(
      [](RunConfig& c) {
        c.mesh.tp = "2,2,2";
        c.train.batch = 8;
        c.train.microbatch = 8;
      },
      1, 1);
  return subjects;
}

}  // namespace laconic
