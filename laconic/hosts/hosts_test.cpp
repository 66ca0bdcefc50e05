#include "laconic/hosts/hosts.hpp"

#include <gtest/gtest.h>

#include <array>
#include <cstdlib>
#include <functional>
#include <string>

#include "laconic/base/error.hpp"
#include "laconic/hosts/hosts_file.hpp"
#include "laconic/hosts/known_device.hpp"
#include "laconic/hosts/measured_hosts.hpp"

namespace laconic {
namespace {

std::string presets() {
  const char* source = std::getenv("LACONIC_SOURCE");
  return std::string(source != nullptr ? source : ".") + "/presets";
}

// What is wrong with such a file, a problem a line.
std::string refusal(const std::string& text) {
  try {
    (void)parse_hosts(text, "h.toml");
  } catch (const ConfigError& error) {
    return to_text(error.problems());
  }
  return "";
}

constexpr const char* kTwoSites = R"(
[[device]]
name = "mine"
like = "a100"
flops = { bfloat16 = 200e12 }
reached = 0.5
codec.quantise = { encode = 1e9, decode = 2e9 }
codec."quantise:rotate=true" = { encode = 5e8, decode = 1e9 }
codec."quantise:bits=4,rotate=true" = { encode = 5e8, decode = 1e9, feedback = 4e8 }
factors = { orthonormal = 3e9 }

[[group]]
name = "a"
hosts = 3
ranks_per_host = 2
device = "mine"
card = { rate = "1gbit", latency = "0.1ms", burst = "500kB", full_duplex = false }
uplink = { rate = "20mbit", latency = "30ms" }

[[group]]
name = "b"
hosts = 1
memory = "64GB"
device = "l4"
card = { rate = "10gbit" }
inside = { rate = "100gbit", latency = "5us" }
)";

TEST(Hosts, AreReadAsWritten) {
  const Hosts hosts = parse_hosts(kTwoSites, "h.toml");
  ASSERT_EQ(hosts.groups.size(), 2U);
  const HostGroup& a = hosts.groups[0];
  EXPECT_EQ(a.ranks(), 6);
  EXPECT_EQ(a.card.bits_per_second, 1e9);
  EXPECT_FALSE(a.card.full_duplex);
  EXPECT_EQ(a.card.burst_bytes, 500e3);
  Hosts steady = hosts;
  steady.groups[0].card.burst_bytes = 0;
  EXPECT_EQ(without_bursts(hosts), steady);
  EXPECT_EQ(a.uplink->latency_seconds, 30 * 1e-3);
  EXPECT_EQ(multiply_adds_of(a, RunPrecision::bfloat16), 50e12);
  // What the file does not say is as with the device that it is like.
  EXPECT_EQ(a.device.memory_bytes, 80e9);
  EXPECT_EQ(codec_rate(a.device, Quantise{}).decode, 2e9);
  EXPECT_EQ(codec_rate(a.device, Half{}), codec_rate(*known_device("a100"), Half{}));
  EXPECT_EQ(codec_rate(a.device, TopK{}).encode, a.device.copy_bytes_per_second);
  EXPECT_EQ(codec_rate(a.device, Quantise{}).feedback, 1 / (1 / 1e9 + 1 / 2e9));
  // Those of most of a codec's options, wherever they stand.
  EXPECT_EQ(codec_rate(a.device, parse_codec("quantise:bits=3,rotate=true")).encode, 5e8);
  EXPECT_EQ(codec_rate(a.device, parse_codec("quantise:bits=4,rotate=true")).feedback, 4e8);
  EXPECT_EQ(codec_rate(a.device, parse_codec("quantise:bits=4,block=64")).encode, 1e9);
  EXPECT_EQ(codec_rate(a.device, parse_codec("top_k+quantise:bits=4")).encode,
            a.device.copy_bytes_per_second);
  EXPECT_EQ(a.device.factors, (FactorRate{.orthonormal = 3e9}));
  EXPECT_EQ(factor_rate(a.device).product, a.device.multiply_adds_per_second[0]);
  EXPECT_EQ(hosts.groups[1].memory_bytes, 64e9);
  EXPECT_EQ(hosts.groups[1].inside.bits_per_second, 100e9);
  EXPECT_FALSE(hosts.groups[1].uplink);
  EXPECT_EQ(rank_count(hosts), 7);
  EXPECT_EQ(host_count(hosts), 4);
}

TEST(Hosts, ComeBackAsWritten) {
  std::vector<std::string> names = preset_hosts(presets());
  EXPECT_GE(names.size(), 7U);
  for (const std::string& name : names) {
    const Hosts hosts = read_hosts("preset:" + name, presets());
    EXPECT_EQ(parse_hosts(to_toml(hosts), name), hosts) << to_toml(hosts);
    EXPECT_EQ(read_hosts(name, presets()), hosts);
  }
  const Hosts hosts = parse_hosts(kTwoSites, "h.toml");
  EXPECT_EQ(parse_hosts(to_toml(hosts), "again"), hosts);
}

constexpr const char* kFamilies = R"(
[[device]]
name = "mine"
flops = { float32 = 60e9, bfloat16 = 4e9 }
reached = 0.5
pass_samples = 2
factors = { orthonormal = 3e9 }
copy = 8e9
family.lstm = { flops = { float32 = 20e9 } }
family.llama.flops = { float32 = 50e9, bfloat16 = 5e9 }
family.llama.pass_samples = { bfloat16 = 0.25 }

[[group]]
name = "a"
device = "mine"
card = { rate = "1gbit" }
)";

TEST(Hosts, OfAModelHaveTheRatesOfItsFamilyWhereTheyAreKnown) {
  const Hosts hosts = parse_hosts(kFamilies, "h.toml");
  EXPECT_EQ(parse_hosts(to_toml(hosts), "again"), hosts) << to_toml(hosts);
  const auto rate = [&](ModelKind kind, RunPrecision precision) {
    return multiply_adds_of(hosts_for(hosts, kind).groups[0], precision);
  };
  EXPECT_EQ(rate(ModelKind::gpt, RunPrecision::float32), 15e9);
  EXPECT_EQ(rate(ModelKind::lstm, RunPrecision::float32), 5e9);
  EXPECT_EQ(rate(ModelKind::lstm, RunPrecision::bfloat16), 1e9) << "as any family's";
  EXPECT_EQ(rate(ModelKind::llama, RunPrecision::bfloat16), 1.25e9);
  // What a pass costs goes with the rate that it was found with.
  EXPECT_EQ(hosts_for(hosts, ModelKind::gpt).groups[0].device.pass_samples,
            (ByPrecision{2, 2, 2, 2}));
  EXPECT_EQ(hosts_for(hosts, ModelKind::lstm).groups[0].device.pass_samples,
            (ByPrecision{0, 2, 2, 2}));
  EXPECT_EQ(hosts_for(hosts, ModelKind::llama).groups[0].device.pass_samples,
            (ByPrecision{0, 2, 0.25, 2}));
  // Thin products are no passes of a family.
  const Hosts slow = hosts_for(hosts, ModelKind::lstm);
  EXPECT_EQ(factor_rate(slow.groups[0].device), factor_rate(hosts.groups[0].device));
  EXPECT_EQ(hosts_for(slow, ModelKind::llama), slow) << "others are gone";
}

TEST(Hosts, WhatIsWrongAboutFamiliesIsToldTogether) {
  const std::string unreadable = refusal(R"([[device]]
name = "mine"
flops = { float32 = 1e9, flaot64 = 1e9, bfloat16 = "fast" }
pass_samples = "few"
family.lama = { flops = { float32 = 1e9 } }
family.gpt = { flop = { float32 = 1e9 }, pass_samples = { float32 = true } }
family.bert = 3e9

[[group]]
name = "a"
device = "mine"
card = { rate = "1gbit" }
)");
  for (const char* expected :
       {"h.toml:3:", "unknown key 'flaot64'; did you mean 'float64'?",
        "bfloat16 must be a number from 0 on, below 1e24, not the text 'fast'",
        "pass_samples must be a number from 0 on, or a table of precisions, not the text 'few'",
        "unknown key 'lama'; did you mean 'llama'?", "unknown key 'flop'; did you mean 'flops'?",
        "family gpt, pass_samples: float32 must be a number", "family bert: must be a table"})
    EXPECT_NE(unreadable.find(expected), std::string::npos) << expected << "\n" << unreadable;
  const std::string impossible = refusal(R"([[device]]
name = "mine"
flops = { float32 = 1e9, float64 = -5e9 }
family.gpt.flops = { bfloat16 = 1e30 }
family.gpt.pass_samples = -1
copy = nan

[[device]]
name = "half"
flops = { float32 = 1e9 }
family.bert.pass_samples = 3

[[group]]
name = "a"
device = "half"
card = { rate = "1gbit" }
)");
  for (const char* expected :
       {"h.toml:3:", "flops: float64 must be a number from 0 on, below 1e24, not -5",
        "family gpt, flops: bfloat16 must be", "family gpt: pass_samples must be",
        "copy must be a number from 0 on", "device 'half': family.bert.pass_samples goes with"})
    EXPECT_NE(impossible.find(expected), std::string::npos) << expected << "\n" << impossible;
}

TEST(Hosts, WhatIsThereTwiceOrHasNoRateIsRefused) {
  const std::string refused = refusal(R"([[device]]
name = "x"
flops = 3e12

[[device]]
name = "x"
flops = { float32 = 1e12 }

[[group]]
name = "a"
device = "x"
card = { latency = "1ms" }
inside = { latency = "1ms" }
uplink = "1gbit"
)");
  for (const char* expected :
       {"h.toml:3:9: device 'x': flops must be a table of precisions such as",
        "h.toml:5:1: device 'x': is there twice", "h.toml:12:8: group 'a', card: rate is missing",
        "uplink must be a table such as { rate = \"1gbit\""})
    EXPECT_NE(refused.find(expected), std::string::npos) << expected << "\n" << refused;
  EXPECT_EQ(refused.find("inside"), std::string::npos) << refused;
}

TEST(Hosts, SeatsAreNumberedByGroupAndHost) {
  const std::vector<Seat> seats = seats_of(parse_hosts(kTwoSites, "h.toml"));
  ASSERT_EQ(seats.size(), 7U);
  EXPECT_EQ(seats[1], (Seat{.group = 0, .host = 0}));
  EXPECT_EQ(seats[2], (Seat{.group = 0, .host = 1}));
  EXPECT_EQ(seats[6], (Seat{.group = 1, .host = 3}));
}

TEST(Hosts, OfALabShareItsCores) {
  HostGroup group = read_hosts("lab", presets()).groups[0];
  const double core = group.device.multiply_adds_per_second[0];
  EXPECT_EQ(multiply_adds_of(group, RunPrecision::float32), core / 2);
  group.cores = 8;
  EXPECT_EQ(multiply_adds_of(group, RunPrecision::float32), core);
  group.cores = 0;
  EXPECT_EQ(multiply_adds_of(group, RunPrecision::float32), core);
}

TEST(Hosts, AreRefusedWithEveryReasonAndItsLine) {
  const std::string refused = refusal(R"([[group]]
name = "a"
hosts = 0
device = "a10"
crd = 3
card = { rate = 100, latency = "5 ms" }

[[group]]
device = 7
uplink = { rate = "1gbit", speed = 2 }
)");
  for (const char* expected :
       {"h.toml:3:", "hosts must be a whole number above 0, not 0", "there is no device 'a10'",
        "unknown key 'crd'; did you mean 'card'?", "rate must be a rate such as \"1gbit\", not 100",
        "latency must be a time such as \"0.1ms\", not the text '5 ms'", "name is missing",
        "device must be a text in quotes, not 7", "card is missing", "unknown key 'speed'"})
    EXPECT_NE(refused.find(expected), std::string::npos) << expected << "\n" << refused;
}

TEST(Hosts, ImpossibleNumbersAreRefusedTogether) {
  const std::string refused = refusal(R"(
[[device]]
name = "none"
memory = "1GB"

[[group]]
name = "a"
device = "l4"
cores = 2
card = { rate = "10bit", latency = "100s" }
uplink = { rate = "1gbit" }

[[group]]
name = "a"
device = "none"
card = { rate = "1gbit" }
)");
  for (const char* expected :
       {"card.rate = 10 bit/s", "card.latency = 100 s", "two groups of that name",
        "flops are not known", "cores = 2 are shared", "memory is for GPUs"})
    EXPECT_NE(refused.find(expected), std::string::npos) << expected << "\n" << refused;
  EXPECT_NE(refusal("").find("there is no [[group]]"), std::string::npos);
  EXPECT_NE(refusal("[[group]]\nname='a'\ndevice='l4'\ncard={rate='1gbit'}\nuplink={rate='1gbit'}")
                .find("there is no other group"),
            std::string::npos);
  EXPECT_NE(refusal("[[device]]\nname='x'\nlike='y'\nreached=2\ncodec.zip={encode=1}\n")
                .find("reached = 2 is not in (0, 1]"),
            std::string::npos);
}

// What is impossible in a group that could be read is told with what could not be read in others.
TEST(Hosts, ImpossibleNumbersAreToldBesideWhatCannotBeRead) {
  const std::string refused = refusal(R"(
[[device]]
name = "odd"
like = "l5"

[[group]]
name = "a"
device = "l4"
cores = 2
card = { rate = "10bit" }
uplink = { rate = "1gbit" }

[[group]]
name = "b"
device = "odd"
card = { rate = "fast" }
)");
  for (const char* expected : {"there is no device 'l5'", "not the text 'fast'",
                               "card.rate = 10 bit/s", "cores = 2 are shared"})
    EXPECT_NE(refused.find(expected), std::string::npos) << expected << "\n" << refused;
  for (const char* wrong : {"there is no other group", "flops are not known"})
    EXPECT_EQ(refused.find(wrong), std::string::npos) << wrong << "\n" << refused;
}

TEST(Hosts, AFileThatIsNotThereIsToldWithThePresets) {
  try {
    (void)read_hosts("nowhere.toml", presets());
    FAIL();
  } catch (const ConfigError& error) {
    EXPECT_NE(std::string(error.what()).find("two-sites"), std::string::npos) << error.what();
  }
}

TEST(Hosts, APresetThatIsMisspeltIsToldWithTheNearest) {
  for (const char* path : {"preset:home-fibr", "home-fibr"}) {
    try {
      (void)read_hosts(path, presets());
      FAIL();
    } catch (const ConfigError& error) {
      EXPECT_NE(std::string(error.what()).find("did you mean 'home-fibre'?"), std::string::npos)
          << error.what();
    }
  }
}

TEST(Hosts, EveryKnownDeviceMakesGoodHosts) {
  for (const std::string& name : known_device_names()) {
    HostGroup group{.name = "g", .device = *known_device(name), .card = {.bits_per_second = 1e9}};
    EXPECT_EQ(to_text(check(Hosts{{group}})), "") << name;
  }
  EXPECT_FALSE(known_device("abacus"));
  // One name is one device: a file has it once.
  HostGroup group{.name = "a", .device = *known_device("l4"), .card = {.bits_per_second = 1e9}};
  HostGroup other = group;
  other.name = "b";
  EXPECT_EQ(to_text(check(Hosts{{group, other}})), "");
  other.device.memory_bytes = 1e9;
  EXPECT_NE(to_text(check(Hosts{{group, other}})).find("is another one than that of group 'a'"),
            std::string::npos);
}

MeasuredRank measured(const std::string& host, double rate, bool is_gpu) {
  MeasuredRank rank{.is_gpu = is_gpu,
                    .cores = 2,
                    .passes = {.multiply_adds_per_second = {rate}},
                    .memory_bytes = 8e9,
                    .gpu_memory_bytes = is_gpu ? 24e9 : 0,
                    .copy_bytes_per_second = 1e10,
                    .updates_per_second = 5e8,
                    .factors = {}};
  if (!is_gpu) rank.factors = {3e10, 4e9};
  std::copy(host.begin(), host.end(), rank.host.begin());
  rank.encode[1] = 5e9;
  rank.decode[1] = 6e9;
  return rank;
}

// Rates between ranks, fast inside of a host and slow between two.
MeasuredLinks measured_links(const std::vector<MeasuredRank>& ranks, double inside,
                             double outside) {
  MeasuredLinks links;
  for (const MeasuredRank& a : ranks) {
    links.latency_seconds.emplace_back(ranks.size(), 1e-3);
    links.bits_per_second.emplace_back();
    for (const MeasuredRank& b : ranks)
      links.bits_per_second.back().push_back(a.host == b.host ? inside : outside);
  }
  return links;
}

TEST(MeasuredHosts, RanksOfOneProcessorAreALab) {
  const std::vector<MeasuredRank> ranks(4, measured("box", 1e10, false));
  Hosts hosts = hosts_from(ranks, measured_links(ranks, 1e8, 0), *known_device("core"));
  ASSERT_EQ(hosts.groups.size(), 1U);
  HostGroup& group = hosts.groups[0];
  EXPECT_EQ(group.hosts, 4);
  EXPECT_EQ(group.cores, 2);
  EXPECT_NEAR(group.card.bits_per_second, 1.046e8, 1) << "of a link as much more than its payload";
  EXPECT_EQ(multiply_adds_of(group, RunPrecision::float32), 0.5e10) << "two of them share a core";
  EXPECT_EQ(codec_rate(group.device, Quantise{}).decode, 6e9);
  EXPECT_EQ(factor_rate(group.device), (FactorRate{3e10, 4e9}));
  EXPECT_EQ(group.device.updates_per_second, 5e8);
  EXPECT_EQ(to_text(check(hosts)), "");
  group.device.elements_per_second = 7e7;
  EXPECT_EQ(parse_hosts(to_toml(hosts), "again"), hosts);
}

TEST(MeasuredHosts, RanksOfALabMeasureAsManyAtOnceAsItHasCores) {
  std::vector<MeasuredRank> ranks(5, measured("box", 1e10, false));
  EXPECT_EQ(turns_of(ranks), (std::vector<int>{0, 0, 1, 1, 2}));
  for (MeasuredRank& rank : ranks) rank.threads = 2;
  EXPECT_EQ(turns_of(ranks), (std::vector<int>{0, 1, 2, 3, 4}));
  ranks[4].host[0] = 'f';  // of another machine: rates are those of ranks that all compute
  EXPECT_EQ(turns_of(ranks), std::vector<int>(5, 0));
  EXPECT_EQ(turns_of(std::vector<MeasuredRank>(5, measured("box", 1e12, true))),
            std::vector<int>(5, 0));
}

// Rates of the device that others are like are no measurement, and the slowest rank counts.
TEST(MeasuredHosts, OfFactorsAndUpdatesTheSlowestRankCounts) {
  std::vector<MeasuredRank> ranks(2, measured("box", 1e10, false));
  ranks[1].factors = {2e10, 5e9};
  ranks[0].updates_per_second = 4e8;
  const HostDevice device = hosts_from(ranks, {}, *known_device("core")).groups[0].device;
  EXPECT_EQ(device.factors, (FactorRate{2e10, 4e9}));
  EXPECT_EQ(device.updates_per_second, 4e8);
  const std::vector<MeasuredRank> gpus(2, measured("box", 1e12, true));
  EXPECT_EQ(hosts_from(gpus, {}, *known_device("core")).groups[0].device.factors, FactorRate());
}

// A sample takes as long as every other, and a pass as 3 more: half the speed of few samples.
TEST(MeasuredHosts, WhatAPassCostsIsKept) {
  std::vector<MeasuredRank> ranks(2, measured("box", 1e10, false));
  ranks[0].passes.pass_samples = {3};
  ranks[1].passes.multiply_adds_per_second[2] = 1e9;
  ranks[1].passes.pass_samples = {0, 0, 0.26384};
  const Hosts hosts = hosts_from(ranks, {}, *known_device("core"));
  EXPECT_EQ(hosts.groups[0].device.pass_samples, (ByPrecision{3, 0, 0.2638}));
  EXPECT_NE(to_toml(hosts).find("pass_samples = { float32 = 3, bfloat16 = 0.2638 }"),
            std::string::npos)
      << to_toml(hosts);
  EXPECT_EQ(parse_hosts(to_toml(hosts), "again"), hosts);
}

// Of a rank, not the worst of several: 1 sample of the second takes as long as 2 of the first.
TEST(MeasuredHosts, WhatAPassCostsGoesWithItsRate) {
  std::vector<MeasuredRank> ranks = {measured("box", 1e10, false), measured("box", 5e10, false)};
  ranks[1].passes.pass_samples = {9};
  const HostDevice device = hosts_from(ranks, {}, *known_device("core")).groups[0].device;
  EXPECT_EQ(device.multiply_adds_per_second, ByPrecision{5e10});
  EXPECT_EQ(device.pass_samples, ByPrecision{9});
}

TEST(MeasuredHosts, MachinesThatAreAlikeAreOneGroup) {
  std::vector<MeasuredRank> ranks;
  for (const char* host : {"a", "b", "c"})
    for (int i = 0; i < 2; ++i) ranks.push_back(measured(host, host[0] == 'c' ? 3e12 : 1e12, true));
  ranks[2].passes.multiply_adds_per_second[0] = 0.95e12;
  MeasuredLinks links = measured_links(ranks, 1e11, 1e9);
  for (const std::size_t far : {4U, 5U})
    for (std::size_t r = 0; r < 4; ++r)
      links.bits_per_second[far][r] = links.bits_per_second[r][far] = 5e7;
  const Hosts hosts = hosts_from(ranks, links, *known_device("l4"));
  ASSERT_EQ(hosts.groups.size(), 2U);
  EXPECT_EQ(hosts.groups[0].hosts, 2);
  EXPECT_EQ(hosts.groups[0].ranks_per_host, 2);
  EXPECT_NEAR(hosts.groups[0].card.bits_per_second, 1.046e9, 1);
  EXPECT_NEAR(hosts.groups[0].inside.bits_per_second, 1.046e11, 1);
  // Its own card alone explains why all its links are slow.
  EXPECT_NEAR(hosts.groups[1].card.bits_per_second, 5.228e7, 1);
  EXPECT_FALSE(hosts.groups[0].uplink || hosts.groups[1].uplink);
  EXPECT_EQ(hosts.groups[1].hosts, 1);
  EXPECT_EQ(hosts.groups[1].device.memory_bytes, 24e9);
  EXPECT_EQ(to_text(check(hosts)), "");
}

// A processor with kernels for bfloat16 is another one, however alike float32 is.
TEST(MeasuredHosts, RatesAreOfEveryPrecisionAndFamily) {
  std::vector<MeasuredRank> ranks = {measured("a", 1e10, false), measured("b", 1.05e10, false),
                                     measured("c", 1e10, false)};
  constexpr auto kHalf = static_cast<std::size_t>(RunPrecision::bfloat16);
  constexpr auto kLstm = static_cast<std::size_t>(ModelKind::lstm);
  for (MeasuredRank& rank : ranks) rank.passes.multiply_adds_per_second[kHalf] = 2e9;
  ranks[2].passes.multiply_adds_per_second[kHalf] = 8e10;
  ranks[0].families[kLstm] = {.multiply_adds_per_second = {3e9}, .pass_samples = {0.5}};
  const Hosts hosts = hosts_from(ranks, measured_links(ranks, 1e9, 1e9), *known_device("core"));
  ASSERT_EQ(hosts.groups.size(), 2U);
  EXPECT_EQ(hosts.groups[0].hosts, 2);
  EXPECT_EQ(multiply_adds_of(hosts.groups[0], RunPrecision::bfloat16), 2e9);
  EXPECT_EQ(multiply_adds_of(hosts.groups[1], RunPrecision::bfloat16), 8e10);
  EXPECT_EQ(hosts.groups[0].device.families[kLstm], ranks[0].families[kLstm]);
  EXPECT_EQ(parse_hosts(to_toml(hosts), "again"), hosts) << to_toml(hosts);
}

TEST(MeasuredHosts, OfACodecTheSlowestRankCounts) {
  std::vector<MeasuredRank> ranks(2, measured("box", 1e10, false));
  ranks[1].encode[1] = 4e9;
  const HostDevice device = hosts_from(ranks, {}, *known_device("core")).groups[0].device;
  EXPECT_EQ(codec_rate(device, Quantise{}).encode, 4e9);
  EXPECT_EQ(codec_rate(device, Quantise{}).decode, 6e9);
}

// Ranks of machines a, b, ... of one kind, one each, with what pairs are told to have.
Hosts hosts_with(std::size_t count, const std::function<Link(std::size_t, std::size_t)>& pair) {
  std::vector<MeasuredRank> ranks;
  MeasuredLinks links;
  for (std::size_t a = 0; a < count; ++a) {
    ranks.push_back(measured(std::string(1, static_cast<char>('a' + a)), 1e10, true));
    links.latency_seconds.emplace_back(count);
    links.bits_per_second.emplace_back(count);
    for (std::size_t b = 0; b < count; ++b) {
      links.latency_seconds[a][b] = pair(a, b).latency_seconds;
      links.bits_per_second[a][b] = pair(a, b).bits_per_second * 1448 / 1514;
    }
  }
  const Hosts hosts = hosts_from(ranks, links, *known_device("l4"));
  EXPECT_EQ(to_text(check(hosts)), "") << to_toml(hosts);
  return hosts;
}

TEST(MeasuredHosts, OneWithASlowCardIsAGroupOfItsOwn) {
  const Hosts hosts = hosts_with(4, [](std::size_t a, std::size_t b) {
    return Link{a == 2 || b == 2 ? 1e8 : 1e9, 1e-4};
  });
  ASSERT_EQ(hosts.groups.size(), 2U) << to_toml(hosts);
  EXPECT_EQ(hosts.groups[0].hosts, 3);
  EXPECT_NEAR(hosts.groups[0].card.bits_per_second, 1e9, 1e6);
  EXPECT_EQ(hosts.groups[1].name, "c");
  EXPECT_NEAR(hosts.groups[1].card.bits_per_second, 1e8, 1e5);
  EXPECT_DOUBLE_EQ(hosts.groups[1].card.latency_seconds, 1e-4);
  for (const HostGroup& group : hosts.groups) EXPECT_FALSE(group.uplink);
}

TEST(MeasuredHosts, PlacesHaveUplinks) {
  // Two by two, and a slow line between them.
  const Hosts two = hosts_with(4, [](std::size_t a, std::size_t b) {
    return a / 2 == b / 2 ? Link{1e9, 1e-4} : Link{5e7, 20e-3};
  });
  ASSERT_EQ(two.groups.size(), 2U) << to_toml(two);
  for (const HostGroup& group : two.groups) {
    EXPECT_EQ(group.hosts, 2);
    EXPECT_NEAR(group.card.bits_per_second, 1e9, 1e6);
    EXPECT_NEAR(group.uplink->bits_per_second, 5e7, 1e5);
    EXPECT_NEAR(group.uplink->latency_seconds, 10e-3, 1e-5);
  }
  // As fast as inside, but far: what is slow about it is the wait alone.
  const Hosts far = hosts_with(4, [](std::size_t a, std::size_t b) {
    return Link{1e9, a / 2 == b / 2 ? 1e-4 : 20e-3};
  });
  ASSERT_EQ(far.groups.size(), 2U) << to_toml(far);
  EXPECT_NEAR(far.groups[0].uplink->bits_per_second, 2e9, 1e6) << "as much as its cards have";
  // Three places, as far from the middle as they are: 5, 10 and 20 ms.
  const Hosts three = hosts_with(6, [](std::size_t a, std::size_t b) {
    constexpr std::array kFar = {5e-3, 10e-3, 20e-3};
    if (a / 2 == b / 2) return Link{1e9, 1e-4};
    return Link{a / 2 == 2 || b / 2 == 2 ? 2e7 : 2e8, kFar[a / 2] + kFar[b / 2]};
  });
  ASSERT_EQ(three.groups.size(), 3U) << to_toml(three);
  EXPECT_NEAR(three.groups[0].uplink->latency_seconds, 5e-3, 1e-5);
  EXPECT_NEAR(three.groups[2].uplink->latency_seconds, 20e-3, 1e-5);
  EXPECT_NEAR(three.groups[1].uplink->bits_per_second, 2e8, 1e6) << "the third's is the slow one";
  EXPECT_NEAR(three.groups[2].uplink->bits_per_second, 2e7, 1e5);
}

TEST(MeasuredHosts, ThatAreFarFromEachOtherHaveTheirLinksAsCards) {
  const Hosts hosts = hosts_with(3, [](std::size_t, std::size_t) { return Link{3e7, 15e-3}; });
  ASSERT_EQ(hosts.groups.size(), 1U) << to_toml(hosts);
  EXPECT_EQ(hosts.groups[0].hosts, 3);
  EXPECT_NEAR(hosts.groups[0].card.bits_per_second, 3e7, 1e5);
  EXPECT_DOUBLE_EQ(hosts.groups[0].card.latency_seconds, 15e-3);
}

}  // namespace
}  // namespace laconic
