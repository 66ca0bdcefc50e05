#include "laconic/layout/grid_plan.hpp"

#include <gtest/gtest.h>

#include <algorithm>
#include <set>

#include "laconic/layout/test_grids.hpp"

namespace laconic {
namespace {

std::vector<GridPlan> all_plans() {
  std::vector<GridPlan> plans;
  for (const TableCut table : {TableCut::split, TableCut::gathered}) {
    const auto add = [&](TensorMethod method, std::array<int, 3> tp) {
      plans.push_back({method, {.tp = tp}, table});
    };
    add(TensorMethod::one_d, {1, 4, 1});
    add(TensorMethod::one_d_sequence, {1, 4, 1});
    add(TensorMethod::two_d, {2, 2, 1});
    add(TensorMethod::two_d, {3, 3, 1});
    add(TensorMethod::two_and_half_d, {2, 2, 2});
    for (const std::array<int, 3>& tp : kSpecifiedGrids) add(TensorMethod::three_d, tp);
    add(TensorMethod::three_d, {3, 3, 3});
  }
  return plans;
}

constexpr std::array kMaps = {Role::up, Role::down, Role::across, Role::stream_narrow,
                              Role::inner_narrow};
constexpr std::array kVectors = {Role::stream_vector, Role::inner_vector, Role::common_vector,
                                 Role::stream_few,    Role::inner_few,    Role::table_bias};

std::set<Axis> set_of(const Axes& axes) {
  return {axes.begin(), axes.end()};
}

// What a move leaves of the axes that cut rows and features.
ActivationLayout moved(const Move& move, ActivationLayout layout) {
  const auto remove = [&](Axes& from) {
    for (const Axis axis : move.axes) {
      EXPECT_FALSE(from.empty());
      EXPECT_EQ(from.back(), axis) << "only the innermost axis can be gathered in order";
      from.pop_back();
    }
  };
  if (move.kind == MoveKind::gather_rows) remove(layout.rows);
  if (move.kind == MoveKind::gather_features) remove(layout.features);
  if (move.kind == MoveKind::scatter_rows)
    layout.rows.insert(layout.rows.end(), move.axes.begin(), move.axes.end());
  if (move.kind == MoveKind::scatter_features) layout.features = move.axes;
  return layout;
}

TEST(GridPlan, MovesLeadFromTheLayoutOfTheInputToThatOfTheOutput) {
  for (const GridPlan& plan : all_plans())
    for (const Role role : kMaps) {
      SCOPED_TRACE(std::string(name_of(plan.method)) + to_text(plan.mesh) +
                   std::to_string(static_cast<int>(role)));
      const LinearPlan p = linear_plan(plan, role);
      ActivationLayout layout = moved(p.in, p.from);
      // The product is partial over what still cuts its inputs, and out takes care of exactly that.
      const std::set<Axis> partial = set_of(layout.features);
      std::set<Axis> summed;
      if (p.out.kind == MoveKind::sum || p.out.kind == MoveKind::scatter_rows)
        summed = set_of(p.out.axes);
      EXPECT_EQ(partial, summed);
      layout.features = p.to.features;
      EXPECT_EQ(moved(p.out, layout), p.to);
    }
}

TEST(GridPlan, DownTakesWhereUpHasLeftAndLeavesWhereItBegan) {
  for (const GridPlan& plan : all_plans()) {
    EXPECT_EQ(linear_plan(plan, Role::up).from, stream_of(plan));
    EXPECT_EQ(linear_plan(plan, Role::up).to, linear_plan(plan, Role::down).from);
    EXPECT_EQ(linear_plan(plan, Role::down).to, stream_of(plan));
    EXPECT_EQ(linear_plan(plan, Role::across).to, stream_of(plan));
  }
}

// What maps are said to take and to leave is what their plans do.
TEST(GridPlan, KindsOfActivationsAreThoseOfThePlans) {
  for (const GridPlan& plan : all_plans())
    for (const Role role : kMaps) {
      const auto layout = [&](ActivationKind kind) {
        return kind == ActivationKind::inner ? inner_of(plan) : stream_of(plan);
      };
      EXPECT_EQ(linear_plan(plan, role).from, layout(kind_taken(role)));
      EXPECT_EQ(kind_left(role) == ActivationKind::few, is_narrow(role));
      if (!is_narrow(role)) {
        EXPECT_EQ(linear_plan(plan, role).to, layout(kind_left(role)));
      }
    }
  EXPECT_EQ(kind_taken(Role::table), ActivationKind::stream);
  EXPECT_EQ(kind_left(Role::table), ActivationKind::few);
}

// Each element of a weight is held as often as the method says: once, but for 1d's small ones.
TEST(GridPlan, ParametersAreCutByAllAxesOnce) {
  for (const GridPlan& plan : all_plans()) {
    SCOPED_TRACE(std::string(name_of(plan.method)) + to_text(plan.mesh));
    const auto expect_all = [&](const Layout& layout) {
      const Axes axes = axes_of(layout);
      EXPECT_EQ(set_of(axes).size(), axes.size());
      if (plan.method != TensorMethod::one_d) {
        EXPECT_EQ(axes.size(), 3U) << to_text(layout);
      }
    };
    for (const bool is_out_in : {false, true})
      for (const Role role : {Role::up, Role::down, Role::across}) {
        expect_all(layout_of(plan, role, is_out_in, 2));
        expect_all(layout_of(plan, role, is_out_in, 3));
      }
    for (const Role role : {Role::stream_narrow, Role::inner_narrow})
      expect_all(layout_of(plan, role, true, 2));
    expect_all(layout_of(plan, Role::table, true, 2));
    for (const Role role : {Role::stream_vector, Role::inner_vector})
      expect_all(layout_of(plan, role, false, 1));
    const VectorPlan bias = vector_plan(plan, Role::table_bias);
    if (plan.method != TensorMethod::one_d) {
      EXPECT_EQ(bias.cut.size() + bias.copy.size(), 3U);
    }
  }
}

// No two ranks have the same part of an activation, but for the stream of 1d.
TEST(GridPlan, ActivationsAreCutByAllAxesOnce) {
  for (const GridPlan& plan : all_plans())
    for (const ActivationLayout& layout : {stream_of(plan), inner_of(plan)}) {
      Axes axes = layout.rows;
      axes.insert(axes.end(), layout.features.begin(), layout.features.end());
      EXPECT_EQ(set_of(axes).size(), axes.size());
      if (plan.method != TensorMethod::one_d) {
        EXPECT_EQ(axes.size(), 3U) << name_of(plan.method);
      }
    }
}

// What is gathered over was cut last, so that it lies next to each other; what is left is where it
// is used.
TEST(GridPlan, GatheredWeightsFitTheProduct) {
  for (const GridPlan& plan : all_plans())
    for (const bool is_out_in : {false, true})
      for (const Role role : {Role::up, Role::down, Role::across}) {
        const LinearPlan p = linear_plan(plan, role);
        Layout layout = layout_of(plan, role, is_out_in, 2);
        for (std::size_t n = p.weight.size(); n-- > 0;) {
          ASSERT_FALSE(layout.by_dim[0].empty());
          EXPECT_EQ(layout.by_dim[0].back(), p.weight[n]);
          layout.by_dim[0].pop_back();
        }
        const ActivationLayout input = moved(p.in, p.from);
        EXPECT_EQ(layout.by_dim[is_out_in ? 1 : 0], input.features);
        EXPECT_EQ(layout.by_dim[is_out_in ? 0 : 1], p.to.features);
      }
}

TEST(GridPlan, VectorsLieWhereTheyAreUsedOnceGathered) {
  for (const GridPlan& plan : all_plans())
    for (const Role role : kVectors) {
      const VectorPlan p = vector_plan(plan, role);
      Axes cut = p.cut;
      for (std::size_t n = p.gather.size(); n-- > 0;) {
        ASSERT_FALSE(cut.empty());
        EXPECT_EQ(cut.back(), p.gather[n]);
        cut.pop_back();
      }
      if (role == Role::stream_vector) {
        EXPECT_EQ(cut, stream_of(plan).features);
      }
      if (role == Role::inner_vector) {
        EXPECT_EQ(cut, inner_of(plan).features);
      }
      if (role == Role::table_bias) {
        EXPECT_EQ(cut, table_plan(plan).vocabulary);
      }
      if (role == Role::common_vector || role == Role::stream_few) {
        EXPECT_TRUE(cut.empty());
      }
    }
}

TEST(GridPlan, AdjointsGoBack) {
  for (const GridPlan& plan : all_plans())
    for (const Role role : kMaps)
      for (const Move& move : {linear_plan(plan, role).in, linear_plan(plan, role).out})
        EXPECT_EQ(adjoint(adjoint(move)), move);
}

TEST(GridPlan, PartsAreCutEachByItself) {
  EXPECT_EQ(cut_sizes({8, 12}, 3, false), (std::vector<std::int64_t>{8, 3, 4}));
  EXPECT_EQ(cut_sizes({12, 8}, 3, true), (std::vector<std::int64_t>{3, 4, 8}));
  EXPECT_EQ(cut_sizes({12}, 3, false), (std::vector<std::int64_t>{3, 4}));
  EXPECT_EQ(joined_sizes({4, 3, 2}, 3, false), (std::vector<std::int64_t>{4, 6}));
  EXPECT_EQ(joined_sizes({3, 2, 8}, 3, true), (std::vector<std::int64_t>{6, 8}));
  EXPECT_EQ(joined_sizes({3, 2}, 3, false), (std::vector<std::int64_t>{6}));
}

TEST(GridPlan, ANumberOfRanksMeansAGrid) {
  EXPECT_EQ(grid_of(TensorMethod::one_d, 6), (std::array{1, 6, 1}));
  EXPECT_EQ(grid_of(TensorMethod::two_d, 9), (std::array{3, 3, 1}));
  EXPECT_EQ(grid_of(TensorMethod::two_d, 8), std::nullopt);
  EXPECT_EQ(grid_of(TensorMethod::two_and_half_d, 8), (std::array{2, 2, 2}));
  EXPECT_EQ(grid_of(TensorMethod::three_d, 27), (std::array{3, 3, 3}));
  EXPECT_EQ(grid_of(TensorMethod::three_d, 4), std::nullopt);
}

TEST(GridPlan, AGridThatAMethodCannotHaveIsRefused) {
  EXPECT_EQ(check(GridPlan{TensorMethod::two_d, {.tp = {2, 3, 1}}})[0].what,
            "[2, 3, 1] with tensor.method = \"2d\": it needs a square, [q, q, 1]");
  EXPECT_EQ(check(GridPlan{TensorMethod::one_d, {.tp = {2, 2, 1}}}).size(), 1U);
  EXPECT_TRUE(check(GridPlan{TensorMethod::three_d, {.tp = {2, 3, 5}}}).empty());
}

}  // namespace
}  // namespace laconic
