#include "laconic/train/world.hpp"

#include <gtest/gtest.h>

#include <chrono>
#include <set>
#include <thread>

#include "laconic/base/error.hpp"
#include "laconic/train/summary.hpp"
#include "laconic/transport/in_process.hpp"
#include "laconic/transport/shaped.hpp"

namespace laconic {
namespace {

std::vector<Mesh> all_meshes() {
  std::vector<Mesh> meshes;
  for (int pp = 1; pp <= 4; ++pp)
    for (int dp = 1; dp <= 3; ++dp)
      for (int tp0 = 1; tp0 <= 2; ++tp0)
        for (int tp1 = 1; tp1 <= 2; ++tp1) meshes.push_back({pp, dp, {tp0, tp1, 1}});
  return meshes;
}

// By definition: the ends of the pipeline, at the same tensor coordinates.
Group holders(const Mesh& mesh, Rank rank, bool of_all_replicas) {
  const Coord mine = coord_of(mesh, rank);
  Group group;
  for (const int pp : {0, mesh.pp - 1})
    for (int dp = 0; dp < mesh.dp; ++dp)
      if (of_all_replicas || dp == mine.dp)
        group.push_back(rank_of(mesh, {.pp = pp, .dp = dp, .tp = mine.tp}));
  if (mesh.pp == 1) group.resize(group.size() / 2);  // both ends are one
  return mine.pp == 0 || mine.pp == mesh.pp - 1 ? group : Group();
}

TEST(World, TheTiedEmbeddingIsHeldByBothEndsAtTheSameTensorCoordinates) {
  for (const Mesh& mesh : all_meshes())
    for (Rank rank = 0; rank < size(mesh); ++rank) {
      EXPECT_EQ(tied_group(mesh, rank), holders(mesh, rank, true)) << to_text(mesh) << " " << rank;
      EXPECT_EQ(tied_pair(mesh, rank), holders(mesh, rank, false)) << to_text(mesh) << " " << rank;
    }
}

TEST(World, ThereAreAsManyTiedGroupsAsTensorRanksAndEachHasTwoPerReplica) {
  for (const Mesh& mesh : all_meshes()) {
    std::set<Group> groups, pairs;
    for (Rank rank = 0; rank < size(mesh); ++rank) {
      groups.insert(tied_group(mesh, rank));
      pairs.insert(tied_pair(mesh, rank));
    }
    groups.erase(Group());
    pairs.erase(Group());
    const auto tensor_ranks = static_cast<std::size_t>(tp_size(mesh));
    const auto replicas = static_cast<std::size_t>(mesh.dp);
    EXPECT_EQ(groups.size(), tensor_ranks) << to_text(mesh);
    EXPECT_EQ(pairs.size(), tensor_ranks * replicas) << to_text(mesh);
    const std::size_t ends = mesh.pp == 1 ? 1 : 2;
    std::set<Rank> members;
    for (const Group& group : groups) {
      EXPECT_EQ(group.size(), ends * replicas) << to_text(mesh);
      members.insert(group.begin(), group.end());
    }
    EXPECT_EQ(members.size(), ends * replicas * tensor_ranks) << to_text(mesh);  // none in two
  }
}

// Ranks whose deadline is short against what rank 0 is at.
void with_deadline(std::chrono::milliseconds deadline, const std::function<void(World&)>& body) {
  run_ranks(4, [&](Transport& transport) {
    Engine engine(transport, {.deadline = deadline});
    Courier courier(engine);
    World world({.pp = 2, .dp = 2}, courier);
    body(world);
    engine.flush();
    world.gather({});
    engine.flush();
  });
}

TEST(World, NobodyLosesPatienceWhileTheFirstDecides) {
  using std::chrono::milliseconds;
  with_deadline(milliseconds(800), [](World& world) {
    const auto slowly = [](const char* answer) {
      std::this_thread::sleep_for(milliseconds(1800));
      return std::string(answer);
    };
    EXPECT_EQ(world.first_decides([&] { return slowly("one"); }), "one");
    // A decision within a decision, and an exchange of all there.
    const auto inner = [&] {
      EXPECT_EQ(world.first_decides([&] { return slowly("inner"); }), "inner");
      EXPECT_EQ(world.gather_values(world.rank()), (std::vector<int>{0, 1, 2, 3}));
    };
    if (!world.is_first()) inner();
    EXPECT_EQ(world.first_decides([&] {
      inner();
      return slowly("outer");
    }),
              "outer");
  });
}

TEST(World, WhatTheFirstRefusesAllRefuse) {
  with_deadline(std::chrono::seconds(10), [](World& world) {
    const auto refuse = []() -> std::string { throw ConfigError("3 is not 4"); };
    try {
      world.first_decides(refuse);
      ADD_FAILURE() << world.rank();
    } catch (const ConfigError& error) {
      EXPECT_EQ(std::string(error.what()), "3 is not 4") << world.rank();
    }
    EXPECT_EQ(world.first_decides([] { return std::string("and on"); }), "and on");
  });
}

// Messages that take their time to leave are counted when they have.
TEST(World, TotalsHaveWhatIsStillQueued) {
  std::vector<std::unique_ptr<Transport>> transports = make_in_process(2);
  for (std::unique_ptr<Transport>& transport : transports)
    transport = make_shaped(std::move(transport), parse_shape("rate=2mbit"));
  run_ranks(transports, [](Transport& transport) {
    constexpr std::uint64_t kMessages = 3, kBytes = 20'000;
    Engine engine(transport, {.deadline = std::chrono::seconds(20)});
    Courier courier(engine);
    World world({.dp = 2}, courier);
    const Rank other = 1 - transport.rank();
    const auto tag = [](std::uint64_t number) {
      return make_tag({.traffic = Traffic::dp_gradient, .number = number});
    };
    const auto message = std::make_shared<const Bytes>(kBytes);
    for (std::uint64_t m = 0; m < kMessages; ++m)
      engine.send({.to = other,
                   .tag = tag(m),
                   .key = deadline_key(m, 0, 0),
                   .raw_bytes = kBytes,
                   .message = message});
    std::uint64_t counted = 0;
    for (const TrafficTotal& total : total_traffic(world))
      if (total.traffic == Traffic::dp_gradient) counted = total.sent.messages;
    EXPECT_EQ(counted, 2 * kMessages);
    for (std::uint64_t m = 0; m < kMessages; ++m) engine.recv(other, tag(m));
    engine.flush();
    world.gather({});
    engine.flush();
  });
}

TEST(TrafficTable, SaysWhichBytesAreComputed) {
  const auto row = [](const Count& sent) {
    return to_text(std::vector<TrafficTotal>{{Traffic::dp_gradient, sent, {}}});
  };
  EXPECT_EQ(row({1, 2'000'000, 1'000'000}).find("computed"), std::string::npos);
  const std::string all = row({1, 2'000'000, 1'000'000, 1'000'000});
  EXPECT_NE(all.find("1.0 MB computed"), std::string::npos) << all;
  const std::string part = row({1, 2'000'000, 1'000'000, 500'000});
  EXPECT_NE(part.find("1.0 MB, 500.0 kB of it computed"), std::string::npos) << part;
}

}  // namespace
}  // namespace laconic
