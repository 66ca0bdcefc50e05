#include "laconic/base/host_name.hpp"

#include <gtest/gtest.h>

#include <filesystem>
#include <fstream>

namespace laconic {
namespace {

TEST(HostName, IsTheSystems) {
  std::string name;
  std::ifstream("/proc/sys/kernel/hostname") >> name;
  if (name.empty()) GTEST_SKIP() << "no /proc here";
  EXPECT_EQ(host_name(), name);
}

TEST(HostName, ANetworkIsThatOfTheMachineAndTheNamespace) {
  EXPECT_EQ(network_name(), network_name());
  EXPECT_TRUE(network_name().starts_with(host_name() + " ")) << network_name();
  if (!std::filesystem::exists("/proc/self/ns/net")) GTEST_SKIP() << "no namespaces here";
  EXPECT_NE(network_name().find("net:["), std::string::npos) << network_name();
}

TEST(HostName, LoopbackIsKnownByNameAndAddress) {
  for (const char* host : {"localhost", "::1", "127.0.0.1", "127.0.1.1"})
    EXPECT_TRUE(is_loopback(host)) << host;
  for (const char* host : {"", "localhost2", "10.0.0.127", "128.0.0.1", "::11", "node1"})
    EXPECT_FALSE(is_loopback(host)) << host;
}

}  // namespace
}  // namespace laconic
