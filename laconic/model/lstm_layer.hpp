// model/lstm_layer.hpp — one LSTM layer over all tokens of all samples, as torch.nn.LSTM.
//
//   sums   = weight_ih x + bias_ih + weight_hh h + bias_hh, four gates of `cells` each
//   cell   = sigmoid(forget) cell + sigmoid(input) tanh(cell gate)
//   h      = sigmoid(output) tanh(cell), and weight_hr h where there is one
//
// Both are zero where a sample begins: nothing is carried from one sample to another.
//
// `fused` (float and double on the CPU) multiplies the inputs of all tokens at once, and in
// backward makes the gradients of all weights by one product each; what is left for each token is
// the product with the state and one pass over the gates (kernel/lstm.hpp). `composed` is built
// from ATen operations, runs on any device, and is what the other is tested against. The plain name
// chooses.
#pragma once

#include <ATen/core/Tensor.h>

#include <cstdint>

namespace laconic {

class DeferredWeights;  // model/deferred.hpp

// torch.nn.LSTM's parameters of a layer and direction. Requires, of training: they are leaves.
struct LstmWeights {
  at::Tensor input, state;            // [4 cells, inputs], [4 cells, state]
  at::Tensor input_bias, state_bias;  // [4 cells]
  at::Tensor projection = {};         // [state, cells], or undefined: state is cells
  std::int64_t cells() const { return input.size(0) / 4; }
};

struct LstmRun {
  std::int64_t samples = 0;
  // [samples] int64: tokens at and beyond a sample's length are padding. They put out zeros
  // and get zero gradients. Requires: they are finite. Undefined: there is none.
  at::Tensor lengths = {};
  bool is_reversed = false;             // from the last token to the first
  DeferredWeights* deferred = nullptr;  // takes what backward leaves for later
};

// x: [samples * tokens, inputs]; returns [samples * tokens, state].
at::Tensor lstm(const at::Tensor& x, const LstmWeights& weights, const LstmRun& run);

namespace fused {
at::Tensor lstm(const at::Tensor& x, const LstmWeights& weights, const LstmRun& run);
}
namespace composed {
at::Tensor lstm(const at::Tensor& x, const LstmWeights& weights, const LstmRun& run);
}

// What an LSTM layer remembers, by row of a batch; undefined: nothing was read yet.
struct LstmState {
  at::Tensor h, cell;  // [rows, state], [rows, cells]
};
// Reads one token for every row, x [rows, inputs], and returns state.h. Without gradients.
at::Tensor lstm_step(const at::Tensor& x, const LstmWeights& weights, LstmState& state);

}  // namespace laconic
