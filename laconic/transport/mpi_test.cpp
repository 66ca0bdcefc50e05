// Every process that mpirun starts runs this program: MPI can be started once in each, so all
// checks share one transport, and whatever ends it must be asked for alone (--gtest_filter).
#include "laconic/transport/mpi.hpp"

#include <gtest/gtest.h>
#include <sys/resource.h>

#include <thread>

#include "laconic/base/error.hpp"
#include "laconic/transport/conformance.hpp"

namespace laconic {
namespace {

std::unique_ptr<Transport>& the_transport() {
  static std::unique_ptr<Transport> transport;
  return transport;
}

class StartsMpi : public testing::Environment {
 public:
  void SetUp() override { the_transport() = make_mpi(); }
  void TearDown() override { the_transport().reset(); }
};
[[maybe_unused]] const auto* const kStartsMpi = testing::AddGlobalTestEnvironment(new StartsMpi);

class MpiConformance : public testing::TestWithParam<ConformanceCheck> {};

TEST_P(MpiConformance, Holds) {
  const auto run = [](int, const auto& body) { body(*the_transport()); };
  GetParam().run({.name = "mpi", .run = run});
}

double processor_seconds() {
  rusage used{};
  getrusage(RUSAGE_SELF, &used);
  const auto seconds = [](const timeval& time) {
    return static_cast<double>(time.tv_sec) + static_cast<double>(time.tv_usec) * 1e-6;
  };
  return seconds(used.ru_utime) + seconds(used.ru_stime);
}

TEST(Mpi, WaitingRankLeavesItsCoreToOthers) {
  constexpr std::chrono::milliseconds kWait{500};
  const double before = processor_seconds();
  EXPECT_THROW(the_transport()->recv((the_transport()->rank() + 1) % 3, 1, in(kWait)), Timeout);
  const double share = (processor_seconds() - before) / 0.5;
  RecordProperty("percent_of_a_core", std::to_string(100 * share));
  std::printf("idle: %.2f %% of a core\n", 100 * share);
  EXPECT_LT(share, 0.15);
}

TEST(Mpi, StartsOnceInAProcess) {
  EXPECT_TRUE(has_mpi());
  EXPECT_EQ(the_transport()->name(), "mpi");
  EXPECT_THROW(make_mpi(), ConfigError);
}

INSTANTIATE_TEST_SUITE_P(Mpi, MpiConformance, testing::ValuesIn(conformance_checks()),
                         name_of_check);

}  // namespace
}  // namespace laconic
