// model/block_ops.hpp — the operations of one block, wherever its parameters lie.
//
// A family's forward pass is written in these. Where parameters are whole they are the
// functions of model/ops.hpp and model/linear.hpp; on a tensor grid those of model/grid_ops.hpp, by
// the plan that the weights were cut by. A family never asks which.
//
// Parameters are named by their place in BlockSpec::uses. Activations are matrices
// [samples * tokens, features] of the samples and features that this rank has, which
// differ between the stream and the inner part of a layer (layout/grid_plan.hpp). On a grid a map
// that is given what the last one has not left throws, also where all sizes fit; so maps are called
// in the order in which a layer has them.
#pragma once

#include <ATen/core/Tensor.h>

#include <cstdint>
#include <optional>
#include <string>
#include <string_view>
#include <vector>

#include "laconic/model/grid_ops.hpp"
#include "laconic/model/model.hpp"
#include "laconic/model/ops.hpp"

namespace laconic {

// Which of a rank's samples an activation has.
enum class RowsAt : std::uint8_t { stream, inner, logits };

// A linear map: where its weight and its bias stand.
struct MapAt {
  std::size_t weight = 0;
  std::optional<std::size_t> bias = {};
};
// A norm likewise; without a bias it is the RMS norm.
struct NormAt {
  std::size_t weight = 0;
  std::optional<std::size_t> bias = {};
};

class BlockOps {
 public:
  // `tokens` is how many rows of activations a sample has, unless a call says otherwise. Requires:
  // the weights, the batch and the pass outlive it.
  BlockOps(const Weights& weights, std::int64_t block, std::int64_t samples, std::int64_t tokens,
           const Pass& pass);

  // --- what is here

  std::int64_t samples(RowsAt at) const;
  std::int64_t heads(std::int64_t all) const;
  // Columns of the stream.
  std::int64_t stream_width(std::int64_t all) const;
  // The rows of a field that these samples have.
  at::Tensor rows_of(const at::Tensor& field, RowsAt at) const;
  // A constant [.., width] like a part of the stream.
  at::Tensor stream_columns(const at::Tensor& constant) const;
  // All samples' rows of a matrix of which this rank has its own: for whoever asks for predictions.
  at::Tensor all_rows(const at::Tensor& x, RowsAt at, std::int64_t tokens);
  // Whether this rank speaks for its grid, where all of its ranks know the same.
  bool speaks() const;
  // A seam's tensor, [samples, tokens, features].
  at::Tensor as_seam(const at::Tensor& x) const;
  Dropout stream_dropout(std::uint64_t place, std::int64_t width) const;
  Dropout inner_dropout(std::uint64_t place, std::int64_t width) const;
  Dropout attention_dropout(std::uint64_t place, std::int64_t all_heads) const;

  // --- parameters

  // A vector, or a table that nobody looks rows up in, as it is used.
  at::Tensor vector(std::size_t at);
  // Whether rows of the table must be looked up, since it lies elsewhere.
  bool is_elsewhere(std::size_t at) const;
  // Rows of a table, as a part of the stream. ids: [samples, tokens], of all samples.
  at::Tensor table_rows(std::size_t at, const at::Tensor& ids);

  // --- operations

  at::Tensor linear(const at::Tensor& x, const MapAt& map, std::int64_t tokens = 0);
  // Several maps of one input.
  Tensors linears(const at::Tensor& x, const std::vector<MapAt>& maps, std::int64_t tokens = 0);
  // The same of what an encoder left, which joins the branch that is open.
  Tensors memory_linears(const at::Tensor& memory, const std::vector<MapAt>& maps,
                         std::int64_t tokens);
  at::Tensor gelu_linear(const at::Tensor& x, const MapAt& map);
  at::Tensor exact_gelu_linear(const at::Tensor& x, const MapAt& map);

  at::Tensor norm(const at::Tensor& x, const NormAt& norm, double epsilon);
  Forked fork_norm(const at::Tensor& x, const NormAt& norm, double epsilon);
  Forked add_norm(const at::Tensor& residual, const at::Tensor& x, const Dropout& dropout,
                  const NormAt& norm, double epsilon);

  // The mean loss of products with a table, whose bias may stand at `bias`; on a grid this rank's
  // share of it. targets: of all samples.
  at::Tensor cross_entropy(const at::Tensor& x, std::size_t table, std::optional<std::size_t> bias,
                           const at::Tensor& targets, double smoothing = 0);
  // Products with a table, of all samples' rows and with all of its entries, on every rank; without
  // gradients.
  at::Tensor logits(const at::Tensor& x, std::size_t table, std::optional<std::size_t> bias = {});
  // The most likely entry of the table for every row of all samples, [samples, tokens]. Requires:
  // on a grid.
  at::Tensor predicted_entries(const at::Tensor& x, std::size_t table, std::size_t bias);
  // A mean over `all` rows, of which the sum over those of this rank is known: on a grid its share.
  at::Tensor mean_of(const at::Tensor& sum, std::int64_t all, RowsAt at) const;

  const Pass& pass() const { return pass_; }

 private:
  const at::Tensor& leaf(std::size_t at) const { return weights_.leaf(block_, at); }
  const ParameterSpec& spec(std::size_t at) const;
  std::size_t number_of(std::size_t at) const;
  bool is_whole() const { return grid_ == nullptr; }
  const GridPlan& plan() const { return weights_.place.plan; }
  const Axes& rows_at(RowsAt at) const;
  GridSpot next_spot();
  // Elements along a dim of a parameter, by member of the innermost axes that cut it.
  std::vector<std::int64_t> parts_by_member(std::size_t at, std::size_t dim,
                                            const Axes& axes) const;
  GridMap grid_map(std::size_t at, const Axes& gathered) const;
  // Throws unless the map takes what the last one has left.
  void require_kind(std::size_t map) const;
  void leave_kind(std::size_t map);
  void gather_vectors();
  // The parameter of that name, by its place.
  std::optional<std::size_t> place_of(const std::string& name) const;
  GridCode code_named(const std::string& name, const Move& move);
  void show_codes(const std::vector<MapAt>& maps, const at::Tensor& x,
                  const Tensors& outputs) const;
  GridCodePair codes_of(const std::vector<MapAt>& maps, const LinearPlan& way);
  at::Tensor grid_logits(const at::Tensor& x, std::size_t table, std::optional<std::size_t> bias);
  std::int64_t first_entry(std::size_t table) const;
  Tensors grid_linears(const at::Tensor& x, const std::vector<MapAt>& maps, std::int64_t tokens);
  at::Tensor plain_linear(const at::Tensor& x, const MapAt& map) const;
  std::vector<Key> keys_at(RowsAt at) const;
  Dropout cut_dropout(std::uint64_t place, std::int64_t width, RowsAt at,
                      const Axes& features) const;

  const Weights& weights_;
  const std::int64_t block_;
  const std::int64_t samples_, tokens_;
  const Pass& pass_;
  TensorGrid* const grid_;
  ActivationLayout stream_, inner_;
  Axes logits_rows_;
  ActivationKind left_ = ActivationKind::stream;
  std::string left_by_ = "the block before";
  int spots_ = 0;                    // counted: the order of operations is the same on all ranks
  std::vector<at::Tensor> vectors_;  // by place, once gathered
};

}  // namespace laconic
