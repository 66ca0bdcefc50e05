#include "laconic/simulate/rank_class.hpp"

#include <fmt/format.h>
#include <gtest/gtest.h>

#include "laconic/simulate/test_subject.hpp"

namespace laconic {
namespace {

// Meshes whose replicas or grids fold, by what they have beside.
std::vector<Subject> folding_subjects() {
  std::vector<Subject> subjects = various(2e6, 1e-4);
  struct Case {
    int pp, dp;
    const char* tp;
    std::function<void(RunConfig&)> set;
  };
  const auto raw = [](RunConfig&) {};
  const auto encoded = [](RunConfig& c) {
    c.dp_gradient.codec = "quantise:bits=4";
    c.pp_activation.codec = "quantise:bits=4";
    c.pp_gradient.codec = "quantise:bits=8";
  };
  const auto encodes_tied = [](RunConfig& c) { c.embedding_tied.codec = "quantise:bits=8"; };
  const auto interleaved = [](RunConfig& c) {
    c.pipeline.schedule = "interleaved";
    c.pipeline.chunks = 2;
  };
  const auto both = [&](RunConfig& c) {
    interleaved(c);
    encoded(c);
  };
  for (const Case& one : std::vector<Case>{{2, 2, "1", raw},
                                           {2, 4, "1", raw},
                                           {4, 4, "1", raw},
                                           {2, 8, "1", raw},
                                           {2, 4, "1", encoded},
                                           {4, 4, "1", encoded},
                                           {2, 4, "1", encodes_tied},
                                           {2, 4, "1", interleaved},
                                           {2, 4, "1", both},
                                           {2, 2, "1,2,1", raw},
                                           {2, 2, "1,2,1", encoded},
                                           {2, 4, "1,2,1", raw}}) {
    RunConfig config = lab_config(one.pp, one.dp);
    config.model.layers = 4;
    config.mesh.tp = one.tp;
    if (config.mesh.tp != "1") config.tensor.method = TensorMethod::one_d;
    one.set(config);
    Hosts hosts = bare_hosts(32, 2e6, 1e-4);
    hosts.groups[0].device.multiply_adds_per_second[0] = 40e9;
    subjects.emplace_back(config, hosts);
  }
  return subjects;
}

// Of the replicas of a pipeline the first and the last are like no other.
bool has_many_alike(const Mesh& mesh) {
  return tp_size(mesh) > 1 || mesh.dp > (mesh.pp > 1 ? 3 : 1);
}

// Chunks differ by a few hundred elements, which means leave out; bytes are all there.
TEST(RankClasses, RanksThatAreAlikeCanBeSimulatedAsOne) {
  for (const Subject& subject : folding_subjects()) {
    SCOPED_TRACE(fmt::format("{}, gradients by {}, {}", to_text(mesh_of(subject.config)),
                             subject.config.dp_gradient.codec, subject.config.pipeline.schedule));
    const RunSimulation full = subject.run(), folded = subject.run(Folding::always);
    if (has_many_alike(mesh_of(subject.config))) {
      EXPECT_LT(folded.classes.count(), full.classes.count());
    }
    // One of them, pp 2 x dp 4 with encoded gradients, is 2.2 % too long.
    EXPECT_NEAR(folded.step_seconds / full.step_seconds, 1, 0.025);
    for (std::size_t t = 0; t < full.sent.size(); ++t) {
      EXPECT_EQ(folded.sent.at(t).messages, full.sent.at(t).messages) << t;
      EXPECT_NEAR(static_cast<double>(folded.sent.at(t).wire_bytes),
                  static_cast<double>(full.sent.at(t).wire_bytes), 64)
          << t;
    }
  }
}

TEST(RankClasses, RanksThatShareCoresOrHostsAreNotFolded) {
  const Mesh mesh{.dp = 8};
  Hosts hosts = bare_hosts(8, 1e6);
  EXPECT_EQ(classes_of(mesh, hosts, seats_of(hosts), Folding::always).count(), 1);
  EXPECT_EQ(classes_of(mesh, hosts, seats_of(hosts), Folding::automatic).count(), 8);
  hosts.groups[0].cores = 2;
  EXPECT_EQ(classes_of(mesh, hosts, seats_of(hosts), Folding::always).count(), 8);
  Hosts shared = bare_hosts(4, 1e6);
  shared.groups[0].ranks_per_host = 2;
  EXPECT_EQ(classes_of(mesh, shared, seats_of(shared), Folding::always).count(), 8);
  const Mesh both{.dp = 4, .tp = {1, 2, 1}};  // grids inside hosts, replicas across
  EXPECT_EQ(classes_of(both, shared, seats_of(shared), Folding::always).count(), 2);
}

TEST(RankClasses, WaysTellPeersApart) {
  const Mesh mesh{.pp = 2, .dp = 4, .tp = {1, 2, 1}};
  const Hosts hosts = bare_hosts(16, 1e6);
  const RankClasses classes = classes_of(mesh, hosts, seats_of(hosts), Folding::always);
  EXPECT_EQ(classes.count(), 6);  // stages; first, last and other replicas
  const auto way = [&](const Coord& from, const Coord& to) {
    return classes.way_between(rank_of(mesh, from), rank_of(mesh, to));
  };
  EXPECT_EQ(way({.pp = 0, .dp = 1}, {.pp = 1, .dp = 1}), 0);
  const int next = way({.dp = 0}, {.dp = 1}), other = way({.dp = 0}, {.dp = 2});
  EXPECT_NE(next, other);
  EXPECT_EQ(way({.dp = 3}, {.dp = 0}), next);           // round
  EXPECT_EQ(way({.dp = 2}, {.pp = 1, .dp = 3}), next);  // of another stage
  EXPECT_EQ(way({.dp = 1}, {.dp = 0}), other);          // back
  EXPECT_NE(way({.dp = 0}, {.dp = 0, .tp = {0, 1, 0}}), next);
  const RankClasses single = classes_of(mesh, hosts, seats_of(hosts), Folding::never);
  EXPECT_EQ(single.way_between(0, 5), 0);
}

}  // namespace
}  // namespace laconic
