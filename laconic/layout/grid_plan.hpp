// layout/grid_plan.hpp — a method of tensor parallelism as data: who holds what, and what moves
// when.
//
// Every method here computes a linear map by the same three moves,
//
//     y = out( in(x) · gather(w) ) + bias
//
// and differs in which axes of the grid each of them goes along. A layer has two
// kinds of activations: the *stream*, which residual branches add to, and the
// *inner* ones, between the map `up` into a branch and the map `down` out of it (heads of
// attention, the hidden part of a feed-forward net). An activation is cut by samples
// (its rows) and by features. With the axes i, j, l = tp0, tp1, tp2:
//
//          stream           inner            up: in; weight; out              down
//   1d     whole            features j       copy j; -; -                     -; -; sum j
//   3d     rows i j, f. l   rows i l, f. j   gather rows j; i; scatter l      with j for l
//   2d     rows l i, f. j   as the stream    gather features j; i l; -        as up
//
// 2.5d is as 2d, where l is the depth; 1d-sequence is 3d on the grid (1, P, 1), and (P, 1, 1) is
// what others call FSDP. Moves along axes of size 1 are none. Each move has its adjoint
// (adjoint()), which is what the gradient does.
//
// Pure and std only: run (laconic/grid), count (architecture/grid_cost.hpp), check and print read
// it.
#pragma once

#include <cstdint>
#include <optional>
#include <string>
#include <string_view>
#include <vector>

#include "laconic/base/named.hpp"
#include "laconic/layout/layout.hpp"

namespace laconic {

enum class TensorMethod : std::uint8_t { one_d, one_d_sequence, two_d, two_and_half_d, three_d };
inline constexpr auto kTensorMethodNames =
    std::to_array<Named<TensorMethod>>({{TensorMethod::one_d, "1d"},
                                        {TensorMethod::one_d_sequence, "1d-sequence"},
                                        {TensorMethod::two_d, "2d"},
                                        {TensorMethod::two_and_half_d, "2.5d"},
                                        {TensorMethod::three_d, "3d"}});

// What a parameter is for, which decides how it is cut.
enum class Role : std::uint8_t {
  stream_vector,  // its last dim are features of the stream: norms, positions, biases of `down`
  inner_vector,   // of inner activations: biases of `up`
  common_vector,  // the same for all features: norms of single heads
  up,             // a map from the stream to inner activations
  down,           // and back
  across,         // from the stream to the stream
  stream_narrow,  // from the stream to a few numbers
  inner_narrow,   // from inner activations to a few numbers
  stream_few,     // the bias of stream_narrow
  inner_few,      // and of inner_narrow
  table,          // [vocabulary, width]: rows are looked up, or multiplied with the stream
  table_bias,     // of such products
};

// The two kinds of activations, and a third that leads nowhere: logits, numbers of a class.
enum class ActivationKind : std::uint8_t { stream, inner, few };
inline constexpr auto kActivationKindNames =
    std::to_array<Named<ActivationKind>>({{ActivationKind::stream, "the stream"},
                                          {ActivationKind::inner, "inner activations"},
                                          {ActivationKind::few, "a few numbers"}});
// What a linear map takes and what it leaves, whatever the method is: on most grids they lie on
// other ranks. A product with a table is one, too. Requires: a role of that kind.
ActivationKind kind_taken(Role role);
ActivationKind kind_left(Role role);

enum class MoveKind : std::uint8_t {
  none,
  copy,             // nothing; its gradient is summed
  sum,              // all-reduce; its gradient is as it is
  gather_rows,      // all-gather of samples
  scatter_rows,     // reduce-scatter of samples
  gather_features,  // all-gather of columns
  scatter_features  // reduce-scatter of columns
};
struct Move {
  MoveKind kind = MoveKind::none;
  Axes axes = {};
  bool operator==(const Move&) const = default;
};
Move adjoint(const Move& move);

// Which axes cut the samples and the features of an activation, outermost first.
struct ActivationLayout {
  Axes rows, features;
  bool operator==(const ActivationLayout&) const = default;
};

struct LinearPlan {
  ActivationLayout from, to;
  Move in, out;
  Axes weight;  // gathered over these, along dim 0; of maps to a few numbers along the last
  bool operator==(const LinearPlan&) const = default;
};

struct VectorPlan {
  Axes cut;     // of its last dim
  Axes gather;  // over these when it is used
  Axes copy;    // ranks along these hold the same, and the gradient is summed over them
  bool operator==(const VectorPlan&) const = default;
};

// How the vocabulary is cut. With `split` (i j in the table above: Megatron's and the 3-D paper's)
// the logits' partial sums move, with `gathered` the table does, wholly; the product with large
// batches is cheaper the second way, that with large vocabularies the first. 2d and 2.5d have the
// second alone: there the first would move the same table, and logits besides.
enum class TableCut : std::uint8_t { split, gathered };
inline constexpr auto kTableCutNames =
    std::to_array<Named<TableCut>>({{TableCut::split, "split"}, {TableCut::gathered, "gathered"}});

struct TablePlan {
  Layout layout;
  Axes vocabulary;  // that cut the rows of the table as it is used, outermost
  // Looking rows up: samples by these axes, in a table gathered over those, then moved.
  Axes ids, lookup_weight;
  Move lookup_out;
  LinearPlan head;  // `to` says which samples of which logits
};

// Activations of some blocks travel as learned codes (architecture/grid_codes.hpp).
struct GridCodes {
  std::int64_t size = 0;  // numbers of a code; 0: there are none
  bool is_tied = false;   // one map for both directions
  bool is_drawn = false;  // maps begin as noise, not orthonormal
  std::vector<bool> blocks = {};
  bool operator==(const GridCodes&) const = default;
};

// What forward leaves for backward of the inputs and weights of maps that it gathered. Without it
// backward gathers them again, which makes its messages half as many again, or twice as many (2d).
enum class GridKeep : std::uint8_t { nothing, gathered };
inline constexpr auto kGridKeepNames = std::to_array<Named<GridKeep>>(
    {{GridKeep::nothing, "nothing"}, {GridKeep::gathered, "gathered"}});

struct GridPlan {
  TensorMethod method = TensorMethod::three_d;
  Mesh mesh = {};  // only tp matters
  TableCut table = TableCut::split;
  GridCodes codes = {};
  GridKeep keep = GridKeep::nothing;
  bool operator==(const GridPlan&) const = default;
};

// Whether there is nothing to cut.
bool is_trivial(const GridPlan& plan);

ActivationLayout stream_of(const GridPlan& plan);
ActivationLayout inner_of(const GridPlan& plan);
// Requires, for each: a role of that kind.
LinearPlan linear_plan(const GridPlan& plan, Role role);
VectorPlan vector_plan(const GridPlan& plan, Role role);
TablePlan table_plan(const GridPlan& plan);

bool is_vector(Role role);
bool is_narrow(Role role);

// How a parameter is cut. `dims` counts its dims, as they are cut: see cut_sizes().
Layout layout_of(const GridPlan& plan, Role role, bool is_out_in, std::size_t dims);
// The sizes that are cut. Outputs that stand for several things one behind the other (queries, keys
// and values) are cut in each of them: [in, 3 d] is cut as [in, 3, d].
std::vector<std::int64_t> cut_sizes(const std::vector<std::int64_t>& sizes, std::int64_t parts,
                                    bool is_out_in);
// What a rank has of these sizes, as a tensor of as many dims as the whole.
std::vector<std::int64_t> joined_sizes(const std::vector<std::int64_t>& cut, std::int64_t parts,
                                       bool is_out_in);

// Everything about the grid that the method does not allow: 2d wants q x q x 1, say.
Problems check(const GridPlan& plan);
// The grid that a single number of ranks means to a method, if there is one: 8 to 3d is 2 x 2 x 2.
std::optional<std::array<int, 3>> grid_of(TensorMethod method, int ranks);

// Whether a collective of so many ranks goes round a ring, by the bytes of one of its messages; or
// everybody sends to everybody directly. Sums that are encoded never do: they would be encoded anew
// at every rank.
bool goes_round_a_ring(double message_bytes, int members, bool is_encoded_sum);

std::string_view name_of(TensorMethod method);
std::string_view name_of(ActivationKind kind);
std::string to_text(const Move& move);  // "gather rows tp1"

}  // namespace laconic
