// config/row_choice.hpp — what [embedding.rows] comes to for a model. Pure.
#pragma once

#include <cstddef>
#include <cstdint>
#include <optional>
#include <string>
#include <vector>

#include "laconic/architecture/model_spec.hpp"
#include "laconic/base/philox.hpp"
#include "laconic/config/run_config.hpp"
#include "laconic/layout/replica_cut.hpp"

namespace laconic {

// How the rows of a table travel: what embedding.rows.method says, or what "auto" has come to for
// it. Without an answer "auto" is allreduce: nothing is cut.
RowsMethod method_of_table(const RunConfig& config, const std::string& table);
// Whether a table may travel by rows.
bool may_move_rows(const RunConfig& config);

// Parameters, by number, whose rows travel.
std::vector<std::size_t> row_tables(const RunConfig& config, const ModelSpec& spec);
// How replicas share them.
ReplicaCuts table_cuts(const RunConfig& config, const ModelSpec& spec);

// What the negatives of a sampled softmax are drawn by; nothing is drawn without task.sampled.
std::optional<Key> negatives_key_of(const RunConfig& config, std::int64_t step,
                                    std::int64_t dp_member);
// The rows of a table that a member of the dp group draws in a step (kDrawnField).
std::vector<std::int64_t> drawn_rows(const RunConfig& config, const ParameterSpec& table,
                                     std::int64_t step, std::int64_t dp_member);

// Whether gradients of rows that the next step does not read may come later: where embedding.rows.
// split is "auto", whenever nobody needs them all at once.
bool splits_rows(const RunConfig& config);
// The decoupled decay of rows: that of the run's algorithm, if it has one.
double row_decay(const RunConfig& config);

// Everything about [embedding.rows] that cannot be for this model.
Problems check_rows(const RunConfig& config, const Family& family);

}  // namespace laconic
