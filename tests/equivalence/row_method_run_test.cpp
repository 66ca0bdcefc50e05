// How rows of tables may travel (embedding.rows.method) in whole runs: which model that makes, how
// many bytes, what "auto" decides, and how tables that nobody holds whole are saved.
#include <ATen/ops/arange.h>
#include <ATen/ops/cat.h>
#include <ATen/ops/full.h>

#include <set>

#include "embedding_rows.hpp"
#include "laconic/base/test_effort.hpp"
#include "laconic/checkpoint/collect.hpp"

namespace laconic {
namespace {

class RowMethodRun : public EmbeddingRows {};

// T6 for every method, with two tables, one of which reads what is drawn as well; early or not.
TEST_F(RowMethodRun, BytesOfEveryMethodAreThoseOfItsPlan) {
  for (const auto& [method, cut] : {std::pair{"alltoall", ReplicaCut::columns},
                                    {"server", ReplicaCut::rows},
                                    {"allgather", ReplicaCut::whole}}) {
    SCOPED_TRACE(method);
    RunConfig c = config_on(
        method, 3,
        lazy(with(lstm(), {fmt::format("embedding.rows.method={}", method),
                           fmt::format("embedding.rows.early={}", cut != ReplicaCut::whole),
                           "embedding.rows.split=on"})));
    c.data.valid = "";
    const TrainSummary summary = run(c);
    const Dataset data = open_dataset(c.data.train, c.model.context, 257);
    const SampleOrder order = sample_order(c, samples_in(data), 0);
    const Task task = task_of(c);
    const RowReader reader{c, data, order, task};
    const ParameterSpec softmax{.name = "softmax.weight", .sizes = {257, c.model.width}};
    std::uint64_t expected = 0;
    for (std::int64_t step = 0; step < c.train.steps; ++step) {
      std::vector<RowIds> read, compared;
      for (int m = 0; m < 3; ++m) {
        const std::int64_t position = step * c.train.batch;
        read.push_back(reader.rows(position, m, "ids"));
        const std::vector<RowIds> both = {reader.rows(position, m, "targets"),
                                          unique_rows(drawn_rows(c, softmax, step, m))};
        compared.push_back(union_of(both));
      }
      for (const auto& by_member : {read, compared})
        for (int m = 0; m < 3; ++m) {
          const RowBytes sent = bytes_sent({cut, 3, c.model.width}, by_member, 4, m);
          expected += sent.forward + sent.backward;
        }
    }
    EXPECT_EQ(bytes_of_rows(summary), expected);
  }
}

// Whoever holds which columns or rows, and also whoever holds all: the same sums.
TEST_F(RowMethodRun, GradientsOfRowsMayGoToEverybodyOrToServersInstead) {
  const TrainSummary cut = run(config_on("cut", 3, lazy()));
  for (const char* method : {"allgather", "server"}) {
    const RunConfig c =
        config_on(method, 3, lazy({fmt::format("embedding.rows.method={}", method)}));
    const TrainSummary other = run(c);
    EXPECT_EQ(other.loss, cut.loss);
    EXPECT_EQ(other.evaluation->loss, cut.evaluation->loss);
    EXPECT_TRUE(model_bytes(other.checkpoint) == model_bytes(cut.checkpoint));
    EXPECT_GT(bytes_of_rows(other), 0U);
  }
}

// The first parameter of a model and the last but one, at once: rows of the softmax are those of
// targets and of words that are drawn, of each rank its own. Evaluations see the whole vocabulary,
// and the data ends in between.
TEST_F(RowMethodRun, TablesOfOneRunMayTravelInDifferentWays) {
  const auto sets = with(sgd(), with(lstm(), {"task.negatives=rank", "train.steps=8",
                                              fmt::format("data.train={}", folder_ / "few")}));
  const TrainSummary whole = run(config_on("whole", 3, sets));
  using enum RowsMethod;
  const std::vector<std::pair<RowsMethod, RowsMethod>> pairs = {
      {alltoall, server}, {server, allgather}, {allreduce, alltoall}, {allgather, allreduce}};
  for (const auto& [input, output] : pairs) {
    const std::string name =
        fmt::format("{} {}", name_in(kRowsMethodNames, input), name_in(kRowsMethodNames, output));
    SCOPED_TRACE(name);
    RunConfig c = config_on(name, 3, with(sets, {"embedding.rows.method=auto"}));
    c.embedding_rows.decided = {{"embedding.weight", input}, {"softmax.weight", output}};
    c.embedding_rows.early = input == alltoall;
    const TrainSummary cut = run(c);
    EXPECT_EQ(cut.loss, whole.loss);
    EXPECT_EQ(cut.evaluation->loss, whole.evaluation->loss);
    EXPECT_TRUE(parameters_of(cut) == parameters_of(whole));
  }
}

TEST_F(RowMethodRun, AutoTakesWhatMovesLeastAndSaysWhy) {
  const auto decide = [&](std::int64_t dp, const std::vector<std::string>& sets) {
    RunConfig c = config_on("auto", 1, with({"embedding.rows.method=auto"}, sets));
    World world;
    c.mesh.dp = dp;
    return decide_rows(c, world);
  };
  const auto method = [](const RowDecision& decision) {
    return decision.methods.at("model.embed_tokens.weight");
  };
  const RowDecision four = decide(4, sgd());
  EXPECT_EQ(method(four), RowsMethod::alltoall);
  ASSERT_EQ(four.reasons.size(), 1U);
  for (const char* part : {"model.embed_tokens.weight: a rank reads ", " of 257 rows", "alltoall",
                           "allgather", "allreduce"})
    EXPECT_NE(four.reasons[0].find(part), std::string::npos) << four.reasons[0];
  // Too narrow to cut by columns.
  const std::vector<std::string> many = {"model.width=8", "model.heads=1", "train.batch=240"};
  EXPECT_EQ(method(decide(24, with(many, {"embedding.rows.optimiser=lazy_adam"}))),
            RowsMethod::server);
  EXPECT_TRUE(decide(2, with(sgd(), {"model.tied=true"})).methods.empty());
}

// Ranks of one network share its card, and the card that most of them share decides.
TEST_F(RowMethodRun, AutoCountsTheRanksOfACardByTheirNetworks) {
  const std::pair<std::vector<std::string>, const char*> cases[] = {
      {{"a net:[1]", "a net:[1]", "b net:[1]", "b net:[1]"}, "2 to a card"},
      {{"a net:[1]", "a net:[2]", "a net:[3]", "a net:[4]"}, "1 to a card"},
      {{"a net:[1]", "b net:[1]", "b net:[1]", "b net:[1]"}, "3 to a card"}};
  const RunConfig c = config_on("auto", 4, with({"embedding.rows.method=auto"}, sgd()));
  for (const auto& [networks, told] : cases) {
    SCOPED_TRACE(told);
    run_ranks(4, [&](Transport& transport) {
      Engine engine(transport);
      ProgressThread progress_thread(engine);
      World world(Mesh{.dp = 4}, progress_thread);
      const RowDecision decision =
          decide_rows(c, world, networks[static_cast<std::size_t>(world.rank())]);
      ASSERT_EQ(decision.reasons.size(), 1U);
      EXPECT_NE(decision.reasons[0].find(told), std::string::npos) << decision.reasons[0];
      engine.flush();
    });
  }
}

// U / T and p of spec 2.5, by a count of their own.
TEST_F(RowMethodRun, ARunTellsHowOftenRowsComeAgain) {
  RunConfig c = config_on("shares", 3, lazy(lstm()));
  const Dataset data = open_dataset(c.data.train, c.model.context, 257);
  const SampleOrder order = sample_order(c, samples_in(data), 0);
  const Task task = task_of(c);
  const RowReader reader{c, data, order, task};
  const ParameterSpec table{
      .name = "embedding.weight", .sizes = {257, c.model.width}, .looked_up_by = {"ids"}};
  const auto ids_in = [&](std::int64_t step) {
    std::vector<std::vector<std::int64_t>> ids;
    for (int m = 0; m < 3; ++m) ids.push_back(reader.tokens(step * c.train.batch, m, "ids"));
    return ids;
  };
  std::set<std::int64_t> next;
  for (const auto& ids : ids_in(2)) next.insert(ids.begin(), ids.end());
  double tokens = 0, rows = 0, prior = 0;
  for (const auto& ids : ids_in(1)) {
    tokens += static_cast<double>(ids.size());
    for (const std::int64_t row : std::set(ids.begin(), ids.end())) {
      rows += 1;
      prior += next.contains(row) ? 1 : 0;
    }
  }
  EXPECT_EQ(tokens, static_cast<double>(c.train.batch * c.model.context));
  const ReadShares shares = read_shares(table, reader, 1, c.train.batch);
  EXPECT_NEAR(shares.unique, rows / tokens, 1e-12);
  EXPECT_NEAR(shares.prior, prior / rows, 1e-12);
  EXPECT_EQ(read_shares(table, reader, c.train.steps - 1, 0).prior, 0);
  const ReadShares first = read_shares(table, reader, 0, 0);
  testing::internal::CaptureStdout();
  run(c);
  const std::string told = testing::internal::GetCapturedStdout();
  EXPECT_NE(told.find(fmt::format("embedding.weight by alltoall, columns on 3 ranks, U/T {:.2f}, "
                                  "p {:.2f};",
                                  first.unique, first.prior)),
            std::string::npos)
      << told;
}

// Where messages take long, few rows go to everybody at once, and many to where they belong.
TEST_F(RowMethodRun, AutoDecidesForEachTableByTime) {
  RunConfig c =
      config_on("auto", 1, lazy(with(lstm(), {"embedding.rows.method=auto", "task.sampled=100"})));
  c.mesh.dp = 4;
  World world;
  const RowDecision bytes = decide_rows(c, world);
  EXPECT_EQ(bytes.methods.at("embedding.weight"), RowsMethod::alltoall);
  EXPECT_EQ(bytes.methods.at("softmax.weight"), RowsMethod::alltoall);
  c.embedding_rows.rates = {.bytes_per_second = 6000, .latency = 1};
  const RowDecision time = decide_rows(c, world);
  EXPECT_EQ(time.methods.at("embedding.weight"), RowsMethod::allgather);
  EXPECT_EQ(time.methods.at("softmax.weight"), RowsMethod::alltoall);
  ASSERT_EQ(time.reasons.size(), 2U);
  for (const std::string& reason : time.reasons)
    EXPECT_NE(reason.find("0.048 Mbit/s and 1e+03 ms"), std::string::npos) << reason;
}

// Rows are rounded before they travel, and gradients add up in float32: so methods still agree to
// the bit, and a row has half the bytes on its way to a block. Also where evaluations read a whole
// table, in tiles.
TEST_F(RowMethodRun, InBfloat16EveryMethodTrainsOneModel) {
  const auto sets_of = [&](const std::vector<std::string>& model, const char* precision,
                           const char* method) {
    return lazy(
        with(model, {fmt::format("run.precision={}", precision),
                     fmt::format("embedding.rows.method={}", method), "checkpoint.every=3"}));
  };
  for (const auto& model : {std::vector<std::string>(), lstm()}) {
    const std::string kind = model.empty() ? "llama" : "lstm";
    SCOPED_TRACE(kind);
    const TrainSummary exact =
        run(config_on(kind + " float32", 3, sets_of(model, "float32", "alltoall")));
    const TrainSummary cut = run(config_on(kind, 3, sets_of(model, "bfloat16", "alltoall")));
    EXPECT_NE(cut.loss, exact.loss);
    EXPECT_NEAR(cut.loss, exact.loss, 0.005 * exact.loss);
    EXPECT_NEAR(cut.evaluation->loss, exact.evaluation->loss, 0.005 * exact.evaluation->loss);
    for (const char* method : {"allgather", "server"})
      for (const char* split : {"on", "off"}) {
        if (!is_thorough() && (split == std::string_view("on")) == model.empty()) continue;
        SCOPED_TRACE(fmt::format("{}, split {}", method, split));
        const TrainSummary other =
            run(config_on(fmt::format("{} {} {}", kind, method, split), 3,
                          with(sets_of(model, "bfloat16", method),
                               {fmt::format("embedding.rows.split={}", split)})));
        EXPECT_EQ(other.loss, cut.loss);
        EXPECT_EQ(other.evaluation->loss, cut.evaluation->loss);
        EXPECT_TRUE(model_bytes(other.checkpoint) == model_bytes(cut.checkpoint));
      }
    const TrainSummary alone =
        run(config_on(kind + " alone", 1, sets_of(model, "bfloat16", "alltoall")));
    EXPECT_NEAR(alone.loss, cut.loss, 0.005 * cut.loss);
    const TrainSummary rest =
        run(config_on(kind + " rest", 3, sets_of(model, "bfloat16", "alltoall")),
            folder_ / (kind + "/checkpoints/step-00000003"));
    EXPECT_EQ(rest.loss, cut.loss);
    EXPECT_TRUE(model_bytes(rest.checkpoint) == model_bytes(cut.checkpoint));
  }
}

// The sum of whole tables rounds otherwise: it adds tokens of a microbatch in bfloat16.
TEST_F(RowMethodRun, InBfloat16RowsAreNearTheSumOfWholeTablesAndThreeQuartersOfTheBytes) {
  const auto bytes = [&](const char* precision) {
    RunConfig c = config_on(precision, 2,
                            with(sgd(), {"embedding.rows.method=alltoall",
                                         fmt::format("run.precision={}", precision)}));
    c.data.valid = "";
    return run(c);
  };
  const TrainSummary exact = bytes("float32"), rounded = bytes("bfloat16");
  EXPECT_EQ(4 * bytes_of_rows(rounded), 3 * bytes_of_rows(exact));
  const TrainSummary whole = run(config_on("whole", 2, with(sgd(), {"run.precision=bfloat16"})));
  EXPECT_NEAR(rounded.loss, whole.loss, 0.005 * whole.loss);
}

TEST_F(RowMethodRun, WhatRoundedRowsCannotBeIsRefused) {
  const auto problems = [&](const std::vector<std::string>& sets) {
    return to_text(check(config_on("bad", 2, lazy(with({"run.precision=bfloat16"}, sets)))));
  };
  EXPECT_EQ(problems({}), "");
  EXPECT_EQ(problems({"embedding.rows.early=true", "optimiser.weight_decay=0"}), "");
  EXPECT_NE(problems({"embedding.rows.early=true"}).find("rounded before they shrink"),
            std::string::npos);
}

// No rank has room for a whole table, not even the one that writes it: it comes in pieces.
TEST_F(RowMethodRun, ACheckpointCollectsTablesInPieces) {
  constexpr std::int64_t kRows = 70'001, kColumns = 16;  // 4.3 MiB
  const ModelSpec model = {
      .parameters = {{.name = "table",
                      .sizes = {kRows, kColumns},
                      .looked_up_by = {"ids"},
                      .role = Role::table},
                     {.name = "bias", .sizes = {3}}},
      .blocks = {{.name = "embedding", .kind = "embedding", .uses = {0}, .out = {{"x", {1, 1}}}},
                 {.name = "head", .kind = "head", .uses = {1}}}};
  const at::Tensor table = at::arange(kRows * kColumns, at::kFloat).view({kRows, kColumns});
  for (const ReplicaCut cut : {ReplicaCut::columns, ReplicaCut::rows})
    run_ranks(3, [&](Transport& transport) {
      Engine engine(transport);
      ProgressThread progress_thread(engine);
      World world(Mesh{.dp = 3}, progress_thread);
      const at::NoGradGuard no_grad;
      Weights weights = make_empty_weights(
          Family(GptShape()), model, at::TensorOptions(at::kFloat), {},
          {.coord = world.coord(), .tables = {.ranks = 3, .by_name = {{"table", cut}}}});
      const auto part = [&](double plus) {
        return shard_from(table.add(plus), weights.place, model.parameters[0]).clone();
      };
      weights.parameters[0].value.copy_(part(0));
      weights.parameters[1].value.fill_(7);
      OptimiserState state;
      state.moment1 = {part(1), at::full({3}, 8.0F)};
      state.moment2 = {part(2), at::full({3}, 9.0F)};
      if (!world.is_first()) give(world, weights, state, 0);
      world.decide_on_rank_0([&] {
        const ModelSource source = collecting_source(world, plan_for_one(model, 1), weights, state,
                                                     OptimiserKind::adamw, 0);
        for (const Part one : {Part::value, Part::moment1, Part::moment2})
          for (const std::size_t p : {0U, 1U}) {
            std::vector<at::Tensor> pieces;
            source.tensor(one, p,
                          [&](const at::Tensor& piece) { pieces.push_back(piece.clone()); });
            EXPECT_EQ(pieces.size(), p == 0 ? 2U : 1U);
            EXPECT_LE(pieces[0].nbytes(), 4U << 20);
            const double plus = static_cast<double>(one);
            const at::Tensor expected =
                p == 0 ? table.add(plus) : at::full({3}, 7 + plus, at::kFloat);
            EXPECT_TRUE(at::cat(pieces).equal(expected)) << p;
          }
        return std::string();
      });
      engine.flush();
    });
}

}  // namespace
}  // namespace laconic
