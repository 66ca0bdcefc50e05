#include "laconic/model/weights.hpp"

#include <ATen/Parallel.h>
#include <ATen/ops/empty.h>
#include <ATen/ops/zeros.h>
#include <c10/core/GradMode.h>
#include <fmt/format.h>

#include <algorithm>
#include <map>
#include <utility>

#include "laconic/architecture/grid_codes.hpp"
#include "laconic/base/error.hpp"
#include "laconic/base/philox.hpp"
#include "laconic/model/bert.hpp"
#include "laconic/model/gnmt.hpp"
#include "laconic/model/gpt.hpp"
#include "laconic/model/llama.hpp"
#include "laconic/model/lstm.hpp"
#include "laconic/model/seq2seq.hpp"
#include "laconic/tensor/host.hpp"
#include "laconic/tensor/learned_map.hpp"

namespace laconic {

namespace {

// A code's map from the rows of each slice of features, over the columns of all maps of a message.
void fill_code(const ParameterSpec& spec, const GridPlace& place, const CodeRows& rows_of,
               at::Tensor& value) {
  const CodeStart& start = *spec.code;
  const std::int64_t each = spec.sizes[1] / spec.parts, local = each / start.slices;
  const at::Tensor all = at::empty(value.sizes(), at::kDouble);
  auto* data = all.data_ptr<double>();
  for (const ShardRun& run :
       runs_of(shard_at(place, spec), cut_sizes(spec.sizes, spec.parts, false)))
    for (std::int64_t n = 0; n < run.elements; ++n) {
      const std::int64_t row = (run.whole + n) / spec.sizes[1],
                         at = (run.whole + n) % spec.sizes[1];
      const std::int64_t part = at / each, column = at % each;
      data[run.shard + n] = rows_of(column / local)[static_cast<std::size_t>(
          row * start.columns + start.before + part * local + column % local)];
    }
  value.copy_(all);
}

// Orthonormal ones.
void fill_code(const ParameterSpec& spec, std::uint64_t seed, const GridPlace& place,
               at::Tensor& value) {
  const Key key = derive(derive(key_of(seed), "code"), spec.code->site);
  std::map<std::int64_t, std::vector<double>> slices;
  fill_code(
      spec, place,
      [&](std::int64_t slice) -> const std::vector<double>& {
        std::vector<double>& rows = slices[slice];
        if (rows.empty())
          rows = orthonormal_rows(spec.sizes[0], spec.code->columns,
                                  derive(key, static_cast<std::uint64_t>(slice), 0));
        return rows;
      },
      value);
}

// Orthonormal rows, the same bits wherever they are drawn.
void fill_basis(Key key, at::Tensor& value) {
  const std::vector<double> rows = orthonormal_rows(value.size(0), value.size(1), key);
  value.copy_(tensor_from_bytes(as_bytes(std::span(rows)), Dtype::f64, value.sizes().vec()));
}

// Those that no parameter holds and that a held block needs.
void draw_bases(Weights& weights, const at::TensorOptions& like) {
  const at::NoGradGuard no_grad;
  for (const ProjectedSeam& seam : weights.spec.projections) {
    at::Tensor& basis = weights.bases.emplace_back();
    if (seam.basis || !(weights.holds(seam.block) || weights.holds(seam.block + 1))) continue;
    at::Tensor drawn = at::empty({seam.rank, seam.width}, at::kDouble);
    fill_basis(
        derive(derive(key_of(seam.seed), "basis"), static_cast<std::uint64_t>(seam.block), 0),
        drawn);
    basis = drawn.to(like.requires_grad(false));
  }
}

void fill(const ParameterSpec& spec, std::uint64_t seed, const GridPlace& place,
          at::Tensor& value) {
  if (spec.code && !spec.code->is_drawn) return fill_code(spec, seed, place, value);
  const std::string& name = spec.begins_as.empty() ? spec.name : spec.begins_as;
  const Key key = derive(derive(key_of(seed), "parameter"), name);
  if (spec.is_basis || spec.begins_orthonormal) return fill_basis(key, value);
  if (spec.deviation == 0) {
    value.fill_(spec.mean);
    return;
  }
  const auto draw = [&](auto* data) {
    for (const ShardRun& run : runs_at(place, spec))
      at::parallel_for(0, run.elements, 1 << 14, [&](std::int64_t begin, std::int64_t end) {
        fill_normal(key, static_cast<std::uint64_t>(run.whole + begin), spec.mean, spec.deviation,
                    std::span(data + run.shard + begin, static_cast<std::size_t>(end - begin)));
      });
  };
  if (value.scalar_type() == at::kDouble)
    draw(value.data_ptr<double>());
  else
    draw(value.data_ptr<float>());
}

// Rows of a GPU's products are read 16 bytes at a time, and a vocabulary can be any number: a
// matrix there has room for more rows behind it, filled with zeros, up to a multiple of
// kRowMultiple.
std::int64_t room_behind(at::IntArrayRef sizes, at::Device device) {
  if (!device.is_cuda() || sizes.size() != 2) return 0;
  return (kRowMultiple - sizes[0] % kRowMultiple) % kRowMultiple;
}

at::Tensor empty_with_room(at::IntArrayRef sizes, std::int64_t room,
                           const at::TensorOptions& like) {
  if (room == 0) return at::empty(sizes, like);
  return at::zeros({sizes[0] + room, sizes[1]}, like).narrow(0, 0, sizes[0]).detach();
}

// The first block that uses a parameter has its copy itself, the others a view of it.
void make_leaves(Weights& weights) {
  std::vector<bool> is_taken(weights.parameters.size(), false);
  weights.leaves.resize(weights.spec.blocks.size());
  weights.users.resize(weights.parameters.size());
  for (std::size_t b = 0; b < weights.leaves.size(); ++b) {
    if (!weights.holds(static_cast<std::int64_t>(b))) continue;
    for (const std::size_t number : weights.spec.blocks[b].uses) {
      const std::size_t place = weights.places[number];
      const at::Tensor& copy = weights.parameters[place].copy;
      weights.leaves[b].push_back(
          {place,
           is_taken[place] ? copy.detach().requires_grad_(!weights.parameters[place].is_frozen)
                           : copy,
           {}});
      is_taken[place] = true;
      weights.users[place].push_back(static_cast<std::int64_t>(b));
    }
  }
}

// The first gradient becomes the sum without a copy, if it has the sum's type. Later ones are added
// in place, as autograd would in grad().
void add_gradient(at::Tensor gradient, at::ScalarType type, at::Tensor& sum) {
  if (sum.defined())
    sum.add_(gradient);
  else
    sum = gradient.scalar_type() == type ? std::move(gradient) : gradient.to(type);
}

}  // namespace

at::Tensor part_in(const at::Tensor& whole, const GridPlace& place, const ParameterSpec& p) {
  if (is_dealt(place, p)) return whole.slice(0, place.coord.dp, p.sizes[0], place.tables.ranks);
  at::Tensor part = whole.view(cut_sizes(p.sizes, p.parts, p.is_out_in));
  const std::vector<Range> shard = shard_at(place, p);
  for (std::size_t d = 0; d < shard.size(); ++d)
    part = part.narrow(static_cast<std::int64_t>(d), shard[d].begin, shard[d].size());
  return part;
}

at::Tensor shard_from(const at::Tensor& whole, const GridPlace& place, const ParameterSpec& p) {
  if (is_replicated(layout_at(place, p))) return whole;
  return part_in(whole.contiguous(), place, p).reshape(sizes_at(place, p));
}

at::Tensor shard_from_bytes(ByteView bytes, Dtype dtype, const GridPlace& place,
                            const ParameterSpec& p) {
  const std::size_t item = bytes_of(dtype);
  const std::vector<ShardRun> runs = runs_at(place, p);
  std::int64_t elements = 0;
  for (const ShardRun& run : runs) elements += run.elements;
  Bytes part;
  part.reserve(static_cast<std::size_t>(elements) * item);
  for (const ShardRun& run : runs) {
    const ByteView piece = bytes.subspan(static_cast<std::size_t>(run.whole) * item,
                                         static_cast<std::size_t>(run.elements) * item);
    part.insert(part.end(), piece.begin(), piece.end());
  }
  return tensor_from_bytes(part, dtype, sizes_at(place, p));
}

Weights make_empty_weights(const Family& family, const at::TensorOptions& like,
                           const HeldBlocks& held, std::int64_t tokens, const GridPlace& place) {
  const std::int64_t length = tokens > 0 ? tokens : context_of(family);
  ModelSpec spec = model_spec(family, length);
  add_grid_codes(spec, place.plan);
  Weights weights = make_empty_weights(family, std::move(spec), like, held, place);
  weights.constants = std::visit(
      [&](const auto& shape) { return constants_of(shape, length, like.requires_grad(false)); },
      family);
  return weights;
}

Weights make_empty_weights(const Family& family, ModelSpec spec, const at::TensorOptions& like,
                           const HeldBlocks& held, const GridPlace& place) {
  Weights weights{.family = family,
                  .spec = std::move(spec),
                  .parameters = {},
                  .held = held,
                  .places = {},
                  .leaves = {},
                  .users = {},
                  .precision = precision_of(c10::typeMetaToScalarType(like.dtype())),
                  .computes_on = like.device(),
                  .constants = {},
                  .bases = {},
                  .place = place};
  // What crosses between stages are this rank's features of the stream.
  const int features = extent(place.plan.mesh, stream_of(place.plan).features);
  for (BlockSpec& block : weights.spec.blocks)
    for (SeamTensor& tensor : block.out) tensor.per_sample.back() /= features;
  std::vector<bool> is_used(weights.spec.parameters.size(), false);
  for (std::size_t b = 0; b < weights.spec.blocks.size(); ++b)
    if (weights.holds(static_cast<std::int64_t>(b)))
      for (const std::size_t p : weights.spec.blocks[b].uses) is_used[p] = true;
  const std::vector<ParameterSpec>& specs = weights.spec.parameters;
  for (std::size_t p = 0; p < specs.size(); ++p) {
    weights.places.push_back(weights.parameters.size());
    if (!is_used[p]) continue;
    const std::vector<std::int64_t> sizes = sizes_at(place, specs[p]);
    const bool is_apart = place.tables.moves_rows(specs[p].name) && !like.device().is_cpu();
    const at::TensorOptions own =
        is_apart ? like.device(at::kCPU).dtype(weights.precision.master) : like;
    const std::int64_t room = is_trivial(place.plan) ? room_behind(sizes, own.device()) : 0;
    const at::Tensor copy = empty_with_room(sizes, room, own).requires_grad_(!specs[p].is_frozen);
    if (!is_apart) weights.computes_on = copy.device();
    const bool is_master = is_apart || weights.precision.master == weights.precision.compute;
    weights.parameters.push_back(
        {.name = specs[p].name,
         .value = is_master ? copy : at::empty(sizes, like.dtype(weights.precision.master)),
         .number = p,
         .is_hidden_matrix = is_hidden_matrix(weights.spec, p),
         .is_out_in = specs[p].is_out_in,
         .is_basis = specs[p].is_basis,
         .is_frozen = specs[p].is_frozen,
         .copy = copy,
         .room = room});
  }
  make_leaves(weights);
  draw_bases(weights, like);
  return weights;
}

namespace {

void draw(const Weights& weights, Parameter& parameter, std::uint64_t seed) {
  const at::NoGradGuard no_grad;
  at::Tensor host = at::empty(parameter.value.sizes(), weights.precision.master);
  fill(weights.spec.parameters[parameter.number], seed, weights.place, host);
  parameter.value.copy_(host);
}

}  // namespace

Weights make_weights(const Family& family, std::uint64_t seed, const at::TensorOptions& like,
                     const HeldBlocks& held, std::int64_t tokens, const GridPlace& place) {
  Weights weights = make_empty_weights(family, like, held, tokens, place);
  for (Parameter& parameter : weights.parameters) draw(weights, parameter, seed);
  refresh_copies(weights.parameters);
  return weights;
}

void set_code(const Weights& weights, Parameter& parameter, const CodeRows& rows) {
  const at::NoGradGuard no_grad;
  at::Tensor host = at::empty(parameter.value.sizes(), weights.precision.master);
  fill_code(weights.spec.parameters[parameter.number], weights.place, rows, host);
  parameter.value.copy_(host);
}

void draw_codes(Weights& weights, std::uint64_t seed, const std::vector<std::string>& names) {
  for (Parameter& parameter : weights.parameters)
    if (std::ranges::find(names, parameter.name) != names.end()) draw(weights, parameter, seed);
  refresh_copies(weights.parameters);
}

void refresh_copies(const std::vector<Parameter>& parameters) {
  const at::NoGradGuard no_grad;
  for (const Parameter& p : parameters)
    if (p.copy.defined() && !p.copy.is_same(p.value)) p.copy.detach().copy_(p.value);
}

bool is_cut_by_replicas(const Weights& weights, const Parameter& parameter) {
  return weights.place.tables.of(parameter.name) != ReplicaCut::whole;
}

bool is_copy(const Weights& weights, const Parameter& parameter) {
  return !weights.holds(first_user(weights.spec, parameter.number));
}

bool speaks_for(const Weights& weights, const Parameter& parameter) {
  const GridPlace& place = weights.place;
  return !is_copy(weights, parameter) &&
         speaks_for(layout_at(place, weights.spec.parameters[parameter.number]), place.plan.mesh,
                    place.coord);
}

std::int64_t completing_block(const Weights& weights, const Parameter& parameter) {
  return weights.users[weights.places[parameter.number]].front();
}

std::int64_t Weights::room(std::int64_t block, const at::Tensor& leaf) const {
  for (const Leaf& own : leaves[static_cast<std::size_t>(block)])
    if (own.value.is_same(leaf)) return parameters[own.place].room;
  return 0;
}

void lend_sums(Weights& weights, std::int64_t block) {
  for (Leaf& leaf : weights.leaves[static_cast<std::size_t>(block)])
    if (leaf.sum.defined()) {
      at::Tensor& gradient = leaf.value.mutable_grad();
      LACONIC_ASSERT(!gradient.defined(), weights.parameters[leaf.place].name + " has a gradient");
      gradient = std::exchange(leaf.sum, at::Tensor());
    }
}

void collect_gradients(Weights& weights, std::int64_t block) {
  const at::NoGradGuard no_grad;
  for (Leaf& leaf : weights.leaves[static_cast<std::size_t>(block)]) {
    at::Tensor& gradient = leaf.value.mutable_grad();
    if (gradient.defined())
      add_gradient(std::exchange(gradient, at::Tensor()), weights.precision.sum, leaf.sum);
  }
}

void complete_gradient(Weights& weights, std::size_t place) {
  const at::NoGradGuard no_grad;
  at::Tensor& gradient = weights.parameters[place].gradient;
  for (const std::int64_t user : weights.users[place])
    for (Leaf& leaf : weights.leaves[static_cast<std::size_t>(user)])
      if (leaf.place == place && leaf.sum.defined())
        add_gradient(std::exchange(leaf.sum, at::Tensor()), weights.precision.sum, gradient);
}

void clear_gradients(Weights& weights) {
  for (Parameter& parameter : weights.parameters) parameter.gradient.reset();
  for (std::vector<Leaf>& leaves : weights.leaves)
    for (Leaf& leaf : leaves) {
      leaf.sum.reset();
      leaf.value.mutable_grad().reset();
    }
}

}  // namespace laconic
