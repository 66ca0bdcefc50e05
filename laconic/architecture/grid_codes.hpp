// architecture/grid_codes.hpp — the learned codes of a tensor grid, as parameters of a model. Pure.
//
// Where activations travel as codes (GridCodes, layout/grid_plan.hpp) each message has two linear
// maps: E makes a code of each row, D a row of a code. They are parameters like any others, named
// after the weight whose input or output travels and cut like vectors of these features, so that
// optimiser, norms, sums and checkpoints need not know of them. Both lie as [code, features]. A
// rank that has some of the features makes a code of these alone: on another grid the same
// parameters are used in other slices.
//
//   tp.h.0.attn.c_attn.in.encoder    of the input that all maps beside it share
//   tp.h.0.attn.c_attn.out.encoder   of the outputs of this map: the code is the sum over the maps
//   ... .decoder                     unless they are tied
#pragma once

#include <string>
#include <vector>

#include "laconic/architecture/model_spec.hpp"

namespace laconic {

// Adds them to the blocks that have codes, behind all other parameters.
void add_grid_codes(ModelSpec& spec, const GridPlan& plan);

// What the codes of a weight's input and output are called: ".encoder" and ".decoder" follow.
std::string in_code_name(const std::string& weight);
std::string out_code_name(const std::string& weight);

// Messages that would have fewer columns than a code has numbers. Requires: check(plan) is empty.
Problems check_grid_codes(const ModelSpec& spec, const GridPlan& plan);

}  // namespace laconic
