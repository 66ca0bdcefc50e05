// Tables whose columns lie on the replicas (embedding.rows): T1, T2, T4, T6, T11 and T12 of the
// specification of EmbRace in whole runs. Whatever is cut, put off, saved or continued, the model
// is that of replicas that hold the whole table.
#include "embedding_rows.hpp"

namespace laconic {
namespace {

// T1, T4: the same sums in the same order, so the same bits, for even columns and uneven ones.
TEST_F(EmbeddingRows, PlainSgdIsTheSumOfWholeTablesBitForBit) {
  for (const std::int64_t dp : {1, 2, 3}) {
    SCOPED_TRACE(dp);
    const TrainSummary whole = run(config_on(fmt::format("whole{}", dp), dp, sgd()));
    for (const char* method : {"alltoall", "allgather", "server", "auto"})
      for (const char* split : {"off", "on"}) {
        // What "auto" comes to is one of the others.
        if (method == std::string_view("auto") && (dp == 1 || split == std::string_view("off")))
          continue;
        SCOPED_TRACE(fmt::format("{}, split {}", method, split));
        const TrainSummary cut = run(config_on(
            fmt::format("{} {}{}", method, split, dp), dp,
            with(sgd(), {fmt::format("embedding.rows.method={}", method),
                         fmt::format("embedding.rows.split={}", split),
                         fmt::format("embedding.rows.early={}",
                                     dp == 3 && method != std::string_view("allgather"))})));
        EXPECT_EQ(cut.loss, whole.loss);
        EXPECT_EQ(cut.evaluation->loss, whole.evaluation->loss);
        EXPECT_TRUE(parameters_of(cut) == parameters_of(whole));
      }
  }
}

// T4: against sums of whole tables as others make them, by a ring and in a tree: two ranks add two
// numbers, and that is exact; more add them in another order.
TEST_F(EmbeddingRows, FortyStepsAreThoseOfSumsInOtherOrders) {
  for (const std::int64_t dp : {2, 4})
    for (const char* algorithm : {"ring", "doubling"}) {
      SCOPED_TRACE(fmt::format("{} ranks, {}", dp, algorithm));
      const auto sets =
          with(sgd(), {"train.steps=40", "optimiser.lr=0.05",
                       "data.valid=", fmt::format("dp.gradient.algorithm={}", algorithm)});
      const RunConfig c = config_on(fmt::format("whole {} {}", algorithm, dp), dp, sets);
      const TrainSummary whole = run(c);
      const TrainSummary cut = run(config_on(fmt::format("cut {} {}", algorithm, dp), dp,
                                             with(sets, {"embedding.rows.method=alltoall"})));
      if (dp == 2) {
        EXPECT_EQ(cut.loss, whole.loss);
        EXPECT_TRUE(parameters_of(cut) == parameters_of(whole));
        continue;
      }
      EXPECT_FALSE(parameters_of(cut) == parameters_of(whole));
      EXPECT_NEAR(cut.loss, whole.loss, 1e-6 * whole.loss);
      const Weights model = read_model(whole.checkpoint, tensor_options(c));
      double largest = 0;
      for (const Parameter& p : model.parameters)
        largest = std::max(largest, p.value.abs().max().item<double>());
      EXPECT_LT(largest_difference(cut.checkpoint, whole.checkpoint, c), 1e-6 * largest);
    }
}

// T2, T11: rows that come later change nothing but when they come; evaluations and checkpoints in
// between see them.
TEST_F(EmbeddingRows, RowsThatComeLaterChangeNoBit) {
  for (const char* algorithm : {"lazy_adam", "adagrad"}) {
    SCOPED_TRACE(algorithm);
    std::vector<TrainSummary> runs;
    for (const char* split : {"off", "on"}) {
      const std::string name = fmt::format("{} {}", algorithm, split);
      runs.push_back(
          run(config_on(name, 2,
                        {"embedding.rows.method=alltoall", "evaluate.every=2", "checkpoint.every=3",
                         fmt::format("embedding.rows.optimiser={}", algorithm),
                         fmt::format("embedding.rows.split={}", split)})));
    }
    EXPECT_FALSE(losses(fmt::format("{} on", algorithm)).empty());
    EXPECT_EQ(losses(fmt::format("{} on", algorithm)), losses(fmt::format("{} off", algorithm)));
    EXPECT_EQ(runs[0].evaluation->loss, runs[1].evaluation->loss);
    EXPECT_TRUE(model_bytes(runs[0].checkpoint) == model_bytes(runs[1].checkpoint));
  }
}

// In double any number of ranks trains one model, decay and clipping included.
TEST_F(EmbeddingRows, AnyNumberOfRanksTrainsTheModelOfOne) {
  const std::vector<std::vector<std::string>> variants = {
      lazy({"train.clip=0.3"}), lazy({"train.clip=0.3", "embedding.rows.clip=dense"}),
      lazy({"train.clip=0.3", "embedding.rows.method=allgather"}),
      lazy({"train.clip=0.3", "embedding.rows.method=server", "embedding.rows.early=true"}),
      with(sgd(), {"embedding.rows.method=alltoall", "train.clip=0.1"})};
  for (std::size_t v = 0; v < variants.size(); ++v) {
    const auto sets = with(variants[v], {"run.precision=float64"});
    const RunConfig one = config_on(fmt::format("one{}", v), 1, sets);
    const TrainSummary alone = run(one);
    for (const std::int64_t dp : {2, 3}) {
      SCOPED_TRACE(fmt::format("variant {}, dp {}", v, dp));
      const TrainSummary together = run(config_on(fmt::format("many{}", v), dp, with(sets, {})));
      EXPECT_NEAR(together.loss, alone.loss, 1e-11);
      EXPECT_NEAR(together.evaluation->loss, alone.evaluation->loss, 1e-11);
      EXPECT_LT(largest_difference(together.checkpoint, alone.checkpoint, one), 1e-11);
      std::filesystem::remove_all(folder_ / fmt::format("many{}", v));
    }
  }
}

// T5: without a word nobody gets another algorithm than the run's.
TEST_F(EmbeddingRows, LazyAdamIsAnotherAlgorithmAndMustBeNamed) {
  const TrainSummary dense = run(config_on("dense", 2)), other = run(config_on("lazy", 2, lazy()));
  EXPECT_FALSE(model_bytes(dense.checkpoint) == model_bytes(other.checkpoint));
  EXPECT_NEAR(dense.loss, other.loss, 0.1);
  const RunConfig silent = config_on("silent", 2, {"embedding.rows.method=alltoall"});
  EXPECT_NE(to_text(check(silent)).find("moves rows that no rank has read"), std::string::npos);
}

// T6: counters equal the formulas, as whole numbers.
TEST_F(EmbeddingRows, BytesAreThoseOfTheFormulas) {
  for (const std::int64_t dp : {2, 4}) {
    RunConfig c = config_on(fmt::format("bytes{}", dp), dp, lazy());
    c.data.valid = "";
    const TrainSummary summary = run(c);
    const Dataset data = open_dataset(c.data.train, c.model.context, 257);
    const SampleOrder order = sample_order(c, samples_in(data), 0);
    std::uint64_t rows = 0;
    for (std::int64_t p = 0; p < c.train.steps * c.train.batch; p += c.local_batch()) {
      std::vector<std::int64_t> samples;
      for (std::int64_t s = p; s < p + c.local_batch(); ++s)
        samples.push_back(
            static_cast<std::int64_t>(sample_at(order, static_cast<std::uint64_t>(s))));
      const at::Tensor ids = make_batch(task_of(c), data, samples, at::kCPU)["ids"];
      rows += unique_rows(
                  std::span(ids.data_ptr<std::int64_t>(), static_cast<std::size_t>(ids.numel())))
                  .size();
    }
    const auto n = static_cast<std::uint64_t>(dp);
    EXPECT_EQ(bytes_of_rows(summary), 2 * (n - 1) * 16 / n * 4 * rows) << dp;
  }
}

// Rows and gradients of rows in few bits: near the exact run, the same every time, whatever comes
// later; and shorter by what the codec says.
TEST_F(EmbeddingRows, CodecsMakeMessagesShorterAndRunsRepeat) {
  const auto wire_of = [](const TrainSummary& summary) -> std::uint64_t {
    for (const TrafficTotal& total : summary.traffic)
      if (total.traffic == Traffic::embedding_rows) return total.sent.wire_bytes;
    return 0;
  };
  const auto sets = lazy({"train.steps=8"});
  const TrainSummary exact = run(config_on("exact", 2, sets));
  for (const std::string codec : {"half", "quantise:bits=8,group=row", "quantise:bits=4,block=64",
                                  "huffman", "huffman:kind=f32"}) {
    SCOPED_TRACE(codec);
    const auto short_ones = with(sets, {fmt::format("embedding.rows.codec={}", codec),
                                        fmt::format("embedding.rows.gradient={}", codec)});
    std::vector<TrainSummary> runs;
    for (const char* split : {"on", "off"})
      runs.push_back(
          run(config_on(fmt::format("{} {}", codec, split), 2,
                        with(short_ones, {fmt::format("embedding.rows.split={}", split)}))));
    const bool loses_nothing = codec == "huffman:kind=f32";
    EXPECT_NEAR(runs[0].evaluation->loss, exact.evaluation->loss, 0.02);
    EXPECT_EQ(runs[0].evaluation->loss == exact.evaluation->loss, loses_nothing);
    EXPECT_EQ(model_bytes(runs[0].checkpoint) == model_bytes(exact.checkpoint), loses_nothing);
    EXPECT_LT(wire_of(runs[0]), wire_of(exact));
    EXPECT_EQ(bytes_of_rows(runs[0]), bytes_of_rows(exact));
    // A scale of several rows depends on which of them travel together.
    const bool is_by_row = codec.find("block") == std::string::npos;
    EXPECT_TRUE(!is_by_row || model_bytes(runs[0].checkpoint) == model_bytes(runs[1].checkpoint));
  }
  RunConfig bad = config_on(
      "bad", 3, lazy({"embedding.rows.codec=quantise:group=row", "embedding.rows.gradient=top_k"}));
  const std::string text = to_text(check(bad));
  EXPECT_NE(text.find("does not divide the 16 columns"), std::string::npos) << text;
  EXPECT_NE(text.find("since the next one has other rows"), std::string::npos) << text;
}

// T12.
TEST_F(EmbeddingRows, ARunThatIsContinuedIsTheRunThatWasNotInterrupted) {
  const auto sets = lazy({"checkpoint.every=3", "train.steps=6"});
  const TrainSummary through = run(config_on("through", 2, sets));
  const std::string half = folder_ / "through/checkpoints/step-00000003";
  ASSERT_TRUE(std::filesystem::exists(half));
  const TrainSummary same = run(config_on("same", 2, sets), half);
  EXPECT_EQ(same.loss, through.loss);
  EXPECT_TRUE(model_bytes(same.checkpoint) == model_bytes(through.checkpoint));
  const TrainSummary served =
      run(config_on("served", 2, with(sets, {"embedding.rows.method=server"})), half);
  EXPECT_EQ(served.loss, through.loss);
  EXPECT_TRUE(model_bytes(served.checkpoint) == model_bytes(through.checkpoint));
  for (const std::int64_t dp : {1, 3}) {
    const RunConfig c = config_on(fmt::format("other{}", dp), dp, sets);
    const TrainSummary other = run(c, half);
    EXPECT_NEAR(other.loss, through.loss, 1e-5);
    EXPECT_LT(largest_difference(other.checkpoint, through.checkpoint, c), 1e-4) << dp;
  }
}

// One process pays what more ranks left outstanding of all gradients but those of rows: one that
// nobody has read shrinks in every step, and no more.
TEST_F(EmbeddingRows, WhatIsOutstandingIsNoGradientOfATable) {
  const auto sets =
      lazy({"checkpoint.every=3", "train.steps=6", "dp.gradient.codec=quantise:bits=4"});
  const TrainSummary through = run(config_on("through", 2, sets));
  const TrainSummary alone =
      run(config_on("alone", 1, sets), folder_ / "through/checkpoints/step-00000003");
  const auto unread = [](const TrainSummary& summary) {
    const Weights weights = read_model(summary.checkpoint, at::TensorOptions().dtype(at::kFloat));
    return weights.parameters[0].value.detach()[250];
  };
  EXPECT_TRUE(unread(alone).equal(unread(through)));
}

TEST_F(EmbeddingRows, AStepThatIsLeftOutLeavesRowsAlone) {
  for (const char* split : {"off", "on"}) {
    const auto sets =
        lazy({"train.non_finite=skip", fmt::format("embedding.rows.split={}", split),
              fmt::format("embedding.rows.early={}", split == std::string_view("on"))});
    std::vector<TrainSummary> runs;
    for (const std::int64_t dp : {1, 2}) {
      RunConfig c =
          config_on(fmt::format("{}{}", split, dp), dp, with(sets, {"run.precision=float64"}));
      runs.push_back(run_hooked(c, {.spoiled = {1, 2}}));
      EXPECT_EQ(runs.back().skipped, 2);
    }
    EXPECT_NEAR(runs[0].loss, runs[1].loss, 1e-11);
    EXPECT_LT(largest_difference(runs[0].checkpoint, runs[1].checkpoint,
                                 config_on("c", 1, {"run.precision=float64"})),
              1e-11);
  }
}

TEST_F(EmbeddingRows, StagesOfAPipelineHaveTheirTables) {
  for (const auto& model : {std::vector<std::string>(), with(lstm(), {"model.layers=2"})}) {
    const std::string kind = model.empty() ? "llama" : "lstm";
    const auto sets = with(sgd(), with(model, {"mesh.pp=2"}));
    const TrainSummary whole = run(config_on(kind + " whole", 2, sets));
    const TrainSummary cut =
        run(config_on(kind + " cut", 2, with(sets, {"embedding.rows.method=alltoall"})));
    EXPECT_EQ(cut.loss, whole.loss);
    EXPECT_EQ(cut.evaluation->loss, whole.evaluation->loss);
    EXPECT_TRUE(parameters_of(cut) == parameters_of(whole));
  }
}

// As on a GPU, but that all memory is the host's: rows go to blocks in one copy, in the type of
// computing, and gradients leave when they have come back. The same bits, in two tables of a
// sampled softmax and in one that two blocks look up, whose padding nobody announces.
TEST_F(EmbeddingRows, TablesApartFromTheirBlocksAreTheSameTables) {
  prepare_pairs();
  const std::vector<std::vector<std::string>> models = {{"model.recompute=true"}, lstm(), pairs()};
  const char* methods[] = {"alltoall", "allgather", "server"};
  for (std::size_t m = 0; m < models.size(); ++m)
    for (std::size_t i = 0; i < std::size(methods); ++i) {
      const char* precision = (m + i) % 2 == 0 ? "bfloat16" : "float32";
      SCOPED_TRACE(fmt::format("model {}, {}, {}", m, methods[i], precision));
      const auto sets = lazy(
          with(models[m], {fmt::format("embedding.rows.method={}", methods[i]),
                           fmt::format("run.precision={}", precision), "embedding.rows.split=on",
                           "evaluate.every=2", "train.non_finite=skip"}));
      const TrainSummary together = run_hooked(config_on("together", 2, sets), {.spoiled = {1}});
      const TrainSummary apart =
          run_hooked(config_on("apart", 2, sets), {.spoiled = {1}, .tables_are_apart = true});
      EXPECT_EQ(losses("apart"), losses("together"));
      EXPECT_EQ(apart.loss, together.loss);
      EXPECT_EQ(apart.evaluation->loss, together.evaluation->loss);
      EXPECT_TRUE(model_bytes(apart.checkpoint) == model_bytes(together.checkpoint));
      for (const char* name : {"together", "apart"}) std::filesystem::remove_all(folder_ / name);
    }
}

// A pipeline of stages, blocks that end apart, one rank alone.
TEST_F(EmbeddingRows, TablesMayBeApartOnAnyMesh) {
  const std::vector<std::pair<std::int64_t, std::vector<std::string>>> cases = {
      {1, {}},
      {1, lstm()},
      {2, {"mesh.pp=2"}},
      {2, {"train.update=block"}},
      {3, {"train.clip=0.3"}}};
  for (const auto& [dp, more] : cases) {
    SCOPED_TRACE(fmt::format("dp {}: {}", dp, fmt::join(more, " ")));
    const auto sets = lazy(more);
    const TrainSummary together = run(config_on("together", dp, sets));
    const TrainSummary apart = run_hooked(config_on("apart", dp, sets), {.tables_are_apart = true});
    EXPECT_EQ(losses("apart"), losses("together"));
    EXPECT_TRUE(model_bytes(apart.checkpoint) == model_bytes(together.checkpoint));
    for (const char* name : {"together", "apart"}) std::filesystem::remove_all(folder_ / name);
  }
}

TEST_F(EmbeddingRows, WhatCannotBeIsRefusedWithAllReasons) {
  RunConfig c = config_on(
      "bad", 20,
      {"embedding.rows.method=alltoall", "embedding.rows.split=on", "train.clip=1", "local.steps=5",
       "steering.shadow=5", "mesh.tp=2", "train.batch=20", "dp.gradient.method=compressed_adam"});
  const std::string text = to_text(check(c));
  for (const char* part :
       {"momentum = 0.9 and weight_decay = 0.1", "train.clip = 1", "local.steps = 5",
        "steering.shadow = 5", "mesh.tp = 2", "compressed_adam",
        "cuts the 16 columns of model.embed_tokens.weight over mesh.dp = 20"})
    EXPECT_NE(text.find(part), std::string::npos) << part << " in\n" << text;
  RunConfig tied = config_on("tied", 2, lazy({"model.tied=true"}));
  EXPECT_NE(to_text(check(tied)).find("Llama"), std::string::npos) << to_text(check(tied));
  const auto of_two_blocks = [&](const std::string& pp) {
    return to_text(check(config_on("shared", 2,
                                   lazy({"model.kind=seq2seq", "task.kind=translate",
                                         "evaluate.bleu_samples=0", "model.sharing=input", pp}))));
  };
  EXPECT_NE(of_two_blocks("mesh.pp=2").find("2 blocks look up shared.weight"), std::string::npos)
      << of_two_blocks("mesh.pp=2");
  EXPECT_EQ(of_two_blocks("mesh.pp=1"), "");
}

TEST_F(EmbeddingRows, WhatNoMethodCanFollowIsRefusedByName) {
  const struct {
    std::vector<std::string> sets;
    const char* part;
  } cases[] = {
      {lazy({"run.device=cuda", "mesh.pp=2", "model.layers=2", "model.project_after=1",
             "model.project_rank=4", "model.project_basis=pca"}),
       "boundaries that begin with the principal directions of the first samples"},
      {{"train.update=block", "run.device=cuda"},
       "update = \"block\" with run.device = \"cuda\": nobody has tried it on a GPU as yet"},
      {lazy({"model.kind=seq2seq", "model.sharing=none", "task.kind=translate",
             "evaluate.bleu_samples=4"}),
       "evaluate.bleu_samples = 4: what is written word by word"},
      {lazy({"embedding.rows.method=allgather", "embedding.rows.codec=half"}),
       "codec = \"half\" with method = \"allgather\": where tables are whole on every rank"},
      {lazy({"embedding.rows.method=allgather", "embedding.rows.gradient=half"}),
       "gradient = \"half\" with method = \"allgather\""},
      {lazy({"embedding.rows.method=allgather", "embedding.rows.early=true"}),
       "early = true with method = \"allgather\""},
      {{"embedding.rows.optimiser=lazy_adam"},
       "method = \"allreduce\" with embedding.rows.optimiser = \"lazy_adam\""},
      {lazy({"optimiser.kind=adam", "optimiser.weight_decay=0.1"}),
       "optimiser.kind = \"adam\" and weight_decay = 0.1, which is a part of every row's gradient"},
      {lazy({"embedding.rows.optimiser=sgd", "optimiser.kind=sgd", "optimiser.weight_decay=0.1"}),
       "optimiser.kind = \"sgd\" and weight_decay = 0.1, which is a part of every row's gradient"},
      {lazy({"optimiser.kind=sgd", "optimiser.weight_decay=0"}),
       "keeps two moments, and optimiser.kind = \"sgd\" has one"},
      {lazy({"optimiser.kind=lion"}), "keeps two moments, and optimiser.kind = \"lion\" has one"},
      {lazy({"embedding.rows.codec=quantise:group=channel"}),
       "a scale for each column would be one of rows that have nothing in common"}};
  for (const auto& one : cases) {
    const std::string text = to_text(check(config_on("bad", 2, one.sets)));
    EXPECT_NE(text.find(one.part), std::string::npos) << one.part << " in\n" << text;
  }
  EXPECT_EQ(to_text(check(config_on("good", 2, lazy({"run.device=cuda"})))), "");
}

}  // namespace
}  // namespace laconic
