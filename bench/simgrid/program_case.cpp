#include "bench/simgrid/program_case.hpp"

#include <fmt/format.h>

#include <numeric>

#include "laconic/base/index.hpp"
#include "laconic/config/grid_choice.hpp"
#include "laconic/config/model_family.hpp"
#include "laconic/hosts/known_device.hpp"
#include "laconic/simulate/collective_program.hpp"
#include "laconic/simulate/run_simulation.hpp"

namespace laconic {

namespace {

constexpr double kRate = 100e6, kLatency = 50e-6;  // of a card

// Computing as fast as a GPU's, and messages that take nobody's time.
HostGroup bare_group(int hosts) {
  HostGroup group{.name = "bare", .hosts = hosts};
  group.device.is_gpu = true;
  group.device.multiply_adds_per_second[0] = 1e12;
  group.card = {kRate, kLatency, true};
  return group;
}

Hosts switched(int hosts) {
  return {{bare_group(hosts)}};
}

Hosts half_duplex(int hosts) {
  HostGroup group = bare_group(hosts);
  group.card.full_duplex = false;
  return {{group}};
}

// Half of the hosts each; all that is between them takes an uplink of twice a card, and 5 ms.
Hosts two_sites(int hosts) {
  HostGroup site = bare_group(hosts / 2);
  site.uplink = Link{2 * kRate, 2.5e-3, true};
  HostGroup other = site;
  site.name = "here";
  other.name = "there";
  return {{site, other}};
}

// Ranks on two cores, which computing and the handling of messages share.
Hosts lab(int hosts) {
  HostGroup group{.name = "lab", .hosts = hosts, .cores = 2, .device = *known_device("core")};
  group.card = {kRate, kLatency, true};
  return {{group}};
}

RunProgram exchange_program(CollectiveKind kind, Algorithm algorithm, const Hosts& hosts) {
  constexpr std::uint64_t kElements = 1 << 20;
  const int members = rank_count(hosts);
  const std::vector<Seat> seats = seats_of(hosts);
  ProgramBuilder builder(hosts, seats, classes_of({.dp = members}, hosts, seats, Folding::never),
                         RunPrecision::float32);
  CollectiveSpec spec{.traffic = Traffic::dp_gradient, .kind = kind, .algorithm = algorithm};
  spec.group.resize(index(members));
  std::iota(spec.group.begin(), spec.group.end(), 0);
  spec.offsets = cut(kElements, chunks_of(kind, algorithm, members), 16);
  for (const auto& [rank, strand] : add_collective(builder, spec, 0)) {
    const int main = builder.add_main(rank);
    builder.start(main, strand);
    builder.join(main, strand);
  }
  return builder.program();
}

struct MeshCase {
  int pp, dp;
  const char* tp;
  const char* schedule;
};

RunProgram step_program(const MeshCase& mesh_case, const Hosts& hosts) {
  RunConfig config;
  config.model.layers = 8;
  config.model.width = 256;
  config.model.heads = 8;
  config.model.vocabulary = 2048;
  config.mesh.pp = mesh_case.pp;
  config.mesh.dp = mesh_case.dp;
  config.mesh.tp = mesh_case.tp;
  // A microbatch of a grid is many messages already.
  config.train.batch = (config.mesh.tp == "1" ? 32 : 8) * mesh_case.dp;
  config.train.microbatch = 8;
  config.pipeline.schedule = mesh_case.schedule;
  if (config.pipeline.schedule == "interleaved") config.pipeline.chunks = 2;
  const Mesh mesh = mesh_of(config);
  const Family family = family_of(config, {});
  const GridPlan grid = grid_plan_of(config, family);
  const ModelSpec spec = model_spec(family, context_of(family));
  const PipelineDecisions decisions = decide_for(config, spec, hosts);
  const SimulationRequest request{.config = config,
                                  .spec = spec,
                                  .grid = grid,
                                  .decisions = decisions,
                                  .hosts = hosts,
                                  .folding = Folding::never};
  return program_of(request, classes_of(mesh, hosts, seats_of(hosts), Folding::never), 1);
}

const char* name_of_kind(CollectiveKind kind) {
  switch (kind) {
    case CollectiveKind::all_reduce: return "all-reduce";
    case CollectiveKind::reduce_scatter: return "reduce-scatter";
    case CollectiveKind::all_gather: return "all-gather";
    case CollectiveKind::broadcast: return "broadcast";
    case CollectiveKind::all_to_all: return "all-to-all";
    case CollectiveKind::barrier: return "barrier";
  }
  return "";
}

struct Where {
  const char* name;
  Hosts (*hosts)(int);
};
constexpr Where kSwitched{"", switched}, kTwoSites{", two sites", two_sites},
    kHalfDuplex{", half duplex", half_duplex}, kLab{", 2 cores", lab};

ProgramCase exchange(CollectiveKind kind, Algorithm algorithm, int members, bool is_quick,
                     Where where = kSwitched) {
  return {fmt::format("{} {} of {}{}", name_of(algorithm), name_of_kind(kind), members, where.name),
          is_quick, [=] { return exchange_program(kind, algorithm, where.hosts(members)); }};
}

ProgramCase step(const MeshCase& mesh, int ranks, bool is_quick, Where where = kSwitched) {
  return {fmt::format("pp {} x dp {} x tp {}, {}{}", mesh.pp, mesh.dp, mesh.tp, mesh.schedule,
                      where.name),
          is_quick, [=] { return step_program(mesh, where.hosts(ranks)); }};
}

}  // namespace

std::vector<ProgramCase> program_cases() {
  using enum CollectiveKind;
  using enum Algorithm;
  return {
      exchange(all_reduce, direct, 4, true),
      exchange(all_reduce, direct, 32, false),
      exchange(all_reduce, ring, 8, true),
      exchange(all_reduce, ring, 64, false),
      exchange(all_reduce, doubling, 64, false),
      exchange(all_reduce, doubling, 256, false),
      exchange(reduce_scatter, ring, 32, false),
      exchange(all_gather, ring, 8, true),
      exchange(all_gather, ring, 64, false),
      exchange(all_gather, direct, 16, true),
      exchange(all_to_all, direct, 8, true),
      exchange(all_to_all, direct, 64, false),
      exchange(all_reduce, direct, 16, true, kTwoSites),
      exchange(all_reduce, ring, 16, true, kTwoSites),
      exchange(all_to_all, direct, 16, true, kTwoSites),
      exchange(all_reduce, ring, 8, true, kHalfDuplex),
      exchange(all_to_all, direct, 8, true, kHalfDuplex),
      exchange(all_reduce, ring, 8, true, kLab),
      step({8, 1, "1", "gpipe"}, 8, true),
      step({8, 1, "1", "1f1b"}, 8, true),
      step({4, 1, "1", "interleaved"}, 4, true),
      step({8, 1, "1", "zero_bubble"}, 8, true),
      step({4, 1, "1", "1f1b"}, 4, true, kHalfDuplex),
      step({4, 1, "1", "1f1b"}, 4, true, kLab),
      step({1, 16, "1", "1f1b"}, 16, false),
      step({4, 4, "1", "1f1b"}, 16, true),
      step({4, 4, "1", "gpipe"}, 16, true, kTwoSites),
      step({2, 2, "1", "1f1b"}, 4, true, kLab),
      step({1, 1, "2,2,2", "1f1b"}, 8, true),
      step({1, 1, "2,2,2", "1f1b"}, 8, false, kLab),
      step({2, 4, "1,2,1", "1f1b"}, 16, false),
      step({8, 8, "1", "1f1b"}, 64, false),
      step({8, 32, "1", "1f1b"}, 256, false),
  };
}

}  // namespace laconic
