// The volumes of the specification of EmbRace (1.3, 1.4), and what is chosen by them.
#include "laconic/rows/row_method.hpp"

#include <gtest/gtest.h>

#include <utility>

namespace laconic {
namespace {

constexpr double kMiB = 1 << 20;
constexpr RowNetwork kSixteen{.ranks = 16, .per_card = 1};
constexpr RowNetwork kFourByFour{.ranks = 16, .per_card = 4};

TableFacts table(double rows, double width, double looked_up, double gamma = 1) {
  return {.rows = rows,
          .width = width,
          .row_bytes = 4 * width,
          .looked_up = looked_up,
          .all_read = gamma * looked_up};
}
const TableFacts kLmInput = table(793470, 512, 1179, 7.7);
const TableFacts kGnmt = table(32320, 1024, 0.32 * 128 * 30);
const TableFacts kTransformer = table(33680, 1024, 0.28 * 5120);
const TableFacts kBert = table(30522, 768, 0.15 * 32 * 384);

TEST(RowMethod, VolumesAreThoseOfTheSpecification) {
  const auto mib = [](RowMethod method, const TableFacts& facts) {
    return bytes_of_rank(method, facts, kSixteen) / kMiB;
  };
  const struct {
    TableFacts facts;
    double all_reduce, all_gather, server, all_to_all;
  } rows[] = {{kLmInput, 2905.8, 34.7, 4.6, 4.3},
              {kGnmt, 236.7, 72.1, 9.6, 9.0},
              {kTransformer, 246.7, 84.1, 11.2, 10.5},
              {kBert, 167.7, 81.2, 10.8, 10.1}};
  for (const auto& row : rows) {
    EXPECT_NEAR(mib(RowMethod::allreduce, row.facts), row.all_reduce, 0.06);
    // There with 8 bytes for the id of each row.
    const double with_ids = 1 + 8 / row.facts.row_bytes;
    EXPECT_NEAR(mib(RowMethod::allgather, row.facts) * with_ids, row.all_gather, 0.1);
    EXPECT_NEAR(mib(RowMethod::server, row.facts), row.server, 0.06);
    EXPECT_NEAR(mib(RowMethod::alltoall, row.facts), row.all_to_all, 0.06);
  }
}

// Rounded rows have half the bytes on their way to who reads them; their gradients have not.
TEST(RowMethod, RowsThatTravelRoundedAreShorterOneWay) {
  TableFacts rounded = kGnmt;
  rounded.read_bytes = kGnmt.row_bytes / 2;
  for (const auto& [method, share] : {std::pair{RowMethod::alltoall, 0.75},
                                      {RowMethod::server, 0.75},
                                      {RowMethod::allgather, 1.0},
                                      {RowMethod::allreduce, 1.0}})
    for (const RowNetwork& network : {kSixteen, kFourByFour}) {
      EXPECT_NEAR(bytes_of_rank(method, rounded, network),
                  share * bytes_of_rank(method, kGnmt, network), 1e-3);
      EXPECT_NEAR(bytes_of_card(method, rounded, network),
                  share * bytes_of_card(method, kGnmt, network), 1e-3);
    }
}

TEST(RowMethod, CardsThatRanksShareCorrectTheFlatModel) {
  const auto ratio = [](RowMethod a, RowMethod b, const RowNetwork& network) {
    return bytes_of_card(a, kGnmt, network) / bytes_of_card(b, kGnmt, network);
  };
  const RowNetwork eights{.ranks = 64, .per_card = 8};
  const double alpha = kGnmt.alpha();
  EXPECT_NEAR(ratio(RowMethod::alltoall, RowMethod::allreduce, kFourByFour), 3.2 * alpha, 1e-9);
  EXPECT_NEAR(ratio(RowMethod::alltoall, RowMethod::allreduce, eights), 7.11 * alpha, 1e-3);
  EXPECT_NEAR(ratio(RowMethod::alltoall, RowMethod::allgather, kFourByFour), 0.4, 1e-9);
  EXPECT_NEAR(ratio(RowMethod::alltoall, RowMethod::allgather, kSixteen), 2.0 / 16, 1e-9);
  EXPECT_NEAR(alpha_of_break_even(kFourByFour), 0.3125, 1e-9);
  EXPECT_EQ(alpha_of_break_even(kSixteen), 1);
  EXPECT_EQ(bytes_of_card(RowMethod::allreduce, kGnmt, {.ranks = 4, .per_card = 4}), 0);
}

TEST(RowMethod, TimesOfACardAreThoseOfTheSpecification) {
  RowNetwork network = kFourByFour;
  network.bytes_per_second = 100e9 / 8;
  EXPECT_NEAR(cost_of(RowMethod::allreduce, kLmInput, network) * 1e3, 243.8, 0.1);
  EXPECT_NEAR(cost_of(RowMethod::allgather, kLmInput, network) * 1e3, 2.9, 0.05);
  const double before = cost_of(RowMethod::alltoall, kLmInput, network);
  network.seconds_per_message = 1e-3;
  EXPECT_NEAR(cost_of(RowMethod::alltoall, kLmInput, network) - before, 30e-3, 1e-9);
}

TEST(RowMethod, TheCheapestIsChosenAndToldWithItsNumbers) {
  const std::vector<RowMethod> all = {RowMethod::alltoall, RowMethod::allgather,
                                      RowMethod::allreduce, RowMethod::server};
  const RowChoice lm = choose_method(kLmInput, kSixteen, all);
  EXPECT_EQ(lm.method, RowMethod::alltoall);
  for (const char* part : {"1179 of 793470 rows", "alpha 0.00149", "16 together 7.7 times",
                           "1 to a card", "alltoall 4.53e+06 bytes a step", "allreduce 3.05e+09"})
    EXPECT_NE(lm.reason.find(part), std::string::npos) << part << " in " << lm.reason;
  // Behind the break-even the sum of the whole table is cheaper.
  for (const double alpha : {0.30, 0.32}) {
    const TableFacts facts = table(1000, 64, 1000 * alpha);
    EXPECT_EQ(choose_method(facts, kFourByFour, {RowMethod::alltoall, RowMethod::allreduce}).method,
              alpha < 0.3125 ? RowMethod::alltoall : RowMethod::allreduce);
  }
  // Two ranks: gathering costs the same, and the first of the list wins.
  const RowNetwork two{.ranks = 2, .per_card = 1};
  EXPECT_EQ(choose_method(kGnmt, two, {RowMethod::allgather, RowMethod::alltoall}).method,
            RowMethod::allgather);
  EXPECT_EQ(choose_method(kGnmt, two, all).method, RowMethod::alltoall);
  // Many messages that take long are worth less than few.
  RowNetwork far{.ranks = 16, .per_card = 1, .bytes_per_second = 1e12, .seconds_per_message = 0.1};
  EXPECT_EQ(choose_method(kBert, far, all).method, RowMethod::allgather);
  // And so does a network that is far away, though messages to all peers leave together.
  far.seconds_per_message = 0;
  far.latency = 0.1;
  const RowChoice late = choose_method(kBert, far, all);
  EXPECT_EQ(late.method, RowMethod::allgather);
  EXPECT_NE(late.reason.find("8e+06 Mbit/s and 100 ms"), std::string::npos) << late.reason;
  EXPECT_NEAR(cost_of(RowMethod::allreduce, kBert, far) - cost_of(RowMethod::alltoall, kBert, far),
              28 * 0.1, 0.01);
}

// Dealt rows: what the busiest rank sends, of which g ranks of a card keep some among them.
TEST(RowMethod, ServersThatAreRanksCostWhatTheBusiestSends) {
  TableFacts facts = table(1000, 64, 100);
  EXPECT_EQ(bytes_of_rank(RowMethod::server, facts, kSixteen), 2 * 100 * 256);
  facts.served = 190;
  EXPECT_EQ(bytes_of_rank(RowMethod::server, facts, kSixteen), 190 * 256);
  EXPECT_NEAR(bytes_of_card(RowMethod::server, facts, kFourByFour), 4 * 12.0 / 15 * 190 * 256,
              1e-6);
}

}  // namespace
}  // namespace laconic
