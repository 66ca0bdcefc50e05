#include "laconic/model/block_ops.hpp"

#include <ATen/ops/cat.h>
#include <c10/core/GradMode.h>
#include <fmt/format.h>

#include <algorithm>
#include <map>

#include "laconic/architecture/grid_codes.hpp"
#include "laconic/base/error.hpp"
#include "laconic/model/linear.hpp"

namespace laconic {

namespace {

using at::Tensor;

}  // namespace

BlockOps::BlockOps(const Weights& weights, std::int64_t block, std::int64_t samples,
                   std::int64_t tokens, const Pass& pass)
    : weights_(weights),
      block_(block),
      samples_(samples),
      tokens_(tokens),
      pass_(pass),
      grid_(is_trivial(weights.place.plan) ? nullptr : pass.grid) {
  if (is_trivial(plan())) return;
  LACONIC_ASSERT(grid_ != nullptr, "weights of a tensor grid, and nobody knows its other ranks");
  stream_ = stream_of(plan());
  inner_ = inner_of(plan());
  logits_rows_ = table_plan(plan()).head.to.rows;
}

// --- what is here

const Axes& BlockOps::rows_at(RowsAt at) const {
  switch (at) {
    case RowsAt::stream: return stream_.rows;
    case RowsAt::inner: return inner_.rows;
    case RowsAt::logits: break;
  }
  return logits_rows_;
}

std::int64_t BlockOps::samples(RowsAt at) const {
  return is_whole() ? samples_ : samples_at(*grid_, rows_at(at), samples_).size();
}

std::int64_t BlockOps::heads(std::int64_t all) const {
  return is_whole() ? all : all / grid_->extent(inner_.features);
}

std::int64_t BlockOps::stream_width(std::int64_t all) const {
  return is_whole() ? all : all / grid_->extent(stream_.features);
}

Tensor BlockOps::rows_of(const Tensor& field, RowsAt at) const {
  if (is_whole()) return field;
  const Range mine = samples_at(*grid_, rows_at(at), samples_);
  return field.narrow(0, mine.begin, mine.size());
}

Tensor BlockOps::stream_columns(const Tensor& constant) const {
  if (is_whole()) return constant;
  const std::int64_t width = stream_width(constant.size(-1));
  return constant.narrow(-1, width * grid_->index(stream_.features), width);
}

Tensor BlockOps::all_rows(const Tensor& x, RowsAt at, std::int64_t tokens) {
  if (is_whole()) return x;
  const Axes& rows = rows_at(at);
  return perform(next_spot(), {MoveKind::gather_rows, rows}, x.detach(), {samples_, tokens}, rows,
                 Traffic::tp_activation);
}

bool BlockOps::speaks() const {
  return is_whole() || grid_->index({kTensorAxes.begin(), kTensorAxes.end()}) == 0;
}

Tensor BlockOps::as_seam(const Tensor& x) const {
  return x.view({samples(RowsAt::stream), samples(RowsAt::stream) == 0 ? tokens_ : -1, x.size(1)});
}

std::vector<Key> BlockOps::keys_at(RowsAt at) const {
  const Range mine = samples_at(*grid_, rows_at(at), samples_);
  return {pass_.sample_keys.begin() + mine.begin, pass_.sample_keys.begin() + mine.end};
}

Dropout BlockOps::cut_dropout(std::uint64_t place, std::int64_t width, RowsAt at,
                              const Axes& features) const {
  if (is_whole() || pass_.dropout == 0 || pass_.sample_keys.empty())
    return dropout_at(pass_, block_, place);
  Pass pass{
      .dropout = pass_.dropout, .sample_keys = keys_at(at), .dropout_tokens = pass_.dropout_tokens};
  Dropout dropout = dropout_at(pass, block_, place);
  dropout.columns = width;
  dropout.first_column = width / grid_->extent(features) * grid_->index(features);
  return dropout;
}

Dropout BlockOps::stream_dropout(std::uint64_t place, std::int64_t width) const {
  return cut_dropout(place, width, RowsAt::stream, stream_.features);
}

Dropout BlockOps::inner_dropout(std::uint64_t place, std::int64_t width) const {
  return cut_dropout(place, width, RowsAt::inner, inner_.features);
}

Dropout BlockOps::attention_dropout(std::uint64_t place, std::int64_t all_heads) const {
  if (is_whole() || pass_.dropout == 0 || pass_.sample_keys.empty())
    return dropout_at(pass_, block_, place);
  Pass pass{.dropout = pass_.dropout,
            .sample_keys = keys_at(RowsAt::inner),
            .dropout_tokens = pass_.dropout_tokens};
  Dropout dropout = dropout_at(pass, block_, place);
  dropout.first_head = heads(all_heads) * grid_->index(inner_.features);
  return dropout;
}

// --- parameters

const ParameterSpec& BlockOps::spec(std::size_t at) const {
  return weights_.spec.parameters[number_of(at)];
}

std::size_t BlockOps::number_of(std::size_t at) const {
  return weights_.spec.blocks[static_cast<std::size_t>(block_)].uses[at];
}

GridSpot BlockOps::next_spot() {
  return {*grid_, block_, spots_++};
}

std::vector<std::int64_t> BlockOps::parts_by_member(std::size_t at, std::size_t dim,
                                                    const Axes& axes) const {
  const ParameterSpec& parameter = spec(at);
  const Axes cut = layout_at(weights_.place, parameter).by_dim[dim];
  Axes outer = cut;
  outer.resize(cut.size() - axes.size());
  const std::int64_t size = cut_sizes(parameter.sizes, parameter.parts, parameter.is_out_in)[dim];
  const int members = grid_->extent(axes), first = grid_->index(outer) * members;
  std::vector<std::int64_t> counts;
  for (int m = 0; m < members; ++m)
    counts.push_back(block_of(size, grid_->extent(cut), first + m).size());
  return counts;
}

// All vectors of the block come together: one exchange for those that go the same way.
void BlockOps::gather_vectors() {
  const std::size_t count = weights_.spec.blocks[static_cast<std::size_t>(block_)].uses.size();
  vectors_.resize(count);
  std::map<std::pair<Axes, Axes>, std::vector<std::size_t>> groups;
  for (std::size_t at = 0; at < count; ++at) {
    if (!is_vector(spec(at).role)) continue;
    const VectorPlan way = vector_plan(plan(), spec(at).role);
    groups[{way.gather, way.copy}].push_back(at);
  }
  for (const auto& [axes, places] : groups) {
    const VectorPlan way{.cut = {}, .gather = axes.first, .copy = axes.second};
    std::vector<GridVector> vectors;
    for (const std::size_t at : places) {
      const std::size_t last = layout_at(weights_.place, spec(at)).by_dim.size() - 1;
      vectors.push_back({leaf(at), spec(at).parts, parts_by_member(at, last, axes.first)});
    }
    const Tensors gathered = gathered_vectors(next_spot(), way, vectors);
    for (std::size_t n = 0; n < places.size(); ++n) vectors_[places[n]] = gathered[n];
  }
}

Tensor BlockOps::vector(std::size_t at) {
  if (is_whole()) return leaf(at);
  if (vectors_.empty()) gather_vectors();
  return vectors_[at];
}

bool BlockOps::is_elsewhere(std::size_t at) const {
  return pass_.rows != nullptr && pass_.rows->tables.contains(number_of(at));
}

Tensor BlockOps::table_rows(std::size_t at, const Tensor& ids) {
  if (is_elsewhere(at)) return pass_.rows->rows(number_of(at), block_, ids);
  if (is_whole()) return laconic::table_rows(leaf(at), ids.flatten());
  const TablePlan table = table_plan(plan());
  const Range mine = samples_at(*grid_, table.ids, samples_);
  const std::int64_t vocabulary = spec(at).sizes[0];
  const int parts = grid_->extent(table.layout.by_dim[0]);
  const int first = grid_->index(table.vocabulary) * grid_->extent(table.lookup_weight);
  return grid_table_rows(next_spot(), table,
                         {.value = leaf(at),
                          .first = block_of(vocabulary, parts, first).begin,
                          .rows = parts_by_member(at, 0, table.lookup_weight)},
                         ids.narrow(0, mine.begin, mine.size()), {samples_, ids.size(1)},
                         stream_.rows);
}

// --- maps

Tensor BlockOps::plain_linear(const Tensor& x, const MapAt& map) const {
  const Tensor bias = map.bias ? leaf(*map.bias) : Tensor();
  return spec(map.weight).is_out_in ? transposed_linear(x, leaf(map.weight), bias, pass_.deferred)
                                    : laconic::linear(x, leaf(map.weight), bias, pass_.deferred);
}

GridMap BlockOps::grid_map(std::size_t at, const Axes& gathered) const {
  const bool is_narrow_map = is_narrow(spec(at).role);
  return {.weight = leaf(at),
          .is_out_in = spec(at).is_out_in || spec(at).role == Role::table,
          .is_narrow = is_narrow_map,
          .rows = parts_by_member(at, is_narrow_map ? 1 : 0, gathered)};
}

void BlockOps::require_kind(std::size_t map) const {
  const ActivationKind wanted = kind_taken(spec(map).role);
  LACONIC_ASSERT(wanted == left_, fmt::format("{} takes {}, and {} has left {}", spec(map).name,
                                              name_of(wanted), left_by_, name_of(left_)));
}

void BlockOps::leave_kind(std::size_t map) {
  left_ = kind_left(spec(map).role);
  left_by_ = spec(map).name;
}

// --- learned codes

std::optional<std::size_t> BlockOps::place_of(const std::string& name) const {
  const std::size_t count = weights_.spec.blocks[static_cast<std::size_t>(block_)].uses.size();
  for (std::size_t at = 0; at < count; ++at)
    if (spec(at).code && spec(at).name == name) return at;
  return std::nullopt;
}

// Tied maps that decode the features of all have all of them, and encode those that are here.
GridCode BlockOps::code_named(const std::string& name, const Move& move) {
  const std::optional<std::size_t> encoder = place_of(name + ".encoder");
  if (!encoder || !grid_->uses_codes()) return {};
  const std::optional<std::size_t> decoder = place_of(name + ".decoder");
  GridCode code{vector(*encoder), vector(decoder.value_or(*encoder))};
  if (!decoder && move.kind == MoveKind::gather_features) {
    const std::int64_t here = code.encoder.size(1) / grid_->extent(move.axes);
    code.encoder = code.encoder.narrow(1, here * grid_->index(move.axes), here);
  }
  return code;
}

GridCodePair BlockOps::codes_of(const std::vector<MapAt>& maps, const LinearPlan& way) {
  if (plan().codes.size == 0) return {};
  GridCodePair codes;
  codes.in = code_named(in_code_name(spec(maps.front().weight).name), way.in);
  Tensors encoders, decoders;
  for (const MapAt& map : maps) {
    const GridCode one = code_named(out_code_name(spec(map.weight).name), way.out);
    if (!one.is_used()) return codes;
    encoders.push_back(one.encoder);
    decoders.push_back(one.decoder);
  }
  codes.out = {at::cat(encoders, 1), at::cat(decoders, 1)};
  return codes;
}

void BlockOps::show_codes(const std::vector<MapAt>& maps, const Tensor& x,
                          const Tensors& outputs) const {
  if (!grid_->code_observer()) return;
  const std::string& weight = spec(maps.front().weight).name;
  if (place_of(in_code_name(weight) + ".encoder"))
    grid_->code_observer()(in_code_name(weight), x.detach());
  if (place_of(out_code_name(weight) + ".encoder"))
    grid_->code_observer()(out_code_name(weight), at::cat(outputs, 1).detach());
}

Tensors BlockOps::grid_linears(const Tensor& x, const std::vector<MapAt>& maps,
                               std::int64_t tokens) {
  const LinearPlan way = linear_plan(plan(), spec(maps.front().weight).role);
  leave_kind(maps.front().weight);
  std::vector<GridMap> parts;
  for (const MapAt& map : maps) parts.push_back(grid_map(map.weight, way.weight));
  Tensors biases;
  for (const MapAt& map : maps) biases.push_back(map.bias ? vector(*map.bias) : Tensor());
  const GridCodePair codes = codes_of(maps, way);
  Tensors outputs = grid_products(next_spot(), way, x, parts,
                                  {samples_, tokens > 0 ? tokens : tokens_}, pass_.deferred, codes);
  show_codes(maps, x, outputs);
  for (std::size_t m = 0; m < maps.size(); ++m)
    if (biases[m].defined()) outputs[m] = outputs[m].add(biases[m]);
  return outputs;
}

Tensors BlockOps::linears(const Tensor& x, const std::vector<MapAt>& maps, std::int64_t tokens) {
  if (!is_whole()) {
    require_kind(maps.front().weight);
    return grid_linears(x, maps, tokens);
  }
  Tensors outputs;
  for (const MapAt& map : maps) outputs.push_back(plain_linear(x, map));
  return outputs;
}

Tensors BlockOps::memory_linears(const Tensor& memory, const std::vector<MapAt>& maps,
                                 std::int64_t tokens) {
  return is_whole() ? linears(memory, maps, tokens) : grid_linears(memory, maps, tokens);
}

Tensor BlockOps::linear(const Tensor& x, const MapAt& map, std::int64_t tokens) {
  return linears(x, {map}, tokens)[0];
}

Tensor BlockOps::gelu_linear(const Tensor& x, const MapAt& map) {
  if (!is_whole()) return gelu(linear(x, map));
  return laconic::gelu_linear(x, leaf(map.weight), leaf(*map.bias), pass_.deferred);
}

Tensor BlockOps::exact_gelu_linear(const Tensor& x, const MapAt& map) {
  if (!is_whole()) return exact_gelu(linear(x, map));
  return laconic::exact_gelu_linear(x, leaf(map.weight), leaf(*map.bias), pass_.deferred);
}

// --- norms

Tensor BlockOps::norm(const Tensor& x, const NormAt& at, double epsilon) {
  const Tensor weight = vector(at.weight), bias = at.bias ? vector(*at.bias) : Tensor();
  // Single heads, too, have all their columns here.
  const bool is_cut = !is_whole() && spec(at.weight).role == Role::stream_vector &&
                      grid_->extent(stream_.features) > 1;
  if (is_cut)
    return grid_norm(next_spot(), x, weight, bias, epsilon, stream_.features,
                     spec(at.weight).sizes.back());
  return at.bias ? layer_norm(x, weight, bias, epsilon) : rms_norm(x, weight, epsilon);
}

Forked BlockOps::fork_norm(const Tensor& x, const NormAt& at, double epsilon) {
  if (!is_whole()) return {x, norm(x, at, epsilon)};
  return at.bias ? fork_layer_norm(x, leaf(at.weight), leaf(*at.bias), epsilon)
                 : fork_rms_norm(x, leaf(at.weight), epsilon);
}

Forked BlockOps::add_norm(const Tensor& residual, const Tensor& x, const Dropout& dropout,
                          const NormAt& at, double epsilon) {
  if (!is_whole()) return fork_norm(dropout_add(residual, x, dropout), at, epsilon);
  return at.bias ? add_layer_norm(residual, x, dropout, leaf(at.weight), leaf(*at.bias), epsilon)
                 : add_rms_norm(residual, x, dropout, leaf(at.weight), epsilon);
}

// --- losses

Tensor BlockOps::grid_logits(const Tensor& x, std::size_t table, std::optional<std::size_t> bias) {
  require_kind(table);
  const TablePlan way = table_plan(plan());
  const Tensor added = bias ? vector(*bias) : Tensor();
  const Tensor logits = grid_products(next_spot(), way.head, x, {grid_map(table, way.head.weight)},
                                      {samples_, tokens_}, pass_.deferred)[0];
  return added.defined() ? logits.add(added) : logits;
}

std::int64_t BlockOps::first_entry(std::size_t table) const {
  const TablePlan way = table_plan(plan());
  const int parts = grid_->extent(way.layout.by_dim[0]);
  const int first = grid_->index(way.vocabulary) * grid_->extent(way.head.weight);
  return block_of(spec(table).sizes[0], parts, first).begin;
}

// Columns are gathered as rows: the last part of a vocabulary may be shorter.
Tensor BlockOps::logits(const Tensor& x, std::size_t table, std::optional<std::size_t> bias) {
  const at::NoGradGuard no_grad;
  if (is_whole() && !bias && x.size(0) == 1)  // a decoder's: a product with a vector is faster
    return leaf(table).mv(x.view({-1})).unsqueeze(0);
  if (is_whole())
    return bias ? transposed_linear(x, leaf(table), leaf(*bias)) : x.mm(leaf(table).t());
  const TablePlan way = table_plan(plan());
  const Tensor here = grid_logits(x, table, bias).t().contiguous();
  const int members = grid_->extent(way.vocabulary), each = grid_->extent(way.head.weight);
  std::vector<std::int64_t> entries(static_cast<std::size_t>(members), 0);
  for (int part = 0; part < members * each; ++part)
    entries[static_cast<std::size_t>(part / each)] +=
        block_of(spec(table).sizes[0], members * each, part).size();
  const Tensor all =
      grid_->gather(here, entries, way.vocabulary, small_site(next_spot(), Traffic::tp_activation));
  return all_rows(all.t().contiguous(), RowsAt::logits, tokens_);
}

Tensor BlockOps::predicted_entries(const Tensor& x, std::size_t table, std::size_t bias) {
  const at::NoGradGuard no_grad;
  const Tensor best = grid_argmax(next_spot(), grid_logits(x, table, bias),
                                  table_plan(plan()).vocabulary, first_entry(table));
  return all_rows(best.unsqueeze(1), RowsAt::logits, tokens_).view({samples_, tokens_});
}

Tensor BlockOps::cross_entropy(const Tensor& x, std::size_t table, std::optional<std::size_t> bias,
                               const Tensor& targets, double smoothing) {
  if (is_whole())
    return laconic::cross_entropy(x, leaf(table), bias ? leaf(*bias) : Tensor(), targets.flatten(),
                                  pass_.deferred, smoothing, weights_.room(block_, leaf(table)));
  const Tensor logits = grid_logits(x, table, bias);
  return grid_cross_entropy(next_spot(), logits, rows_of(targets, RowsAt::logits).flatten(),
                            {.vocabulary = table_plan(plan()).vocabulary,
                             .first = first_entry(table),
                             .size = spec(table).sizes[0],
                             .all_rows = targets.numel(),
                             .smoothing = smoothing});
}

Tensor BlockOps::mean_of(const Tensor& sum, std::int64_t all, RowsAt at) const {
  const Tensor mean = sum.div(static_cast<double>(all));
  return is_whole() ? mean : spoken_loss(*grid_, mean, rows_at(at));
}

}  // namespace laconic
