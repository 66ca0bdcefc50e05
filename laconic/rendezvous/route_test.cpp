#include "laconic/rendezvous/route.hpp"

#include <gtest/gtest.h>

#include <algorithm>

#include "laconic/base/error.hpp"
#include "laconic/rendezvous/socket.hpp"

namespace laconic {
namespace {

std::vector<Interface> a_machine() {
  return {{"lo", "127.0.0.1", true, true},        {"lo", "::1", true, true},
          {"docker0", "172.17.0.1", true, false}, {"eth0", "10.0.0.1", true, false},
          {"eth0", "fe80::1%eth0", true, false},  {"eth0", "2001:db8::1", true, false},
          {"eth1", "10.1.0.1", true, false},      {"ib0", "10.2.0.1", false, false}};
}

std::string chosen(const std::string& wish, const std::string& towards = "10.1.0.1",
                   bool is_loopback = false) {
  return choose_interface({a_machine(), towards, is_loopback}, {"network.interface", wish}).address;
}

std::string refusal(const std::string& wish) {
  try {
    return "chose " + chosen(wish);
  } catch (const ConfigError& error) {
    return error.what();
  }
}

TEST(Route, WithoutAWishTheRouteDecides) {
  EXPECT_EQ(chosen("", "10.1.0.1"), "10.1.0.1");
  EXPECT_EQ(chosen("", "172.17.0.1"), "172.17.0.1");
  EXPECT_EQ(chosen("", "2001:db8::1"), "2001:db8::1");
}

TEST(Route, LoopbackServesOnlyWhenItWasWritten) {
  EXPECT_EQ(chosen("", "127.0.0.1", true), "127.0.0.1");
  EXPECT_EQ(chosen("", "::1", true), "::1");
  EXPECT_EQ(chosen("", "127.0.0.1", false), "172.17.0.1");  // a host name that means 127.0.1.1
}

TEST(Route, WhereThereIsOnlyLoopbackItServes) {
  const RouteFacts facts{{{"lo", "127.0.0.1", true, true}}, "127.0.0.1", false};
  EXPECT_EQ(choose_interface(facts, {"network.interface", ""}).name, "lo");
}

TEST(Route, AWishIsANameABeginningOrAnAddress) {
  EXPECT_EQ(chosen("eth0"), "10.0.0.1");
  EXPECT_EQ(chosen("=eth0"), "10.0.0.1");
  EXPECT_EQ(chosen("10.0.0.1"), "10.0.0.1");
  EXPECT_EQ(chosen("eth"), "10.1.0.1");  // of those that begin so, the one on the route
  EXPECT_EQ(chosen("eth", "172.17.0.1"), "10.0.0.1");
  EXPECT_EQ(chosen("lo"), "127.0.0.1");
  EXPECT_EQ(chosen("2001:db8::1"), "2001:db8::1");
}

TEST(Route, TheFamilyOfTheRouteDecidesWhichAddressOfAnInterface) {
  EXPECT_EQ(chosen("eth0", "2001:db8::1"), "2001:db8::1");
  EXPECT_EQ(chosen("lo", "2001:db8::1"), "::1");
}

TEST(Route, OfAListTheFirstThatIsThere) {
  EXPECT_EQ(chosen("eth7, ib0, docker0, eth0"), "172.17.0.1");  // ib0 is down
  EXPECT_EQ(chosen(",eth0"), "10.0.0.1");
}

TEST(Route, AnExclusionLeavesTheRest) {
  EXPECT_EQ(chosen("^eth1"), "172.17.0.1");
  EXPECT_EQ(chosen("^docker,lo"), "10.1.0.1");
  EXPECT_EQ(chosen("^docker0,eth1"), "10.0.0.1");
  EXPECT_EQ(chosen("^docker0,eth"), "127.0.0.1");
}

TEST(Route, RefusalsNameWhatThereIs) {
  EXPECT_EQ(refusal("eth7"),
            "network.interface = eth7: no such interface; there are: lo, docker0, eth0, eth1, ib0 "
            "(down)");
  EXPECT_NE(refusal("=eth").find("no such interface"), std::string::npos);
  EXPECT_NE(refusal("ib0").find("ib0 (down)"), std::string::npos);
  EXPECT_NE(refusal("^lo,docker,eth").find("nothing is left"), std::string::npos);
  EXPECT_THROW(choose_interface({{}, "", false}, {"network.interface", ""}), ConfigError);
}

TEST(Route, ThisMachineHasLoopbackAndTakesItForLocalhost) {
  const std::vector<Interface> interfaces = list_interfaces();
  EXPECT_TRUE(std::any_of(interfaces.begin(), interfaces.end(),
                          [](const Interface& i) { return i.is_loopback && i.is_up; }));
  EXPECT_EQ(choose_route("127.0.0.1", 29500, {}).address, "127.0.0.1");
  EXPECT_TRUE(choose_route("localhost", 29500, {}).is_loopback);
}

TEST(Route, EveryAddressOfThisMachineIsReachedFromItself) {
  for (const Interface& interface : list_interfaces()) {
    if (!interface.is_up || interface.address.find(':') != std::string::npos) continue;
    EXPECT_EQ(choose_route(interface.address, 29500, {}).address, interface.address);
  }
}

TEST(Socket, AFreePortIsFreeAndNobodyAnswersThere) {
  const int port = free_port();
  EXPECT_TRUE(is_port_free(port));
  EXPECT_FALSE(answers("127.0.0.1", port, in(std::chrono::milliseconds(100))));
}

}  // namespace
}  // namespace laconic
