// rows/row_method.hpp — how the rows of a table and their gradients travel, and which way is
// cheapest. Pure.
//
//                  bytes that a rank sends in a step      through a card that g ranks share
//   alltoall       (N-1)/N U (a + b)                      g (N-g)/N U (a + b)
//   allgather      (N-1) U b                              (N-1) U b, in a ring
//   allreduce      2 (N-1)/N V b                          2 (N-1)/N V b, in a ring
//   server         U (a + b), servers apart;              g U (a + b);
//                  S (a + b) / 2, dealt                   g (N-g)/(N-1) S (a + b) / 2
//
// with V rows of which a rank looks U different ones up; a row has a bytes, and its gradient b,
// which are the same unless blocks compute in bfloat16. Nothing crosses the card of
// a group that has one card alone. Rows are sent once each way, without ids (row_plan.hpp). Where
// every rank is a server, too, some rows are at home: S counts those that the busiest rank sends,
// both ways.
//
// Time is bytes by the rate of a card, a start of each message, and the network's delay once for
// every message that another one waits for: in a ring all of them, otherwise messages to all peers
// leave together.
#pragma once

#include <array>
#include <cstdint>
#include <string>
#include <vector>

#include "laconic/base/named.hpp"

namespace laconic {

enum class RowMethod : std::uint8_t {
  alltoall,   // columns of the table lie on all ranks (EmbRace)
  allgather,  // the table is whole everywhere, and gradients of rows go to everybody
  allreduce,  // the table is whole everywhere, and its gradient is summed as a matrix
  server,     // rows lie at servers, which all ranks ask
};
inline constexpr auto kRowMethodNames =
    std::to_array<Named<RowMethod>>({{RowMethod::alltoall, "alltoall"},
                                     {RowMethod::allgather, "allgather"},
                                     {RowMethod::allreduce, "allreduce"},
                                     {RowMethod::server, "server"}});

// What a table is to a step.
struct TableFacts {
  double rows = 0;        // V
  double width = 0;       // elements of one
  double row_bytes = 0;   // b
  double read_bytes = 0;  // a; 0: the same
  double looked_up = 0;   // U: different rows that a rank reads in a step, on average
  double all_read = 0;    // different rows that all ranks together read
  double served = 0;      // S; 0: servers are apart
  double alpha() const { return looked_up / rows; }
  double gamma() const { return all_read / looked_up; }
  double both_ways() const { return (read_bytes > 0 ? read_bytes : row_bytes) + row_bytes; }
};

struct RowNetwork {
  int ranks = 1;                // N
  int per_card = 1;             // g
  double bytes_per_second = 0;  // of a card, or of a rank where all share one; 0: unknown
  double seconds_per_message = 0;
  double latency = 0;  // seconds
};

double bytes_of_rank(RowMethod method, const TableFacts& table, const RowNetwork& network);
double bytes_of_card(RowMethod method, const TableFacts& table, const RowNetwork& network);
// Messages that a rank sends one after the other.
double messages_of(RowMethod method, const RowNetwork& network);
// Messages of which each waits for the one before.
double rounds_of(RowMethod method, const RowNetwork& network);
// What a step spends on the table, if nothing is hidden. Without rates: bytes of a card.
double cost_of(RowMethod method, const TableFacts& table, const RowNetwork& network);

struct RowChoice {
  RowMethod method = RowMethod::allreduce;
  std::string reason;  // for people, with the numbers
};
// The cheapest of `allowed`, the first of them where several are. Requires: one at least.
RowChoice choose_method(const TableFacts& table, const RowNetwork& network,
                        const std::vector<RowMethod>& allowed);

// Methods that a table may go by. `may_sum`: the table's own sum is no other algorithm.
std::vector<RowMethod> methods_for(const TableFacts& table, int ranks, bool may_sum);

// When gradients that come later are worth another message: always, or where sending them takes
// longer than it costs to tell them apart and to start a message; as long as no rate is known, from
// so many bytes to each peer on.
struct SplitPrice {
  bool is_free = false;
  double bytes_per_second = 0;  // 0: not known
  double seconds_per_message = 0;
  double seconds_per_row = 0;
  double least_bytes = 4 << 10;
};
// `rows` of all members of which `delayed` come later, each of so many bytes.
bool pays_to_split(const SplitPrice& price, std::uint64_t rows, std::uint64_t delayed,
                   std::uint64_t row_bytes, int members);

// The share of the table's rows above which alltoall moves more through a card than allreduce: 1
// with a card for each rank, 0.31 with 16 ranks on 4 cards.
double alpha_of_break_even(const RowNetwork& network);

}  // namespace laconic
