#include "laconic/plan/link_load.hpp"

#include <gtest/gtest.h>

#include "laconic/architecture/grid_time.hpp"
#include "laconic/base/error.hpp"
#include "laconic/config/model_family.hpp"
#include "laconic/hosts/known_device.hpp"
#include "laconic/plan/policy_choice.hpp"
#include "laconic/plan/row_cost.hpp"
#include "laconic/plan/sum_cost.hpp"

namespace laconic {
namespace {

// Seconds of so many bytes over a link of so many bits per second.
double wire(double bytes, double bits) {
  return bytes * 8 / (bits * kTcpShare);
}

Hosts two_groups() {
  HostGroup north{.name = "north",
                  .hosts = 2,
                  .device = *known_device("l4"),
                  .card = {.bits_per_second = 1e9, .latency_seconds = 1e-3},
                  .uplink = Link{.bits_per_second = 1e8, .latency_seconds = 5e-3}};
  HostGroup south = north;
  south.name = "south";
  south.uplink->bits_per_second = 5e7;
  return {{north, south}};
}

TEST(LinkLoad, ARingCrossesAnUplinkOnce) {
  const Hosts hosts = two_groups();
  LinkLoad load(hosts, seats_of(hosts));
  load.add_ring({0, 1, 2, 3}, 1);
  const PatternCost cost = load.cost();
  EXPECT_NEAR(cost.seconds_per_byte, wire(1, 5e7), 1e-15);
  EXPECT_EQ(cost.bottleneck, "uplink of south (50mbit)");
  EXPECT_NEAR(cost.latency, 1e-3 + 2 * 5e-3, 1e-15);
}

TEST(LinkLoad, AnExchangeIsTheFlowsOfAllPairs) {
  for (const int per_host : {1, 3}) {
    Hosts hosts = two_groups();
    for (HostGroup& group : hosts.groups) {
      group.ranks_per_host = per_host;
      group.inside.bits_per_second = 1e7;
      group.card.full_duplex = per_host == 1;
    }
    LinkLoad exchange(hosts, seats_of(hosts)), pairs(hosts, seats_of(hosts));
    std::vector<int> ranks;
    for (int r = 0; r < rank_count(hosts); ++r) ranks.push_back(r);
    exchange.add_exchange(ranks, 7);
    for (const int a : ranks)
      for (const int b : ranks)
        if (a != b) pairs.add_flow(a, b, 7);
    EXPECT_NEAR(exchange.cost().seconds_per_byte, pairs.cost().seconds_per_byte, 1e-12);
    EXPECT_EQ(exchange.cost().bottleneck, pairs.cost().bottleneck);
    EXPECT_EQ(exchange.cost().latency, pairs.cost().latency);
  }
}

TEST(LinkLoad, HalfDuplexCarriesBothWaysOneAfterTheOther) {
  Hosts hosts = two_groups();
  hosts.groups[0].card.full_duplex = false;
  LinkLoad load(hosts, seats_of(hosts));
  load.add_flow(0, 1, 10);
  load.add_flow(1, 0, 10);
  EXPECT_NEAR(load.cost().seconds_per_byte, wire(20, 1e9), 1e-15);
}

TEST(SumCost, CountsWhatARankSendsAndReceives) {
  const ParameterSpec matrix{.name = "w", .sizes = {256, 128}};
  const std::vector<SummedPart> parts = {{&matrix, 256 * 128}};
  HostDevice device = *known_device("core");
  const SumCost exact = sum_cost(parts, {}, 4, device);
  EXPECT_EQ(exact.up_bytes, 4 * 256 * 128);
  EXPECT_EQ(exact.handled_bytes, 2 * 0.75 * 4 * 256 * 128);
  EXPECT_EQ(exact.codec_seconds, 0);
  const SumCost short_ones =
      sum_cost(parts, {.up = Quantise{.bits = 4}, .down = Quantise{.bits = 4}}, 4, device);
  EXPECT_NEAR(exact.up_bytes / short_ones.up_bytes, 32 / 4.125, 1e-9);
  const CodecRate rate = codec_rate(device, Quantise{});
  EXPECT_NEAR(short_ones.codec_seconds, 4 * 256 * 128 * (1.25 / rate.feedback + 1.5 / rate.decode),
              1e-12);
  const SumCost forgetting = sum_cost(parts,
                                      {.up = Quantise{.bits = 4},
                                       .down = Quantise{.bits = 4},
                                       .up_feedback = false,
                                       .down_feedback = false},
                                      4, device);
  EXPECT_NEAR(forgetting.codec_seconds, 4 * 256 * 128 * (1.25 / rate.encode + 1.5 / rate.decode),
              1e-12);
  device.factors = {1e9, 4e8};
  device.copy_bytes_per_second = 2e9;
  const SumCost factors =
      sum_cost(parts, {.method = ReduceMethod::power_sgd, .rank = 16}, 4, device);
  EXPECT_EQ(factors.up_bytes, 4 * 16 * (256 + 128));
  EXPECT_NEAR(factors.codec_seconds,
              3 * 16 * 256 * 128 / 1e9 + 2 * 256 * (256 + 128) / 4e8 + 5 * 4 * 256 * 128 / 2e9,
              1e-12)
      << "products, columns, and a residual's passes";
  EXPECT_EQ(sum_cost(parts, {}, 1, device).up_bytes, 0);
}

// The formulas of docs/embedding.md.
TEST(RowCost, BytesAreThoseOfTheMethods) {
  RunConfig config;
  config.model.kind = ModelKind::llama;
  config.model.width = 64;
  config.model.heads = 4;
  config.model.layers = 1;
  config.model.vocabulary = 1000;
  config.mesh.dp = 4;
  config.embedding_rows.optimiser = RowsOptimiser::lazy_adam;
  config.embedding_rows.split = RowsSplit::off;
  const ModelSpec spec = model_spec(family_of(config, {}), config.model.context);
  const Hosts hosts = two_groups();
  const HostDevice device = *known_device("core");
  const auto cost_of = [&](RowsMethod method) {
    config.embedding_rows.method = method;
    const std::vector<RowLoad> loads = {
        {.parameter = 0, .read = 100, .all_read = 250, .prior = 60}};
    return row_costs(config, spec, loads, hosts, device).at(0);
  };
  const double row = 4 * 64;
  const RowCost cut = cost_of(RowsMethod::alltoall), dealt = cost_of(RowsMethod::server),
                whole = cost_of(RowsMethod::allgather);
  EXPECT_EQ(cut.rows.handled_bytes + cut.prior.handled_bytes, 2 * 0.75 * 100 * row);
  EXPECT_EQ(dealt.rows.handled_bytes + dealt.prior.handled_bytes, 2 * 0.75 * 100 * row);
  EXPECT_EQ(whole.rows.handled_bytes + whole.prior.handled_bytes, 3 * 100 * row);
  EXPECT_EQ(whole.rows.messages, 0);
  EXPECT_EQ(cut.updated, 250 * 64 / 4);
  EXPECT_EQ(whole.updated, 250 * 64);
  EXPECT_TRUE(cut.asks_for_norm);
  // What the next step does not read has time until then; of all of them there is no norm.
  config.embedding_rows.clip = RowsClip::dense;
  config.embedding_rows.split = RowsSplit::on;
  const RowCost split = cost_of(RowsMethod::alltoall);
  EXPECT_EQ(split.prior.up_bytes, 60 * row);
  EXPECT_EQ(split.delayed.up_bytes, 40 * row);
  EXPECT_FALSE(split.asks_for_norm);
  config.embedding_rows.split = RowsSplit::off;
  config.run.precision = RunPrecision::bfloat16;
  const RowCost rounded = cost_of(RowsMethod::alltoall);
  EXPECT_EQ(rounded.rows.up_bytes, 100 * row / 2);
  EXPECT_EQ(rounded.prior.up_bytes, 100 * row);
  config.run.precision = RunPrecision::float32;
  config.embedding_rows.codec = config.embedding_rows.gradient = "quantise:bits=8,group=row";
  const RowCost encoded = cost_of(RowsMethod::alltoall);
  EXPECT_NEAR(encoded.rows.up_bytes, 4 * 100 * (16 + 4), 100);
  EXPECT_GT(encoded.rows.codec_seconds, cut.rows.codec_seconds);
}

TEST(PolicyChoice, WhatIsExactNeedsNoNumberButASource) {
  const auto parsed = [](const std::string& more) {
    return parse_policies(
        "[[policy]]\nname = \"p\"\nclass = \"rows\"\nset = { "
        "embedding.rows.method = \"server\" }\n" +
            more,
        "file");
  };
  const std::vector<PolicyChoice> exact = parsed("exact = true\nsource = \"a test\"");
  ASSERT_EQ(exact.size(), 1U);
  EXPECT_EQ(exact[0].scratch, LossEffect{});
  EXPECT_EQ(exact[0].trained, LossEffect{});
  EXPECT_FALSE(parsed("")[0].scratch);
  EXPECT_THROW(parsed("exact = true"), ConfigError);
  EXPECT_THROW(parsed("exact = true\nsource = \"a\"\nscratch = { loss = 1, seeds = 1 }"),
               ConfigError);
  EXPECT_THROW(parse_policies("[[policy]]\nname = \"p\"\nclass = \"rows\"\nset = { "
                              "dp.gradient.codec = \"half\" }\n",
                              "file"),
               ConfigError);
}

TEST(PolicyChoice, AFileIsRefusedWithEveryReason) {
  try {
    (void)parse_policies(R"(
[[policy]]
name = "a"
class = "dp"
set = { dp.gradient.codec = "quantise:bits=4", pp.gradient.codec = "half" }
scratch = { loss = 0.3, least = 0.4, seeds = 1 }
[[policy]]
name = "b"
class = "xx"
set = { dp.gradient.codek = "raw" }
[[policy]]
name = "b"
class = "pp"
scratch = { loss = 1 }
source = "somewhere"
sauce = 1
[[policy]]
name = "c"
class = "tp"
set = {}
[[policy]]
name = "c"
class = "tp"
set = {}
)",
                         "l.toml");
    FAIL();
  } catch (const ConfigError& error) {
    const std::string text = to_text(error.problems());
    for (const char* expected :
         {"has a loss without a source", "loss = 0.3 is not between least = 0.4 and most = 0.3",
          "pp.gradient.codec is no key of messages of class dp", "there is no class 'xx'", "codek",
          "set is missing", "seeds is missing", "unknown key 'sauce'",
          "policy 'c' of class tp is there twice"})
      EXPECT_NE(text.find(expected), std::string::npos) << expected << "\n" << text;
  }
}

}  // namespace
}  // namespace laconic
