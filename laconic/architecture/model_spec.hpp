// architecture/model_spec.hpp — a model as data: its parameters, and the blocks that use them.
//
// A block is the unit of pipelining, recomputation and gradient traffic. Blocks
// form a chain: each takes the seam that the one before puts out, the first takes
// the batch alone, and the last returns the loss. Who wants to know how a model is
// cut, what it weighs or what crosses a boundary asks here, without libtorch;
// laconic/model computes.
//
// A parameter that several blocks use is shared: each has a leaf of its own, and
// the gradient is the sum over all of them, wherever they are. That is all there
// is to a tied embedding.
#pragma once

#include <cstdint>
#include <optional>
#include <string>
#include <vector>

#include "laconic/architecture/family.hpp"
#include "laconic/layout/grid_plan.hpp"

namespace laconic {

// How a map of a learned code begins (architecture/grid_codes.hpp).
struct CodeStart {
  std::string site;          // maps of one message are drawn together
  bool is_drawn = false;     // as other parameters are; otherwise rows are orthonormal
  Axes features;             // that cut its columns; each slice has a code of its own
  std::int64_t slices = 1;   // its features are cut in so many, each with a code of its own
  std::int64_t before = 0;   // columns of the maps before it, in a slice
  std::int64_t columns = 0;  // of a slice, of all maps
};

// Stands in ParameterSpec::looked_up_by for words that are drawn for a step: no field of a batch.
inline constexpr const char* kDrawnField = "negatives";

struct ParameterSpec {
  std::string name;
  std::vector<std::int64_t> sizes;  // of the whole tensor, whoever holds a part of it
  // What it begins with: a normal distribution, every element a pure function of (seed, name,
  // index).
  double mean = 0;
  double deviation = 0;
  bool is_out_in = false;  // a linear map as [outputs, inputs], not [inputs, outputs]
  bool is_table = false;   // rows are looked up; of tables in the first or last block nobody asks
  // Fields of a batch whose ids look its rows up, where it has no other use: a step then changes no
  // other rows, and it may be cut over the replicas (rows/row_plan.hpp). Empty: it has. With
  // kDrawnField words are drawn, too, in training; evaluations multiply with the whole table.
  std::vector<std::string> looked_up_by = {};
  Role role = Role::stream_vector;  // how a grid cuts it (layout/grid_plan.hpp)
  std::int64_t parts = 1;           // its outputs are so many things, one behind the other
  // Of learned codes: they are no part of the model that others know, and have a file of their own.
  std::optional<CodeStart> code = {};
  // Of a projected boundary (architecture/projection.hpp), which others do not know either.
  bool is_of_boundary = false;
  bool is_basis = false;            // of these: its rows are orthonormal, and stay so
  bool begins_orthonormal = false;  // a map whose rows are orthonormal at first
  std::string begins_as = {};       // begins with what the parameter of that name begins with
  bool is_frozen = false;           // no gradient, no update, no sum
};
std::int64_t elements_of(const ParameterSpec& parameter);
// What the same parameter of all layers is called: "h.*.mlp.c_fc.weight".
std::string common_name(const ParameterSpec& parameter);

// A tensor that a block hands to the next, as [samples, per_sample...].
struct SeamTensor {
  std::string name;
  std::vector<std::int64_t> per_sample;  // the first is tokens
  // The field of a batch that has as many: padding may be cut off it (sized_for, model/model.hpp).
  std::string tokens_of = "ids";
  bool operator==(const SeamTensor&) const = default;
};
std::int64_t elements_of(const SeamTensor& tensor);  // of one sample

struct BlockSpec {
  std::string name;               // "layer 3": for people
  std::string kind;               // "layer": blocks of one kind cost the same
  std::vector<std::size_t> uses;  // parameters by number, ascending
  std::vector<SeamTensor> out;    // empty: this block returns the loss
  double multiply_adds = 0;       // forward of one sample; what is no matrix product counts nothing
  std::int64_t kept = 0;          // elements that forward of one sample keeps for backward
};

struct ModelSpec {
  std::vector<ParameterSpec> parameters;  // in the order in which blocks first use them
  std::vector<BlockSpec> blocks;
  std::vector<ProjectedSeam> projections = {};  // in the order of their blocks
};

// Tags have numbers for so many tensors of a seam, and for so many blocks (kMostLayers and two).
inline constexpr std::size_t kMostSeamTensors = 8;
// Everything that keeps it from being a model: a parameter that nobody uses or that is listed out
// of order, a block in the middle without a seam, a tensor without a size, more than tags can
// number.
Problems check(const ModelSpec& spec);

// For samples of so many tokens; of an encoder-decoder, sources. Its targets have `target_tokens`,
// or with 0 as many as the family's target_context, at most `tokens` where those are less than its
// context.
ModelSpec model_spec(const Family& family, std::int64_t tokens, std::int64_t target_tokens = 0);

std::int64_t block_count(const ModelSpec& spec);
std::int64_t parameter_count(const ModelSpec& spec);  // elements of all parameters

// The boundary behind the block, if it is projected; or null.
const ProjectedSeam* projection_behind(const ModelSpec& spec, std::int64_t block);

// Blocks that residual branches make, ascending: neither embeddings nor the head.
std::vector<std::size_t> layer_blocks(const ModelSpec& spec);

// The blocks that use a parameter, in ascending order.
std::vector<std::int64_t> users_of(const ModelSpec& spec, std::size_t parameter);
// The first of them. Where several ranks hold a parameter, the one with this block speaks for it,
// in norms and in checkpoints.
std::int64_t first_user(const ModelSpec& spec, std::size_t parameter);

// Whether the parameter is a matrix that only blocks between the first and the last use: not of an
// embedding or a head, which map from or to a vocabulary.
bool is_hidden_matrix(const ModelSpec& spec, std::size_t parameter);

// Parameters that lie on the same several ranks of a pipeline, all of which add to their gradients;
// frozen ones have none.
struct SharedParameters {
  std::vector<std::size_t> parameters;  // by number, ascending
  std::vector<int> holders;             // places in the pipeline, ascending; at least two
  std::int64_t first_user = 0;          // the first block that uses them
  bool operator==(const SharedParameters&) const = default;
};
// `rank_of_block` is the place in the pipeline that holds each block. Parameters of one set have
// the same holders and the same first user. Sets come in the order of their first parameter.
std::vector<SharedParameters> shared_parameters(const ModelSpec& spec,
                                                const std::vector<int>& rank_of_block);

}  // namespace laconic
