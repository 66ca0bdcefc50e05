#include "laconic/rows/row_method.hpp"

#include <fmt/format.h>

#include <algorithm>

#include "laconic/base/error.hpp"

namespace laconic {

double bytes_of_rank(RowMethod method, const TableFacts& table, const RowNetwork& network) {
  const double n = network.ranks, rows = table.looked_up * table.row_bytes;
  switch (method) {
    case RowMethod::alltoall: return (n - 1) / n * table.looked_up * table.both_ways();
    case RowMethod::allgather: return (n - 1) * rows;
    case RowMethod::allreduce: return 2 * (n - 1) / n * table.rows * table.row_bytes;
    case RowMethod::server:
      if (n == 1) return 0;
      return table.served > 0 ? table.served * table.both_ways() / 2
                              : table.looked_up * table.both_ways();
  }
  return 0;
}

double bytes_of_card(RowMethod method, const TableFacts& table, const RowNetwork& network) {
  const double n = network.ranks, g = network.per_card;
  if (g >= n) return 0;
  switch (method) {
    case RowMethod::alltoall: return g * (n - g) / n * table.looked_up * table.both_ways();
    case RowMethod::allgather:
    case RowMethod::allreduce: return bytes_of_rank(method, table, network);
    case RowMethod::server:
      return g * (table.served > 0 ? (n - g) / (n - 1) : 1) * bytes_of_rank(method, table, network);
  }
  return 0;
}

double messages_of(RowMethod method, const RowNetwork& network) {
  const double n = network.ranks;
  if (n == 1) return 0;
  switch (method) {
    case RowMethod::alltoall:
    case RowMethod::allreduce: return 2 * (n - 1);
    case RowMethod::allgather: return n - 1;
    case RowMethod::server: return 2 * n;
  }
  return 0;
}

double rounds_of(RowMethod method, const RowNetwork& network) {
  if (network.ranks == 1) return 0;
  switch (method) {
    case RowMethod::alltoall:
    case RowMethod::server: return 2;
    case RowMethod::allgather: return 1;
    case RowMethod::allreduce: return 2 * (network.ranks - 1.0);
  }
  return 0;
}

double cost_of(RowMethod method, const TableFacts& table, const RowNetwork& network) {
  const bool is_one_card = network.per_card >= network.ranks;
  const double bytes =
      is_one_card ? bytes_of_rank(method, table, network) : bytes_of_card(method, table, network);
  if (network.bytes_per_second <= 0) return bytes;
  return bytes / network.bytes_per_second +
         messages_of(method, network) * network.seconds_per_message +
         rounds_of(method, network) * network.latency;
}

double alpha_of_break_even(const RowNetwork& network) {
  const double n = network.ranks, g = network.per_card;
  return g >= n || n == 1 ? 1 : std::min(1.0, (n - 1) / (g * (n - g)));
}

namespace {

std::string rates_text(const RowNetwork& network) {
  if (network.bytes_per_second <= 0) return "";
  return fmt::format(", {:.3g} Mbit/s and {:.3g} ms", network.bytes_per_second * 8e-6,
                     network.latency * 1e3);
}

}  // namespace

RowChoice choose_method(const TableFacts& table, const RowNetwork& network,
                        const std::vector<RowMethod>& allowed) {
  LACONIC_ASSERT(!allowed.empty(), "there is nothing to choose from");
  const auto cost = [&](RowMethod method) { return cost_of(method, table, network); };
  const RowMethod best = *std::ranges::min_element(allowed, {}, cost);
  std::string others;
  for (const RowMethod method : allowed)
    if (method != best)
      others += fmt::format("{}{} {:.3g}", others.empty() ? "" : ", ",
                            name_in(kRowMethodNames, method), cost(method));
  const bool is_time = network.bytes_per_second > 0;
  return {best, fmt::format(
                    "a rank reads {:.0f} of {:.0f} rows (alpha {:.3g}), all {} together {:.3g} "
                    "times as many, {} to a card{}: {} {:.3g} {} a step{}{}",
                    table.looked_up, table.rows, table.alpha(), network.ranks, table.gamma(),
                    network.per_card, rates_text(network), name_in(kRowMethodNames, best),
                    cost(best), is_time ? "seconds" : "bytes", others.empty() ? "" : "; ", others)};
}

std::vector<RowMethod> methods_for(const TableFacts& table, int ranks, bool may_sum) {
  std::vector<RowMethod> methods;
  if (table.width >= ranks) methods.push_back(RowMethod::alltoall);
  methods.push_back(RowMethod::allgather);
  if (may_sum) methods.push_back(RowMethod::allreduce);
  methods.push_back(RowMethod::server);
  return methods;
}

bool pays_to_split(const SplitPrice& price, std::uint64_t rows, std::uint64_t delayed,
                   std::uint64_t row_bytes, int members) {
  if (price.is_free) return true;
  const double n = members;
  const double to_a_peer = static_cast<double>(delayed) / n * static_cast<double>(row_bytes) / n;
  if (price.bytes_per_second <= 0) return to_a_peer >= price.least_bytes;
  const double saved = (n - 1) * to_a_peer / price.bytes_per_second;
  return saved > price.seconds_per_message + price.seconds_per_row * static_cast<double>(rows);
}

}  // namespace laconic
