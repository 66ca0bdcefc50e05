// What moves in the background, what moves in large pieces and what is given up: values, calls and
// counts of a tensor grid stay as they are.
#include <ATen/ops/arange.h>

#include <thread>

#include "grid_cases.hpp"
#include "laconic/base/error.hpp"
#include "laconic/grid/overlap.hpp"
#include "laconic/model/grid_ops.hpp"

namespace laconic {
namespace {

// What two updates leave on every rank, and all calls of the second, by rank.
struct Overlapped {
  std::vector<Outcome> outcomes;
  std::vector<std::vector<GridCallMade>> calls;
  std::vector<GridCounts> counts;
};

Overlapped overlapped(const GridCase& c, const GridPlan& plan, const StageOptions& options,
                      bool is_on, const GridCodecs& codecs = {}) {
  const auto ranks = static_cast<std::size_t>(size(plan.mesh));
  Overlapped all{std::vector<Outcome>(ranks), std::vector<std::vector<GridCallMade>>(ranks),
                 std::vector<GridCounts>(ranks)};
  on_grid(
      plan,
      [&](TensorGrid& grid, Rank rank) {
        const auto at = static_cast<std::size_t>(rank);
        grid.overlap().enable(is_on);
        Pass pass = pass_of(c, 0.2);
        pass.grid = &grid;
        const GridPlace place{plan, coord_of(plan.mesh, rank)};
        Weights weights = make_weights(c.family, 7, kInDouble, {}, c.tokens(), place);
        trained(weights, c, pass, 1, options);
        grid.clear_counts();
        grid.observe([&](const GridCallMade& call) { all.calls[at].push_back(call); });
        all.outcomes[at] = trained(weights, c, pass, 1, options);
        all.counts[at] = grid.counts();
      },
      codecs);
  return all;
}

void expect_same_bits(const Overlapped& got, const Overlapped& wanted) {
  for (std::size_t rank = 0; rank < wanted.outcomes.size(); ++rank) {
    const Outcome &a = got.outcomes[rank], &b = wanted.outcomes[rank];
    EXPECT_EQ(a.loss, b.loss);
    for (const auto& [name, value] : b.values) {
      EXPECT_TRUE(a.values.at(name).equal(value)) << name;
      EXPECT_TRUE(a.gradients.at(name).equal(b.gradients.at(name))) << name;
    }
  }
}

std::uint64_t received(const GridCounts& counts) {
  std::uint64_t elements = 0;
  for (const auto& [key, count] : counts) elements += count.elements;
  return elements;
}

// Also when it is computed once more, and in halves.
TEST(TensorGrid, WeightsThatComeAheadChangeNoBitAndNoCount) {
  const GridPlan plan{TensorMethod::three_d, {.tp = {2, 1, 2}}, TableCut::gathered};
  for (const GridCase& c : some_cases())
    for (const StageOptions& options :
         {StageOptions{}, StageOptions{.recompute = true}, StageOptions{.is_split = true}}) {
      const bool is_plain = !options.recompute && !options.is_split;
      if (c.name != "gpt" && !(c.name == "seq2seq" && is_plain)) continue;
      SCOPED_TRACE(fmt::format("{} {} {}", c.name, options.recompute, options.is_split));
      const Overlapped with = overlapped(c, plan, options, true);
      const Overlapped without = overlapped(c, plan, options, false);
      expect_one_order(with.calls, plan);
      expect_one_order(without.calls, plan);
      EXPECT_EQ(with.counts, without.counts);
      // Something is made sooner, or there is nothing to test.
      EXPECT_NE(with.calls[0], without.calls[0]);
      expect_same_bits(with, without);
    }
}

// Encoded too, where what is gathered again is decoded to the same bits; and computed once more,
// and in halves.
TEST(TensorGrid, WhatIsKeptChangesNoBitAndIsNotGatheredAgain) {
  const GridCodecs short_ones = [](const GridSite& site, GridCall) {
    return site.is_small
               ? GridCodec()
               : GridCodec{.codec = parse_codec("quantise:bits=8,rounding=stochastic,grid=ends")};
  };
  GridPlan coded{TensorMethod::three_d, {.tp = {2, 1, 2}}, TableCut::gathered};
  coded.codes = {.size = 12, .blocks = {false, true, false, false}};
  const GridPlan cube{TensorMethod::three_d, {.tp = {2, 2, 2}}, TableCut::split},
      square{TensorMethod::two_d, {.tp = {2, 2, 1}}, TableCut::gathered};
  struct Row {
    GridPlan plan;
    StageOptions options;
    GridCodecs codecs;
  };
  for (const Row& row :
       {Row{cube, {}, {}}, Row{cube, {}, short_ones}, Row{square, {.recompute = true}, short_ones},
        Row{square, {.is_split = true}, {}}, Row{coded, {}, {}}})
    for (const GridCase& c : some_cases()) {
      if (c.name != "gpt" && !(c.name == "seq2seq" && !row.codecs)) continue;
      if (c.name != "gpt" && row.plan.codes.size > 0) continue;
      SCOPED_TRACE(c.name + " on " + to_text(row.plan));
      const Overlapped again = overlapped(c, row.plan, row.options, true, row.codecs);
      const Overlapped once = overlapped(c, kept(row.plan), row.options, true, row.codecs);
      expect_one_order(once.calls, row.plan);
      EXPECT_LT(received(once.counts[0]), received(again.counts[0]));
      expect_same_bits(once, again);
    }
}

// Weights of maps that have begun to come by the time of each move of activations, in forward.
std::vector<int> begun_by_then(const std::vector<GridCallMade>& calls, std::uint64_t least) {
  std::vector<int> begun;
  int weights = 0;
  for (const GridCallMade& call : calls) {
    if (call.traffic == Traffic::tp_gradient) break;
    if (call.traffic == Traffic::tp_weight && call.offsets.back() >= least) ++weights;
    if (call.traffic == Traffic::tp_activation && call.call != GridCall::sum)
      begun.push_back(weights);
  }
  return begun;
}

TEST(TensorGrid, WeightsOfOneMapAreAhead) {
  const GridPlan plan{TensorMethod::three_d, {.tp = {2, 1, 2}}, TableCut::split};
  const std::uint64_t width = 48, least = width * width / 2;  // half of the smallest map
  const std::vector<int> with =
      begun_by_then(overlapped(cases()[0], plan, {}, true).calls[0], least);
  // Each of two layers' four maps has one move on this grid, as has the head, whose table is small.
  EXPECT_EQ(with, (std::vector<int>{2, 3, 4, 5, 6, 7, 8, 8, 8}));
}

// --- large exchanges

TEST(GridAlgorithm, LargeExchangesGoRoundARing) {
  const std::uint64_t kib = 1024;
  struct Row {
    GridCall call;
    std::uint64_t bytes;
    int members;
    bool is_lossy;
    Algorithm wanted;
  };
  for (const Row& row : std::vector<Row>{
           {GridCall::gather, 4096 * kib, 4, false, Algorithm::ring},
           {GridCall::scatter, 256 * kib, 4, false, Algorithm::ring},
           {GridCall::sum, 256 * kib, 4, false, Algorithm::ring},
           {GridCall::sum, 256 * kib - 1, 4, false, Algorithm::direct},
           {GridCall::sum, 256 * kib, 8, false, Algorithm::direct},
           {GridCall::sum, 4096 * kib, 2, false, Algorithm::direct},  // there is none of two
           // An encoded message may be passed on, but not added to.
           {GridCall::gather, 4096 * kib, 4, true, Algorithm::ring},
           {GridCall::scatter, 4096 * kib, 4, true, Algorithm::direct},
           {GridCall::sum, 4096 * kib, 4, true, Algorithm::direct}})
    EXPECT_EQ(grid_algorithm(row.call, row.bytes, row.members, row.is_lossy), row.wanted)
        << static_cast<int>(row.call) << " " << row.bytes << " " << row.members;
}

// Whole numbers, whose sums are exact in any order. Members have different shares, one of them
// nothing.
TEST(TensorGrid, LargeExchangesBringWhatSmallOnesDo) {
  const GridPlan plan{TensorMethod::one_d, {.tp = {1, 4, 1}}, TableCut::split};
  for (const std::int64_t columns : {3, 3000}) {
    const std::vector<std::int64_t> rows = {20, 0, 37, 43};
    const auto of = [&](std::int64_t rank, std::int64_t count) {
      return at::arange(count * columns, at::kDouble)
          .remainder(251)
          .mul(rank + 1)
          .view({count, columns});
    };
    on_grid(plan, [&](TensorGrid& grid, Rank rank) {
      const GridSite site{.columns = static_cast<int>(columns)};
      const auto all =
          grid.gather(of(rank, rows[static_cast<std::size_t>(rank)]), rows, {Axis::tp1}, site);
      const auto scattered = grid.scatter_sum(of(rank, 100), rows, {Axis::tp1}, site);
      const auto sum = grid.sum(of(rank, 100), {Axis::tp1}, site);
      const at::Tensor ten = of(9, 100);  // 1 + 2 + 3 + 4
      std::int64_t at = 0;
      for (std::int64_t m = 0; m < 4; ++m) {
        const std::int64_t count = rows[static_cast<std::size_t>(m)];
        EXPECT_TRUE(all.narrow(0, at, count).equal(of(m, count))) << m << " on " << rank;
        if (m == rank) {
          EXPECT_TRUE(scattered.equal(ten.narrow(0, at, count))) << rank;
        }
        at += count;
      }
      EXPECT_TRUE(sum.equal(ten)) << rank;
    });
  }
}

// --- what is given up

// A gather is under way when its rank fails in something else: what the other one sends for it
// must not be written to memory that has gone. It stays where it arrived.
TEST(TensorGrid, WhatIsGivenUpIsNotWrittenTo) {
  const GridPlan plan{TensorMethod::one_d, {.tp = {1, 2, 1}}, TableCut::split};
  const Tag given_up = make_tag({.traffic = Traffic::control, .unit = 1});
  const Tag sent = make_tag({.traffic = Traffic::control, .unit = 2});
  run_ranks(2, [&](Transport& transport) {
    Engine engine(transport);
    {
      ProgressThread progress_thread(engine);
      TensorGrid grid(progress_thread, plan, plan.mesh, transport.rank());
      const at::Tensor mine = at::full({100, 10}, 1.0);
      const auto say = [&](Rank to, Tag tag) {
        engine.send({.to = to, .tag = tag, .message = std::make_shared<const Bytes>()});
      };
      const auto taken = [&] {
        return engine.meter().read().received[{Traffic::tp_weight, 1 - transport.rank()}].messages;
      };
      const GridSite site{.traffic = Traffic::tp_weight};
      if (transport.rank() == 0) {
        try {
          const auto pending = grid.start_gather(mine, equal_rows(100, 2), {Axis::tp1}, site);
          while (laconic::sent(engine.meter().read(), Traffic::tp_weight).messages == 0)
            std::this_thread::yield();  // it is under way
          throw PeerLost(1, "somebody is lost");
        } catch (const PeerLost&) {
        }
        say(1, given_up);
        engine.recv(1, sent);
        // The thread goes on with others, and would have seen it by then.
        EXPECT_TRUE(grid.start_sum(mine, {Axis::tp1}, {}).get().equal(mine.mul(2)));
        EXPECT_EQ(taken(), 0U);
      } else {
        engine.recv(0, given_up);
        grid.gather(mine, equal_rows(100, 2), {Axis::tp1}, site);
        EXPECT_EQ(taken(), 1U);
        engine.flush();
        say(0, sent);
        EXPECT_TRUE(grid.start_sum(mine, {Axis::tp1}, {}).get().equal(mine.mul(2)));
      }
      engine.flush();
    }
    engine.flush();
  });
}

// --- nine samples on the 27 ranks of a cube

// The maps alone, there and back: the outputs, and the gradients of inputs and weights.
TEST(TensorGrid, MapsOfACubeOfThree) {
  const GridPlan plan{TensorMethod::three_d, {.tp = {3, 3, 3}}, TableCut::split};
  const std::int64_t samples = 9, tokens = 2, width = 9, hidden = 18;
  const auto numbers_of = [](std::int64_t rows, std::int64_t columns, double scale) {
    return at::arange(rows * columns, at::kDouble).mul(scale).sin().view({rows, columns});
  };
  const at::Tensor x = numbers_of(samples * tokens, width, 0.7),
                   dy = numbers_of(samples * tokens, width, 0.3),
                   up = numbers_of(width, hidden, 0.9), down = numbers_of(hidden, width, 1.1);
  const at::Tensor inner = x.matmul(up), y = inner.matmul(down);
  const at::Tensor d_inner = dy.matmul(down.t()), dx = d_inner.matmul(up.t());
  const at::Tensor d_up = x.t().matmul(d_inner), d_down = inner.t().matmul(dy);
  on_grid(plan, [&](TensorGrid& grid, Rank rank) {
    const auto part = [&](const at::Tensor& all, std::int64_t dim, const Axes& axes) {
      const std::int64_t each = all.size(dim) / grid.extent(axes);
      return all.narrow(dim, each * grid.index(axes), each);
    };
    const auto activation = [&](const at::Tensor& all, const ActivationLayout& layout) {
      return part(part(all, 0, layout.rows), 1, layout.features).contiguous();
    };
    const auto weight = [&](const at::Tensor& all, const LinearPlan& way) {
      Axes rows = way.from.features;  // and within them by those that it is gathered over
      rows.insert(rows.end(), way.weight.begin(), way.weight.end());
      return part(part(all, 0, rows), 1, way.to.features).contiguous();
    };
    const LinearPlan there = linear_plan(plan, Role::up), back = linear_plan(plan, Role::down);
    const auto map = [](const at::Tensor& leaf) {
      return GridMap{.weight = leaf, .rows = equal_rows(leaf.size(0), 3)};
    };
    const at::Tensor in = activation(x, there.from).requires_grad_(true);
    const at::Tensor up_leaf = weight(up, there).requires_grad_(true);
    const at::Tensor down_leaf = weight(down, back).requires_grad_(true);
    const at::Tensor middle =
        grid_products({grid, 0, 0}, there, in, {map(up_leaf)}, {samples, tokens}, nullptr)[0];
    const at::Tensor out =
        grid_products({grid, 0, 1}, back, middle, {map(down_leaf)}, {samples, tokens}, nullptr)[0];
    out.backward(activation(dy, back.to));
    const std::string where = fmt::format("on rank {}", rank);
    expect_same(middle.detach(), activation(inner, there.to), 1, "inner " + where);
    expect_same(out.detach(), activation(y, back.to), 10, "output " + where);
    expect_same(in.grad(), activation(dx, there.from), 10, "gradient of the input " + where);
    expect_same(up_leaf.grad(), weight(d_up, there), 10, "gradient of up " + where);
    expect_same(down_leaf.grad(), weight(d_down, back), 10, "gradient of down " + where);
  });
}

}  // namespace
}  // namespace laconic
