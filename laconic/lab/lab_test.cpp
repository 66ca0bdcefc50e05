// Labs without a network: what is asked, planned, found and said. Everything here is pure but the
// tools of the last tests, which need no rights.
#include "laconic/lab/lab.hpp"

#include <gtest/gtest.h>

#include <chrono>
#include <csignal>
#include <set>

#include "laconic/base/error.hpp"
#include "laconic/lab/blocked_signals.hpp"
#include "laconic/lab/lab_launch.hpp"
#include "laconic/lab/tool.hpp"

namespace laconic {
namespace {

TEST(Rate, IsReadInTheUnitsOfTcAndPrintedTheSame) {
  const struct {
    const char* text;
    std::uint64_t bits;
  } cases[] = {{"unshaped", 0},        {"100kbit", 100'000},        {"640kbit", 640'000},
               {"20mbit", 20'000'000}, {"1.5gbit", 1'500'000'000},  {"1gbit", 1'000'000'000},
               {"2.5mbit", 2'500'000}, {"100gbit", 100'000'000'000}};
  for (const auto& c : cases) {
    EXPECT_EQ(parse_rate(c.text), c.bits) << c.text;
    EXPECT_EQ(rate_to_text(c.bits), c.text);
  }
  EXPECT_EQ(parse_rate("0.02gbit"), 20'000'000u);
}

TEST(Rate, IsRefusedWithoutUnitOrSense) {
  for (const char* text :
       {"", "100", "mbit", "20 mbit", "20Mbit", "20mbits", "-20mbit", "+20mbit", "nanmbit",
        "infgbit", "1e3mbit", "99kbit", "101gbit", "0mbit", "20mbit ", "0x20mbit", "Unshaped"})
    EXPECT_FALSE(parse_rate(text)) << text;
}

TEST(Bucket, HoldsFourMillisecondsAndQueuesWhatWasAsked) {
  EXPECT_EQ(port_bucket(100'000'000, 40), (Bucket{100'000'000, 50'000, 550'000}));
  EXPECT_EQ(port_bucket(1'000'000'000, 10), (Bucket{1'000'000'000, 500'000, 1'750'000}));
}

TEST(Bucket, OfAHostHoldsAMebibyteMoreThanPassesAtOnce) {
  EXPECT_EQ(host_bucket(20'000'000, 40), (Bucket{20'000'000, 10'000, 10'000 + (1 << 20)}));
  EXPECT_EQ(host_bucket(1'000'000'000, 40), port_bucket(1'000'000'000, 40));
}

TEST(Bucket, NeverFallsBelowWhatPacketsNeed) {
  const Bucket slow = port_bucket(100'000, 1);
  EXPECT_GE(slow.burst_bytes, 2u * 1514);
  EXPECT_GE(slow.limit_bytes - slow.burst_bytes, 32u * 1514);
}

TEST(LabSpecCheck, FindsNothingInTheDefaults) {
  EXPECT_EQ(check(LabSpec{}), Problems{});
  EXPECT_EQ(check(LabSpec{"a-9", kMostHosts, "unshaped", 1}), Problems{});
}

TEST(LabSpecCheck, TellsEveryProblemAtOnce) {
  const Problems problems = check(LabSpec{"Lab/..", 0, "fast", -1});
  std::set<std::string> where;
  for (const Problem& problem : problems) where.insert(problem.where);
  EXPECT_EQ(where, (std::set<std::string>{"--name", "--hosts", "--rate", "--queue"}));
}

TEST(LabSpecCheck, RefusesNamesThatAreNoFileNameOrTooLong) {
  for (const char* name : {"", "-a", "a b", "a/b", "a.b", "\xc3\xa9"})
    EXPECT_EQ(check(LabSpec{.name = name}).size(), 1u) << name;
  EXPECT_EQ(check(LabSpec{.name = std::string(33, 'a')}).size(), 1u);
  EXPECT_EQ(check(LabSpec{.name = std::string(32, 'a')}).size(), 0u);
}

TEST(UpPlan, IsExactlyTheseCommands) {
  EXPECT_EQ(to_text(up_plan({"lab", 2, "100mbit", 40})),
            R"(ip netns add laconic-lab-bridge
ip -n laconic-lab-bridge link add br0 type bridge stp_state 0 forward_delay 0 mcast_snooping 0
ip -n laconic-lab-bridge link set br0 addrgenmode none up
ip netns add laconic-lab-0
ip -n laconic-lab-0 link set lo up
ip -n laconic-lab-bridge link add host0 type veth peer name eth0 netns laconic-lab-0
ip -n laconic-lab-bridge link set host0 addrgenmode none master br0 up
ip -n laconic-lab-0 address add 10.77.0.1/24 dev eth0
ip -n laconic-lab-0 link set eth0 addrgenmode none up
ip -n laconic-lab-0 route replace 10.77.0.0/24 dev eth0 congctl cubic
ip netns add laconic-lab-1
ip -n laconic-lab-1 link set lo up
ip -n laconic-lab-bridge link add host1 type veth peer name eth0 netns laconic-lab-1
ip -n laconic-lab-bridge link set host1 addrgenmode none master br0 up
ip -n laconic-lab-1 address add 10.77.0.2/24 dev eth0
ip -n laconic-lab-1 link set eth0 addrgenmode none up
ip -n laconic-lab-1 route replace 10.77.0.0/24 dev eth0 congctl cubic
tc -n laconic-lab-0 qdisc replace dev eth0 root tbf rate 100000000bit burst 50000 limit 1098576
tc -n laconic-lab-bridge qdisc replace dev host0 root tbf rate 100000000bit burst 50000 limit 550000
tc -n laconic-lab-1 qdisc replace dev eth0 root tbf rate 100000000bit burst 50000 limit 1098576
tc -n laconic-lab-bridge qdisc replace dev host1 root tbf rate 100000000bit burst 50000 limit 550000
)");
}

TEST(UpPlan, OfAnUnshapedLabTouchesNoQueue) {
  for (const LabStep& step : up_plan({.rate = "unshaped"})) EXPECT_EQ(step.words[0], "ip");
}

TEST(UpPlan, UndoesWhatItMakesAndThatIsWhatTheDownPlanDoes) {
  for (int hosts = 1; hosts <= kMostHosts; ++hosts) {
    const LabSpec spec{.name = "x", .hosts = hosts};
    std::vector<LabStep> undone;
    const std::vector<LabStep> plan = up_plan(spec);
    for (auto step = plan.rbegin(); step != plan.rend(); ++step)
      if (!step->undo.empty()) undone.push_back({step->undo, {}});
    std::vector<std::string> namespaces = {bridge_namespace("x")};
    for (int host = 0; host < hosts; ++host) namespaces.push_back(host_namespace("x", host));
    EXPECT_EQ(undone, down_plan(namespaces));
  }
}

// Every command names a namespace of the lab as the one it acts in, or makes it.
TEST(UpPlan, NeverTouchesTheNetworkOfTheMachine) {
  const LabSpec spec{.name = "x", .hosts = 5};
  std::set<std::string> made;
  for (const LabStep& step : up_plan(spec)) {
    if (step.words[1] == "netns") {
      made.insert(step.words[3]);
    } else {
      EXPECT_EQ(step.words[1], "-n");
      EXPECT_TRUE(made.contains(step.words[2])) << to_text({step});
    }
  }
  EXPECT_EQ(made.size(), 6u);
}

TEST(DownPlan, RemovesHostsBeforeTheBridge) {
  EXPECT_EQ(to_text(down_plan({"laconic-lab-bridge", "laconic-lab-0", "laconic-lab-1"})),
            "ip netns delete laconic-lab-1\nip netns delete laconic-lab-0\n"
            "ip netns delete laconic-lab-bridge\n");
}

TEST(RatePlan, ChangesBothEndsOfEveryLink) {
  EXPECT_EQ(
      to_text(rate_plan({"lab", 1, "20mbit", 50})),
      "tc -n laconic-lab-0 qdisc replace dev eth0 root tbf rate 20000000bit burst 10000 limit "
      "1058576\n"
      "tc -n laconic-lab-bridge qdisc replace dev host0 root tbf rate 20000000bit burst 10000 "
      "limit 135000\n");
  EXPECT_EQ(to_text(rate_plan({"lab", 1, "unshaped", 50})),
            "tc -n laconic-lab-0 qdisc replace dev eth0 root noqueue\n"
            "tc -n laconic-lab-bridge qdisc replace dev host0 root noqueue\n");
}

TEST(NamespaceName, SaysWhichLabAndHost) {
  for (const char* lab : {"lab", "a-0", "run-12", "bridge", "0"})
    for (int host = 0; host < kMostHosts; ++host)
      EXPECT_EQ(parse_namespace(host_namespace(lab, host)), (LabPart{lab, host}));
  EXPECT_EQ(parse_namespace(bridge_namespace("a-0")), (LabPart{"a-0", -1}));
  for (const char* name :
       {"", "laconic", "laconic-", "laconic-lab", "laconic-lab-", "laconic--0", "laconic-lab-00",
        "laconic-lab-+1", "laconic-lab-64", "laconic-lab-1x", "laconic-Lab-1", "other-lab-1"})
    EXPECT_FALSE(parse_namespace(name)) << name;
}

TEST(NamespaceName, OfARunsOwnLabSaysWhichProcess) {
  EXPECT_EQ(process_of_run(name_of_run(4711)), 4711);
  for (const char* name : {"lab", "run-", "run-x", "run-1-2", "run-007", "run--1"})
    EXPECT_FALSE(process_of_run(name)) << name;
}

TEST(FoundLabs, AreSortedWholeOrTheirGapIsSeen) {
  const std::vector<FoundLab> labs =
      labs_among({"laconic-b-1", "laconic-a-10", "laconic-b-bridge", "other", "laconic-b-0",
                  "laconic-c-bridge", "laconic-c-1"});
  ASSERT_EQ(labs.size(), 3u);
  EXPECT_EQ(labs[0], (FoundLab{"a", 1, {"laconic-a-10"}, false}));
  EXPECT_EQ(labs[1], (FoundLab{"b", 2, {"laconic-b-bridge", "laconic-b-0", "laconic-b-1"}, true}));
  EXPECT_FALSE(labs[2].is_whole);
  EXPECT_FALSE(labs_among({"laconic-d-bridge"})[0].is_whole);
}

TEST(FoundLabs, OfMoreThanTenHostsAreInTheOrderOfNumbers) {
  std::vector<std::string> names = {"laconic-a-bridge"};
  for (int i = 0; i < 12; ++i) names.push_back(host_namespace("a", i));
  std::vector<std::string> shuffled(names.rbegin(), names.rend());
  EXPECT_EQ(labs_among(shuffled)[0], (FoundLab{"a", 12, names, true}));
}

TEST(LabRightsCheck, WantsRootAndBothTools) {
  EXPECT_EQ(check(LabRights{0, "/sbin/ip", "/sbin/tc"}), Problems{});
  EXPECT_EQ(to_text(check(LabRights{1000, "/sbin/ip", "/sbin/tc"})),
            "lab needs root: it makes network namespaces; run it with sudo");
  const std::string all = to_text(check(LabRights{1000, "", ""}));
  for (const char* part : {"needs root", "program ip:", "program tc:", "package iproute2"})
    EXPECT_NE(all.find(part), std::string::npos) << all;
}

TEST(LabStatusText, IsReadFromWhatTheToolsSay) {
  HostStatus host{.name = "laconic-lab-0", .address = "10.77.0.1"};
  read_counters(R"([{},{"ifname":"eth0","stats64":{"rx":{"bytes":90,"packets":1,"errors":0},)"
                R"("tx":{"bytes":5000000000,"packets":7}}}])",
                host);
  host.bits_per_second = read_rate(
      R"([{"kind":"tbf","root":true,"options":{"rate":12500000,"burst":50000,"lat":40000}}])");
  EXPECT_EQ(host, (HostStatus{"laconic-lab-0", "10.77.0.1", 100'000'000, 5'000'000'000, 90, 7, 1}));
  EXPECT_EQ(to_text(LabStatus{"lab", {host}}),
            "lab: 1 host\n"
            "  laconic-lab-0        10.77.0.1      100mbit  sent    5.0 GB  received      90 B\n");
  EXPECT_EQ(read_rate(R"([{"kind":"noqueue","root":true,"options":{}}])"), 0u);
}

TEST(LabStatusText, RefusesWhatNoToolSays) {
  HostStatus host;
  EXPECT_THROW(read_counters("Device \"eth0\" does not exist.", host), std::runtime_error);
  EXPECT_THROW(read_rate("[]"), std::runtime_error);
}

TEST(RankInLab, FindsItsPlaceInItsEnvironment) {
  const LabRun run{.lab = "lab", .hosts = 2, .ranks_per_host = 3, .port = 5, .words = {"x", "-y"}};
  ChildSpec child;
  child.environment = {{"RANK", "9"}, {"PATH", "/bin"}, {"OMP_NUM_THREADS", "8"}};
  place_in_lab(run, "/sbin/ip", 4, child);
  EXPECT_EQ(child.program, "/sbin/ip");
  EXPECT_EQ(child.words, (Words{"ip", "netns", "exec", "laconic-lab-1", "x", "-y"}));
  EXPECT_EQ(child.environment, (Environment{{"RANK", "4"},
                                            {"WORLD_SIZE", "6"},
                                            {"LOCAL_RANK", "1"},
                                            {"LOCAL_WORLD_SIZE", "3"},
                                            {"MASTER_ADDR", "10.77.0.1"},
                                            {"MASTER_PORT", "5"},
                                            {"OMP_NUM_THREADS", "8"},
                                            {"GLOO_SOCKET_IFNAME", "eth0"},
                                            {"TP_SOCKET_IFNAME", "eth0"},
                                            {"NCCL_SOCKET_IFNAME", "eth0"},
                                            {"PATH", "/bin"}}));
}

TEST(RankInLab, NeighboursShareAHost) {
  for (int per_host = 1; per_host <= 4; ++per_host) {
    const LabRun run{.lab = "lab", .hosts = 3, .ranks_per_host = per_host, .words = {"x"}};
    for (int rank = 0; rank < run.ranks(); ++rank) {
      ChildSpec child;
      place_in_lab(run, "ip", rank, child);
      EXPECT_EQ(child.words[3], host_namespace("lab", rank / per_host));
      EXPECT_EQ(child.environment["LOCAL_RANK"], std::to_string(rank % per_host));
      EXPECT_EQ(child.environment["OMP_NUM_THREADS"], "1");
    }
  }
}

TEST(Tool, TellsItsOutputErrorAndHowItEnded) {
  const ToolOutcome outcome = run_tool({"sh", "-c", "echo out; echo err >&2; exit 5"});
  EXPECT_EQ(outcome.exit_code, 5);
  EXPECT_EQ(outcome.output, "out\n");
  EXPECT_EQ(outcome.error, "err");
  EXPECT_EQ(run_tool({"sh", "-c", "kill -9 $$"}).exit_code, 128 + SIGKILL);
}

TEST(Tool, MayFillBothPipes) {
  const ToolOutcome outcome =
      run_tool({"sh", "-c", "head -c 300000 /dev/zero >&2; head -c 300000 /dev/zero"});
  EXPECT_EQ(outcome.output.size(), 300000u);
  EXPECT_EQ(outcome.error.size(), 300000u);
}

TEST(Tool, ThatIsNowhereIsNamed) {
  EXPECT_EQ(find_tool("no-such-tool-of-ours"), "");
  try {
    run_tool({"no-such-tool-of-ours"});
    FAIL();
  } catch (const SystemError& error) {
    EXPECT_NE(std::string(error.what()).find("no-such-tool-of-ours"), std::string::npos);
  }
}

TEST(Tool, ThatIsAPathIsWhereItSays) {
  EXPECT_EQ(find_tool("/bin/sh"), "/bin/sh");
  EXPECT_EQ(find_tool("/bin/no-such-tool-of-ours"), "");
  EXPECT_EQ(find_tool("./sh"), "");
  EXPECT_EQ(run_tool({"/bin/sh", "-c", "echo here"}).output, "here\n");
}

TEST(Tool, DoesNotInheritTheSignalsWeBlock) {
  const BlockedSignals blocked;
  EXPECT_EQ(run_tool({"sh", "-c", "kill -TERM $$; echo alive"}).exit_code, 128 + SIGTERM);
}

TEST(BlockedSignals, CanBeTakenAndThenDoNotAct) {
  const BlockedSignals blocked;
  EXPECT_EQ(BlockedSignals::take(), 0);
  ::raise(SIGTERM);
  EXPECT_EQ(BlockedSignals::take(), SIGTERM);
  EXPECT_FALSE(BlockedSignals::is_pending());
  EXPECT_EQ(BlockedSignals::take(), 0);
}

TEST(StatusOfALab, CountsSinceAnEarlierOne) {
  const LabStatus before{"a",
                         {{.name = "h",
                           .sent_bytes = 10,
                           .received_bytes = 20,
                           .sent_packets = 1,
                           .received_packets = 2}}};
  const LabStatus now{"a",
                      {{.name = "h",
                        .bits_per_second = 5,
                        .sent_bytes = 110,
                        .received_bytes = 220,
                        .sent_packets = 4,
                        .received_packets = 7}}};
  const HostStatus host = counted_since(before, now).hosts.at(0);
  EXPECT_EQ(host, (HostStatus{.name = "h",
                              .bits_per_second = 5,
                              .sent_bytes = 100,
                              .received_bytes = 200,
                              .sent_packets = 3,
                              .received_packets = 5}));
}

TEST(BlockedSignalsDeathTest, LetASignalActOnlyAfterwards) {
  EXPECT_EXIT(
      {
        {
          const BlockedSignals blocked;
          EXPECT_FALSE(BlockedSignals::is_pending());
          ::raise(SIGHUP);
          EXPECT_TRUE(BlockedSignals::is_pending());
          fprintf(stderr, "still here");
        }
        fprintf(stderr, "too late");
      },
      testing::KilledBySignal(SIGHUP), "^still here$");
}

}  // namespace
}  // namespace laconic
