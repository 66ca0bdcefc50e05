// simulate/row_load.hpp — how many rows of embedding tables ranks look up, without their data.
//
// A run reads them off its samples. Here words are taken to come as in the One Billion Word
// benchmark (lm1b_law, base/word_law.hpp), each token by itself, so that a row i is read by a rank
// with T tokens with probability 1 - (1 - p_i)^T. Whoever knows better says how many.
//
// Pure.
#pragma once

#include <cstddef>
#include <string>
#include <vector>

#include "laconic/architecture/model_spec.hpp"
#include "laconic/config/run_config.hpp"
#include "laconic/hosts/hosts.hpp"

namespace laconic {

// Rows of one table in a step, as expected. Not whole numbers.
struct RowLoad {
  std::size_t parameter = 0;
  RowsMethod method = RowsMethod::alltoall;
  double read = 0;      // U: different ones that a rank reads
  double all_read = 0;  // that all ranks together read
  double prior = 0;     // of a rank's: those that some rank reads in the next step, too
  double early = 0;     // of a rank's: those that nobody changes in the step before
};

// Of one table, whatever its method; `known_read`: how many a rank reads, 0: as expected.
RowLoad row_load(const RunConfig& config, const ModelSpec& spec, std::size_t parameter,
                 double known_read);
// Of all tables whose rows travel.
std::vector<RowLoad> row_loads(const RunConfig& config, const ModelSpec& spec, double known_read);

// Whether gradients of delayed rows come later (pays_to_split()), on these hosts. What it costs to
// tell rows apart is not known here, and counts nothing.
bool splits_on(const RunConfig& config, const ModelSpec& spec, const RowLoad& load,
               const Hosts& hosts);

// What embedding.rows.method = "auto" comes to, put where a run puts it (embedding_rows.decided);
// with any other method nothing happens.
void decide_rows_for(RunConfig& config, const ModelSpec& spec, const Hosts& hosts,
                     double known_read);

// A line for each table whose rows travel.
std::string describe(const std::vector<RowLoad>& loads, const ModelSpec& spec, bool is_known);

}  // namespace laconic
