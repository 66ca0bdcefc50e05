// Updates block by block (train.update = "block"): T8 to T11 of the specification of EmbRace, for
// models with tables and without. Whatever comes when, the model is that of steps that end
// together.
#include <ATen/ops/empty.h>
#include <mutex>
#include <nlohmann/json.hpp>
#include <random>
#include <thread>

#include "laconic/base/test_effort.hpp"
#include "laconic/config/row_choice.hpp"
#include "laconic/file/json.hpp"
#include "laconic/rows/row_plan.hpp"
#include "laconic/train/step.hpp"
#include "laconic/transport/shaped.hpp"
#include "pipeline_ranks.hpp"
#include "rule_ranks.hpp"

namespace laconic::block {
namespace {

// Ten blocks; a message is one segment at most.
constexpr GptShape kShape{.layers = 8, .width = 16, .heads = 2, .context = 12, .vocabulary = 96};
constexpr std::size_t kSegment = 8 << 10;
constexpr std::uint64_t kCredit = 2 * kSegment;

std::vector<std::string> with(std::vector<std::string> sets, const std::vector<std::string>& more) {
  sets.insert(sets.end(), more.begin(), more.end());
  return sets;
}

// --- whole runs

class BlockUpdate : public PipelineParallel {
 protected:
  RunConfig config_on(const std::string& name, std::int64_t pp, std::int64_t dp,
                      const std::vector<std::string>& sets) {
    RunConfig c = config(name, pp, dp);
    c.model.layers = 2 * pp;
    c.train.steps = 5;
    set(c, {"train.clip=0", "evaluate.every=2", "evaluate.samples=8", "checkpoint.every=3"});
    set(c, sets);
    return c;
  }

  // What the log says of every step and evaluation, times and bytes apart.
  std::vector<std::string> told(const std::string& name) const {
    std::vector<std::string> all;
    std::ifstream file(folder_ / (name + "/log.jsonl"));
    for (std::string line; std::getline(file, line);) {
      const nlohmann::json json = nlohmann::json::parse(line);
      std::string said;
      for (const char* key :
           {"kind", "type", "event", "step", "loss", "grad_norm", "lr", "validation_loss"})
        if (json.contains(key)) said += fmt::format("{} {}, ", key, json[key].dump());
      all.push_back(said);
    }
    return all;
  }
};

struct Case {
  std::int64_t pp, dp;
  std::vector<std::string> sets;
};

std::vector<std::string> rows(const std::vector<std::string>& more) {
  return with({"model.kind=llama", "embedding.rows.method=alltoall",
               "embedding.rows.optimiser=lazy_adam", "embedding.rows.split=on"},
              more);
}

// T11. Losses, norms, evaluations, parameters, moments and residuals.
TEST_F(BlockUpdate, ChangesNoBitOfAnything) {
  const std::vector<Case> cases = {
      {1, 2, {"model.recompute=true"}},
      {1, 2, rows({})},
      {2,
       2,
       {"dp.gradient.codec=quantise:bits=3", "embedding.tied.codec=quantise:bits=4",
        "pp.activation.codec=quantise:bits=4", "pp.activation.memory=delta",
        "pp.gradient.codec=quantise:bits=8", "pp.gradient.memory=delta", "data.shards=2"}},
      {1, 4, {"dp.gradient.codec=sign", "dp.gradient.warmup=2", "optimiser.kind=muon"}},
      {1, 2, {"dp.gradient.method=power_sgd", "dp.gradient.rank=2", "dp.gradient.warmup=1"}},
      {1,
       3,
       {"dp.gradient.method=power_sgd", "dp.gradient.rank=2", "dp.gradient.by_block=true",
        "train.batch=12", "train.microbatch=4"}},
      {1, 2, {"dp.gradient.overlap=false", "run.precision=float64", "optimiser.kind=sgd"}},
      {1, 2, {"run.precision=bfloat16", "dp.gradient.codec=top_k:keep=0.1"}},
      {3, 1, {"model.kind=llama", "pipeline.schedule=zero_bubble"}},
      {2, 2, {"pipeline.schedule=zb_v", "pipeline.chunks=2", "model.layers=6"}},
      {2, 2, rows({"pipeline.schedule=gpipe"})},
      {1, 4, rows({"embedding.rows.codec=half", "embedding.rows.split=auto"})},
      {1, 2, rows({"embedding.rows.method=allgather"})},
      {1, 2, {"dp.gradient.codec=quantise:bits=4", "steering.guard=fallback", "steering.every=2"}},
  };
  for (const Case& one : some_of(cases, 6)) {
    SCOPED_TRACE(fmt::format("pp {}, dp {}: {}", one.pp, one.dp, fmt::join(one.sets, " ")));
    const TrainSummary together = run(config_on("step", one.pp, one.dp, one.sets));
    const TrainSummary apart =
        run(config_on("block", one.pp, one.dp, with(one.sets, {"train.update=block"})));
    EXPECT_GE(told("step").size(), 7U);
    EXPECT_EQ(told("block"), told("step"));
    EXPECT_EQ(apart.loss, together.loss);
    EXPECT_EQ(apart.evaluation->loss, together.evaluation->loss);
    EXPECT_TRUE(model_bytes(apart.checkpoint) == model_bytes(together.checkpoint));
    EXPECT_TRUE(rank_files(apart.checkpoint) == rank_files(together.checkpoint));
    for (const char* name : {"step", "block"}) std::filesystem::remove_all(folder_ / name);
  }
}

TEST_F(BlockUpdate, ARunGoesOnBitForBitAndMayChangeItsMind) {
  const std::vector<std::string> sets =
      rows({"dp.gradient.codec=quantise:bits=4", "checkpoint.every=2", "checkpoint.keep=0"});
  const auto block = with(sets, {"train.update=block"});
  const TrainSummary whole = run(config_on("whole", 1, 2, block));
  for (const auto& more : {block, sets}) {
    std::filesystem::remove_all(folder_ / "parts");
    std::filesystem::copy(folder_ / "whole", folder_ / "parts",
                          std::filesystem::copy_options::recursive);
    for (const char* late : {"step-00000005", "step-00000004"})
      std::filesystem::remove_all(folder_ / fmt::format("parts/checkpoints/{}", late));
    RunConfig c = config_on("parts", 1, 2, more);
    const TrainSummary parts = run(c, "auto");
    EXPECT_EQ(parts.first_step, 2);
    EXPECT_TRUE(model_bytes(parts.checkpoint) == model_bytes(whole.checkpoint));
    EXPECT_TRUE(rank_files(parts.checkpoint) == rank_files(whole.checkpoint));
  }
}

// Parameters have been changed by it, so it must not be saved; what was saved before stays.
TEST_F(BlockUpdate, AStepThatIsNotFiniteEndsTheRunAtTheNextOne) {
  RunConfig c = config_on("spoiled", 1, 2, {"train.update=block", "evaluate.every=0"});
  std::string said;
  try {
    run_hooked(c, {.spoiled = {3}});
  } catch (const NotFinite& error) {
    said = error.what();
  }
  for (const char* part : {"step 4: loss = nan", "The last good state is in", "step-00000003"})
    EXPECT_NE(said.find(part), std::string::npos) << said;
  EXPECT_FALSE(std::filesystem::exists(folder_ / "spoiled/checkpoints/step-00000004"));
  c.checkpoint.every = 0;
  c.run.folder = folder_ / "never saved";
  try {
    run_hooked(c, {.spoiled = {4}});  // the last: nothing follows it
  } catch (const NotFinite& error) {
    said = error.what();
  }
  EXPECT_NE(said.find("step 5: loss = nan"), std::string::npos) << said;
  EXPECT_NE(said.find("Nothing was saved before"), std::string::npos) << said;
}

TEST_F(BlockUpdate, WhatAsksAboutWholeStepsIsRefusedTogether) {
  const RunConfig c =
      config_on("refused", 2, 2,
                {"train.update=block", "train.clip=1", "train.non_finite=skip", "steering.shadow=2",
                 "dp.gradient.method=compressed_adam", "embedding.tied.fused=false", "mesh.tp=2"});
  const std::string all = to_text(check(c));
  for (const char* part : {"train.clip = 1", "train.non_finite", "steering.shadow = 2",
                           "dp.gradient.method", "embedding.tied.fused", "mesh.tp = 2"})
    EXPECT_NE(all.find(std::string("update = \"block\" with ") + part), std::string::npos)
        << part << "\n"
        << all;
}

// T10. Over slow links sums of a step are still under way while the next one computes, and never
// where steps end together.
TEST_F(BlockUpdate, SumsAreUnderWayInTheNextForward) {
  for (const bool by_block : {false, true}) {
    RunConfig c = config_on(by_block ? "apart" : "together", 1, 2,
                            {"report.trace=true", "data.valid=", "evaluate.every=0"});
    set(c, {by_block ? "train.update=block" : "train.update=step"});
    c.train.microbatch = 0;
    run_shaped(c, "rate=8mbit");
    const nlohmann::json trace = read_json(c.run.folder + "/trace.json");
    int inside = 0;  // beginnings of forward of a block while a sum is under way
    for (const auto& sum : trace["traceEvents"]) {
      if (sum["ph"] != "X" || sum["cat"] != "dp.gradient") continue;
      for (const auto& forward : trace["traceEvents"])
        if (forward["ph"] == "X" && forward["cat"] == "forward")
          inside +=
              forward["ts"] > sum["ts"] && forward["ts"].get<double>() <
                                               sum["ts"].get<double>() + sum["dur"].get<double>()
                  ? 1
                  : 0;
    }
    if (by_block)
      EXPECT_GE(inside, 4);
    else
      EXPECT_EQ(inside, 0);
  }
}

// T10: delayed rows have a step's time, and were queued before what the table waits for anyway.
TEST_F(BlockUpdate, NobodyWaitsForDelayedRows) {
  const RunConfig c = config_on("delayed", 1, 2,
                                rows({"train.update=block", "train.steps=8",
                                      "data.valid=", "evaluate.every=0", "checkpoint.every=0"}));
  std::vector<std::unique_ptr<Transport>> transports = make_in_process(2);
  for (std::unique_ptr<Transport>& transport : transports)
    transport = make_shaped(std::move(transport), parse_shape("rate=100mbit,latency=1ms"));
  run_ranks(transports, [&](Transport& transport) {
    Engine engine(transport, {.deadline = std::chrono::seconds(20)});
    ProgressThread progress_thread(engine);
    World world(mesh_of(c), progress_thread);
    std::mutex mutex;
    std::map<std::uint64_t, std::string> operations;  // by flow
    std::map<std::uint64_t, int> waits;
    engine.observe([&](const EngineEvent& event) {
      if (event.traffic != Traffic::embedding_rows) return;
      const std::lock_guard lock(mutex);
      if (event.kind == EngineEvent::Kind::operation) operations[event.flow] = event.what;
      if (event.kind == EngineEvent::Kind::wait && event.flow != 0) ++waits[event.flow];
    });
    train({.config = c, .world = &world});
    engine.observe({});
    int delayed = 0, others = 0;  // a table has four units: rows, prior, delayed, looked at
    for (const auto& [flow, what] : operations) {
      const bool is_delayed = what.starts_with("all_to_all of embedding.rows 2 ");
      (is_delayed ? delayed : others) += 1;
      if (is_delayed && !what.ends_with("#7")) {  // the end waits for everything
        EXPECT_EQ(waits[flow], 0) << what;
      }
    }
    EXPECT_EQ(delayed, 8);
    EXPECT_EQ(others, 16);
    engine.flush();
    world.gather({});
    engine.flush();
  });
}

// --- rules alone, with gradients that are given

// A model whose table travels by rows, and what ranks look up in it: a function of step and member
// alone, few rows often and others seldom.
constexpr LlamaShape kTables{.layers = 8,
                             .width = 16,
                             .heads = 2,
                             .key_heads = 2,
                             .head_width = 8,
                             .hidden = 24,
                             .context = 12,
                             .vocabulary = 96};

RowIds rows_read_in(std::int64_t step, int member) {
  std::mt19937_64 draw(static_cast<std::uint64_t>(17 * step + member));
  std::vector<std::int64_t> ids = {95};
  for (int i = 0; i < 16; ++i)
    ids.push_back(static_cast<std::int64_t>((draw() % 96) * (draw() % 96) / 96));
  return unique_rows(ids);
}

struct Sent {
  DeadlineKey key = 0;  // of the step and block that wait for it
  bool is_rows = false;
  std::uint64_t bytes = 0;
  EngineEvent::Time queued, left;
};

struct Trained {
  std::vector<at::Tensor> values;
  std::vector<double> norms;  // by step, as heard
  std::vector<Sent> sent;
};

// "dp.gradient 2 #17.3": block 2 of step 17; "embedding.rows 1 #17": what unit 1 does in step 17.
DeadlineKey key_of(const std::string& what) {
  std::istringstream text(what);
  std::string word;
  std::uint64_t unit = 0, step = 0;
  char hash = 0;
  text >> word >> unit >> hash >> step;
  if (word == "dp.gradient") return deadline_key(step + 1, unit, 2);
  constexpr std::uint64_t kPrior = 1, kDelayed = 2;  // 0: rows, on their way to who reads them
  if (unit == kPrior) return deadline_key(step + 1, 0, 0);
  return unit == kDelayed ? deadline_key(step + 2, 0, 0) : deadline_key(step, 0, 1);
}

struct RuleSteps {
  std::int64_t steps = 1;
  bool has_table = false;
  bool by_block = true;
  std::uint64_t seed = 0;  // of pauses, by rank; 0: none
  std::string shape = "";
  std::vector<std::string> sets = {};
};

class RuleRank {
 public:
  RuleRank(const RuleSteps& run, const RunConfig& config, World& world)
      : run_(run),
        world_(world),
        weights_(run.has_table
                     ? make_weights(kTables, 5, at::TensorOptions().dtype(at::kFloat), {}, 0,
                                    {.coord = world.coord(),
                                     .tables = table_cuts(config, model_spec(kTables, 12))})
                     : make_weights(kShape, 5, at::TensorOptions().dtype(at::kFloat))),
        state_(make_optimiser_state(weights_.parameters)),
        rule_(make_update_rule(
            {.config = config, .weights = weights_, .world = world, .shared = {}, .encoded = 1})),
        random_(run.seed + static_cast<std::uint64_t>(world.rank())) {}

  Trained go() {
    for (std::int64_t s = 0; s < run_.steps; ++s) take_step(s);
    rule_->settle(run_.has_table);
    if (run_.by_block) trained_.norms.push_back(rule_->hear().norm);
    for (const Parameter& p : weights_.parameters) trained_.values.push_back(p.value.detach());
    return trained_;
  }

 private:
  void pause() {
    if (run_.seed == 0 || random_() % 4 != 0) return;
    std::this_thread::sleep_for(std::chrono::microseconds(random_() % 200));
  }

  void foresee(std::int64_t step) {
    rule_->foresee(step, [&](std::int64_t s, const std::string&, int member) {
      return s < run_.steps ? rows_read_in(s, member) : RowIds();
    });
  }
  void look_up(std::int64_t step) {
    const RowIds ids = rows_read_in(step, world_.dp_member());
    const at::Tensor wanted = at::empty({static_cast<std::int64_t>(ids.size())}, at::kLong);
    std::ranges::copy(ids, wanted.data_ptr<std::int64_t>());
    backward({rule_->row_lookup()->rows(0, 0, wanted).tanh().sum()}, {at::empty({}).fill_(1)});
  }

  void take_step(std::int64_t step) {
    foresee(step);
    rule_->begin(step);
    for (std::int64_t b = 0; b < block_count(weights_.spec); ++b) {
      pause();
      rule_->wait_for(b);
      EXPECT_FALSE(rule_->owes_update(b));
    }
    if (run_.has_table) look_up(step);
    for (Parameter& p : weights_.parameters)
      if (!run_.has_table || p.number != 0)
        p.gradient = test::random_gradient(p, step, world_.dp_member(), test::End::embedding);
    for (std::int64_t b = block_count(weights_.spec); b-- > 0;) {
      pause();
      rule_->block_done(b);
    }
    if (run_.by_block) {
      rule_->leave(1.0, 0, state_, 0.01);
      if (step > 0) trained_.norms.push_back(rule_->hear().norm);
    } else {
      trained_.norms.push_back(rule_->measure(1.0, 0).norm);
      rule_->apply(state_, 0.01, 1);
    }
    clear_gradients(weights_);
  }

  const RuleSteps run_;
  World& world_;
  Weights weights_;
  OptimiserState state_;
  std::unique_ptr<UpdateRule> rule_;
  std::mt19937_64 random_;
  Trained trained_;
};

std::vector<Trained> train_rules(const RuleSteps& run, int dp) {
  RunConfig config = test::config_for(Mesh{.dp = dp}, run.sets);
  config.train.clip = 0;
  if (run.by_block) config.train.update = UpdateBy::block;
  std::vector<Trained> all(static_cast<std::size_t>(dp));
  std::vector<std::unique_ptr<Transport>> transports = make_in_process(dp);
  if (!run.shape.empty())
    for (std::unique_ptr<Transport>& transport : transports)
      transport = make_shaped(std::move(transport), parse_shape(run.shape));
  run_ranks(transports, [&](Transport& transport) {
    Engine engine(transport, {.segment_bytes = kSegment, .deadline = std::chrono::seconds(20)});
    ProgressThread progress_thread(engine);
    World world(Mesh{.dp = dp}, progress_thread);
    std::mutex mutex;
    std::vector<Sent> sent;
    engine.observe([&](const EngineEvent& event) {
      const bool is_rows = event.traffic == Traffic::embedding_rows;
      if (event.kind != EngineEvent::Kind::send ||
          (!is_rows && event.traffic != Traffic::dp_gradient))
        return;
      const std::lock_guard lock(mutex);
      sent.push_back({key_of(event.what), is_rows, event.wire_bytes, event.begin, event.end});
    });
    Trained& mine = all[static_cast<std::size_t>(transport.rank())];
    mine = RuleRank(run, config, world).go();
    engine.flush();
    engine.observe({});
    mine.sent = std::move(sent);
    world.gather({});
    engine.flush();
  });
  return all;
}

void expect_same(const Trained& expected, const Trained& actual) {
  EXPECT_EQ(expected.norms, actual.norms);
  ASSERT_EQ(expected.values.size(), actual.values.size());
  for (std::size_t p = 0; p < expected.values.size(); ++p)
    EXPECT_TRUE(expected.values[p].equal(actual.values[p])) << "parameter " << p;
}

// T8. No order has to be agreed on: receivers know messages by their tags. What must be the same is
// what comes of them, on all ranks and whatever the pauses; and that something does.
TEST(BlockRule, PausesOfAnyRankChangeNothingAndStopNobody) {
  const std::int64_t steps = is_thorough() ? 1000 : 60;
  const std::vector<std::string> sets = {"dp.gradient.codec=quantise:bits=4"};
  const std::vector<Trained> together =
      train_rules({.steps = steps, .by_block = false, .sets = sets}, 3);
  const std::vector<Trained> apart = train_rules({.steps = steps, .seed = 7, .sets = sets}, 3);
  for (const Trained& rank : apart) expect_same(together[0], rank);
}

std::vector<std::string> by_rows() {
  return {"embedding.rows.method=alltoall", "embedding.rows.optimiser=lazy_adam",
          "embedding.rows.split=on", "optimiser.weight_decay=0.1"};
}

// The same with a table, of which every rank has its columns.
TEST(BlockRule, PausesOfAnyRankChangeNothingOfATable) {
  const std::int64_t steps = is_thorough() ? 1000 : 40;
  const std::vector<Trained> together =
      train_rules({.steps = steps, .has_table = true, .by_block = false, .sets = by_rows()}, 3);
  const std::vector<Trained> apart =
      train_rules({.steps = steps, .has_table = true, .seed = 7, .sets = by_rows()}, 3);
  for (std::size_t rank = 0; rank < apart.size(); ++rank) expect_same(together[rank], apart[rank]);
}

// Bytes of messages that were queued before an urgent one, are for later, and left while it waited.
std::uint64_t bytes_before(const Sent& urgent, const Trained& rank) {
  std::uint64_t bytes = 0;
  for (const Sent& other : rank.sent)
    if (other.key > urgent.key && other.left > urgent.queued && other.left < urgent.left)
      bytes += other.bytes;
  return bytes;
}
// Whether it jumped the queue before another message.
bool has_overtaken(const Sent& urgent, const Sent& other) {
  return other.key > urgent.key && other.queued < urgent.queued && other.left > urgent.left;
}

// T9. On a link that is slower than everything else nothing overtakes what a sooner block waits for
// but what had been handed over.
TEST(BlockRule, NothingOvertakesMoreThanTheCredit) {
  const std::vector<Trained> ranks = train_rules(
      {.steps = 3, .shape = "rate=16mbit", .sets = {"dp.gradient.algorithm=direct"}}, 2);
  std::uint64_t overtaken = 0;  // messages that jumped the queue
  for (const Trained& rank : ranks)
    for (const Sent& urgent : rank.sent) {
      EXPECT_LE(bytes_before(urgent, rank), kCredit) << "a message of " << urgent.bytes;
      for (const Sent& other : rank.sent) overtaken += has_overtaken(urgent, other) ? 1 : 0;
    }
  EXPECT_GT(overtaken, 0U);
}

// The same among rows and sums: gradients of rows that the next step reads jump sums, and so do
// rows; sums jump gradients that come later.
TEST(BlockRule, RowsAndSumsOvertakeEachOtherByTheirDeadlines) {
  const std::vector<Trained> ranks =
      train_rules({.steps = 6,
                   .has_table = true,
                   .shape = "rate=8mbit",
                   .sets = with(by_rows(), {"dp.gradient.algorithm=direct"})},
                  2);
  std::uint64_t rows_first = 0, sums_first = 0;
  for (const Trained& rank : ranks)
    for (const Sent& urgent : rank.sent) {
      EXPECT_LE(bytes_before(urgent, rank), kCredit)
          << (urgent.is_rows ? "rows" : "a sum") << " of " << urgent.bytes;
      for (const Sent& other : rank.sent)
        if (urgent.is_rows != other.is_rows && has_overtaken(urgent, other))
          ++(urgent.is_rows ? rows_first : sums_first);
    }
  EXPECT_GT(rows_first, 0U);
  EXPECT_GT(sums_first, 0U);
}

}  // namespace
}  // namespace laconic::block
