// config/row_choice.hpp — what [embedding.rows] comes to for a model. Pure.
#pragma once

#include <cstddef>
#include <vector>

#include "laconic/architecture/model_spec.hpp"
#include "laconic/config/run_config.hpp"

namespace laconic {

// How rows travel: what embedding.rows.method says, or what "auto" has come to. Without an answer
// "auto" is allreduce: nothing is cut.
RowsMethod method_of_rows(const RunConfig& config);

// Parameters, by number, whose rows travel.
std::vector<std::size_t> row_tables(const RunConfig& config, const ModelSpec& spec);
// GridPlace::table_ranks.
int table_ranks(const RunConfig& config);

// Whether gradients of rows that the next step does not read may come later: where embedding.rows.
// split is "auto", whenever nobody needs them all at once.
bool splits_rows(const RunConfig& config);
// The decoupled decay of rows: that of the run's algorithm, if it has one.
double row_decay(const RunConfig& config);

// Everything about [embedding.rows] that cannot be for this model.
Problems check_rows(const RunConfig& config, const Family& family);

}  // namespace laconic
