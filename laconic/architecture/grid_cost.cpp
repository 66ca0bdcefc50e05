#include "laconic/architecture/grid_cost.hpp"

#include <algorithm>
#include <cmath>
#include <map>
#include <string_view>

#include "laconic/architecture/joined_maps.hpp"

namespace laconic {

namespace {

// Rows of activations in a block, on all ranks together.
struct BlockRows {
  double stream = 0;
  double memory = 0;  // what an encoder left
  double normed = 0;
};

BlockRows block_rows(const ModelSpec& spec, std::size_t number, std::int64_t samples) {
  const BlockSpec& block = spec.blocks[number];
  const std::vector<SeamTensor>& before = number > 0 ? spec.blocks[number - 1].out : block.out;
  const std::vector<SeamTensor>& seam = block.out.empty() ? before : block.out;
  const auto rows = [&](const SeamTensor& tensor) {
    return static_cast<double>(samples * tensor.per_sample[0]);
  };
  BlockRows all{.stream = rows(seam.back()), .memory = rows(before.front())};
  // Where a decoder begins, what the encoder left is normed.
  all.normed = seam.size() > before.size() ? all.memory : all.stream;
  return all;
}

// The last block maps the first token of a sample alone into a branch: a pooler.
double rows_of(const JoinedMaps& map, const BlockRows& rows, bool is_last, std::int64_t samples) {
  if (map.takes_memory) return rows.memory;
  const bool is_pooled = map.role == Role::up || map.role == Role::inner_narrow;
  return is_last && is_pooled ? static_cast<double>(samples) : rows.stream;
}

// A vector of the stream that begins with ones is the weight of a norm.
bool is_norm_of_stream(const ParameterSpec& p) {
  return p.role == Role::stream_vector && p.sizes.size() == 1 && p.mean == 1;
}

// Lists what one block calls.
class BlockTraffic {
 public:
  BlockTraffic(const ModelSpec& spec, const GridPlan& plan, const GridLoad& load,
               std::size_t number, std::vector<GridTraffic>& all)
      : spec_(spec),
        plan_(plan),
        load_(load),
        number_(number),
        block_(spec.blocks[number]),
        rows_(block_rows(spec, number, load.samples)),
        all_(all) {}

  void list() {
    add_vectors();
    add_norms();
    for (const JoinedMaps& map : joined_maps(spec_, block_)) {
      const LinearPlan plan = linear_plan(plan_, map.role);
      add_linear(plan, layout_of(plan_, map.role, false, 2),
                 rows_of(map, rows_, is_last(), load_.samples), static_cast<double>(map.inputs),
                 static_cast<double>(map.outputs), weight_columns(plan, map));
    }
    for (const std::size_t number : block_.uses)
      if (spec_.parameters[number].role == Role::table) add_table(spec_.parameters[number]);
  }

 private:
  static constexpr bool kForward = false, kBackward = true;
  bool is_last() const { return block_.out.empty(); }

  double local(const ActivationLayout& layout, double rows, double features) const {
    return rows * features / extent(plan_.mesh, layout.rows) / extent(plan_.mesh, layout.features);
  }
  double local(const Layout& layout, double elements) const {
    return elements / extent(plan_.mesh, axes_of(layout));
  }

  // `shard` is the smaller side: what a rank brings to a gather, what it has of a scattered sum.
  void add(bool is_backward, GridCollective collective, CollectiveUse use, const Axes& axes,
           double shard, double columns = 0) {
    const int ranks = extent(plan_.mesh, axes);
    if (ranks == 1) return;
    const double each =
        collective == GridCollective::all_reduce ? 2 * shard / ranks : shard;  // from each other
    all_.push_back({number_, is_backward, collective, use, axes, 1, (ranks - 1) * each, map_,
                    map_ == kNoMap ? 0 : std::llround(columns)});
  }
  void add_move(bool is_backward, CollectiveUse use, const Move& move, double shard,
                double columns = 0) {
    switch (move.kind) {
      case MoveKind::none:
      case MoveKind::copy: break;
      case MoveKind::sum:
        add(is_backward, GridCollective::all_reduce, use, move.axes, shard, columns);
        break;
      case MoveKind::gather_rows:
      case MoveKind::gather_features:
        add(is_backward, GridCollective::all_gather, use, move.axes, shard, columns);
        break;
      case MoveKind::scatter_rows:
      case MoveKind::scatter_features:
        add(is_backward, GridCollective::reduce_scatter, use, move.axes, shard, columns);
        break;
    }
  }

  // Of its dims as they lie, the first is the one that is gathered.
  double weight_columns(const LinearPlan& p, const JoinedMaps& map) const {
    const auto inputs = static_cast<double>(map.inputs), outputs = static_cast<double>(map.outputs);
    if (is_narrow(map.role)) return outputs;
    if (!spec_.parameters[map.weights.front()].is_out_in)
      return outputs / extent(plan_.mesh, p.to.features);
    const bool has_all = p.in.kind == MoveKind::gather_features;
    return has_all ? inputs : inputs / extent(plan_.mesh, p.from.features);
  }

  void add_linear(const LinearPlan& p, const Layout& layout, double rows, double inputs,
                  double outputs, double columns_of_weight) {
    // Codes move instead, of as many numbers on every rank.
    const bool is_coded = plan_.codes.size > 0 && plan_.codes.blocks[number_];
    const auto coded = [&](const ActivationLayout& layout_of_move, const Move& move,
                           double features) {
      const bool is_message = move.kind != MoveKind::none && move.kind != MoveKind::copy;
      return is_coded && is_message ? static_cast<double>(plan_.codes.size) *
                                          extent(plan_.mesh, layout_of_move.features)
                                    : features;
    };
    const double from = coded(p.from, p.in, inputs), to = coded(p.to, p.out, outputs);
    const double x = local(p.from, rows, from), y = local(p.to, rows, to),
                 w = local(layout, inputs * outputs);
    const double columns_in = from / extent(plan_.mesh, p.from.features),
                 columns_out = to / extent(plan_.mesh, p.to.features);
    map_ = next_map_++;
    const auto gather_operands = [&](bool is_backward) {
      add_move(is_backward, CollectiveUse::input, p.in, x, columns_in);
      add(is_backward, GridCollective::all_gather, CollectiveUse::weight, p.weight, w,
          columns_of_weight);
    };
    gather_operands(kForward);
    add_move(kForward, CollectiveUse::output, p.out, y, columns_out);
    add_move(kBackward, CollectiveUse::output, adjoint(p.out), y, columns_out);
    if (plan_.keep == GridKeep::nothing) gather_operands(kBackward);
    add_move(kBackward, CollectiveUse::input, adjoint(p.in), x, columns_in);
    add(kBackward, GridCollective::reduce_scatter, CollectiveUse::weight, p.weight, w,
        columns_of_weight);
    map_ = kNoMap;
  }

  void add_vectors() {
    std::map<std::pair<Axes, Axes>, double> gathered;  // by axes of gather and copy
    for (const std::size_t number : block_.uses) {
      const ParameterSpec& p = spec_.parameters[number];
      if (!is_vector(p.role)) continue;
      const VectorPlan plan = vector_plan(plan_, p.role);
      const double shard = static_cast<double>(elements_of(p)) / extent(plan_.mesh, plan.cut);
      gathered[{plan.gather, plan.copy}] += shard;
    }
    for (const auto& [axes, shard] : gathered) {
      add(kForward, GridCollective::all_gather, CollectiveUse::vector, axes.first, shard);
      add(kBackward, GridCollective::reduce_scatter, CollectiveUse::vector, axes.first, shard);
      add(kBackward, GridCollective::all_reduce, CollectiveUse::vector, axes.second, shard);
    }
  }

  // With a bias of the same name it is a LayerNorm.
  void add_norms() {
    for (const std::size_t number : block_.uses) {
      const ParameterSpec& p = spec_.parameters[number];
      if (!is_norm_of_stream(p)) continue;
      add_norm(is_layer_norm(p.name), rows_.normed);
    }
  }
  bool is_layer_norm(const std::string& weight) const {
    const std::string bias = weight.substr(0, weight.rfind('.')) + ".bias";
    return std::ranges::any_of(
        block_.uses, [&](std::size_t number) { return spec_.parameters[number].name == bias; });
  }
  void add_norm(bool is_layer_norm, double rows) {
    const ActivationLayout stream = stream_of(plan_);
    const double local_rows = rows / extent(plan_.mesh, stream.rows);
    const auto sum = [&](bool is_backward, double elements) {
      add(is_backward, GridCollective::all_reduce, CollectiveUse::norm, stream.features, elements);
    };
    sum(kForward, local_rows);
    if (is_layer_norm) sum(kForward, local_rows);
    sum(kBackward, is_layer_norm ? 2 * local_rows : local_rows);
  }

  void add_table(const ParameterSpec& p) {
    const TablePlan table = table_plan(plan_);
    const auto vocabulary = static_cast<double>(p.sizes[0]),
               width = static_cast<double>(p.sizes[1]);
    if (is_last()) {
      add_linear(table.head, table.layout, rows_.stream, width, vocabulary, width);
      const double numbers = load_.has_smoothing ? 4 : 3;
      add(kForward, GridCollective::all_gather, CollectiveUse::loss, table.head.to.features,
          numbers * rows_.stream / extent(plan_.mesh, table.head.to.rows));
      return;
    }
    const double w = local(table.layout, vocabulary * width),
                 x = local(stream_of(plan_), rows_.stream, width);
    add(kForward, GridCollective::all_gather, CollectiveUse::weight, table.lookup_weight, w);
    add_move(kForward, CollectiveUse::output, table.lookup_out, x);
    add_move(kBackward, CollectiveUse::output, adjoint(table.lookup_out), x);
    add(kBackward, GridCollective::reduce_scatter, CollectiveUse::weight, table.lookup_weight, w);
  }

  const ModelSpec& spec_;
  const GridPlan& plan_;
  const GridLoad& load_;
  const std::size_t number_;
  const BlockSpec& block_;
  const BlockRows rows_;
  std::vector<GridTraffic>& all_;
  int map_ = kNoMap;  // that is being listed
  int next_map_ = 0;
};

}  // namespace

std::vector<GridMapWork> grid_map_work(const ModelSpec& spec, const GridPlan& plan,
                                       std::size_t number, std::int64_t samples) {
  const BlockSpec& block = spec.blocks[number];
  const BlockRows rows = block_rows(spec, number, samples);
  const bool is_last = block.out.empty();
  std::vector<GridMapWork> work;
  const auto add = [&](const LinearPlan& p, const Layout& layout, double m, double k, double n) {
    const auto cut = [&](const ActivationLayout& a, const Move& move) {
      const bool stays = move.kind == MoveKind::copy || move.kind == MoveKind::sum;
      return static_cast<double>(extent(plan.mesh, a.rows) * extent(plan.mesh, a.features)) /
             (stays ? 1 : extent(plan.mesh, move.axes));
    };
    work.push_back(
        {.multiply_adds = m * k * n / tp_size(plan.mesh),
         .input = m * k / cut(p.from, p.in),
         .output = m * n / cut(p.to, p.out),
         .weight = k * n / extent(plan.mesh, axes_of(layout)) * extent(plan.mesh, p.weight)});
  };
  for (const JoinedMaps& map : joined_maps(spec, block))
    add(linear_plan(plan, map.role), layout_of(plan, map.role, false, 2),
        rows_of(map, rows, is_last, samples), static_cast<double>(map.inputs),
        static_cast<double>(map.outputs));
  const TablePlan table = table_plan(plan);
  for (const std::size_t p : block.uses)
    if (is_last && spec.parameters[p].role == Role::table)
      add(table.head, table.layout, rows.stream, static_cast<double>(spec.parameters[p].sizes[1]),
          static_cast<double>(spec.parameters[p].sizes[0]));
  return work;
}

double grid_normed_elements(const ModelSpec& spec, const GridPlan& plan, std::size_t number,
                            std::int64_t samples) {
  const double rows = block_rows(spec, number, samples).normed;
  const ActivationLayout stream = stream_of(plan);
  const int parts = extent(plan.mesh, stream.rows) * extent(plan.mesh, stream.features);
  double elements = 0;
  for (const std::size_t p : spec.blocks[number].uses)
    if (is_norm_of_stream(spec.parameters[p]))
      elements += rows * static_cast<double>(spec.parameters[p].sizes[0]) / parts;
  return elements;
}

std::vector<GridTraffic> grid_traffic(const ModelSpec& spec, const GridPlan& plan,
                                      const GridLoad& load) {
  std::vector<GridTraffic> all;
  for (std::size_t block = 0; block < spec.blocks.size(); ++block)
    BlockTraffic(spec, plan, load, block, all).list();
  return all;
}

double elements_of(const std::vector<GridTraffic>& traffic) {
  double sum = 0;
  for (const GridTraffic& t : traffic) sum += t.elements;
  return sum;
}

std::array<double, 3> carried(const std::vector<GridTraffic>& traffic, const Mesh& mesh) {
  std::array<double, 3> sums = {};
  for (const GridTraffic& t : traffic) {
    int inner = 1;
    const double shard = t.elements / (extent(mesh, t.axes) - 1);
    for (auto axis = t.axes.rbegin(); axis != t.axes.rend(); ++axis) {
      const int size = extent(mesh, *axis);
      sums.at(static_cast<std::size_t>(*axis) - static_cast<std::size_t>(Axis::tp0)) +=
          (size - 1) * inner * shard;
      inner *= size;
    }
  }
  return sums;
}

std::vector<GridTraffic> forward_of_layers(const ModelSpec& spec,
                                           std::vector<GridTraffic> traffic) {
  std::erase_if(traffic, [&](const GridTraffic& t) {
    return t.is_backward || t.block == 0 || t.block + 1 == spec.blocks.size();
  });
  return traffic;
}

}  // namespace laconic
