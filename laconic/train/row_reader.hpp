// train/row_reader.hpp — which rows of embedding tables ranks will look up, from the data alone;
// and which way of exchanging them that makes the cheapest.
//
// The order of samples is a function of position and every rank has the data, so each can read what
// all of them will read: nobody has to be told.
#pragma once

#include <cstdint>
#include <map>
#include <string>
#include <vector>

#include "laconic/architecture/model_spec.hpp"
#include "laconic/base/host_name.hpp"
#include "laconic/config/run_config.hpp"
#include "laconic/data/dataset.hpp"
#include "laconic/data/sampler.hpp"
#include "laconic/data/task.hpp"
#include "laconic/policy/link_facts.hpp"
#include "laconic/rows/row_method.hpp"
#include "laconic/rows/row_plan.hpp"
#include "laconic/world/world.hpp"

namespace laconic {

// A run's samples, as a step reads them. Requires: all of it outlives the reader.
struct RowReader {
  const RunConfig& config;
  const Dataset& data;
  const SampleOrder& order;
  const Task& task;

  // What a member of the dp group looks up by a field in the step that begins at `position`, in the
  // order of the samples: its tokens, but not padding.
  std::vector<std::int64_t> tokens(std::int64_t position, int member,
                                   const std::string& field) const;
  // Their rows.
  RowIds rows(std::int64_t position, int member, const std::string& field) const;
};

// What a step makes of a table, on average over the members: different rows of all that a member
// looks up (U / T), and the share of these that some member reads in the next step (p), whose
// gradients cannot come later.
struct ReadShares {
  double unique = 0;
  double prior = 0;
};
// Of a step that begins at `position`; a run's last one has no next.
ReadShares read_shares(const ParameterSpec& table, const RowReader& reader, std::int64_t step,
                       std::int64_t position);

// How fast the network is, as rank 0 has it, and how fast the slowest rank tells rows apart.
// Collective.
RowRates measure_row_rates(const LinkFacts& link, World& world);

// What embedding.rows.method = "auto" comes to.
struct RowDecision {
  std::map<std::string, RowsMethod> methods;  // by table
  std::vector<std::string> reasons;           // one for each table
};
// By what the first step reads, and by config.embedding_rows.rates: time, or bytes where no rate is
// known. Methods that would change the algorithm of rows are left out. Collective: all ranks tell
// their network (base/host_name.hpp), where those of one name share a card, and come to the same.
RowDecision decide_rows(const RunConfig& config, World& world,
                        const std::string& network = network_name());

}  // namespace laconic
