#include "laconic/cli/train_plan.hpp"

#include <fmt/format.h>
#include <gtest/gtest.h>

#include "laconic/base/error.hpp"
#include "laconic/config/read.hpp"
#include "laconic/transport/transport_kind.hpp"

namespace laconic {
namespace {

RunConfig config(int dp, TransportKind transport = TransportKind::automatic) {
  RunConfig config;
  config.mesh.dp = dp;
  config.network.transport = transport;
  return config;
}

TrainCommand command(int ranks, int max_restarts = 0) {
  TrainCommand command;
  command.ranks = ranks;
  command.max_restarts = max_restarts;
  return command;
}

Place place(int size, int local_size) {
  return {.size = size, .local_size = local_size, .source = "Slurm"};
}

std::string refusal(const TrainCommand& command, const RunConfig& config,
                    const std::optional<Place>& place) {
  try {
    plan_train(command, config, place);
  } catch (const ConfigError& error) {
    return error.what();
  }
  return "no refusal";
}

TEST(TrainPlan, OneRankIsThisProcess) {
  for (const int ranks : {0, 1}) {
    const TrainPlan plan = plan_train(command(ranks), config(1), std::nullopt);
    EXPECT_EQ(plan.workers, 0);
    EXPECT_EQ(plan.sharing, 1);
  }
  EXPECT_EQ(plan_train(command(0, 2), config(1), std::nullopt).workers, 1);
}

TEST(TrainPlan, MpiNeedsItsOwnLauncher) {
  EXPECT_NE(refusal(command(0), config(2, TransportKind::mpi), std::nullopt).find("mpirun -np 2"),
            std::string::npos);
  EXPECT_EQ(refusal(command(0), config(1, TransportKind::mpi), std::nullopt), "no refusal");
  EXPECT_EQ(refusal(command(0), config(2, TransportKind::mpi), place(2, 1)), "no refusal");
}

TEST(TrainPlan, TheMeshSaysHowManyWorkersToStart) {
  for (const int ranks : {0, 4}) {
    const TrainPlan plan = plan_train(command(ranks), config(4), std::nullopt);
    EXPECT_EQ(plan.workers, 4);
    EXPECT_EQ(plan.sharing, 4);
  }
}

TEST(TrainPlan, RanksThatAreThreadsNeedOneProcess) {
  EXPECT_EQ(plan_train(command(4), config(4, TransportKind::in_process), std::nullopt).workers, 0);
  EXPECT_EQ(plan_train(command(4, 1), config(4, TransportKind::in_process), std::nullopt).workers,
            1);
  EXPECT_EQ(plan_train(command(0), config(4, TransportKind::in_process), place(1, 1)).workers, 0);
}

TEST(TrainPlan, UnderALauncherWeAreOneWorker) {
  const TrainPlan plan = plan_train(command(0), config(8), place(8, 2));
  EXPECT_EQ(plan.workers, 0);
  EXPECT_EQ(plan.sharing, 2);
  EXPECT_EQ(plan_train(command(8), config(8), place(8, 2)).workers, 0);
}

TEST(TrainPlan, ContradictionsAreRefusedWithTheNumbers) {
  EXPECT_EQ(refusal(command(3), config(4), std::nullopt),
            "mesh: dp 4 needs 4 ranks, --ranks says 3");
  EXPECT_EQ(refusal(command(3), config(1), std::nullopt),
            "mesh: one rank is all it has, --ranks says 3: add --set mesh.dp=3");
  EXPECT_EQ(refusal(command(4), config(4), place(2, 2)),
            "--ranks: says 4, but Slurm has started 2: leave it out");
  EXPECT_EQ(refusal(command(0), config(2), place(1, 1)),
            "mesh: dp 2 needs 2 ranks, Slurm has started 1");
  EXPECT_EQ(refusal(command(0, 1), config(2, TransportKind::in_process), place(2, 2)),
            "--max-restarts: is for ranks that we start ourselves; these were started by Slurm, "
            "which would have to start them again\n"
            "network.transport: in_process keeps all ranks in one process, but Slurm has started "
            "2");
}

// A rank that was told of another mesh than the others learns so from them: it must not go before.
TEST(TrainPlan, AMeshForMoreRanksThanThereAreIsLeftToTheRanks) {
  EXPECT_EQ(plan_train(command(0), config(4), place(2, 1)).workers, 0);
  EXPECT_EQ(plan_train(command(0), config(1), place(2, 1)).workers, 0);
}

TEST(TransportKind, NamesAreTheChoicesOfTheConfiguration) {
  RunConfig config;
  for (const TransportTraits& row : kTransports) {
    EXPECT_EQ(apply_set(fmt::format("network.transport={}", row.name), config), Problems{});
    EXPECT_EQ(config.network.transport, row.kind);
    EXPECT_EQ(find_transport(row.kind), &row);
  }
  EXPECT_EQ(apply_set("network.transport=auto", config), Problems{});
  EXPECT_EQ(find_transport(config.network.transport), nullptr);
  // And there are no others.
  std::string choices = "auto";
  for (const TransportTraits& row : kTransports) choices += fmt::format(" | {}", row.name);
  EXPECT_NE(to_toml(config, true).find(choices), std::string::npos) << choices;
}

TEST(TrainPlan, CoresAreDividedUnlessTheLauncherHasDoneSo) {
  EXPECT_EQ(threads_per_worker(32, 1, 32, 32), 32);
  EXPECT_EQ(threads_per_worker(32, 4, 32, 32), 8);
  EXPECT_EQ(threads_per_worker(32, 3, 64, 64), 10);  // two hardware threads for each core
  EXPECT_EQ(threads_per_worker(2, 4, 2, 2), 1);
  EXPECT_EQ(threads_per_worker(4, 4, 4, 4), 1);     // a container with four of many
  EXPECT_EQ(threads_per_worker(8, 4, 8, 32), 8);    // --map-by slot:PE=8
  EXPECT_EQ(threads_per_worker(16, 4, 16, 32), 8);  // --bind-to socket: two workers on each
  EXPECT_EQ(threads_per_worker(1, 2, 1, 32), 1);    // --bind-to core
  EXPECT_EQ(threads_per_worker(8, 2, 0, 0), 4);     // masks unknown
}

}  // namespace
}  // namespace laconic
