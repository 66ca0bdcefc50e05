// simulate/row_program.hpp — rows of embedding tables on their way, as strands
// (update/table_exchange.hpp, update/table_rule.cpp).
//
// All ranks are taken to read as many rows (row_load.hpp). A message to a peer then has the size
// that its receiver gives it, as in a direct reduce-scatter, and goes by the same list.
#pragma once

#include <cstdint>
#include <optional>
#include <vector>

#include "laconic/simulate/collective_program.hpp"
#include "laconic/simulate/row_load.hpp"
#include "laconic/simulate/run_simulation.hpp"

namespace laconic {

class RowProgram {
 public:
  RowProgram(ProgramBuilder& builder, const SimulationRequest& request);

  bool is_used() const { return !tables_.empty(); }
  // Makes the exchanges of a step, for all ranks.
  void begin(std::uint64_t step);

  // --- acts of a rank, on its strand, in this order
  void request(int rank, int strand);
  void look_up(int rank, int strand, std::size_t block);  // before a block's first forward
  void begin_backward(int rank, int strand);              // with the first gradient
  void give(int rank, int strand, std::size_t block);     // a block's gradients are complete
  void wait(int rank, int strand);                        // for what the step ends with
  void update(int rank, int strand);                      // and what was put off before

 private:
  struct Table {
    RowLoad load;
    bool is_split = false;
    std::size_t block = 0;  // that looks it up first, and completes its gradient
    std::int64_t width = 0;
    double row_bytes = 0;  // at its holder, and of its gradient
  };
  struct Exchanges {  // by table
    ExchangeStrands rows, early, prior, delayed;
  };
  bool updates_by_block() const { return request_.config.train.update == UpdateBy::block; }
  bool holds(const Table& table, int rank) const;
  bool is_cut(const Table& table) const { return table.load.method != RowsMethod::allgather; }
  // What travels of rows: in the type that blocks compute in, gradients in that of sums.
  struct Travelling {
    Dtype dtype;
    CodecSpec codec;
  };
  ExchangeStrands exchange(const Table& table, double rows, const Travelling& as,
                           std::uint64_t key);
  std::uint64_t elements_to(const Table& table, double rows, int member) const;
  void update_table(int rank, int strand, std::size_t table, const std::vector<Exchanges>& put_off);
  void copy_rows(int rank, int strand, const Table& table, double rows);

  ProgramBuilder& builder_;
  const SimulationRequest& request_;
  std::vector<Table> tables_;
  std::vector<int> place_of_block_;              // along pp
  std::vector<Exchanges> now_, before_, older_;  // of three steps, by table
};

}  // namespace laconic
