#include "laconic/collective/plan.hpp"

#include <fmt/format.h>
#include <gtest/gtest.h>

#include <algorithm>
#include <bit>
#include <numeric>

#include "laconic/base/error.hpp"

namespace laconic {

namespace {

constexpr CollectiveKind kKinds[] = {CollectiveKind::all_reduce, CollectiveKind::reduce_scatter,
                                     CollectiveKind::all_gather, CollectiveKind::broadcast,
                                     CollectiveKind::all_to_all, CollectiveKind::barrier};
constexpr int kMostMembers = 17;

std::vector<Plan> all_plans(int most_members) {
  std::vector<Plan> plans;
  for (const CollectiveKind kind : kKinds)
    for (const Algorithm algorithm : algorithms_of(kind))
      for (int members = 1; members <= most_members; ++members)
        plans.push_back(make_plan(kind, algorithm, members));
  return plans;
}

int log2_floor(int n) {
  return std::bit_width(static_cast<unsigned>(n)) - 1;
}

int log2_ceil(int n) {
  return std::bit_width(static_cast<unsigned>(n - 1));
}

// log2(n), and for other than powers of two one more for a contribution that is handed in first,
// and another if it can reach, as late, somebody whose sum is handed back.
int doubling_rounds(int n) {
  const int extra = n - (1 << log2_floor(n));
  if (extra == 0) return log2_floor(n);
  return std::max(1 + log2_floor(n), 2 + log2_ceil(extra));
}

int messages_of(const Plan& plan, int member) {
  return static_cast<int>(
      std::ranges::count(plan.by_member[static_cast<std::size_t>(member)], Act::send, &Hop::act));
}

int messages_of(const Plan& plan) {
  int messages = 0;
  for (int m = 0; m < plan.members; ++m) messages += messages_of(plan, m);
  return messages;
}

// --- what is built

TEST(Plan, HoldsWhatItsKindPromisesForEveryAlgorithmAndSize) {
  for (const Plan& plan : all_plans(kMostMembers))
    EXPECT_EQ(to_text(check(plan)), "") << to_text(plan);
}

TEST(Plan, IsEmptyForOneMember) {
  for (const Plan& plan : all_plans(1)) EXPECT_TRUE(plan.by_member.at(0).empty());
}

TEST(Plan, RefusesAnAlgorithmThatTheKindDoesNotHave) {
  EXPECT_THROW(make_plan(CollectiveKind::broadcast, Algorithm::ring, 3), std::logic_error);
  EXPECT_THROW(make_plan(CollectiveKind::all_reduce, Algorithm::direct, 0), std::logic_error);
}

// The text is a contract: it stands in the header and in docs/collectives.md.
TEST(Plan, PrintsAsDocumented) {
  EXPECT_EQ(to_text(make_plan(CollectiveKind::all_reduce, Algorithm::direct, 3)),
            "all_reduce by direct, 3 members, 3 chunks\n"
            "member 0:  e1 >1 e2 >2 | o <1 + <2 + = | r >1 >2 | <1 ! <2 !\n"
            "member 1:  e2 >2 e0 >0 | <0 + o <2 + = | r >2 >0 | <2 ! <0 !\n"
            "member 2:  e0 >0 e1 >1 | <0 + <1 + o = | r >0 >1 | <0 ! <1 !\n");
  EXPECT_EQ(to_text(make_plan(CollectiveKind::all_reduce, Algorithm::ring, 3)),
            "all_reduce by ring, 3 members, 3 chunks\n"
            "member 0:  e1:2 >1 | <2:1 + o:1 = | e1 >1 | <2 + o = | r >1 | <2 | >1 | ! <2:1 !\n"
            "member 1:  e2:0 >2 | <0:2 + o:2 = | e2 >2 | <0 + o = | r >2 | <0 | >2 | ! <0:2 !\n"
            "member 2:  e0:1 >0 | <1:0 + o:0 = | e0 >0 | <1 + o = | r >0 | <1 | >0 | ! <1:0 !\n");
  EXPECT_EQ(to_text(make_plan(CollectiveKind::all_reduce, Algorithm::doubling, 3)),
            "all_reduce by doubling, 3 members, 1 chunks\n"
            "member 0:  o <1 + = | e2 >2 | o <2 + = | e1 >1\n"
            "member 1:  e0 >0 | <0 !\n"
            "member 2:  e0 >0 | <0 + o =\n");
  EXPECT_EQ(to_text(make_plan(CollectiveKind::all_reduce, Algorithm::gathered, 3)),
            "all_reduce by gathered, 3 members, 1 chunks\n"
            "member 0:  a >1 >2 | o <1 + <2 + =\n"
            "member 1:  a >2 >0 | <0 + o <2 + =\n"
            "member 2:  a >0 >1 | <0 + <1 + o =\n");
  EXPECT_EQ(to_text(make_plan(CollectiveKind::reduce_scatter, Algorithm::direct, 2)),
            "reduce_scatter by direct, 2 members, 2 chunks\n"
            "member 0:  e1 >1 | o <1 + =\n"
            "member 1:  e0 >0 | <0 + o =\n");
  EXPECT_EQ(to_text(make_plan(CollectiveKind::all_gather, Algorithm::ring, 3)),
            "all_gather by ring, 3 members, 3 chunks\n"
            "member 0:  r >1 | <2 | >1 | ! <2:1 !\n"
            "member 1:  r >2 | <0 | >2 | ! <0:2 !\n"
            "member 2:  r >0 | <1 | >0 | ! <1:0 !\n");
  EXPECT_EQ(to_text(make_plan(CollectiveKind::broadcast, Algorithm::tree, 4)),
            "broadcast by tree, 4 members, 1 chunks\n"
            "member 0:  r >1 >2\n"
            "member 1:  <0 | >3 | !\n"
            "member 2:  <0 !\n"
            "member 3:  <1 !\n");
  EXPECT_EQ(to_text(make_plan(CollectiveKind::all_to_all, Algorithm::direct, 2)),
            "all_to_all by direct, 2 members, 4 chunks\n"
            "member 0:  e1 >1 | <1 !\n"
            "member 1:  e0 >0 | <0 !\n");
  EXPECT_EQ(to_text(make_plan(CollectiveKind::barrier, Algorithm::doubling, 3)),
            "barrier by doubling, 3 members, 0 chunks\n"
            "member 0:  >1 | <2 | >2 | <1\n"
            "member 1:  >2 | <0 | >0 | <2\n"
            "member 2:  >0 | <1 | >1 | <0\n");
}

TEST(Plan, NamesAChunkThatIsNotTheObviousOne) {
  Plan plan = make_plan(CollectiveKind::all_reduce, Algorithm::direct, 3);
  plan.by_member[0][1].chunk = 2;
  EXPECT_NE(to_text(plan).find("e1 >1:2 e2"), std::string::npos) << to_text(plan);
}

// --- what is counted

TEST(Plan, SendsOfAnAllReduceAreTwiceTheBufferLessOneShare) {
  for (const Algorithm algorithm : {Algorithm::direct, Algorithm::ring})
    for (int n = 1; n <= kMostMembers; ++n) {
      const Plan plan = make_plan(CollectiveKind::all_reduce, algorithm, n);
      for (int m = 0; m < n; ++m) EXPECT_EQ(chunks_sent(plan, m).size(), 2u * (n - 1));
    }
}

TEST(Plan, SendsOfAGatheredSumAreTheWholeBufferToEveryOther) {
  for (int n = 1; n <= kMostMembers; ++n) {
    const Plan plan = make_plan(CollectiveKind::all_reduce, Algorithm::gathered, n);
    EXPECT_EQ(plan.chunks, 1);
    for (int m = 0; m < n; ++m) EXPECT_EQ(chunks_sent(plan, m).size(), 1u * (n - 1));
  }
}

TEST(Plan, SendsOfAScatterOrGatherAreTheBufferLessOneShare) {
  for (const CollectiveKind kind : {CollectiveKind::reduce_scatter, CollectiveKind::all_gather})
    for (const Algorithm algorithm : algorithms_of(kind))
      for (int n = 1; n <= kMostMembers; ++n) {
        const Plan plan = make_plan(kind, algorithm, n);
        for (int m = 0; m < n; ++m) EXPECT_EQ(chunks_sent(plan, m).size(), 1u * (n - 1));
      }
}

TEST(Plan, MembersSendContributionsToOthersOnlyAndTheirOwnChunkToAll) {
  for (int n = 2; n <= kMostMembers; ++n) {
    const Plan plan = make_plan(CollectiveKind::all_reduce, Algorithm::direct, n);
    for (int m = 0; m < n; ++m) {
      const std::vector<int> sent = chunks_sent(plan, m);
      for (int chunk = 0; chunk < n; ++chunk)
        EXPECT_EQ(std::ranges::count(sent, chunk), chunk == m ? n - 1 : 1);
    }
  }
}

TEST(Plan, BroadcastSendsTheBufferOnceToEveryOther) {
  for (const Algorithm algorithm : algorithms_of(CollectiveKind::broadcast))
    for (int n = 1; n <= kMostMembers; ++n)
      EXPECT_EQ(messages_of(make_plan(CollectiveKind::broadcast, algorithm, n)), n - 1);
}

TEST(Plan, DoublingSendsTheBufferInEveryRound) {
  for (int n = 2; n <= kMostMembers; ++n) {
    const Plan plan = make_plan(CollectiveKind::all_reduce, Algorithm::doubling, n);
    const int seats = 1 << log2_floor(n);
    EXPECT_EQ(messages_of(plan), seats * log2_floor(n) + 2 * (n - seats));
  }
}

TEST(Plan, BarrierSendsNoChunks) {
  for (int n = 2; n <= kMostMembers; ++n) {
    const Plan plan = make_plan(CollectiveKind::barrier, Algorithm::doubling, n);
    for (int m = 0; m < n; ++m) {
      EXPECT_TRUE(chunks_sent(plan, m).empty());
      EXPECT_EQ(messages_of(plan, m), log2_ceil(n));
    }
  }
}

TEST(Plan, RoundsAreWhatTheAlgorithmPromises) {
  const auto rounds_of = [](CollectiveKind kind, Algorithm algorithm, int n) {
    return rounds(make_plan(kind, algorithm, n));
  };
  for (int n = 2; n <= kMostMembers; ++n) {
    EXPECT_EQ(rounds_of(CollectiveKind::all_reduce, Algorithm::direct, n), 2);
    EXPECT_EQ(rounds_of(CollectiveKind::all_reduce, Algorithm::ring, n), 2 * (n - 1));
    EXPECT_EQ(rounds_of(CollectiveKind::all_reduce, Algorithm::doubling, n), doubling_rounds(n));
    EXPECT_EQ(rounds_of(CollectiveKind::all_reduce, Algorithm::gathered, n), 1);
    for (const CollectiveKind half : {CollectiveKind::reduce_scatter, CollectiveKind::all_gather}) {
      EXPECT_EQ(rounds_of(half, Algorithm::direct, n), 1);
      EXPECT_EQ(rounds_of(half, Algorithm::ring, n), n - 1);
    }
    EXPECT_EQ(rounds_of(CollectiveKind::broadcast, Algorithm::tree, n), log2_floor(n));
    EXPECT_EQ(rounds_of(CollectiveKind::broadcast, Algorithm::direct, n), 1);
    EXPECT_EQ(rounds_of(CollectiveKind::all_to_all, Algorithm::direct, n), 1);
    EXPECT_EQ(rounds_of(CollectiveKind::barrier, Algorithm::doubling, n), log2_ceil(n));
  }
  for (const Plan& plan : all_plans(1)) EXPECT_EQ(rounds(plan), 0);
}

// --- what check() finds

std::string problems_of(const Plan& plan) {
  return to_text(check(plan));
}

// Acts that touch different things, or the same in either order, may change places.
bool may_swap(const Plan& plan, const Hop& a, const Hop& b) {
  const auto either = [&](auto is_first, auto is_second) {
    return (is_first(a.act) && is_second(b.act)) || (is_first(b.act) && is_second(a.act));
  };
  const auto carries = [](Act act) { return act == Act::send || act == Act::receive; };
  const auto sums = [](Act act) { return act == Act::add_own || act == Act::finish_sum; };
  const auto sends = [](Act act) { return act == Act::send; };
  const auto adds = [](Act act) { return act == Act::add; };
  const auto adds_own = [](Act act) { return act == Act::add_own; };
  if (either(sends, sends) || either(carries, sums)) return true;
  const bool is_ordered = plan.algorithm != Algorithm::ring;
  return either(adds, adds_own) && !is_ordered;
}

template <class Mutate>
void for_each_mutant(int most_members, const Mutate& mutate) {
  for (const Plan& plan : all_plans(most_members))
    for (std::size_t m = 0; m < plan.by_member.size(); ++m)
      for (std::size_t i = 0; i < plan.by_member[m].size(); ++i) {
        Plan mutant = plan;
        if (!mutate(mutant, mutant.by_member[m], i)) continue;
        EXPECT_NE(problems_of(mutant), "") << "member " << m << ", hop " << i << "\n"
                                           << to_text(plan) << to_text(mutant);
      }
}

TEST(PlanCheck, NoticesEveryHopThatIsMissing) {
  for_each_mutant(6, [](const Plan&, std::vector<Hop>& hops, std::size_t i) {
    hops.erase(hops.begin() + static_cast<std::ptrdiff_t>(i));
    return true;
  });
}

TEST(PlanCheck, NoticesEveryHopThatIsThereTwice) {
  for_each_mutant(6, [](const Plan&, std::vector<Hop>& hops, std::size_t i) {
    const Hop hop = hops[i];
    hops.insert(hops.begin() + static_cast<std::ptrdiff_t>(i), hop);
    return true;
  });
}

TEST(PlanCheck, NoticesNeighboursThatChangedPlaces) {
  for_each_mutant(6, [](const Plan& plan, std::vector<Hop>& hops, std::size_t i) {
    if (plan.kind == CollectiveKind::barrier) return false;  // what it sends is when it sends it
    if (i + 1 == hops.size() || may_swap(plan, hops[i], hops[i + 1])) return false;
    std::swap(hops[i], hops[i + 1]);
    return true;
  });
}

TEST(PlanCheck, NoticesEveryChunkAndPeerThatIsAnother) {
  for_each_mutant(5, [](const Plan& plan, std::vector<Hop>& hops, std::size_t i) {
    hops[i].chunk = (hops[i].chunk + 1) % std::max(1, plan.chunks);
    return plan.chunks > 1;
  });
  for_each_mutant(5, [](const Plan& plan, std::vector<Hop>& hops, std::size_t i) {
    if (hops[i].act != Act::send && hops[i].act != Act::receive) return false;
    hops[i].peer = (hops[i].peer + 1) % plan.members;
    return true;
  });
}

TEST(PlanCheck, TellsWhoWaitsForWhom) {
  Plan plan = make_plan(CollectiveKind::all_gather, Algorithm::direct, 2);
  plan.by_member[1].erase(plan.by_member[1].begin() + 1);
  EXPECT_NE(problems_of(plan).find("member 0, hop 2: waits for ever for a message of member 1"),
            std::string::npos)
      << problems_of(plan);
}

TEST(PlanCheck, TellsAnOrderThatCannotEnd) {
  Plan plan = make_plan(CollectiveKind::barrier, Algorithm::doubling, 2);
  for (auto& hops : plan.by_member) std::ranges::reverse(hops);
  EXPECT_EQ(check(plan).size(), 2u) << problems_of(plan);
}

TEST(PlanCheck, TellsASumInAnotherOrder) {
  Plan plan = make_plan(CollectiveKind::reduce_scatter, Algorithm::direct, 3);
  auto& hops = plan.by_member[0];  // e1 >1 e2 >2 | o <1 + <2 + =
  std::rotate(hops.begin() + 4, hops.begin() + 5, hops.begin() + 7);
  EXPECT_NE(problems_of(plan).find("chunk 0 is made of members 1 0 2, expected 0 1 2"),
            std::string::npos)
      << problems_of(plan);
}

// Each adds its own as it was before it was encoded: no two have the same sum.
TEST(PlanCheck, TellsAGatheredSumOfWhatOthersDidNotGet) {
  Plan plan = make_plan(CollectiveKind::all_reduce, Algorithm::gathered, 2);
  for (int m = 0; m < 2; ++m)
    plan.by_member[static_cast<std::size_t>(m)].front() = {Act::encode, 0, 1 - m};
  EXPECT_NE(problems_of(plan).find("ends with another result for chunk 0"), std::string::npos)
      << problems_of(plan);
}

TEST(PlanCheck, TellsResultsThatWereNotDecodedFromTheSameMessage) {
  Plan plan = make_plan(CollectiveKind::broadcast, Algorithm::direct, 3);
  plan.by_member[0] = {
      {Act::encode, 0, 1}, {Act::send, 0, 1}, {Act::encode, 0, 2}, {Act::send, 0, 2}};
  EXPECT_NE(problems_of(plan).find("ends with another result for chunk 0"), std::string::npos)
      << problems_of(plan);
}

TEST(PlanCheck, RefusesListsThatMakeNoSense) {
  Plan plan = make_plan(CollectiveKind::all_reduce, Algorithm::direct, 2);
  plan.by_member[0][0].peer = 0;
  plan.by_member[1][0].chunk = 2;
  EXPECT_EQ(check(plan).size(), 2u);
  plan.chunks = 3;
  EXPECT_EQ(problems_of(plan), "plan: 3 chunks, expected 2");
  plan.by_member.pop_back();
  EXPECT_EQ(problems_of(plan), "plan: 1 lists for 2 members");
  plan.algorithm = Algorithm::tree;
  EXPECT_EQ(problems_of(plan), "plan: all_reduce has no algorithm tree");
}

// --- cutting and choosing

TEST(Cut, CoversTheBufferInOrderAndEvenlyAtGrains) {
  for (std::uint64_t elements : {0u, 1u, 2u, 255u, 256u, 257u, 1000u, 100'003u})
    for (int chunks = 1; chunks <= 9; ++chunks)
      for (std::uint64_t grain : {1u, 2u, 256u, 1000u}) {
        const auto offsets = cut(elements, chunks, grain);
        ASSERT_EQ(offsets.size(), static_cast<std::size_t>(chunks) + 1);
        EXPECT_EQ(offsets.front(), 0u);
        EXPECT_EQ(offsets.back(), elements);
        std::uint64_t least = elements, most = 0;
        for (int i = 0; i < chunks; ++i) {
          const std::uint64_t a = offsets[i], b = offsets[i + 1];
          ASSERT_LE(a, b);
          EXPECT_TRUE(a % grain == 0 || a == elements);
          const std::uint64_t grains = (b - a + grain - 1) / grain;
          least = std::min(least, grains);
          most = std::max(most, grains);
        }
        EXPECT_LE(most - least, 1u) << elements << " in " << chunks << " by " << grain;
      }
}

TEST(Cut, DoesNotOverflow) {
  const std::uint64_t huge = std::uint64_t{1} << 62;
  EXPECT_EQ(cut(huge, 4, 1),
            (std::vector<std::uint64_t>{0, huge / 4, huge / 2, huge / 4 * 3, huge}));
}

TEST(Choice, IsDoublingForSmallExactSumsAndDirectOtherwise) {
  EXPECT_EQ(choose(CollectiveKind::all_reduce, 8, 4, false), Algorithm::doubling);
  EXPECT_EQ(choose(CollectiveKind::all_reduce, 8, 4, true), Algorithm::direct);
  EXPECT_EQ(choose(CollectiveKind::all_reduce, 1 << 20, 4, false), Algorithm::direct);
  EXPECT_EQ(choose(CollectiveKind::broadcast, 8, 4, false), Algorithm::tree);
  for (const CollectiveKind kind : kKinds) {
    const auto known = algorithms_of(kind);
    for (const std::uint64_t bytes : {0u, 4096u, 4097u, 1u << 30})
      for (const bool lossy : {false, true})
        EXPECT_NE(std::ranges::find(known, choose(kind, bytes, 5, lossy)), known.end());
  }
}

TEST(Algorithms, HaveNamesThatCanBeRead) {
  for (const CollectiveKind kind : kKinds)
    for (const Algorithm algorithm : algorithms_of(kind))
      EXPECT_EQ(algorithm_named(name_of(algorithm)), algorithm);
  EXPECT_EQ(algorithm_named("native"), std::nullopt);
}

}  // namespace

}  // namespace laconic
