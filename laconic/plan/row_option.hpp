// plan/row_option.hpp — which ways of rows of embedding tables (embedding.rows) plans may have; for
// plan/candidate.cpp.
#pragma once

#include <vector>

#include "laconic/plan/candidate.hpp"

namespace laconic {

// Leaves those policies of rows that some mesh of the hosts can have, and tells of the others why
// not; says what each arrangement can have, and how many rows are read where they travel.
// Requires: arrangements and policies of all classes are there.
void add_row_options(PlanSpace& space);

// Of what the arrangement can have, what goes with the candidate's policies of other messages.
std::vector<int> row_options_beside(const PlanSpace& space, const Candidate& candidate);
// Whether rows may travel where gradients are summed so.
bool may_move_beside(const RunConfig& sums);

}  // namespace laconic
