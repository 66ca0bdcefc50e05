// model/model.hpp — a model's forward pass, block by block.
//
// A block is a function on tensors: it takes the seam that the block before put
// out and returns its own. Autograd never reaches across: a block's input is a
// detached leaf (runtime/stage.hpp). What a family computes is in a file of its own
// (gpt.hpp); everybody else calls forward_block().
#pragma once

#include <ATen/core/Tensor.h>

#include <cstdint>
#include <functional>
#include <optional>
#include <set>
#include <span>
#include <string>
#include <string_view>
#include <utility>
#include <vector>

#include "laconic/base/philox.hpp"
#include "laconic/model/ops.hpp"
#include "laconic/model/weights.hpp"

namespace laconic {

class BlockOps;         // model/block_ops.hpp
class DeferredWeights;  // model/deferred.hpp
struct StreamRows;      // model/boundary.hpp
class TensorGrid;       // grid/grid.hpp

// What one block hands to the next: few tensors, as BlockSpec::out lists them. Dim 0 is the sample.
// Before the first block it is empty, and after the last it holds the mean loss, a scalar.
using Seam = std::vector<at::Tensor>;

// Samples that go through the model at once, as named fields: "ids", "targets". Which there are is
// the task's business (data/task.hpp). Dim 0 is the sample.
class Batch {
 public:
  Batch() = default;
  Batch(std::initializer_list<std::pair<std::string, at::Tensor>> fields) : fields_(fields) {}

  void add(std::string name, at::Tensor field) {
    fields_.emplace_back(std::move(name), std::move(field));
  }
  bool has(std::string_view name) const;
  // Requires: it is there.
  const at::Tensor& operator[](std::string_view name) const;
  std::int64_t samples() const { return fields_.front().second.size(0); }
  const std::vector<std::pair<std::string, at::Tensor>>& fields() const { return fields_; }

 private:
  std::vector<std::pair<std::string, at::Tensor>> fields_;
};

// A seam as it crosses for these samples, which may be shorter than those of the model's spec.
// Requires: the batch has the fields that the tensors go by.
std::vector<SeamTensor> sized_for(const Batch& batch, std::vector<SeamTensor> seam);

// Tables that lie elsewhere, by number, and who gives rows of them: one for each id, which a rank
// has announced before. In evaluations tables that blocks multiply with (kDrawnField) come in tiles
// instead, ids 0, 1, 2 ... up to the last row: each time the next tile_rows() of them, or what is
// left.
struct RowLookup {
  std::set<std::size_t> tables;
  // `block` is the one that looks up: what several add to the gradient of a row stays apart.
  std::function<at::Tensor(std::size_t parameter, std::int64_t block, const at::Tensor& ids)> rows;
};
// 16 MiB of float32.
inline constexpr std::int64_t kTileElements = std::int64_t{1} << 22;
constexpr std::int64_t tile_rows(std::int64_t width) {
  return width < kTileElements ? kTileElements / width : 1;
}

// How a forward pass is meant.
struct Pass {
  double dropout = 0;
  std::vector<Key> sample_keys = {};  // for dropout: one per sample, see dropout_keys(); or none
  at::Tensor device_keys = {};        // the same on a GPU, see keys_on(); or undefined
  // Takes what backward leaves for later; null: nothing. Must live until then.
  DeferredWeights* deferred = nullptr;
  double label_smoothing = 0;
  // What the negatives of a sampled softmax are drawn by (negatives_key(), base/word_law.hpp);
  // none: the loss is about the whole vocabulary.
  std::optional<Key> negatives = {};
  double second_term = 1;  // what the second term of a loss counts, where it has two
  // Takes what the last block predicts, as its family says; null: nobody asks.
  at::Tensor* predictions = nullptr;
  at::Tensor* second_predictions = nullptr;  // what the second term is about; null: nobody asks
  std::int64_t dropout_tokens = 0;           // see Dropout::tokens
  // The other ranks that hold parts of the weights; null: they are whole here.
  TensorGrid* grid = nullptr;
  // Looks rows up in tables that lie elsewhere; null: all are whole here.
  const RowLookup* rows = nullptr;
};

// Keys of the samples with these ids at this step; without a step, those that a sample has at every
// step (model.dropout_by_sample).
std::vector<Key> dropout_keys(std::uint64_t seed, std::optional<std::int64_t> step,
                              const std::vector<std::int64_t>& sample_ids);

// Keys in the memory of a GPU, [keys, 2] int32, without waiting for it.
at::Tensor keys_on(at::Device device, const std::vector<Key>& keys);

// Dropout at one of a block's places, which a family numbers; none without keys.
Dropout dropout_at(const Pass& pass, std::int64_t block, std::uint64_t place);

// One block. Requires: it is held.
Seam forward_block(const Weights& weights, std::int64_t block, const Seam& in, const Batch& batch,
                   const Pass& pass);

// The same, but for the projection of what it puts out: x [samples, tokens, width] where
// BlockSpec::out has coordinates.
Seam forward_to_boundary(const Weights& weights, std::int64_t block, const Seam& in,
                         const Batch& batch, const Pass& pass);
// Of the last positions, as many as there are rows. rows: [samples, tokens, ...]
StreamRows stream_rows(const at::Tensor& rows, const Batch& batch);

// Runs autograd from several tensors at once; gradients go to the leaves' grad(). An output that
// nothing depends on by a leaf is passed over. Requires: equally many.
void backward(const Seam& outputs, const Seam& gradients);

// Mean loss without gradients. Of causal models "targets" may be those of the last positions of
// each sample alone: then only these count. Requires: all blocks are held.
double forward_loss(const Weights& weights, const Batch& batch, const Pass& pass = {});

// Logits [rows, vocabulary] of all positions, without gradients, from the fields that the blocks
// before the last ask for; on a tensor grid all of them on every rank. Throws ConfigError when the
// model has none. Requires: as above.
at::Tensor forward_logits(const Weights& weights, const Batch& batch, const Pass& pass = {});
inline at::Tensor forward_logits(const Weights& weights, const at::Tensor& ids) {
  return forward_logits(weights, Batch{{"ids", ids}});
}

}  // namespace laconic
