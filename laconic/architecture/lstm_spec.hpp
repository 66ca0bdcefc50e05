// architecture/lstm_spec.hpp — the blocks of an LSTM language model, and the parameters of any LSTM
// layer. Pure.
#pragma once

#include "laconic/architecture/model_spec.hpp"

namespace laconic {

ModelSpec lstm_spec(const LstmShape& shape, std::int64_t tokens);

// What torch.nn.LSTM has for one layer and direction: weight_ih [4 cells, inputs], weight_hh
// [4 cells, state], bias_ih, bias_hh, and with state < cells weight_hr [state, cells]. Gates are in
// the order input, forget, cell, output. `at` is what stands before each name, `end` behind it.
std::vector<ParameterSpec> lstm_parameters(const std::string& at, std::int64_t inputs,
                                           std::int64_t cells, std::int64_t state,
                                           const std::string& end = "");

// Of one token.
double lstm_multiply_adds(std::int64_t inputs, std::int64_t cells, std::int64_t state);
// Elements that forward of one token keeps: gates and cells, and what is projected, beside inputs
// and outputs.
std::int64_t lstm_kept(std::int64_t inputs, std::int64_t cells, std::int64_t state);

}  // namespace laconic
