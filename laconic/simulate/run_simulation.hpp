// simulate/run_simulation.hpp — a step of a run on described hosts, without running it.
//
// The program of every rank is made of what ranks walk: the schedule's lists, the collective plans
// of sums, the policies of classes, deadlines. Bytes are those that its meters would count.
//
// What is simulated is a step in the middle of a run: warm-up is over, nothing is saved or
// evaluated. Where a step reaches into the next one, as with train.update = "block", three are
// simulated, and the time is that of the last ones. With local updates numbers are means over
// rounds (stretch.hpp). Sums are on time; what a network loses and repeats is not there.
//
// Pure, std only, deterministic.
#pragma once

#include <array>
#include <cstdint>
#include <functional>
#include <vector>

#include "laconic/architecture/model_spec.hpp"
#include "laconic/config/run_config.hpp"
#include "laconic/hosts/hosts.hpp"
#include "laconic/policy/local_round.hpp"
#include "laconic/policy/pipeline_decisions.hpp"
#include "laconic/policy/rank_memory.hpp"
#include "laconic/simulate/rank_class.hpp"
#include "laconic/simulate/simulator.hpp"

namespace laconic {

struct SimulationRequest {
  const RunConfig& config;
  const Mesh mesh = mesh_of(config);  // that finds an order of axes, which takes its time
  const ModelSpec& spec;              // of the samples' length, codes of a grid included
  const GridPlan& grid;
  const PipelineDecisions& decisions;
  const Hosts& hosts;  // for models of that kind: hosts_for()
  Seating seating = {};
  // Seconds of each block for a microbatch, on a rank that has its device to itself; empty: by
  // multiply-adds and the rates of devices.
  std::vector<BlockTimes> blocks = {};
  // Samples come for the first time: links that remember them send them by their `first` codec.
  bool is_first_epoch = false;
  // Different rows of each embedding table that a rank reads in a step, where rows travel; 0: as
  // row_load.hpp expects.
  double rows_read = 0;
  Folding folding = Folding::automatic;
  ProgramBounds bounds = {};  // of the program of each stretch
};

// Every reason why it cannot be simulated: too few seats, what nobody has written yet.
Problems check(const SimulationRequest& request);

struct ClassBytes {
  std::uint64_t messages = 0;
  std::uint64_t wire_bytes = 0;
};

struct RunSimulation {
  double step_seconds = 0;
  // Of local updates program and times are those of the steps that a picture shows, but seconds of
  // ranks and bytes of links are what so many steps come to on average.
  RunProgram program;
  RunTimes times;
  RankClasses classes;
  int steps = 1;                                      // in the program
  std::array<ClassBytes, kTrafficClasses> sent = {};  // of a step, all ranks
};

// What a scenario changes about a program before it runs.
using ProgramChange = std::function<void(RunProgram&, const RankClasses&)>;

// Requires: check(request) is empty. Throws ProgramTooLarge past the bounds.
RunProgram program_of(const SimulationRequest& request, const RankClasses& classes,
                      const std::vector<LocalStep>& steps);
// The same of so many steps that are alike. Requires: no local updates.
RunProgram program_of(const SimulationRequest& request, const RankClasses& classes, int steps);
RunSimulation simulate(const SimulationRequest& request, const ProgramChange& change = {});

// Decisions of a run on these hosts, as rank 0 would make them there; where the schedule is to be
// chosen, by the hosts' rates, and `config` then has the size of its microbatches.
PipelineDecisions decide_for(RunConfig& config, const ModelSpec& spec, const Hosts& hosts,
                             const std::vector<BlockTimes>& blocks = {});

}  // namespace laconic
