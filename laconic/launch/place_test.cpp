#include "laconic/launch/place.hpp"

#include <gtest/gtest.h>

#include <set>

#include "laconic/base/error.hpp"

namespace laconic {
namespace {

// Everything that find_place() finds wrong.
std::string refusal(const Environment& environment) {
  try {
    const auto place = find_place(environment);
    return place ? "no refusal but " + to_text(*place) : "no refusal and no place";
  } catch (const ConfigError& error) {
    return error.what();
  }
}

Environment with(Environment base, const Environment& more) {
  for (const auto& [name, value] : more) base[name] = value;
  return base;
}

const Environment kTorchrun = {{"RANK", "5"},
                               {"WORLD_SIZE", "8"},
                               {"LOCAL_RANK", "1"},
                               {"LOCAL_WORLD_SIZE", "4"},
                               {"MASTER_ADDR", "10.0.0.1"},
                               {"MASTER_PORT", "29411"},
                               {"TORCHELASTIC_RUN_ID", "none"},
                               {"TORCHELASTIC_RESTART_COUNT", "2"},
                               {"TORCHELASTIC_USE_AGENT_STORE", "True"}};

const Environment kOpenMpi = {
    {"OMPI_COMM_WORLD_RANK", "1"},          {"OMPI_COMM_WORLD_SIZE", "3"},
    {"OMPI_COMM_WORLD_LOCAL_RANK", "1"},    {"OMPI_COMM_WORLD_LOCAL_SIZE", "3"},
    {"OMPI_MCA_ess_base_jobid", "1234567"}, {"PMIX_RANK", "1"}};

const Environment kSlurm = {{"SLURM_PROCID", "6"},
                            {"SLURM_NTASKS", "7"},
                            {"SLURM_LOCALID", "0"},
                            {"SLURM_NODEID", "3"},
                            {"SLURM_STEP_ID", "0"},
                            {"SLURM_STEP_TASKS_PER_NODE", "2(x3),1"},
                            {"SLURM_JOB_NODELIST", "node[003-010,12],x7"},
                            {"SLURM_JOB_ID", "4711"}};

const Environment kMpich = {
    {"PMI_RANK", "2"}, {"PMI_SIZE", "4"}, {"MPI_LOCALRANKID", "2"}, {"MPI_LOCALNRANKS", "4"}};

TEST(Place, AnOrdinaryShellIsNone) {
  EXPECT_EQ(find_place({}), std::nullopt);
  EXPECT_EQ(find_place({{"HOME", "/root"}, {"MASTER_ADDR", "10.0.0.1"}}), std::nullopt);
  EXPECT_EQ(find_place({{"RANK", ""}, {"WORLD_SIZE", ""}}), std::nullopt);
}

TEST(Place, TorchrunSaysEverything) {
  const Place expected{.rank = 5,
                       .size = 8,
                       .local_rank = 1,
                       .local_size = 4,
                       .host = "10.0.0.1",
                       .port = 29411,
                       .run_id = "none",
                       .attempt = 2,
                       .agent_store = true,
                       .source = "torchrun"};
  EXPECT_EQ(find_place(kTorchrun), expected);
  EXPECT_EQ(to_text(expected),
            "rank 5 of 8, 1 of 4 on this machine, meeting at 10.0.0.1:29411 (torchrun)");
}

TEST(Place, KubernetesStartsOneRankOnEachMachine) {
  const auto place =
      find_place({{"RANK", "1"}, {"WORLD_SIZE", "2"}, {"MASTER_ADDR", "job-master-0"}});
  EXPECT_EQ(place, (Place{.rank = 1,
                          .size = 2,
                          .host = "job-master-0",
                          .port = 29500,
                          .source = "RANK and WORLD_SIZE"}));
}

TEST(Place, OnLoopbackAllRanksAreHere) {
  for (const char* host : {"localhost", "127.0.0.1", "127.3.2.1", "::1"}) {
    const auto place = find_place({{"RANK", "1"}, {"WORLD_SIZE", "3"}, {"MASTER_ADDR", host}});
    EXPECT_EQ(place->local_rank, 1) << host;
    EXPECT_EQ(place->local_size, 3) << host;
  }
}

TEST(Place, OurOwnLauncherNamesRunAndAttempt) {
  const auto place =
      find_place(with(kTorchrun, {{"LACONIC_RUN_ID", "c0ffee"}, {"LACONIC_ATTEMPT", "1"}}));
  EXPECT_EQ(place->run_id, "c0ffee");
  EXPECT_EQ(place->attempt, 1);
  EXPECT_EQ(place->source, "laconic");
}

TEST(Place, MpirunOnOneMachineNeedsNoAddress) {
  const auto place = find_place(kOpenMpi);
  EXPECT_EQ(place, (Place{.rank = 1,
                          .size = 3,
                          .local_rank = 1,
                          .local_size = 3,
                          .host = "127.0.0.1",
                          .port = port_of_job("1234567"),
                          .run_id = "1234567",
                          .source = "OpenMPI"}));
  const auto other = find_place(with(kOpenMpi, {{"PMIX_NAMESPACE", "prterun-a-17@1"}}));
  EXPECT_EQ(other->run_id, "prterun-a-17@1");
  EXPECT_NE(other->port, place->port);
}

TEST(Place, MpirunOnSeveralMachinesNeedsAnAddress) {
  const Environment several = with(kOpenMpi, {{"OMPI_COMM_WORLD_SIZE", "6"}});
  EXPECT_EQ(refusal(several),
            "6 ranks, 3 of them on this machine, but MASTER_ADDR is not set: set it to the host of "
            "rank 0, and MASTER_PORT to a port that is free there");
  const auto place = find_place(with(several, {{"MASTER_ADDR", "head"}, {"MASTER_PORT", "3000"}}));
  EXPECT_EQ(place->host, "head");
  EXPECT_EQ(place->port, 3000);
}

TEST(Place, SlurmsListOfNodesGivesTheHost) {
  EXPECT_EQ(find_place(kSlurm), (Place{.rank = 6,
                                       .size = 7,
                                       .local_rank = 0,
                                       .local_size = 1,
                                       .host = "node003",
                                       .port = port_of_job("slurm-4711.0"),
                                       .run_id = "slurm-4711.0",
                                       .source = "Slurm"}));
  const auto second = find_place(with(kSlurm, {{"SLURM_PROCID", "3"},
                                               {"SLURM_LOCALID", "1"},
                                               {"SLURM_NODEID", "1"},
                                               {"SLURM_RESTART_COUNT", "2"},
                                               {"SLURM_STEP_NODELIST", "x[7-9]"}}));
  EXPECT_EQ(second->local_rank, 1);
  EXPECT_EQ(second->local_size, 2);
  EXPECT_EQ(second->attempt, 2);
  EXPECT_EQ(second->host, "x7");
  EXPECT_EQ(find_place(with(kSlurm, {{"MASTER_ADDR", "ib0.node003"}}))->host, "ib0.node003");
}

TEST(Place, NobodyStartedRanksInABatchScriptOrAnInteractiveShell) {
  for (const char* step : {"", "4294967291", "4294967290", "batch"})
    EXPECT_EQ(find_place(with(kSlurm, {{"SLURM_STEP_ID", step}})), std::nullopt) << step;
  EXPECT_EQ(find_place(with(kSlurm, {{"SLURM_PROCID", "0"}, {"SLURM_NTASKS", "1"}})), std::nullopt);
  EXPECT_EQ(find_place({{"PMI_RANK", "0"}, {"PMI_SIZE", "1"}}), std::nullopt);
}

TEST(Place, MpichCountsLocalRanksToo) {
  const auto place = find_place(kMpich);
  EXPECT_EQ(place, (Place{.rank = 2,
                          .size = 4,
                          .local_rank = 2,
                          .local_size = 4,
                          .host = "127.0.0.1",
                          .port = 29500,
                          .source = "MPICH"}));
  // Plain PMI says nothing of machines.
  const Environment plain = {{"PMI_RANK", "2"}, {"PMI_SIZE", "4"}};
  EXPECT_NE(refusal(plain).find("MASTER_ADDR is not set"), std::string::npos);
  EXPECT_EQ(find_place(with(plain, {{"MASTER_ADDR", "a"}}))->source, "PMI");
}

// All combinations of launchers around a rank: the nearest wins.
TEST(Place, TheNearestLauncherWins) {
  const Environment plain_pmi = {{"PMI_RANK", "6"}, {"PMI_SIZE", "7"}};
  const std::pair<std::string, Environment> sources[] = {{"torchrun", kTorchrun},
                                                         {"OpenMPI", kOpenMpi},
                                                         {"MPICH", kMpich},
                                                         {"Slurm", kSlurm},
                                                         {"PMI", plain_pmi}};
  for (unsigned set = 1; set < 32; ++set) {
    Environment environment = {{"MASTER_ADDR", "10.0.0.1"}};
    std::string first;
    for (unsigned i = 5; i-- > 0;)
      if (set & (1U << i)) environment = with(environment, sources[i].second);
    for (unsigned i = 5; i-- > 0;)
      if (set & (1U << i)) first = sources[i].first;
    // PMI's variables beside MPICH's are MPICH's; a lower bit was written last.
    EXPECT_EQ(find_place(environment)->source, first) << set;
  }
}

TEST(Place, AllThatIsWrongIsSaidAtOnce) {
  const std::pair<Environment, std::string> cases[] = {
      {{{"RANK", "4"}, {"WORLD_SIZE", "4"}, {"MASTER_ADDR", "a"}},
       "RANK=4 but WORLD_SIZE=4: ranks count from 0"},
      {{{"RANK", "x"}, {"WORLD_SIZE", "4"}}, "RANK=x is not a number"},
      {{{"RANK", "1x"}, {"WORLD_SIZE", "-4"}},
       "RANK=1x is not a number\nWORLD_SIZE=-4 is not at least 1"},
      {{{"RANK", "99999999999"}, {"WORLD_SIZE", "4"}}, "RANK=99999999999 is not a number"},
      {{{"RANK", "0"}}, "RANK=0 but WORLD_SIZE is not set"},
      {{{"WORLD_SIZE", "4"}}, "WORLD_SIZE=4 but RANK is not set"},
      {{{"RANK", "0"}, {"WORLD_SIZE", "2"}, {"MASTER_ADDR", "a"}, {"MASTER_PORT", "70000"}},
       "MASTER_PORT=70000 is not between 1 and 65535"},
      {with(kTorchrun, {{"LOCAL_RANK", "4"}, {"TORCHELASTIC_RESTART_COUNT", "?"}}),
       "LOCAL_RANK=4 but LOCAL_WORLD_SIZE=4: ranks count from 0\n"
       "TORCHELASTIC_RESTART_COUNT=? is not a number"},
      {with(kTorchrun, {{"LOCAL_WORLD_SIZE", "9"}}),
       "LOCAL_WORLD_SIZE=9 but there are 8 ranks in all"},
      {with(kTorchrun, {{"LOCAL_RANK", ""}}), "LOCAL_WORLD_SIZE=4 but LOCAL_RANK is not set"},
      {with(kSlurm, {{"WORLD_SIZE", "8"}}), "WORLD_SIZE=8 but Slurm started 7 ranks"},
      {with(kSlurm, {{"SLURM_JOB_NODELIST", "a[1-2"}}),
       "SLURM_JOB_NODELIST=a[1-2 is not a list of hosts"},
      {with(kSlurm, {{"SLURM_LOCALID", "1"}}),
       "SLURM_LOCALID=1 but SLURM_STEP_TASKS_PER_NODE=2(x3),1 has 1 on node 3"},
      {with(kOpenMpi, {{"OMPI_COMM_WORLD_SIZE", ""}}),
       "OMPI_COMM_WORLD_RANK=1 but OMPI_COMM_WORLD_SIZE is not set"},
  };
  for (const auto& [environment, expected] : cases) EXPECT_EQ(refusal(environment), expected);
}

TEST(Place, ALoneWorldSizeThatAgreesIsNoContradiction) {
  EXPECT_EQ(find_place(with(kSlurm, {{"WORLD_SIZE", "7"}}))->source, "Slurm");
  EXPECT_EQ(find_place({{"WORLD_SIZE", "1"}}), std::nullopt);
}

TEST(Place, FirstHostOfSlurmsNotation) {
  const std::pair<const char*, const char*> cases[] = {
      {"node[003-010,12],x7", "node003"},
      {"x7", "x7"},
      {"x7,node[1-2]", "x7"},
      {"n[12,15-18]", "n12"},
      {"rack[1-2]node[03-04].site", "rack1node03.site"},
      {"gpu-a[1-2]", "gpu-a1"},
      {"", ""},
      {"n[1-2", ""},
      {"n1-2]", ""}};
  for (const auto& [nodes, host] : cases) EXPECT_EQ(first_host(nodes), host) << nodes;
}

TEST(Place, PortsOfJobsAreSpreadBelowTheEphemeralOnes) {
  std::set<int> ports;
  for (int job = 0; job < 1000; ++job) {
    const int port = port_of_job("slurm-" + std::to_string(job) + ".0");
    EXPECT_GE(port, 20000);
    EXPECT_LT(port, 32000);
    ports.insert(port);
  }
  EXPECT_GT(ports.size(), 900U);
}

}  // namespace
}  // namespace laconic
