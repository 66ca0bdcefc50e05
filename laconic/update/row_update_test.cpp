// T2, T3 and T5 of the specification of EmbRace on simulated ranks: whatever is put off within its
// deadline, and however columns are cut, rows become what a replicated table becomes that sums in
// rank order, bit for bit; and what breaks that is noticed.
#include "laconic/update/row_update.hpp"

#include <fmt/format.h>
#include <gtest/gtest.h>

#include <algorithm>
#include <cmath>
#include <random>
#include <tuple>

#include "laconic/rows/row_memory.hpp"
#include "laconic/update/kernel/update.hpp"

namespace laconic {
namespace {

enum class Mutant {
  none,
  local_next_ids,
  counter_per_half,
  rate_when_applied,
  after_deadline,
  padding_is_read,
  presence_by_value,
};

struct Simulation {
  int ranks = 4;
  std::int64_t rows = 120, width = 10, tokens = 24, steps = 40;
  unsigned seed = 1;
  RowAlgorithm algorithm = RowAlgorithm::adam;
  double weight_decay = 0;
  int delay = 1;  // steps that the delayed rows of a step wait: 0 or 1; 2: drawn
  Mutant mutant = Mutant::none;
  bool is_dense = false;  // the reference moves every row in every step
};

constexpr std::int64_t kPadding = 0;  // frequent, and no part of a text

struct SimTable {
  std::vector<float> value, moment1, moment2;
  std::int64_t width = 0;
  RowColumns<float> columns() { return {value.data(), moment1.data(), moment2.data(), width}; }
  bool operator==(const SimTable&) const = default;
};

class SimRun {
 public:
  explicit SimRun(const Simulation& s) : s_(s), draw_(s.seed) {
    std::vector<double> weights;
    for (std::int64_t row = 0; row < s.rows; ++row) weights.push_back(1.0 / (1.0 + row));
    std::discrete_distribution<std::int64_t> zipf(weights.begin(), weights.end());
    for (std::int64_t t = 0; t < s.steps; ++t) {
      ids_.emplace_back();
      for (int r = 0; r < s.ranks; ++r) {
        ids_.back().emplace_back();
        // One rank may have no tokens at all.
        for (std::int64_t i = (t + r) % 11 == 10 ? s.tokens : 0; i < s.tokens + r % 3; ++i)
          ids_.back().back().push_back(zipf(draw_));
      }
    }
    std::uniform_real_distribution<float> uniform(-1, 1);
    for (std::int64_t i = 0; i < s.rows * s.width; ++i) initial_.push_back(uniform(draw_));
  }

  // The rows that a rank reads in a step; padding is not among them, whatever its gradient.
  RowIds read_by(std::int64_t step, int rank, bool with_padding = false) const {
    if (step >= s_.steps) return {};
    std::vector<std::int64_t> ids = ids_[at(step)][at(rank)];
    if (!with_padding) std::erase(ids, kPadding);
    return unique_rows(ids);
  }
  std::vector<RowIds> read_in(std::int64_t step, bool with_padding = false) const {
    std::vector<RowIds> all;
    for (int r = 0; r < s_.ranks; ++r) all.push_back(read_by(step, r, with_padding));
    return all;
  }

  RowRule rule_of(std::int64_t step) const {
    return {.algorithm = s_.algorithm,
            .updates = step + 1,
            .lr = 0.05 * std::min(1.0, 0.125 * static_cast<double>(step + 1)) /
                  (1 + 0.1 * static_cast<double>(step)),  // warm-up, then decay
            .weight_decay = s_.weight_decay};
  }

  // A rank's gradient of one row, token after token. Some rows have none in some steps.
  std::vector<float> gradient(std::int64_t step, int rank, std::int64_t row,
                              const float* value) const {
    std::vector<float> sum(at(s_.width), 0.0F);
    const auto& ids = ids_[at(step)][at(rank)];
    for (std::size_t i = 0; i < ids.size(); ++i)
      if (ids[i] == row && (row + step) % 7 != 0)
        for (std::size_t c = 0; c < sum.size(); ++c)
          sum[c] += std::tanh(value[c] + 0.01F * static_cast<float>((step * 31 + i * 7 + c) % 13)) -
                    0.3F * value[(c + 1) % sum.size()];
    return sum;
  }

  SimTable fresh(std::int64_t width) const {
    const auto n = at(s_.rows * width);
    return {std::vector<float>(n), std::vector<float>(n), std::vector<float>(n), width};
  }

  // A whole table, all of whose rows are summed in rank order.
  SimTable reference() const {
    SimTable table = fresh(s_.width);
    table.value = initial_;
    RowDecay decay(s_.rows, s_.weight_decay > 0);
    for (std::int64_t step = 0; step < s_.steps; ++step) {
      const std::vector<RowIds> read = read_in(step);
      RowIds all = union_of(read);
      decay.catch_up<float>(all, table.columns());
      if (s_.is_dense)
        for (all.clear(); static_cast<std::int64_t>(all.size()) < s_.rows;)
          all.push_back(static_cast<std::int64_t>(all.size()));
      std::vector<float> sums(all.size() * at(s_.width), 0.0F);
      for (int r = 0; r < s_.ranks; ++r)
        for (const std::int64_t row : read[at(r)]) {
          const auto g = gradient(step, r, row, &table.value[at(row * s_.width)]);
          const std::int64_t place = places_in(all, {row})[0];
          for (std::int64_t c = 0; c < s_.width; ++c) sums[at(place * s_.width + c)] += g[at(c)];
        }
      update_rows<float>(rule_of(step), all, sums.data(), table.columns());
      decay.note(all, decay.steps());
      decay.add_step(rule_of(step));
    }
    decay.catch_up_all<float>(table.columns());
    return table;
  }

  // The same by columns on all ranks, with rows that are put off; columns put together.
  SimTable sharded() {
    std::vector<SimTable> shards;
    std::vector<RowDecay> decays;
    for (int r = 0; r < s_.ranks; ++r) {
      const Range columns = table_columns(s_.width, s_.ranks, r);
      shards.push_back(fresh(columns.size()));
      gather_rows(stretch_of(bytes(initial_), s_.width, 4, columns), every_row(),
                  bytes(shards.back().value));
      decays.emplace_back(s_.rows, s_.weight_decay > 0);
    }
    struct Delayed {
      std::int64_t step, due;
      std::vector<RowIds> rows;                // by rank
      std::vector<std::vector<float>> values;  // by rank, whole rows
    };
    std::vector<Delayed> put_off;
    std::int64_t halves = 0;
    const auto apply = [&](const Delayed& part, std::int64_t now) {
      RowRule rule = rule_of(s_.mutant == Mutant::rate_when_applied ? now : part.step);
      if (s_.mutant == Mutant::counter_per_half) rule.updates = ++halves;
      const RowIds all = union_of(part.rows);
      for (int owner = 0; owner < s_.ranks; ++owner) {
        SimTable& shard = shards[at(owner)];
        std::vector<float> sums(all.size() * at(shard.width));
        std::vector<std::vector<float>> messages;
        std::vector<const float*> from;
        for (int r = 0; r < s_.ranks; ++r) {
          std::vector<float>& message =
              messages.emplace_back(part.rows[at(r)].size() * at(shard.width));
          std::vector<float> values = part.values[at(r)];
          std::vector<std::int64_t> places;
          for (std::size_t i = 0; i < part.rows[at(r)].size(); ++i)
            places.push_back(static_cast<std::int64_t>(i));
          gather_rows(
              stretch_of(bytes(values), s_.width, 4, table_columns(s_.width, s_.ranks, owner)),
              places, bytes(message));
          from.push_back(message.data());
        }
        sum_rows<float>(part.rows, from, all, shard.width, sums.data());
        update_rows<float>(rule, all, sums.data(), shard.columns());
        decays[at(owner)].note(all, part.step);
      }
    };
    for (std::int64_t step = 0; step < s_.steps; ++step) {
      const bool with_padding = s_.mutant == Mutant::padding_is_read;
      const std::vector<RowIds> read = read_in(step, with_padding);
      const auto is_due = [&](const Delayed& part) {
        return part.due <= step - (s_.mutant == Mutant::after_deadline ? 1 : 0);
      };
      for (const Delayed& part : put_off)
        if (is_due(part)) apply(part, step);
      std::erase_if(put_off, is_due);
      Delayed prior{step, step, {}, {}}, delayed{step, due_of(step), {}, {}};
      const std::vector<RowIds> next = read_in(step + 1, with_padding);
      for (int owner = 0; owner < s_.ranks; ++owner)
        decays[at(owner)].catch_up<float>(union_of(read), shards[at(owner)].columns());
      for (int r = 0; r < s_.ranks; ++r) {
        const RowIds& rows = read[at(r)];
        std::vector<float> x(rows.size() * at(s_.width));
        for (int owner = 0; owner < s_.ranks; ++owner) {
          SimTable& shard = shards[at(owner)];
          std::vector<float> message(rows.size() * at(shard.width));
          gather_rows(stretch_of(bytes(shard.value), shard.width, 4, {0, shard.width}), rows,
                      bytes(message));
          put_rows(bytes(message), places_in(rows, rows),
                   stretch_of(bytes(x), s_.width, 4, table_columns(s_.width, s_.ranks, owner)));
        }
        const RowSplit split =
            split_rows(rows, s_.mutant == Mutant::local_next_ids ? next[at(r)] : union_of(next));
        for (auto& [part, places] : {std::pair{&prior, &split.prior}, {&delayed, &split.delayed}}) {
          part->rows.emplace_back();
          part->values.emplace_back();
          for (const std::int64_t i : *places) {
            const auto g = gradient(step, r, rows[at(i)], &x[at(i * s_.width)]);
            if (s_.mutant == Mutant::presence_by_value &&
                std::ranges::all_of(g, [](float v) { return v == 0; }))
              continue;
            part->rows.back().push_back(rows[at(i)]);
            part->values.back().insert(part->values.back().end(), g.begin(), g.end());
          }
        }
      }
      apply(prior, step);
      put_off.push_back(delayed);
      for (RowDecay& decay : decays) decay.add_step(rule_of(step));
    }
    for (const Delayed& part : put_off) apply(part, s_.steps);
    SimTable whole = fresh(s_.width);
    for (int r = 0; r < s_.ranks; ++r) {
      SimTable& shard = shards[at(r)];
      decays[at(r)].catch_up_all<float>(shard.columns());
      const Range columns = table_columns(s_.width, s_.ranks, r);
      put_rows(bytes(shard.value), every_row(),
               stretch_of(bytes(whole.value), s_.width, 4, columns));
      put_rows(bytes(shard.moment1), every_row(),
               stretch_of(bytes(whole.moment1), s_.width, 4, columns));
      put_rows(bytes(shard.moment2), every_row(),
               stretch_of(bytes(whole.moment2), s_.width, 4, columns));
    }
    return whole;
  }

 private:
  template <class I>
  static std::size_t at(I i) {
    return static_cast<std::size_t>(i);
  }
  static std::byte* bytes(std::vector<float>& values) {
    return reinterpret_cast<std::byte*>(values.data());
  }
  std::vector<std::int64_t> every_row() const {
    std::vector<std::int64_t> all;
    for (std::int64_t row = 0; row < s_.rows; ++row) all.push_back(row);
    return all;
  }
  // The step before whose reading it must be done: at the earliest the next, at the latest the one
  // after it.
  std::int64_t due_of(std::int64_t step) {
    return step + 1 + (s_.delay == 2 ? static_cast<std::int64_t>(draw_() % 2) : s_.delay);
  }

  Simulation s_;
  std::mt19937 draw_;
  std::vector<std::vector<std::vector<std::int64_t>>> ids_;  // by step and rank
  std::vector<float> initial_;
};

bool is_exact(const Simulation& s) {
  SimRun run(s);
  return run.sharded() == run.reference();
}

TEST(RowUpdate, ColumnsAndDelayedRowsAreTheReplicatedTableBitForBit) {
  for (const auto& [algorithm, steps, seeds] : {std::tuple{RowAlgorithm::sgd, 200, 2U},
                                                {RowAlgorithm::adagrad, 40, 2U},
                                                {RowAlgorithm::adam, 40, 10U}})
    for (const int ranks : {1, 2, 4, 7})
      for (const int delay : {0, 1, 2})
        for (unsigned seed = 1; seed <= seeds; ++seed)
          EXPECT_TRUE(is_exact({.ranks = ranks,
                                .steps = steps,
                                .seed = seed,
                                .algorithm = algorithm,
                                .delay = delay}))
              << static_cast<int>(algorithm) << ", " << ranks << " ranks, delay " << delay;
}

TEST(RowUpdate, DecayThatIsCaughtUpIsTheSameWhoeverHasWhichColumns) {
  for (const int ranks : {1, 3})
    for (const int delay : {0, 1})
      EXPECT_TRUE(is_exact({.ranks = ranks, .weight_decay = 0.3, .delay = delay})) << ranks;
}

// T3: what the test above is for.
TEST(RowUpdate, EveryMutantIsNoticed) {
  const std::pair<Mutant, const char*> mutants[] = {
      {Mutant::local_next_ids, "next ids of a rank alone"},
      {Mutant::counter_per_half, "a count for each half"},
      {Mutant::rate_when_applied, "step and rate when it is applied"},
      {Mutant::after_deadline, "after the deadline"},
      {Mutant::padding_is_read, "padding counts as read"},
      {Mutant::presence_by_value, "rows with a gradient of zero do not count"}};
  for (const auto& [mutant, name] : mutants)
    for (unsigned seed = 1; seed <= 3; ++seed)
      EXPECT_FALSE(is_exact({.seed = seed, .mutant = mutant})) << name;
}

// T5: another algorithm than the one that moves every row.
TEST(RowUpdate, LazyAdamIsNotDenseAdamAndPlainSgdIsDenseSgd) {
  EXPECT_FALSE(is_exact({.is_dense = true}));
  EXPECT_TRUE(is_exact({.algorithm = RowAlgorithm::sgd, .is_dense = true}));
}

// A row that every step reads is one of dense AdamW.
TEST(RowUpdate, AdamIsTheOptimisersKernelOnTheRowsThatAreRead) {
  constexpr std::int64_t kWidth = 37;
  std::vector<float> value(3 * kWidth, 0.5F), moment1(3 * kWidth), moment2(3 * kWidth);
  std::vector<float> dense = value, first = moment1, second = moment2;
  const std::int64_t rows[] = {2, 0};
  for (std::int64_t t = 1; t <= 5; ++t) {
    std::vector<float> g;
    for (std::int64_t i = 0; i < 2 * kWidth; ++i) g.push_back(std::sin(static_cast<float>(i * t)));
    const RowRule rule{.algorithm = RowAlgorithm::adam,
                       .updates = t,
                       .lr = 0.01 * static_cast<double>(t),
                       .weight_decay = 0.1,
                       .gradient_scale = 0.7};
    update_rows<float>(rule, rows, g.data(),
                       {value.data(), moment1.data(), moment2.data(), kWidth});
    for (int i = 0; i < 2; ++i)
      kernel::update<float>().adamw(&dense[static_cast<std::size_t>(rows[i] * kWidth)],
                                    &g[static_cast<std::size_t>(i * kWidth)],
                                    &first[static_cast<std::size_t>(rows[i] * kWidth)],
                                    &second[static_cast<std::size_t>(rows[i] * kWidth)], kWidth,
                                    {.lr = rule.lr,
                                     .beta1 = rule.beta1,
                                     .beta2 = rule.beta2,
                                     .epsilon = rule.epsilon,
                                     .weight_decay = 0.1,
                                     .correction1 = 1 - std::pow(rule.beta1, t),
                                     .correction2 = 1 - std::pow(rule.beta2, t),
                                     .gradient_scale = 0.7});
  }
  EXPECT_EQ(value, dense);
  EXPECT_EQ(moment1, first);
  EXPECT_EQ(moment2, second);
  for (std::int64_t c = kWidth; c < 2 * kWidth; ++c)
    EXPECT_EQ(value[static_cast<std::size_t>(c)], 0.5F) << "nobody has read row 1";
}

// A row that nobody reads is what shrinking it in every step makes of it, bit for bit, whenever
// that is asked for.
TEST(RowUpdate, DecayThatIsCaughtUpIsThatOfEveryStep) {
  std::vector<float> value = {3, 4, 5}, twin = value;
  RowDecay decay(3, true);
  const RowColumns<float> columns{value.data(), nullptr, nullptr, 1};
  for (std::int64_t t = 0; t < 50; ++t) {
    const RowRule rule{.lr = 0.01 * static_cast<double>(t % 5 + 1), .weight_decay = 0.2};
    for (float& v : twin) v *= static_cast<float>(1 - rule.lr * rule.weight_decay);
    if (t % 7 == 3) {
      const std::int64_t read[] = {1};
      const float none[] = {0};
      decay.catch_up<float>(read, columns);
      update_rows<float>(rule, read, none, columns);
      decay.note(read, decay.steps());
    }
    decay.add_step(rule);
    if (t == 20) decay.catch_up_all<float>(columns);  // a checkpoint
  }
  float copy = value[0];
  decay.shrink(0, &copy, 1);
  EXPECT_EQ(copy, twin[0]);
  EXPECT_NE(value[0], twin[0]) << "a copy was asked for";
  decay.catch_up_all<float>(columns);
  EXPECT_EQ(value, twin);
  EXPECT_EQ(decay.steps(), 0);
}

}  // namespace
}  // namespace laconic
