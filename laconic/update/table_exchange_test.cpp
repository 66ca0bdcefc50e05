// T1 and T2 of the specification of EmbRace over real exchanges, ranks as threads: 1, 2, 4 and 7 of
// them, uneven columns, ranks without tokens, ids at both ends of the table, padding. T8: what
// ranks send in which order, whatever pauses they make.
#include "laconic/update/table_exchange.hpp"

#include <ATen/ops/arange.h>
#include <ATen/ops/empty.h>
#include <ATen/ops/tensor.h>
#include <ATen/ops/zeros.h>
#include <ATen/ops/zeros_like.h>
#include <c10/core/GradMode.h>
#include <fmt/format.h>
#include <gtest/gtest.h>

#include <algorithm>
#include <chrono>
#include <map>
#include <mutex>
#include <random>
#include <set>
#include <stdexcept>
#include <thread>

#include "laconic/model/model.hpp"
#include "laconic/transport/in_process.hpp"
#include "laconic/update/optimiser.hpp"

namespace laconic {
namespace {

constexpr std::int64_t kTableRows = 40, kTableWidth = 10, kTableSteps = 20;
constexpr std::int64_t kPad = 7;

// A table, and something that comes after it.
ModelSpec table_model() {
  return {
      .parameters = {{.name = "table",
                      .sizes = {kTableRows, kTableWidth},
                      .deviation = 1,
                      .looked_up_by = {"ids"},
                      .role = Role::table},
                     {.name = "bias", .sizes = {1}}},
      .blocks = {{.name = "embedding", .kind = "embedding", .uses = {0}, .out = {{"x", {1, 1}}}},
                 {.name = "head", .kind = "head", .uses = {1}}}};
}

// Which tokens a rank has in a step, the same wherever it is asked: few of them often, every fifth
// time none.
std::vector<std::int64_t> tokens_of(std::int64_t step, int rank) {
  std::mt19937 draw(static_cast<unsigned>(step * 101 + rank));
  std::vector<std::int64_t> ids;
  if ((step + rank) % 5 == 4) return ids;
  for (int i = 0; i < 12; ++i) {
    const auto r = static_cast<std::int64_t>(draw() % 1000);
    ids.push_back(r < 50 ? kTableRows - 1 : r * r % 997 * kTableRows / 997 * r / 1000);
  }
  ids.push_back(kPad);
  return ids;
}
RowIds rows_of_rank(std::int64_t step, int rank) {
  if (step >= kTableSteps) return {};
  std::vector<std::int64_t> ids = tokens_of(step, rank);
  std::erase(ids, kPad);
  return unique_rows(ids);
}
std::shared_ptr<const StepRows> rows_of_all(std::int64_t step, int ranks) {
  std::vector<RowIds> all;
  for (int r = 0; r < ranks; ++r) all.push_back(rows_of_rank(step, r));
  return std::make_shared<const StepRows>(step_rows(std::move(all)));
}

RowRule rule_at(std::int64_t step) {
  return {.algorithm = RowAlgorithm::adam,
          .updates = step + 1,
          .lr = 0.1 * std::min(1.0, 0.2 * static_cast<double>(step + 1)) /
                (1 + 0.2 * static_cast<double>(step)),  // warm-up, then decay
          .weight_decay = 0.05};
}

// In every seventh step gradients are zeros, of rows that are read all the same.
at::Tensor loss_of(const at::Tensor& rows, std::int64_t step) {
  return rows.tanh().mul(0.1 * static_cast<double>((step + 3) % 7)).sum();
}

at::Tensor ids_tensor(const std::vector<std::int64_t>& ids) {
  return at::tensor(at::ArrayRef<std::int64_t>(ids.data(), ids.size()));
}

at::Tensor first_table() {
  at::Tensor table = at::empty({kTableRows, kTableWidth}, at::kFloat);
  fill_normal(key_of(5), 0, 0, 1,
              std::span(table.data_ptr<float>(), static_cast<std::size_t>(table.numel())));
  return table;
}

struct TrainedTable {
  at::Tensor value, moment1, moment2;
};

// One table, every rank's gradient of all of it, added in rank order.
TrainedTable replicated(int ranks) {
  TrainedTable t{first_table(), at::zeros({kTableRows, kTableWidth}),
                 at::zeros({kTableRows, kTableWidth})};
  RowDecay decay(kTableRows, true);
  const RowColumns<float> columns{t.value.data_ptr<float>(), t.moment1.data_ptr<float>(),
                                  t.moment2.data_ptr<float>(), kTableWidth};
  for (std::int64_t step = 0; step < kTableSteps; ++step) {
    const RowIds read = rows_of_all(step, ranks)->all;
    decay.catch_up<float>(read, columns);
    const at::Tensor sum = at::zeros_like(t.value);
    for (int r = 0; r < ranks; ++r) {
      std::vector<std::int64_t> ids = tokens_of(step, r);
      std::erase(ids, kPad);
      if (ids.empty()) continue;
      const at::Tensor leaf = t.value.clone().requires_grad_(true);
      backward({loss_of(leaf.index_select(0, ids_tensor(ids)), step)}, {at::empty({}).fill_(1)});
      const at::NoGradGuard no_grad;
      sum.add_(leaf.grad());
    }
    const at::Tensor picked = sum.index_select(0, ids_tensor(read));
    update_rows<float>(rule_at(step), read, picked.data_ptr<float>(), columns);
    decay.note(read, decay.steps());
    decay.add_step(rule_at(step));
  }
  decay.catch_up_all<float>(columns);
  return t;
}

enum class Applied { late, early, mixed };

// A message as it was queued.
struct Queued {
  EngineEvent::Time when;
  std::string what;
};

struct Course {
  Applied applied = Applied::late;
  bool sends_early = false;
  unsigned pauses = 0;                         // seed of them, by rank; 0: none
  std::vector<std::vector<Queued>>* log = {};  // by rank; null: nobody asks
  at::ScalarType compute = at::kFloat;
};

class Pauses {
 public:
  Pauses(unsigned seed, int rank) : seed_(seed), random_(seed + 17 * static_cast<unsigned>(rank)) {}
  void maybe() {
    if (seed_ == 0 || random_() % 3 != 0) return;
    std::this_thread::sleep_for(std::chrono::microseconds(random_() % 300));
  }

 private:
  unsigned seed_;
  std::mt19937 random_;
};

TrainedTable exchanged(int ranks, const TableOptions& options, const Course& course) {
  std::vector<TrainedTable> shards(static_cast<std::size_t>(ranks));
  const auto body = [&](World& world) {
    const GridPlace place{.coord = world.coord(),
                          .tables = {.ranks = ranks, .by_name = {{"table", options.cut}}}};
    Weights weights = make_empty_weights(Family(GptShape()), table_model(),
                                         at::TensorOptions(course.compute), {}, place);
    Pauses pauses(course.pauses, world.dp_member());
    const at::Tensor& value = weights.parameters[0].value;
    {
      const at::NoGradGuard no_grad;
      value.copy_(shard_from(first_table(), place, weights.spec.parameters[0]));
    }
    const at::Tensor moment1 = at::zeros(value.sizes()), moment2 = at::zeros(value.sizes());
    TableExchange table(world, weights, 0, options);
    table.request(0, rows_of_all(0, ranks));
    for (std::int64_t step = 0; step < kTableSteps; ++step) {
      const std::vector<std::int64_t> ids = tokens_of(step, world.dp_member());
      pauses.maybe();
      if (!ids.empty())  // padding comes along, and counts nothing
        backward({loss_of(table.look_up(0, ids_tensor(ids)).to(at::kFloat), step)},
                 {at::empty({}).fill_(1)});
      const auto next = rows_of_all(step + 1, ranks);
      if (course.sends_early && step % 4 != 3) table.send_early(*next);
      pauses.maybe();
      table.give(next->all);
      EXPECT_EQ(table.is_given(), options.is_apart);
      if (table.is_given()) table.send();
      EXPECT_TRUE(table.is_finite());
      table.wait();
      table.apply(rule_at(step), moment1, moment2);
      table.apply_delayed();
      pauses.maybe();
      if (course.applied == Applied::early || (course.applied == Applied::mixed && step % 3 == 0))
        table.settle(/*writes_decay=*/step % 2 == 0);
      if (step + 1 < kTableSteps) table.request(step + 1, next);
    }
    table.settle(/*writes_decay=*/true);
    shards[static_cast<std::size_t>(world.dp_member())] = {value.detach().clone(), moment1,
                                                           moment2};
  };
  if (ranks == 1) {
    World alone;
    body(alone);
  } else {
    run_ranks(ranks, [&](Transport& transport) {
      Engine engine(transport);
      ProgressThread progress_thread(engine);
      World world(Mesh{.dp = ranks}, progress_thread);
      std::mutex mutex;
      std::vector<Queued> log;
      engine.observe([&](const EngineEvent& event) {
        if (event.kind != EngineEvent::Kind::send || event.traffic != Traffic::embedding_rows)
          return;
        const std::lock_guard lock(mutex);
        log.push_back({event.begin, event.what});
      });
      body(world);
      engine.flush();
      engine.observe({});
      if (course.log != nullptr)
        (*course.log)[static_cast<std::size_t>(world.dp_member())] = std::move(log);
      world.gather({});
      engine.flush();
    });
  }
  TrainedTable whole{at::zeros({kTableRows, kTableWidth}), at::zeros({kTableRows, kTableWidth}),
                     at::zeros({kTableRows, kTableWidth})};
  for (int r = 0; r < ranks; ++r) {
    const GridPlace place{.coord = {.dp = r},
                          .tables = {.ranks = ranks, .by_name = {{"table", options.cut}}}};
    const TrainedTable& shard = shards[static_cast<std::size_t>(r)];
    const auto put = [&](const at::Tensor& part, const at::Tensor& into) {
      part_in(into, place, table_model().parameters[0]).copy_(part);
    };
    put(shard.value, whole.value);
    put(shard.moment1, whole.moment1);
    put(shard.moment2, whole.moment2);
  }
  return whole;
}

TEST(TableExchange, IsOneTableBitForBitHoweverItIsCutAndWheneverRowsCome) {
  for (const int ranks : {1, 2, 4, 7}) {
    const TrainedTable expected = replicated(ranks);
    for (const ReplicaCut cut : {ReplicaCut::whole, ReplicaCut::columns, ReplicaCut::rows})
      for (const bool splits : {false, true})
        for (const Applied applied : {Applied::late, Applied::early, Applied::mixed}) {
          if (!splits && applied != Applied::late) continue;
          SCOPED_TRACE(fmt::format("{} ranks, cut {}, split {}, applied {}", ranks,
                                   static_cast<int>(cut), splits, static_cast<int>(applied)));
          // Rows that leave early are among them everywhere, but where nothing is put off.
          const TrainedTable got = exchanged(
              ranks, {.cut = cut, .splits = splits, .price = {.is_free = true}, .decays = true},
              {.applied = applied, .sends_early = splits});
          EXPECT_TRUE(got.value.equal(expected.value));
          EXPECT_TRUE(got.moment1.equal(expected.moment1));
          EXPECT_TRUE(got.moment2.equal(expected.moment2));
        }
  }
}

// Values and moments, in memory of their own: parts of what was drawn whole would keep all of it.
TEST(TableExchange, EveryRankHoldsItsShareOfValuesAndMomentsAndNoMore) {
  constexpr std::int64_t kWords = 97, kColumns = 12;
  const Family family = LlamaShape{.layers = 1,
                                   .width = kColumns,
                                   .heads = 2,
                                   .key_heads = 2,
                                   .head_width = 6,
                                   .hidden = 16,
                                   .context = 8,
                                   .vocabulary = kWords};
  const std::string name = "model.embed_tokens.weight";
  for (const ReplicaCut cut : {ReplicaCut::columns, ReplicaCut::rows})
    for (int ranks = 1; ranks <= 7; ++ranks) {
      SCOPED_TRACE(fmt::format("cut {} on {} ranks", static_cast<int>(cut), ranks));
      std::int64_t held = 0;
      for (int r = 0; r < ranks; ++r) {
        const Weights weights = make_weights(
            family, 1, at::TensorOptions(at::kFloat), {}, 0,
            {.coord = {.dp = r}, .tables = {.ranks = ranks, .by_name = {{name, cut}}}});
        const std::int64_t share =
            cut == ReplicaCut::columns
                ? kWords * (kColumns * (r + 1) / ranks - kColumns * r / ranks)
                : (kWords + ranks - 1 - r) / ranks * kColumns;
        const OptimiserState state = make_optimiser_state(weights.parameters);
        ASSERT_EQ(weights.parameters[0].name, name);
        for (const at::Tensor& part :
             {weights.parameters[0].value, state.moment1[0], state.moment2[0]}) {
          EXPECT_EQ(part.numel(), share);
          EXPECT_EQ(part.storage().nbytes(), static_cast<std::size_t>(share) * sizeof(float));
        }
        held += share;
      }
      EXPECT_EQ(held, kWords * kColumns);
    }
}

// Six rows on every rank, all of them multiples of five: of skewed ids, whoever holds rows is asked
// unevenly, whoever holds columns is not.
std::vector<std::uint64_t> bytes_of_ranks(ReplicaCut cut) {
  constexpr int kRanks = 5;
  std::vector<RowIds> read;
  for (int r = 0; r < kRanks; ++r) read.push_back({0, 5, 10, 15, 20, 25 + 5 * (r % 3)});
  std::vector<std::uint64_t> bytes(kRanks);
  run_ranks(kRanks, [&](Transport& transport) {
    Engine engine(transport);
    ProgressThread progress_thread(engine);
    World world(Mesh{.dp = kRanks}, progress_thread);
    const GridPlace place{.coord = world.coord(),
                          .tables = {.ranks = kRanks, .by_name = {{"table", cut}}}};
    Weights weights = make_empty_weights(Family(GptShape()), table_model(),
                                         at::TensorOptions(at::kFloat), {}, place);
    const at::NoGradGuard no_grad;
    weights.parameters[0].value.fill_(1);
    TableExchange table(world, weights, 0, {.cut = cut});
    table.request(0, std::make_shared<const StepRows>(step_rows(read)));
    table.give({});
    table.drop();
    engine.flush();
    bytes[static_cast<std::size_t>(world.rank())] =
        sent(engine.meter().read(), Traffic::embedding_rows).raw_bytes;
    world.gather({});
    engine.flush();
  });
  return bytes;
}

// T6: the most and the least of any rank are the same.
TEST(TableExchange, EveryRankSendsAsMuchHoweverSkewedIdsAre) {
  const std::vector<std::uint64_t> columns = bytes_of_ranks(ReplicaCut::columns);
  const std::uint64_t to_four_peers = 2 * 4 * 6 * (kTableWidth / 5) * 4;
  EXPECT_EQ(columns, std::vector<std::uint64_t>(5, to_four_peers));
  const std::vector<std::uint64_t> rows = bytes_of_ranks(ReplicaCut::rows);
  EXPECT_GT(std::ranges::max(rows), 3 * std::ranges::min(rows));
}

// Rows may be dealt to more ranks than they have columns.
TEST(TableExchange, RowsMayBeDealtToMoreRanksThanColumns) {
  constexpr int kRanks = kTableWidth + 1;
  const TrainedTable expected = replicated(kRanks);
  const TrainedTable got = exchanged(
      kRanks, {.cut = ReplicaCut::rows, .splits = true, .price = {.is_free = true}, .decays = true},
      {.sends_early = true});
  EXPECT_TRUE(got.value.equal(expected.value));
  EXPECT_TRUE(got.moment2.equal(expected.moment2));
}

// When each message was queued first, by its text: "embedding.rows UNIT #NUMBER".
std::map<std::string, EngineEvent::Time> first_queued(const std::vector<Queued>& log) {
  std::map<std::string, EngineEvent::Time> first;
  for (const Queued& one : log) {
    const auto [found, is_new] = first.emplace(one.what, one.when);
    if (!is_new) found->second = std::min(found->second, one.when);
  }
  return first;
}

// T8. No order is agreed on, since receivers know messages by their tags; what a log shows is that
// all ranks send the same messages, and that none leaves before what it is made of: rows of a step
// before its gradients, gradients that the next step reads before that step's rows, all others
// before the rows of the step after it.
TEST(TableExchange, PausesOfAnyRankLeaveTheLogOfSendsInOrder) {
  constexpr int kRanks = 3;
  const TrainedTable expected = replicated(kRanks);
  const TableOptions options{.splits = true, .price = {.is_free = true}, .decays = true};
  std::set<std::string> all;
  for (unsigned seed = 1; seed <= 5; ++seed) {
    SCOPED_TRACE(seed);
    std::vector<std::vector<Queued>> logs(kRanks);
    const TrainedTable got = exchanged(kRanks, options, {.pauses = seed, .log = &logs});
    EXPECT_TRUE(got.value.equal(expected.value));
    for (const std::vector<Queued>& log : logs) {
      const auto queued = first_queued(log);
      std::set<std::string> sent;
      for (const auto& [what, when] : queued) sent.insert(what);
      if (all.empty()) all = sent;
      EXPECT_EQ(sent, all);
      const auto when = [&](int unit, std::int64_t number) {
        const auto found = queued.find(fmt::format("embedding.rows {} #{}", unit, number));
        return found == queued.end() ? std::optional<EngineEvent::Time>() : found->second;
      };
      std::int64_t pairs = 0;
      const auto expect_before = [&](std::optional<EngineEvent::Time> a,
                                     std::optional<EngineEvent::Time> b) {
        if (!a || !b) return;
        EXPECT_LT(*a, *b);
        ++pairs;
      };
      constexpr int kRowsOf = 0, kPrior = 1, kDelayed = 2;
      for (std::int64_t step = 0; step < kTableSteps; ++step) {
        expect_before(when(kRowsOf, step), when(kPrior, step));
        expect_before(when(kPrior, step), when(kRowsOf, step + 1));
        expect_before(when(kDelayed, step), when(kRowsOf, step + 2));
      }
      EXPECT_GT(pairs, 2 * kTableSteps);
    }
  }
}

// Rows travel rounded, wherever they lie, and what changes is not.
TEST(TableExchange, InBfloat16EveryCutTrainsOneTable) {
  const TableOptions plain{.splits = true, .price = {.is_free = true}, .decays = true};
  const TrainedTable exact = exchanged(3, plain, {});
  const TrainedTable rounded = exchanged(3, plain, {.compute = at::kBFloat16});
  EXPECT_FALSE(rounded.value.equal(exact.value));
  EXPECT_LT(rounded.value.sub(exact.value).abs().max().item<double>(), 0.1);
  EXPECT_FALSE(rounded.value.equal(rounded.value.to(at::kBFloat16).to(at::kFloat)));
  for (const ReplicaCut cut : {ReplicaCut::whole, ReplicaCut::rows})
    for (const Applied applied : {Applied::late, Applied::early}) {
      TableOptions options = plain;
      options.cut = cut;
      const TrainedTable got =
          exchanged(3, options, {.applied = applied, .compute = at::kBFloat16});
      EXPECT_TRUE(got.value.equal(rounded.value)) << static_cast<int>(cut);
      EXPECT_TRUE(got.moment1.equal(rounded.moment1)) << static_cast<int>(cut);
    }
}

// Where blocks have other memory than the table, rows go there and gradients come back: the same
// bits, whatever travels.
TEST(TableExchange, ApartFromItsBlocksItIsTheSameTable) {
  for (const at::ScalarType compute : {at::kFloat, at::kBFloat16})
    for (const ReplicaCut cut : {ReplicaCut::whole, ReplicaCut::columns, ReplicaCut::rows}) {
      SCOPED_TRACE(fmt::format("{}, cut {}", at::toString(compute), static_cast<int>(cut)));
      TableOptions options{.cut = cut, .splits = true, .price = {.is_free = true}, .decays = true};
      const Course course{
          .applied = Applied::mixed, .sends_early = compute == at::kFloat, .compute = compute};
      const TrainedTable expected = exchanged(3, options, course);
      options.is_apart = true;
      const TrainedTable got = exchanged(3, options, course);
      EXPECT_TRUE(got.value.equal(expected.value));
      EXPECT_TRUE(got.moment1.equal(expected.moment1));
      EXPECT_TRUE(got.moment2.equal(expected.moment2));
    }
}

// A table of a tile and a bit, which some members look up whole while the others answer.
TEST(TableExchange, EvaluationsLookUpTheWholeTableInTiles) {
  const std::int64_t width = 64, rows = tile_rows(width) + 5;
  ModelSpec model = table_model();
  model.parameters[0].sizes = {rows, width};
  const at::Tensor whole = at::arange(rows * width, at::kFloat).view({rows, width});
  for (const auto& [cut, is_apart] : {std::pair{ReplicaCut::columns, false},
                                      {ReplicaCut::rows, false},
                                      {ReplicaCut::whole, false},
                                      {ReplicaCut::columns, true},
                                      {ReplicaCut::whole, true}}) {
    SCOPED_TRACE(fmt::format("cut {}, apart {}", static_cast<int>(cut), is_apart));
    run_ranks(3, [&](Transport& transport) {
      Engine engine(transport);
      ProgressThread progress_thread(engine);
      World world(Mesh{.dp = 3}, progress_thread);
      const GridPlace place{.coord = world.coord(),
                            .tables = {.ranks = 3, .by_name = {{"table", cut}}}};
      Weights weights =
          make_empty_weights(Family(GptShape()), model, at::TensorOptions(at::kFloat), {}, place);
      const at::NoGradGuard no_grad;
      weights.parameters[0].value.copy_(shard_from(whole, place, model.parameters[0]));
      TableExchange table(world, weights, 0, {.cut = cut, .is_apart = is_apart});
      for (const std::vector<bool>& readers :
           {std::vector<bool>{true, true, true}, {true, false, false}, {false, true, true}}) {
        table.peek_tiles(readers);
        if (!readers[static_cast<std::size_t>(world.dp_member())]) continue;
        std::int64_t at = 0, tiles = 0;
        for (; at < rows; ++tiles) {
          const std::int64_t count = std::min(tile_rows(width), rows - at);
          EXPECT_TRUE(
              table.look_up(0, at::arange(at, at + count)).equal(whole.narrow(0, at, count)));
          at += count;
        }
        EXPECT_EQ(tiles, 2);
      }
      table.end_peek();
      engine.flush();
      world.gather({});
      engine.flush();
    });
  }
}

TEST(TableExchange, RowsComeLaterOnlyWhereThatSavesTime) {
  // 400 rows of 4 ranks, half of them later, 2 KiB each: 100 * 512 bytes to each of 3 peers.
  const auto pays = [](SplitPrice price) { return pays_to_split(price, 800, 400, 2048, 4); };
  const double saved = 3 * 100 * 512 / 1e6;
  EXPECT_TRUE(pays({.bytes_per_second = 1e6}));
  EXPECT_TRUE(pays({.bytes_per_second = 1e6, .seconds_per_message = 0.99 * saved}));
  EXPECT_FALSE(pays({.bytes_per_second = 1e6, .seconds_per_message = 1.01 * saved}));
  EXPECT_TRUE(pays({.bytes_per_second = 1e6, .seconds_per_row = 0.99 * saved / 800}));
  EXPECT_FALSE(pays({.bytes_per_second = 1e6, .seconds_per_row = 1.01 * saved / 800}));
  EXPECT_TRUE(pays({.is_free = true, .bytes_per_second = 1e6, .seconds_per_message = 1}));
  // No rate is known.
  EXPECT_TRUE(pays({.least_bytes = 100 * 512}));
  EXPECT_FALSE(pays({.least_bytes = 100 * 512 + 1}));
}

TEST(TableExchange, WhatNobodyAnnouncedIsNoticed) {
  World alone;
  Weights weights =
      make_empty_weights(Family(GptShape()), table_model(), at::TensorOptions(at::kFloat));
  TableExchange table(alone, weights, 0, {});
  EXPECT_THROW(table.look_up(0, ids_tensor({1})), std::logic_error);
  table.request(0, std::make_shared<const StepRows>(step_rows({{1, 2}})));
  table.look_up(0, ids_tensor({1, 2, 5, 5}));  // 5 is padding, then
  EXPECT_THROW(table.look_up(0, ids_tensor({1, 5, 6})), std::logic_error);
  // Apart the GPU alone sees ids, and tells with the gradients.
  TableExchange apart(alone, weights, 0, {.is_apart = true});
  for (const std::int64_t step : {0, 1}) {
    apart.request(step, std::make_shared<const StepRows>(step_rows({{1, 2}})));
    const at::Tensor rows = apart.look_up(0, ids_tensor({1, 2, 5, 5}));
    EXPECT_EQ(rows.select(0, 3).abs().sum().item<float>(), 0);
    if (step == 1) apart.look_up(0, ids_tensor({1, 5, 6}));
    apart.look_up(0, ids_tensor({2, 5}));
    apart.give({});
    if (step == 1) {
      EXPECT_THROW(apart.send(), std::logic_error);
      continue;
    }
    apart.send();
    apart.drop();
  }
}

}  // namespace
}  // namespace laconic
