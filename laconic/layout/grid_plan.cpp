#include "laconic/layout/grid_plan.hpp"

#include <fmt/format.h>

#include <algorithm>
#include <cmath>

#include "laconic/base/error.hpp"

namespace laconic {

namespace {

constexpr Axis i = Axis::tp0, j = Axis::tp1, l = Axis::tp2;

bool is_summa(TensorMethod method) {
  return method == TensorMethod::two_d || method == TensorMethod::two_and_half_d;
}

// What `up` and `down` are to all methods but 1d and SUMMA: rows are gathered along the axis that
// cut them, and partial sums over the features' axis leave along that one.
LinearPlan turning(const ActivationLayout& from, const ActivationLayout& to) {
  return {.from = from,
          .to = to,
          .in = {MoveKind::gather_rows, {from.rows.back()}},
          .out = {MoveKind::scatter_rows, {to.rows.back()}},
          .weight = {i}};
}

LinearPlan one_d_plan(const GridPlan& plan, Role role) {
  const ActivationLayout stream = stream_of(plan), inner = inner_of(plan);
  switch (role) {
    case Role::up: return {stream, inner, {MoveKind::copy, {j}}, {}, {}};
    case Role::down: return {inner, stream, {}, {MoveKind::sum, {j}}, {}};
    case Role::inner_narrow: return {inner, stream, {}, {MoveKind::sum, {j}}, {}};
    default: return {stream, stream, {}, {}, {}};  // whole on every rank
  }
}

// Maps to a few numbers: partial sums over the features, which all ranks along them get.
LinearPlan narrow_plan(const ActivationLayout& from, Axes weight) {
  return {.from = from,
          .to = {from.rows, {}},
          .in = {},
          .out = {MoveKind::sum, from.features},
          .weight = std::move(weight)};
}

// Weights whose columns lie where the features they make do: gathered over all other axes.
LinearPlan gathering(const ActivationLayout& layout, Axes weight) {
  return {.from = layout,
          .to = layout,
          .in = {MoveKind::gather_features, layout.features},
          .out = {},
          .weight = std::move(weight)};
}

Axes joined(Axes a, const Axes& b) {
  a.insert(a.end(), b.begin(), b.end());
  return a;
}

}  // namespace

Move adjoint(const Move& move) {
  switch (move.kind) {
    case MoveKind::none: return move;
    case MoveKind::copy: return {MoveKind::sum, move.axes};
    case MoveKind::sum: return {MoveKind::copy, move.axes};
    case MoveKind::gather_rows: return {MoveKind::scatter_rows, move.axes};
    case MoveKind::scatter_rows: return {MoveKind::gather_rows, move.axes};
    case MoveKind::gather_features: return {MoveKind::scatter_features, move.axes};
    case MoveKind::scatter_features: return {MoveKind::gather_features, move.axes};
  }
  return move;
}

bool is_trivial(const GridPlan& plan) {
  return tp_size(plan.mesh) == 1;
}

ActivationLayout stream_of(const GridPlan& plan) {
  if (plan.method == TensorMethod::one_d) return {};
  if (is_summa(plan.method)) return {.rows = {l, i}, .features = {j}};
  return {.rows = {i, j}, .features = {l}};
}

ActivationLayout inner_of(const GridPlan& plan) {
  if (plan.method == TensorMethod::one_d) return {.rows = {}, .features = {j}};
  if (is_summa(plan.method)) return stream_of(plan);
  return {.rows = {i, l}, .features = {j}};
}

ActivationKind kind_taken(Role role) {
  LACONIC_ASSERT(!is_vector(role), fmt::format("role {} is no map", static_cast<int>(role)));
  const bool is_inside = role == Role::down || role == Role::inner_narrow;
  return is_inside ? ActivationKind::inner : ActivationKind::stream;
}

ActivationKind kind_left(Role role) {
  LACONIC_ASSERT(!is_vector(role), fmt::format("role {} is no map", static_cast<int>(role)));
  if (is_narrow(role) || role == Role::table) return ActivationKind::few;
  return role == Role::up ? ActivationKind::inner : ActivationKind::stream;
}

LinearPlan linear_plan(const GridPlan& plan, Role role) {
  if (plan.method == TensorMethod::one_d) return one_d_plan(plan, role);
  const ActivationLayout stream = stream_of(plan), inner = inner_of(plan);
  if (role == Role::stream_narrow)
    return narrow_plan(stream, is_summa(plan.method) ? Axes{i, l} : Axes{i, j});
  if (role == Role::inner_narrow) return narrow_plan(inner, {i, l});
  if (is_summa(plan.method)) return gathering(stream, {i, l});
  switch (role) {
    case Role::up: return turning(stream, inner);
    case Role::down: return turning(inner, stream);
    case Role::across: return gathering(stream, {i, j});
    default: break;
  }
  LACONIC_ASSERT(false, fmt::format("role {} is no linear map", static_cast<int>(role)));
  return {};
}

namespace {

// Cut as the rows of the table are, so that uneven ones lie beside each other.
VectorPlan table_bias_plan(const TablePlan& table) {
  VectorPlan plan{.cut = table.layout.by_dim[0], .gather = table.head.weight, .copy = {}};
  for (const Axis axis : kTensorAxes)
    if (std::ranges::find(plan.cut, axis) == plan.cut.end()) plan.copy.push_back(axis);
  return plan;
}

}  // namespace

VectorPlan vector_plan(const GridPlan& plan, Role role) {
  const bool is_summa_grid = is_summa(plan.method);
  if (plan.method == TensorMethod::one_d) {
    if (role == Role::inner_vector || role == Role::table_bias)
      return {.cut = {j}, .gather = {}, .copy = {}};
    // Norms of heads, of which each rank has other ones.
    return {.cut = {}, .gather = {}, .copy = role == Role::common_vector ? Axes{j} : Axes()};
  }
  const Axes beside_stream = is_summa_grid ? Axes{i, l} : Axes{i, j}, beside_inner = {i, l};
  switch (role) {
    case Role::stream_vector:
      return {joined(stream_of(plan).features, beside_stream), beside_stream, {}};
    case Role::inner_vector:
      return {joined(inner_of(plan).features, beside_inner), beside_inner, {}};
    case Role::common_vector: return {{i, j, l}, {i, j, l}, {}};
    case Role::stream_few: return {{}, {}, beside_stream};
    case Role::inner_few: return {{}, {}, beside_inner};
    case Role::table_bias: return table_bias_plan(table_plan(plan));
    default: break;
  }
  LACONIC_ASSERT(false, fmt::format("role {} is no vector", static_cast<int>(role)));
  return {};
}

TablePlan table_plan(const GridPlan& plan) {
  const ActivationLayout stream = stream_of(plan);
  if (plan.method == TensorMethod::one_d)
    return {.layout = {{{j}, {}}},
            .vocabulary = {j},
            .ids = {},
            .lookup_weight = {},
            .lookup_out = {MoveKind::sum, {j}},
            .head = {stream, {{}, {j}}, {MoveKind::copy, {j}}, {}, {}}};
  if (plan.table == TableCut::gathered || is_summa(plan.method)) {
    const Axes beside = is_summa(plan.method) ? Axes{i, l} : Axes{i, j};
    return {.layout = {{joined(stream.features, beside), {}}},
            .vocabulary = stream.features,
            .ids = stream.rows,
            .lookup_weight = beside,
            .lookup_out = {MoveKind::scatter_features, stream.features},
            .head = gathering(stream, beside)};
  }
  return {.layout = {{{j, i}, {l}}},
          .vocabulary = {j},
          .ids = {i},
          .lookup_weight = {i},
          .lookup_out = {MoveKind::scatter_rows, {j}},
          .head = turning(stream, inner_of(plan))};
}

bool is_vector(Role role) {
  switch (role) {
    case Role::stream_vector:
    case Role::inner_vector:
    case Role::common_vector:
    case Role::stream_few:
    case Role::inner_few:
    case Role::table_bias: return true;
    case Role::up:
    case Role::down:
    case Role::across:
    case Role::stream_narrow:
    case Role::inner_narrow:
    case Role::table: return false;
  }
  return false;
}

bool is_narrow(Role role) {
  return role == Role::stream_narrow || role == Role::inner_narrow;
}

namespace {

// [inputs, outputs], as axes cut them.
Layout in_out_layout(const GridPlan& plan, Role role) {
  const LinearPlan p = linear_plan(plan, role);
  if (p.in.kind == MoveKind::gather_features) return {{p.weight, p.to.features}};
  return {{joined(p.from.features, p.weight), p.to.features}};
}

// [outputs, inputs]: the axes that are gathered over cut the outputs, which come first.
Layout out_in_layout(const GridPlan& plan, Role role) {
  const LinearPlan p = linear_plan(plan, role);
  if (is_narrow(role)) return {{{}, joined(p.from.features, p.weight)}};
  const Axes inputs = p.in.kind == MoveKind::gather_features ? Axes() : p.from.features;
  return {{joined(p.to.features, p.weight), inputs}};
}

}  // namespace

Layout layout_of(const GridPlan& plan, Role role, bool is_out_in, std::size_t dims) {
  if (is_vector(role)) {
    Layout layout;
    layout.by_dim.resize(dims);
    layout.by_dim.back() = vector_plan(plan, role).cut;
    return layout;
  }
  if (role == Role::table) return table_plan(plan).layout;
  Layout layout = is_out_in ? out_in_layout(plan, role) : in_out_layout(plan, role);
  // Before the outputs stands what they are several of.
  if (dims == 3) layout.by_dim.insert(layout.by_dim.begin() + (is_out_in ? 0 : 1), Axes());
  return layout;
}

std::vector<std::int64_t> cut_sizes(const std::vector<std::int64_t>& sizes, std::int64_t parts,
                                    bool is_out_in) {
  if (parts == 1) return sizes;
  std::vector<std::int64_t> cut = sizes;
  const std::size_t outputs = is_out_in ? 0 : sizes.size() - 1;
  cut[outputs] /= parts;
  cut.insert(cut.begin() + static_cast<std::ptrdiff_t>(outputs), parts);
  return cut;
}

std::vector<std::int64_t> joined_sizes(const std::vector<std::int64_t>& cut, std::int64_t parts,
                                       bool is_out_in) {
  if (parts == 1) return cut;
  std::vector<std::int64_t> sizes = cut;
  const std::size_t outputs = is_out_in ? 0 : cut.size() - 2;
  sizes.erase(sizes.begin() + static_cast<std::ptrdiff_t>(outputs));
  sizes[outputs] *= parts;
  return sizes;
}

Problems check(const GridPlan& plan) {
  const auto [pi, pj, pl] = plan.mesh.tp;
  const auto refuse_grid = [&](const std::string& why) {
    return Problems{{"mesh.tp", fmt::format("[{}, {}, {}] with tensor.method = \"{}\": {}", pi, pj,
                                            pl, name_of(plan.method), why)}};
  };
  switch (plan.method) {
    case TensorMethod::one_d:
    case TensorMethod::one_d_sequence:
      if (pi != 1 || pl != 1)
        return refuse_grid(fmt::format("it has one axis, the second: [1, {}, 1]", pi * pj * pl));
      break;
    case TensorMethod::two_d:
      if (pi != pj || pl != 1) return refuse_grid("it needs a square, [q, q, 1]");
      break;
    case TensorMethod::two_and_half_d:
      if (pi != pj) return refuse_grid("it needs squares, [q, q, depth]");
      break;
    case TensorMethod::three_d: break;
  }
  return {};
}

std::optional<std::array<int, 3>> grid_of(TensorMethod method, int ranks) {
  const int root = static_cast<int>(std::lround(std::sqrt(ranks)));
  const int cube = static_cast<int>(std::lround(std::cbrt(ranks)));
  switch (method) {
    case TensorMethod::one_d:
    case TensorMethod::one_d_sequence: return std::array{1, ranks, 1};
    case TensorMethod::two_d:
      if (root * root == ranks) return std::array{root, root, 1};
      return std::nullopt;
    case TensorMethod::two_and_half_d:  // the deepest of squares: fewest broadcasts
      for (int q = 2; q * q <= ranks; ++q)
        if (ranks % (q * q) == 0) return std::array{q, q, ranks / (q * q)};
      return std::nullopt;
    case TensorMethod::three_d:
      if (cube * cube * cube == ranks) return std::array{cube, cube, cube};
      return std::nullopt;
  }
  return std::nullopt;
}

// At 100 Mbit/s a message of the least size takes 5 ms, which is long beside the time of a round,
// and at 1 Gbit/s both ways are equally fast.
bool goes_round_a_ring(double message_bytes, int members, bool is_encoded_sum) {
  constexpr double kLeastRingMessage = 64 << 10;
  return members > 2 && !is_encoded_sum && message_bytes >= kLeastRingMessage;
}

std::string_view name_of(TensorMethod method) {
  return name_in(kTensorMethodNames, method);
}

std::string_view name_of(ActivationKind kind) {
  return name_in(kActivationKindNames, kind);
}

std::string to_text(const Move& move) {
  const std::string axes = to_text(move.axes);
  switch (move.kind) {
    case MoveKind::none: return "-";
    case MoveKind::copy: return "copy " + axes;
    case MoveKind::sum: return "sum " + axes;
    case MoveKind::gather_rows: return "gather rows " + axes;
    case MoveKind::scatter_rows: return "scatter rows " + axes;
    case MoveKind::gather_features: return "gather features " + axes;
    case MoveKind::scatter_features: return "scatter features " + axes;
  }
  return "";
}

}  // namespace laconic
