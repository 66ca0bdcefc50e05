// model/weights.hpp — the tensors of a model, or of the blocks that a rank holds.
//
// A parameter's value is what the optimiser changes and checkpoints hold, its master. Blocks
// compute with its compute copy, which has their precision (model/precision.hpp): where master and
// copy are of one type, they are the same tensor. Whoever changes values calls refresh_copies().
// Tables whose rows travel (GridPlace::tables) lie in host memory, wherever blocks compute: these
// get rows of them from elsewhere (RowLookup, model/model.hpp), and on a GPU there is no copy.
//
// A block sees its parameters as leaves: tensors of its own that autograd writes
// gradients to. A parameter that one held block uses is its own leaf; one that
// several use has a leaf in each, on the same memory, so that what they add to the
// gradient stays apart. A pipeline can do no other, since the blocks may lie on
// several ranks; so this is how it is done everywhere, and sums have the same bits.
//
// Gradients do not stay in grad(). After each backward of a block
// collect_gradients() takes them out of the leaves and adds them to sums of their
// own precision; complete_gradient() then adds the sums of a parameter's blocks, first
// block first. On a GPU lend_sums() puts the sums into grad() before, so that products add to
// them in the pass that computes them.
#pragma once

#include <ATen/core/Tensor.h>

#include <cstdint>
#include <functional>
#include <string>
#include <vector>

#include "laconic/architecture/grid_place.hpp"
#include "laconic/architecture/model_spec.hpp"
#include "laconic/base/bytes.hpp"
#include "laconic/base/dtype.hpp"
#include "laconic/model/precision.hpp"

namespace laconic {

struct Parameter {
  std::string name;
  at::Tensor value;        // the master
  std::size_t number = 0;  // in ModelSpec::parameters
  // Over all microbatches of a step and all held blocks, once it is complete; undefined: none.
  at::Tensor gradient = {};
  bool is_hidden_matrix = false;  // see architecture/model_spec.hpp
  bool is_out_in = false;         // likewise
  bool is_basis = false;          // likewise
  bool is_frozen = false;         // likewise
  // What blocks compute with: `value` itself, or its copy in another type; undefined: no block
  // does.
  at::Tensor copy = {};
  std::int64_t room = 0;  // rows of zeros behind the copy, in its memory
};

// A parameter as one block sees it.
struct Leaf {
  std::size_t place = 0;  // in Weights::parameters
  at::Tensor value;
  at::Tensor sum;  // gradients of microbatches so far; undefined: none
};

struct Weights {
  Family family;
  ModelSpec spec;
  std::vector<Parameter> parameters;  // those that held blocks use, in ascending order of numbers
  HeldBlocks held;
  std::vector<std::size_t> places;               // by number: in `parameters`, if it is there
  std::vector<std::vector<Leaf>> leaves;         // by block, as BlockSpec::uses lists them
  std::vector<std::vector<std::int64_t>> users;  // by place: held blocks that use it, ascending
  Precision precision;
  at::Device computes_on = at::kCPU;  // blocks
  // Tables that the family computes by and nobody trains, as constants_of() lists them.
  std::vector<at::Tensor> constants;
  // By ModelSpec::projections: directions that are drawn and not trained, [rank, width]; undefined:
  // not of a held block, or a parameter.
  std::vector<at::Tensor> bases = {};
  GridPlace place = {};

  // Requires: parameter number `p` is held.
  const at::Tensor& value(std::size_t p) const { return parameters[places[p]].value; }
  // The parameter that BlockSpec::uses lists at `i`. Requires: the block is held.
  const at::Tensor& leaf(std::int64_t block, std::size_t i) const {
    return leaves[static_cast<std::size_t>(block)][i].value;
  }
  // Parameter::room of one of the block's leaves.
  std::int64_t room(std::int64_t block, const at::Tensor& leaf) const;
  bool holds(std::int64_t block) const {
    return held.empty() || held[static_cast<std::size_t>(block)];
  }
  at::Device device() const { return computes_on; }
  // Options of what blocks compute with.
  at::TensorOptions compute_options() const {
    return at::TensorOptions().dtype(precision.compute).device(device());
  }
  // The same in the type of values.
  at::TensorOptions master_options() const { return compute_options().dtype(precision.master); }
};

// The part of a whole tensor that a rank at `place` holds, as a view: [cut sizes].
at::Tensor part_in(const at::Tensor& whole, const GridPlace& place, const ParameterSpec& parameter);
// The part of a whole tensor (a value, a gradient, a moment) that a rank at `place` holds.
at::Tensor shard_from(const at::Tensor& whole, const GridPlace& place,
                      const ParameterSpec& parameter);

// The same from the bytes of the whole tensor in a file: only the part is read. Requires: so many
// bytes as the parameter's sizes say.
at::Tensor shard_from_bytes(ByteView bytes, Dtype dtype, const GridPlace& place,
                            const ParameterSpec& parameter);

// `like` gives device and type of computing, from which the other types follow (precision_of());
// `tokens` is the length of samples; 0: the family's context. Every element is the same, wherever
// it lies.
Weights make_weights(const Family& family, std::uint64_t seed, const at::TensorOptions& like,
                     const HeldBlocks& held = {}, std::int64_t tokens = 0,
                     const GridPlace& place = {});
// The same without values: for reading a checkpoint into.
Weights make_empty_weights(const Family& family, const at::TensorOptions& like,
                           const HeldBlocks& held = {}, std::int64_t tokens = 0,
                           const GridPlace& place = {});

// The same for a spec that no family makes: `family` is then for whoever asks for its name.
// Requires: check(spec) is empty.
Weights make_empty_weights(const Family& family, ModelSpec spec, const at::TensorOptions& like,
                           const HeldBlocks& held = {}, const GridPlace& place = {});

// Sets a map of a learned code from the rows of the slices of its site, each [code,
// CodeStart::columns].
using CodeRows = std::function<const std::vector<double>&(std::int64_t slice)>;
void set_code(const Weights& weights, Parameter& parameter, const CodeRows& rows);
// Gives parameters of these names, those that are held, the values that they begin with.
void draw_codes(Weights& weights, std::uint64_t seed, const std::vector<std::string>& names);

// On a GPU matrices that blocks compute with have room behind them, rows of zeros, up to a multiple
// of this.
inline constexpr std::int64_t kRowMultiple = 64;

// Brings the compute copies of all parameters up to date with their values.
void refresh_copies(const std::vector<Parameter>& parameters);

// Whether replicas hold different parts of the parameter.
bool is_cut_by_replicas(const Weights& weights, const Parameter& parameter);
// Another rank holds the first block that uses the parameter, and speaks for it.
bool is_copy(const Weights& weights, const Parameter& parameter);
// Whether this rank speaks for what it holds of the parameter, in norms and in checkpoints: it is
// no copy, and the first in the tensor grid of those that hold the same part.
bool speaks_for(const Weights& weights, const Parameter& parameter);

// The first held block that uses the parameter. Backward goes from the last block to the first, so
// it completes the gradient, unless a schedule puts off other blocks' weights for longer.
std::int64_t completing_block(const Weights& weights, const Parameter& parameter);

// Puts the sums of a block's leaves into their grad(), where its next backward adds to them.
void lend_sums(Weights& weights, std::int64_t block);
// Adds what backward of a block has left in the grad() of its leaves to their sums.
void collect_gradients(Weights& weights, std::int64_t block);
// Adds the sums of its leaves to the gradient of the parameter at `place`. Requires: backward of
// all held blocks that use it is done.
void complete_gradient(Weights& weights, std::size_t place);
// Forgets all gradients, complete or not.
void clear_gradients(Weights& weights);

}  // namespace laconic
