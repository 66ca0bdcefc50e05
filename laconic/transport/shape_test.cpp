#include "laconic/transport/shape.hpp"

#include <gtest/gtest.h>

#include "laconic/base/error.hpp"

namespace laconic {
namespace {

using std::chrono::microseconds;
using std::chrono::nanoseconds;

Problems problems_of(std::string_view text) {
  try {
    parse_shape(text);
  } catch (const ConfigError& e) {
    return e.problems();
  }
  return {};
}

TEST(Shape, ReadsRateLatencyAndJitter) {
  const ShapeSpec spec = parse_shape("rate=100mbit,latency=5ms,jitter=1ms");
  const LinkShape expected{100'000'000, microseconds(5000), microseconds(1000)};
  EXPECT_EQ(spec.all, expected);
  EXPECT_TRUE(spec.links.empty());
}

TEST(Shape, UnderstandsEveryUnit) {
  EXPECT_EQ(parse_shape("rate=9600bit").all.bits_per_second, 9600u);
  EXPECT_EQ(parse_shape("rate=56kbit").all.bits_per_second, 56'000u);
  EXPECT_EQ(parse_shape("rate=0.5mbit").all.bits_per_second, 500'000u);
  EXPECT_EQ(parse_shape("rate=2.5gbit").all.bits_per_second, 2'500'000'000u);
  EXPECT_EQ(parse_shape("latency=250us").all.latency, microseconds(250));
  EXPECT_EQ(parse_shape("latency=0.3ms").all.latency, microseconds(300));
  EXPECT_EQ(parse_shape("latency=1.5s").all.latency, microseconds(1'500'000));
}

TEST(Shape, LinkClausesChangeTheGeneralOneWhereverItStands) {
  for (const char* text :
       {"rate=1gbit,jitter=2ms; 0-3: rate=20mbit,latency=40ms; 2>1: jitter=0us",
        "0-3: rate=20mbit,latency=40ms; 2>1: jitter=0us;rate=1gbit, jitter=2ms"}) {
    const ShapeSpec spec = parse_shape(text);
    const LinkShape slow{20'000'000, microseconds(40'000), microseconds(2000)};
    EXPECT_EQ(shape_of(spec, 0, 3), slow);
    EXPECT_EQ(shape_of(spec, 3, 0), slow);
    EXPECT_EQ(shape_of(spec, 2, 1).jitter, microseconds(0));
    EXPECT_EQ(shape_of(spec, 1, 2), spec.all);
    EXPECT_EQ(shape_of(spec, 2, 1).bits_per_second, 1'000'000'000u);
  }
}

TEST(Shape, TextAndValueAreInverse) {
  for (const char* text :
       {"", "rate=100mbit", "rate=100mbit,latency=5ms,jitter=1ms", "latency=250us,seed=7",
        "rate=1gbit,egress=host", "rate=1gbit; 0-3: rate=20mbit,latency=40ms",
        "rate=1gbit; 0>3: rate=20mbit; 3>0: rate=unlimited,jitter=10us",
        "latency=1s; 1>0: latency=0us"}) {
    EXPECT_EQ(to_text(parse_shape(text)), text);
    EXPECT_EQ(parse_shape(to_text(parse_shape(text))), parse_shape(text));
  }
}

TEST(Shape, OddValuesSurviveTheirText) {
  for (const std::uint64_t rate : {1u, 999u, 1001u, 123'456'789u, 4'000'000'000u})
    for (const int time : {0, 1, 999, 1001, 60'000'001}) {
      ShapeSpec spec;
      spec.all = {rate, microseconds(time), microseconds(time / 2)};
      spec.links[{1, 0}] = {rate + 1, microseconds(time + 1), microseconds(0)};
      EXPECT_EQ(parse_shape(to_text(spec)), spec) << to_text(spec);
    }
}

TEST(Shape, NamesEverythingThatIsWrong) {
  const Problems problems = problems_of(
      "rate=fast,latncy=5ms,jitter=1.5,egress=hosts; 0+3: rate=1gbit; 1-2: seed=3; 2-1: rate; "
      "rate=0bit; latency=0.3us; seed=-1");
  const Problems expected = {
      {"2-1: rate", "'rate' is not key=value"},
      {"rate=fast,latncy=5ms,jitter=1.5,egress=hosts",
       "rate = 'fast' is not a rate, such as 100mbit, 1gbit or unlimited"},
      {"rate=fast,latncy=5ms,jitter=1.5,egress=hosts",
       "'latncy' is unknown, did you mean 'latency'?"},
      {"rate=fast,latncy=5ms,jitter=1.5,egress=hosts",
       "jitter = '1.5' is not a time, such as 5ms or 250us"},
      {"rate=fast,latncy=5ms,jitter=1.5,egress=hosts", "'hosts' is unknown, did you mean 'host'?"},
      {"rate=0bit", "rate = '0bit' is not a rate, such as 100mbit, 1gbit or unlimited"},
      {"latency=0.3us", "latency = '0.3us' is not a time, such as 5ms or 250us"},
      {"seed=-1", "seed = '-1' is not a number, such as 7"},
      {"0+3: rate=1gbit", "'0+3' is not a pair of ranks, such as 0-3 or 0>3"},
      {"1-2: seed=3", "'seed' is unknown; there are rate, latency, jitter"}};
  EXPECT_EQ(to_text(problems), to_text(expected));
}

TEST(Shape, CheckNamesWhatCannotBe) {
  ShapeSpec spec =
      parse_shape("rate=1gbit,egress=host; 0>4: latency=1ms; 1>1: jitter=1ms; 0>2: rate=1mbit");
  spec.all.latency = microseconds(-1);
  const Problems expected = {{"network", "latency = -1 us is outside 0 ... 3600000000 us"},
                             {"network 0>2", "with egress=host a link has no rate of its own"},
                             {"network 0>4", "there are 3 ranks only"},
                             {"network 1>1", "what a rank sends to itself meets no network"}};
  EXPECT_EQ(to_text(check(spec, 3)), to_text(expected));
  EXPECT_TRUE(check(parse_shape("rate=1gbit; 0-2: rate=1mbit"), 3).empty());
}

TEST(Shape, TimeOnTheWireIsBitsByRate) {
  EXPECT_EQ(time_on_wire({.bits_per_second = 100'000'000}, 12'500), nanoseconds(1'000'000));
  EXPECT_EQ(time_on_wire({.bits_per_second = 1'000'000'000}, 1), nanoseconds(8));
  EXPECT_EQ(time_on_wire({.bits_per_second = 8}, std::size_t{3600}), std::chrono::hours(1));
  EXPECT_EQ(time_on_wire({}, 1 << 30), nanoseconds(0));
}

}  // namespace
}  // namespace laconic
