// Every family with each of its tasks: any mesh trains the model that one process trains. One
// table; a new family or task is a row.
#include <nlohmann/json.hpp>
#include <set>

#include "laconic/base/test_effort.hpp"
#include "laconic/config/grid_choice.hpp"
#include "laconic/config/model_family.hpp"
#include "laconic/config/row_choice.hpp"
#include "laconic/file/json.hpp"
#include "laconic/train/batch.hpp"
#include "laconic/train/validation_bleu.hpp"
#include "pipeline_ranks.hpp"

namespace laconic {
namespace {

struct FamilyRow {
  const char* name;
  const char* data;  // which of the fixture's datasets
  std::vector<std::string> sets;
};

const std::vector<FamilyRow> kRows = {
    {"llama", "text", {"model.kind=llama", "model.heads=4", "model.key_heads=2"}},
    {"llama tied",
     "text",
     {"model.kind=llama", "model.tied=true", "model.qk_norm=true", "model.rope_scaling=linear",
      "model.rope_factor=2"}},
    {"bert masked", "text", {"model.kind=bert", "task.kind=masked"}},
    {"bert words", "text", {"model.kind=bert", "task.kind=masked", "task.whole_words=true"}},
    {"bert sentences",
     "sentences",
     {"model.kind=bert", "task.kind=masked", "task.next_sentence=true"}},
    {"bert classify", "classes", {"model.kind=bert", "task.kind=classify"}},
    {"bert regress", "scores", {"model.kind=bert", "task.kind=regress"}},
    {"bert span", "answers", {"model.kind=bert", "task.kind=span"}},
    {"seq2seq",
     "pairs",
     {"model.kind=seq2seq", "task.kind=translate", "model.layers=2", "model.decoder_layers=3",
      "task.label_smoothing=0.1"}},
    {"seq2seq post",
     "pairs",
     {"model.kind=seq2seq", "task.kind=translate", "model.layers=2", "model.norm=post",
      "model.positions=learned", "model.sharing=none"}},
    {"seq2seq input",
     "pairs",
     {"model.kind=seq2seq", "task.kind=translate", "model.layers=1", "model.sharing=input"}},
    {"lstm",
     "text",
     {"model.kind=lstm", "model.heads=6", "model.layers=2", "model.context=12", "model.hidden=40",
      "model.projection=recurrent", "task.sampled=9"}},
    {"gnmt",
     "pairs",
     {"model.kind=gnmt", "task.kind=translate", "model.heads=6", "model.layers=2",
      "model.decoder_layers=3", "task.label_smoothing=0.1"}},
};

constexpr const char* kWords[] = {"a",    "man",   "woman", "dog", "runs",  "sits", "eats", "red",
                                  "blue", "big",   "in",    "the", "park",  "on",   "mat",  "with",
                                  "ball", "house", "tree",  "##s", "##ing", "is",   "near", "."};

class FamilyRun : public PipelineParallel {
 protected:
  FamilyRun() {
    std::filesystem::create_directories(folder_ / "wordpiece");
    std::ofstream vocabulary(folder_ / "wordpiece/vocab.txt");
    for (const char* token : {"[PAD]", "[UNK]", "[CLS]", "[SEP]", "[MASK]"})
      vocabulary << token << "\n";
    for (const char* word : kWords) vocabulary << word << "\n";
    vocabulary.close();
    write_records();
  }

  // A sentence of 3 to 9 words; the same for the same number.
  static std::string sentence(int number) {
    std::string text;
    const int words = 3 + number * 7 % 7;
    for (int w = 0; w < words; ++w)
      text +=
          fmt::format("{}{}", w == 0 ? "" : " ", kWords[(number * 5 + w * 11 + w * number) % 19]);
    return text + " .";
  }

  void write_records() {
    std::ofstream text(folder_ / "text.txt"), lines(folder_ / "sentences.txt");
    std::ofstream classes(folder_ / "classes.jsonl"), scores(folder_ / "scores.jsonl");
    std::ofstream answers(folder_ / "answers.jsonl"), pairs(folder_ / "pairs.jsonl");
    for (int i = 0; i < 120; ++i) {
      text << sentence(i) << " ";
      lines << sentence(i) << "\n" << (i % 5 == 4 ? "\n" : "");
      classes << nlohmann::json{{"text", sentence(i)},
                                {"pair", sentence(i + 1)},
                                {"label", i % 3 == 0   ? "yes"
                                          : i % 3 == 1 ? "no"
                                                       : "maybe"}}
              << "\n";
      scores << nlohmann::json{{"text", sentence(i)}, {"label", 0.25 * (i % 9)}} << "\n";
      const std::string context = sentence(i + 2);
      const std::size_t space = context.find(' ');
      answers << nlohmann::json{{"question", sentence(i)},
                                {"context", context},
                                {"answer", context.substr(0, space)},
                                {"answer_start", 0}}
              << "\n";
      pairs << nlohmann::json{{"source", sentence(i)}, {"target", sentence(i + 3)}} << "\n";
    }
    for (std::ofstream* file : {&text, &lines, &classes, &scores, &answers, &pairs}) file->close();
    const auto make = [&](const char* file, const char* name, TaskKind task) {
      PrepareOptions options{.inputs = {folder_ / file},
                             .output = folder_ / name,
                             .tokeniser = folder_ / "wordpiece",
                             .validation_share = 0.1};
      if (task != TaskKind::causal)
        options.source.records =
            resolved({.task = task, .pair = task == TaskKind::classify ? "pair" : ""});
      prepare(options);
    };
    make("text.txt", "text", TaskKind::causal);
    make("sentences.txt", "sentences", TaskKind::masked);
    make("classes.jsonl", "classes", TaskKind::classify);
    make("scores.jsonl", "scores", TaskKind::regress);
    make("answers.jsonl", "answers", TaskKind::span);
    make("pairs.jsonl", "pairs", TaskKind::translate);
  }

  RunConfig config_of(const FamilyRow& row, const std::string& name, std::int64_t pp,
                      std::int64_t dp = 1) {
    RunConfig c = config(std::string(row.name) + " " + name, pp, dp);
    c.model.layers = 3;
    c.data.train = folder_ / row.data;
    c.data.valid = folder_ / (std::string(row.data) + "-valid");
    set(c, row.sets);
    return c;
  }
};

const FamilyRow& row_of(const std::string& name) {
  return *std::ranges::find_if(kRows, [&](const FamilyRow& row) { return row.name == name; });
}

// Tables of the model that would be cut.
std::vector<std::size_t> row_tables_of(RunConfig config) {
  config.embedding_rows.method = RowsMethod::alltoall;
  return row_tables(config, model_spec(family_of(config, {.vocabulary = 29, .labels = 3}), 24));
}

void expect_near(const Metrics& a, const Metrics& b) {
  ASSERT_EQ(a.size(), b.size());
  for (std::size_t i = 0; i < a.size(); ++i) {
    EXPECT_EQ(a[i].first, b[i].first);
    EXPECT_NEAR(a[i].second, b[i].second, 1e-11) << a[i].first;
  }
}

// Tokens and FLOPs of all microbatches of all ranks and steps, as they have been computed.
std::pair<std::int64_t, double> computed_work(const RunConfig& config, const Family& family) {
  const Dataset data =
      open_dataset(config.data.train, config.model.context, 29, 0, sample_kind_of(config));
  const Task task = task_of(config, data);
  const SampleOrder order = sample_order(config, samples_in(data), 0);
  std::int64_t tokens = 0;
  double flops = 0;
  for (std::int64_t first = 0; first < config.train.steps * config.train.batch;
       first += config.train.microbatch) {
    std::vector<SampleAt> samples;
    for (std::int64_t p = first; p < first + config.train.microbatch; ++p) {
      const auto position = static_cast<std::uint64_t>(p);
      samples.push_back({sample_at(order, position), epoch_of(order, position)});
    }
    const Batch batch = make_batch(task, data, samples, at::kCPU);
    const std::int64_t target = batch["ids"].size(1);
    const std::int64_t source = batch.has("source") ? batch["source"].size(1) : target;
    tokens += batch["ids"].numel();
    flops += model_flops(model_spec(family, source, target), config.train.microbatch);
  }
  return {tokens, flops};
}

TEST_F(FamilyRun, APipelineIsOneProcessBitForBit) {
  for (const FamilyRow& row : kRows) {
    SCOPED_TRACE(row.name);
    const TrainSummary alone = train({.config = config_of(row, "one", 1)});
    EXPECT_GT(alone.loss, 0);
    for (const std::int64_t pp : {2, 4})
      for (const char* schedule : {"1f1b", "zero_bubble"}) {
        const bool is_usual = (pp == 2) == (schedule == std::string_view("1f1b"));
        if (!is_usual && !is_thorough()) continue;
        SCOPED_TRACE(fmt::format("{} on {}", schedule, pp));
        RunConfig c = config_of(row, fmt::format("{}{}", schedule, pp), pp);
        c.pipeline.schedule = schedule;
        c.model.recompute = pp == 4;
        const TrainSummary together = run(c);
        EXPECT_EQ(together.loss, alone.loss);
        EXPECT_EQ(together.evaluation->loss, alone.evaluation->loss);
        EXPECT_EQ(together.evaluation->metrics, alone.evaluation->metrics);
        EXPECT_TRUE(model_bytes(together.checkpoint) == model_bytes(alone.checkpoint));
      }
  }
}

// Tables by columns, where there is padding, where a model has two of them, one in the middle, and
// where two blocks look up one.
TEST_F(FamilyRun, TablesOnAllReplicasAreTheSumsOfWholeTables) {
  for (const FamilyRow& row : kRows) {
    const RunConfig plain = config_of(row, "whole", 1, 2);
    if (row_tables_of(plain).empty()) continue;
    SCOPED_TRACE(row.name);
    const auto config_with = [&](const char* name, const std::vector<std::string>& sets) {
      RunConfig c = config_of(row, name, 1, 2);
      set(c, {"optimiser.kind=sgd", "optimiser.momentum=0", "optimiser.weight_decay=0",
              "train.clip=0", "model.recompute=true"});
      if (c.task.kind == TaskKind::translate) c.evaluate.bleu_samples = 0;
      set(c, sets);
      return c;
    };
    const TrainSummary whole = run(config_with("whole", {}));
    for (const char* method : {"alltoall", "server"}) {
      if (method == std::string_view("server") && !is_thorough()) continue;
      SCOPED_TRACE(method);
      const TrainSummary cut =
          run(config_with(method, {fmt::format("embedding.rows.method={}", method)}));
      EXPECT_EQ(cut.loss, whole.loss);
      EXPECT_EQ(cut.evaluation->loss, whole.evaluation->loss);
      EXPECT_EQ(cut.evaluation->metrics, whole.evaluation->metrics);
      EXPECT_TRUE(MappedFile(cut.checkpoint + "/model.safetensors").text() ==
                  MappedFile(whole.checkpoint + "/model.safetensors").text());
    }
  }
}

// Rows of tables as plain sgd of whole ones has them, where stages have tables: one in the first
// and one in the middle, and two chunks of the model on every rank.
TEST_F(FamilyRun, StagesHaveTheirTablesWhateverTheModelAndTheSchedule) {
  struct Case {
    const char* row;
    std::vector<std::string> sets;
  };
  const std::vector<std::string> interleaved = {"pipeline.schedule=interleaved",
                                                "pipeline.chunks=2"};
  const std::vector<std::string> zb_v = {"pipeline.schedule=zb_v", "pipeline.chunks=2"};
  const std::vector<Case> cases = {{"gnmt", {}},
                                   {"seq2seq post", {}},
                                   {"llama", interleaved},
                                   {"gnmt", zb_v},
                                   {"llama", zb_v},
                                   {"gnmt", interleaved},
                                   {"seq2seq post", interleaved},
                                   {"seq2seq post", zb_v}};
  for (const Case& one : some_of(cases, 4)) {
    SCOPED_TRACE(fmt::format("{} {}", one.row, fmt::join(one.sets, " ")));
    const auto config_with = [&](const char* name, const std::vector<std::string>& sets) {
      RunConfig c = config_of(row_of(one.row), name, 2, 2);
      set(c, {"optimiser.kind=sgd", "optimiser.momentum=0", "optimiser.weight_decay=0",
              "train.clip=0"});
      if (c.task.kind == TaskKind::translate) c.evaluate.bleu_samples = 0;
      set(c, one.sets);
      set(c, sets);
      return c;
    };
    const TrainSummary whole = run(config_with("whole", {}));
    const TrainSummary cut = run(config_with("cut", {"embedding.rows.method=alltoall"}));
    EXPECT_EQ(cut.loss, whole.loss);
    EXPECT_EQ(cut.evaluation->loss, whole.evaluation->loss);
    EXPECT_TRUE(MappedFile(cut.checkpoint + "/model.safetensors").text() ==
                MappedFile(whole.checkpoint + "/model.safetensors").text());
    for (const char* name : {"whole", "cut"})
      std::filesystem::remove_all(config_with(name, {}).run.folder);
  }
}

// Of all steps and members: tokens that differ, padding left out, of which [PAD] alone has number
// 0.
std::uint64_t rows_read_by(const RunConfig& c, const std::vector<std::string>& fields) {
  const Dataset data = open_dataset(c.data.train, c.model.context, 29, 0, sample_kind_of(c));
  const Task task = task_of(c, data);
  const SampleOrder order = sample_order(c, samples_in(data), 0);
  std::uint64_t rows = 0;
  for (std::int64_t first = 0; first < c.train.steps * c.train.batch; first += c.local_batch()) {
    std::vector<SampleAt> samples;
    for (std::int64_t p = first; p < first + c.local_batch(); ++p) {
      const auto position = static_cast<std::uint64_t>(p);
      samples.push_back({sample_at(order, position), epoch_of(order, position)});
    }
    const Batch batch = make_batch(task, data, samples, at::kCPU);
    for (const std::string& field : fields) {
      const at::Tensor& ids = batch[field];
      const std::set<std::int64_t> all(ids.data_ptr<std::int64_t>(),
                                       ids.data_ptr<std::int64_t>() + ids.numel());
      rows += all.size() - (all.contains(0) ? 1 : 0);
    }
  }
  return rows;
}

// Padding is nobody's row, and does not travel: under lazy Adam, too, one replica
// trains what two do.
TEST_F(FamilyRun, LazyAdamLeavesPaddingAloneAndItsRowAtHome) {
  const std::pair<const char*, std::vector<std::string>> cases[] = {
      {"gnmt", {"source", "ids"}}, {"seq2seq post", {"source", "ids"}}, {"bert classify", {"ids"}}};
  for (const auto& [name, fields] : cases) {
    SCOPED_TRACE(name);
    const auto config_with = [&, name = name](std::int64_t dp) {
      RunConfig c = config_of(row_of(name), fmt::format("lazy {}", dp), 1, dp);
      set(c, {"embedding.rows.method=alltoall", "embedding.rows.optimiser=lazy_adam",
              "run.precision=float64", "train.clip=0", "train.steps=5", "train.batch=4",
              "data.valid=", "model.dropout=0"});
      if (c.task.kind == TaskKind::translate) c.evaluate.bleu_samples = 0;
      return c;
    };
    const RunConfig one = config_with(1), two = config_with(2);
    const TrainSummary alone = run(one), together = run(two);
    EXPECT_NEAR(together.loss, alone.loss, 1e-11);
    EXPECT_LT(largest_difference(together.checkpoint, alone.checkpoint, one), 1e-11);
    std::uint64_t bytes = 0;
    for (const TrafficTotal& total : together.traffic)
      if (total.traffic == Traffic::embedding_rows) bytes = total.sent.raw_bytes;
    EXPECT_EQ(bytes, 2 * static_cast<std::uint64_t>(two.model.width) / 2 * sizeof(double) *
                         rows_read_by(two, fields));
  }
}

// T10. Over links that take their time rows of the decoder's table come while the encoder goes
// forward, and the gradients of those that the next step reads leave while it goes backward.
TEST_F(FamilyRun, RowsOfTheDecoderTravelWhileTheEncoderComputes) {
  RunConfig c = config_of(row_of("gnmt"), "trace", 1, 2);
  set(c, {"embedding.rows.method=alltoall", "embedding.rows.optimiser=lazy_adam",
          "embedding.rows.split=on", "train.update=block", "train.clip=0", "report.trace=true",
          "data.valid=", "train.microbatch=0"});
  run_shaped(c, "rate=1gbit,latency=30ms");
  const nlohmann::json trace = read_json(c.run.folder + "/trace.json");
  // Passes of encoder layers that begin while such an exchange of the second table is under way.
  const auto passes_inside = [&](const std::string& exchange, const char* pass) {
    int inside = 0;
    for (const auto& rows : trace["traceEvents"]) {
      if (rows["ph"] != "X" || rows["cat"] != "embedding.rows" ||
          rows["name"] != "all_to_all of embedding.rows " + exchange)
        continue;
      const double begin = rows["ts"], end = begin + rows["dur"].get<double>();
      for (const auto& one : trace["traceEvents"])
        if (one["ph"] == "X" && one["cat"] == pass &&
            one["name"].get<std::string>().starts_with("encoder"))
          inside += one["ts"] > begin && one["ts"] < end ? 1 : 0;
    }
    return inside;
  };
  // A table has five units: rows, prior gradients, delayed ones, rows to look at, early rows.
  EXPECT_GE(passes_inside("5", "forward"), 2);
  EXPECT_GE(passes_inside("6", "backward"), 2);
}

// Tensor grids, alone and with stages and replicas, in double: loss, metrics, checkpoint.
TEST_F(FamilyRun, ATensorGridTrainsTheModelOfOneProcess) {
  const std::vector<std::vector<std::string>> meshes = {
      {"mesh.tp=1,2,2"},
      {"mesh.tp=2", "tensor.method=1d"},
      {"mesh.tp=4", "tensor.method=2d", "mesh.dp=2"},
      {"mesh.tp=2,1,1", "mesh.pp=2", "mesh.dp=2", "model.recompute=true"}};
  for (std::size_t r = 0; r < kRows.size(); ++r) {
    SCOPED_TRACE(kRows[r].name);
    const auto config_on = [&](const std::string& name, const std::vector<std::string>& mesh) {
      RunConfig c = config_of(kRows[r], name, 1);
      c.model.layers = 2;
      c.model.heads = 4;
      c.train.microbatch = 8;
      c.run.precision = RunPrecision::float64;
      set(c, kRows[r].sets);
      set(c, mesh);
      return c;
    };
    const RunConfig whole = config_on("whole", {});
    if (const Family family = family_of(whole, {.vocabulary = 29}); is_recurrent(family)) {
      const Problems problems = check_grid(config_on("refused", meshes[0]), family);
      ASSERT_EQ(problems.size(), 1U) << to_text(problems);
      EXPECT_EQ(problems[0].where, "mesh.tp");
      continue;
    }
    const TrainSummary alone = train({.config = whole});
    // tensor_grid_test has every family on every kind of grid: here each row has one.
    for (const std::size_t m : {r % meshes.size()}) {
      SCOPED_TRACE(fmt::format("{}", fmt::join(meshes[m], " ")));
      const RunConfig c = config_on(fmt::format("mesh{}", m), meshes[m]);
      const TrainSummary together = run(c);
      EXPECT_NEAR(together.loss, alone.loss, 1e-10);
      EXPECT_NEAR(together.evaluation->loss, alone.evaluation->loss, 1e-10);
      expect_near(together.evaluation->metrics, alone.evaluation->metrics);
      EXPECT_LT(largest_difference(together.checkpoint, alone.checkpoint, c), 1e-10);
    }
  }
}

// What a folder has not, the head of another task, is drawn the same wherever it lies.
TEST_F(FamilyRun, AGridGivesAModelAnotherHead) {
  const auto config_on = [&](const FamilyRow& row, const std::string& name,
                             const std::vector<std::string>& mesh) {
    RunConfig c = config_of(row, name, 1);
    c.model.layers = 2;
    c.model.heads = 4;
    c.train.microbatch = 8;
    c.run.precision = RunPrecision::float64;
    set(c, mesh);
    return c;
  };
  const TrainSummary folder = train({.config = config_on(row_of("bert masked"), "folder", {})});
  const std::vector<std::pair<std::string, std::vector<std::string>>> heads = {
      {"bert classify", {"mesh.tp=1,2,2"}},
      {"bert span", {"mesh.tp=2", "tensor.method=1d"}},
      {"bert regress", {"mesh.tp=4", "tensor.method=2d"}}};
  for (const auto& [row, mesh] : some_of(heads, 3)) {
    const std::string name = row;
    SCOPED_TRACE(name);
    const auto tuned = [&](const std::vector<std::string>& on) {
      RunConfig c = config_on(row_of(name), on.empty() ? "tuned" : "tuned on a grid", on);
      c.model.start = folder.checkpoint;
      return run(c);
    };
    const TrainSummary alone = tuned({}), together = tuned(mesh);
    EXPECT_NEAR(together.loss, alone.loss, 1e-10);
    EXPECT_NEAR(together.evaluation->loss, alone.evaluation->loss, 1e-10);
    expect_near(together.evaluation->metrics, alone.evaluation->metrics);
    EXPECT_LT(largest_difference(together.checkpoint, alone.checkpoint,
                                 config_on(row_of(name), "any", {})),
              1e-10);
  }
}

// Seams travel in bfloat16 then, so a pipeline rounds where one process does.
TEST_F(FamilyRun, InBfloat16LossesFollowAndAPipelineTrainsTheSameModel) {
  for (const FamilyRow& row : some_of(kRows, 3)) {
    SCOPED_TRACE(row.name);
    const TrainSummary full = train({.config = config_of(row, "full", 1)});
    RunConfig one = config_of(row, "one", 1);
    one.run.precision = RunPrecision::bfloat16;
    const TrainSummary alone = train({.config = one});
    EXPECT_NE(alone.loss, full.loss);
    EXPECT_NEAR(alone.loss, full.loss, 0.005 * full.loss);
    EXPECT_NEAR(alone.evaluation->loss, full.evaluation->loss, 0.005 * full.evaluation->loss);
    for (const char* schedule : {"1f1b", "zero_bubble"}) {
      SCOPED_TRACE(schedule);
      RunConfig c = config_of(row, schedule, 2);
      c.run.precision = RunPrecision::bfloat16;
      c.pipeline.schedule = schedule;
      const TrainSummary together = run(c);
      EXPECT_EQ(together.loss, alone.loss);
      EXPECT_TRUE(model_bytes(together.checkpoint) == model_bytes(alone.checkpoint));
    }
    RunConfig c = config_of(row, "replicas", 1, 2);
    c.run.precision = RunPrecision::bfloat16;
    EXPECT_NEAR(run(c).loss, alone.loss, 0.005 * alone.loss);
  }
}

// Checkpoints hold float32, whatever is computed with.
TEST_F(FamilyRun, GoesOnInAnotherPrecision) {
  RunConfig c = config_of(kRows.front(), "run", 1);
  c.run.precision = RunPrecision::bfloat16;
  const std::int64_t steps = std::exchange(c.train.steps, 2);
  train({.config = c});
  c.run.precision = RunPrecision::float32;
  c.train.steps = steps;
  const TrainSummary rest = train({.config = c, .start = {.resume = "auto"}});
  EXPECT_EQ(rest.step, steps);
  c.run.precision = RunPrecision::float64;
  c.train.steps = steps + 1;
  EXPECT_THROW(train({.config = c, .start = {.resume = "auto"}}), FileError);
}

TEST_F(FamilyRun, InDoublePrecisionAnyMeshTrainsTheSameModel) {
  for (const FamilyRow& row : some_of(kRows, 2)) {
    SCOPED_TRACE(row.name);
    RunConfig one = config_of(row, "one", 1);
    one.run.precision = RunPrecision::float64;
    const TrainSummary alone = train({.config = one});
    for (const auto& [pp, dp, micro] : {std::tuple{1, 2, 4}, {2, 2, 1}, {3, 1, 8}}) {
      SCOPED_TRACE(fmt::format("{}x{}, microbatches of {}", pp, dp, micro));
      RunConfig c = config_of(row, fmt::format("{}x{}", pp, dp), pp, dp);
      c.run.precision = RunPrecision::float64;
      c.train.microbatch = micro;
      const TrainSummary together = run(c);
      EXPECT_NEAR(together.loss, alone.loss, 1e-11);
      EXPECT_NEAR(together.evaluation->loss, alone.evaluation->loss, 1e-11);
      EXPECT_LT(largest_difference(together.checkpoint, alone.checkpoint, c), 1e-10);
    }
  }
}

TEST_F(FamilyRun, GoesOnAsIfNeverStoppedWithShortMessages) {
  for (const FamilyRow& row : some_of(kRows, 2, 1)) {
    SCOPED_TRACE(row.name);
    const std::vector<std::string> codecs = {"pp.activation.codec=quantise:bits=4",
                                             "pp.activation.memory=delta",
                                             "pp.gradient.codec=quantise:bits=8",
                                             "dp.gradient.codec=quantise:bits=8",
                                             "task.masks=sample",
                                             "model.dropout_by_sample=true"};
    const auto make = [&](const std::string& name, std::int64_t steps) {
      RunConfig c = config_of(row, name, 2, 2);
      for (const std::string& word : codecs)
        if (word != "task.masks=sample" || c.task.kind == TaskKind::masked) set(c, {word});
      c.train.steps = steps;
      c.optimiser.decay_steps = 4;
      return c;
    };
    const std::string expected = model_bytes(run(make("whole", 4)).checkpoint);
    run(make("parts", 2));
    EXPECT_TRUE(model_bytes(run(make("parts", 4), "auto").checkpoint) == expected);
    if (&row != &kRows.front()) continue;
    const auto make_short = [&](const std::string& name, std::int64_t steps) {
      RunConfig c = make(name, steps);
      c.run.precision = RunPrecision::bfloat16;
      return c;
    };
    const std::string rounded = model_bytes(run(make_short("rounded", 4)).checkpoint);
    EXPECT_FALSE(rounded == expected);
    run(make_short("rounded parts", 2));
    EXPECT_TRUE(model_bytes(run(make_short("rounded parts", 4), "auto").checkpoint) == rounded);
  }
}

// A sentence was told right where its term of the loss is below log 2.
TEST_F(FamilyRun, EvaluationCountsSentencesThatWereToldRight) {
  const auto row = std::ranges::find(kRows, std::string("bert sentences"), &FamilyRow::name);
  RunConfig c = config_of(*row, "pairs", 1);
  c.data.valid = c.data.train;  // which has more samples
  c.train.steps = 8;
  const TrainSummary summary = run(c);
  const Weights weights = read_model(summary.checkpoint, tensor_options(c));
  const Dataset data = open_dataset(c.data.valid, c.model.context, 29, 0, sample_kind_of(c));
  double told = 0;
  const auto samples = static_cast<std::int64_t>(samples_in(data));
  for (std::int64_t s = 0; s < samples; ++s) {
    const Batch batch = make_batch(task_of(c, data), data, std::vector<std::int64_t>{s}, at::kCPU);
    const double term = forward_loss(weights, batch, {.second_term = 1}) -
                        forward_loss(weights, batch, {.second_term = 0});
    told += term < std::log(2) ? 1 : 0;
  }
  const Metrics& metrics = summary.evaluation->metrics;
  ASSERT_EQ(metrics.size(), 2U);
  EXPECT_EQ(metrics[1].first, "next_accuracy");
  EXPECT_EQ(metrics[1].second, told / static_cast<double>(samples));
  EXPECT_GT(told, 0);
  EXPECT_LT(told, samples);
}

// The words that a target is compared with are the step's, or a rank's; a pipeline changes nothing.
TEST_F(FamilyRun, NegativesAreSharedOrEachRankHasItsOwn) {
  const auto row = std::ranges::find(kRows, std::string("lstm"), &FamilyRow::name);
  const auto loss_of = [&](std::int64_t pp, const std::vector<std::string>& sets) {
    RunConfig c = config_of(*row, fmt::format("{} {}", pp, fmt::join(sets, " ")), pp, 2);
    c.run.precision = RunPrecision::float64;
    c.train.steps = 2;
    set(c, sets);
    return run(c);
  };
  const TrainSummary shared = loss_of(1, {}), own = loss_of(1, {"task.negatives=rank"}),
                     whole = loss_of(1, {"task.sampled=0"});
  EXPECT_GT(std::abs(shared.loss - own.loss), 1e-6);
  EXPECT_GT(std::abs(shared.loss - whole.loss), 1e-6);
  EXPECT_NEAR(loss_of(2, {"task.negatives=rank"}).loss, own.loss, 1e-11);
  // Evaluation is about all words: after two steps it hardly differs.
  EXPECT_NEAR(shared.evaluation->loss, whole.evaluation->loss, 0.05);
}

// Makes parameters so large that every source has a translation of its own,
void enlarge_matrices(Weights& weights) {
  const at::NoGradGuard no_grad;
  for (Parameter& p : weights.parameters)
    if (p.value.dim() == 2) p.value.mul_(25);
}
// and the row of [SEP], which ends it, still larger, so that some end early.
void enlarge(Weights& weights) {
  enlarge_matrices(weights);
  const at::NoGradGuard no_grad;
  for (Parameter& p : weights.parameters)
    if (p.value.size(0) == 29) p.value[3].mul_(2);
}

TEST_F(FamilyRun, AnyMeshTranslatesAsOneProcess) {
  for (const FamilyRow& row : kRows) {
    if (std::string(row.data) != "pairs") continue;
    for (const auto& [pp, dp, schedule] :
         {std::tuple{1, 1, "1f1b"}, {1, 3, "1f1b"}, {3, 1, "1f1b"}, {2, 2, "zb_v"}}) {
      SCOPED_TRACE(fmt::format("{}, {} on {}x{}", row.name, schedule, pp, dp));
      RunConfig c = config_of(row, fmt::format("t{}{}", pp, dp), pp, dp);
      c.run.precision = RunPrecision::float64;
      c.train.batch = 12;
      // With one table for all, such a model repeats what it wrote last.
      if (c.model.kind == ModelKind::seq2seq && !has_output_table(c.model.sharing))
        set(c, {"model.sharing=none"});
      set(c, {fmt::format("pipeline.schedule={}", schedule),
              fmt::format("pipeline.chunks={}", std::string(schedule) == "zb_v" ? 2 : 1)});
      const Dataset data = open_dataset(c.data.train, c.model.context, 29, 0, sample_kind_of(c));
      Weights whole = make_weights(family_of(c, {.vocabulary = 29}),
                                   static_cast<std::uint64_t>(c.run.seed), tensor_options(c));
      enlarge(whole);
      TokenLists expected;
      for (const Translation& t :
           translate(whole, sources_of(data, 0, 70), translation_rule(data, 1)))
        expected.push_back(t.ids);
      EXPECT_NE(expected[0], expected[1]);
      const auto [least, most] = std::ranges::minmax(
          expected, {}, [](const std::vector<std::int64_t>& text) { return text.size(); });
      EXPECT_LT(least.size(), most.size()) << "none ends early";
      EXPECT_GE(most.size(), 16u);
      run_ranks(size(mesh_of(c)), [&](Transport& transport) {
        Engine engine(transport, {.deadline = std::chrono::seconds(20)});
        ProgressThread progress_thread(engine);
        World world(mesh_of(c), progress_thread);
        CommonStart common = start_all_ranks({.config = c, .world = &world},
                                             {.vocabulary = 29, .tokens = 1000}, world);
        Weights& weights = common.start.weights;
        enlarge(weights);
        Pipeline pipeline(weights, plan_of(c, common.decisions), &engine, world.pp_group(),
                          world.pp_member());
        const auto messages_of = [&](const auto& act) {
          engine.flush();
          const std::uint64_t before = sent(engine.meter().read()).messages;
          act();
          engine.flush();
          return sent(engine.meter().read()).messages - before;
        };
        const std::uint64_t one_gather = messages_of([&] { world.gather({}); });
        // More than are translated at once, and no multiple of the replicas.
        for (const std::int64_t microbatch : {7, 100}) {
          const std::uint64_t messages = messages_of([&] {
            EXPECT_EQ(translate_samples(weights, pipeline, data,
                                        {.samples = 70, .microbatch = microbatch}, world),
                      expected);
          });
          // A replica whose texts have ended hears of the others again and again, not only when
          // they bring theirs: nobody's deadline is over.
          EXPECT_GE(messages, one_gather * (1 + most.size() / 8)) << microbatch;
        }
        engine.flush();
        world.gather({});
        engine.flush();
      });
    }
  }
}

// Its ranks have some of the heads, or of the texts, and hear of each other's tokens once.
TEST_F(FamilyRun, ATensorGridTranslatesAsOneProcess) {
  const auto row = std::ranges::find_if(kRows, [](const FamilyRow& r) {
    return std::string(r.data) == "pairs" && std::string(r.name).starts_with("seq2seq");
  });
  for (const std::vector<std::string>& mesh :
       std::vector<std::vector<std::string>>{{"mesh.tp=2", "tensor.method=1d", "mesh.dp=2"},
                                             {"mesh.tp=4", "tensor.method=2d"},
                                             {"mesh.tp=2,1,1", "mesh.pp=2"}}) {
    SCOPED_TRACE(fmt::format("{}", fmt::join(mesh, " ")));
    RunConfig c = config_of(*row, "grid-translates", 1, 1);
    c.model.heads = 4;
    c.run.precision = RunPrecision::float64;
    set(c, {"model.sharing=none", "train.batch=16", "train.microbatch=8"});
    set(c, mesh);
    const Dataset data = open_dataset(c.data.train, c.model.context, 29, 0, sample_kind_of(c));
    Weights whole = make_weights(family_of(c, {.vocabulary = 29}),
                                 static_cast<std::uint64_t>(c.run.seed), tensor_options(c));
    enlarge_matrices(whole);
    TokenLists expected;
    for (const Translation& t :
         translate(whole, sources_of(data, 0, 20), translation_rule(data, 1)))
      expected.push_back(t.ids);
    run_ranks(size(mesh_of(c)), [&](Transport& transport) {
      Engine engine(transport, {.deadline = std::chrono::seconds(20)});
      ProgressThread progress_thread(engine);
      World world(mesh_of(c), progress_thread);
      CommonStart common = start_all_ranks({.config = c, .world = &world},
                                           {.vocabulary = 29, .tokens = 1000}, world);
      Weights& weights = common.start.weights;
      enlarge_matrices(weights);
      TensorGrid grid(progress_thread, weights.place.plan, world.mesh(), world.rank());
      Pipeline pipeline(weights, plan_of(c, common.decisions), &engine, world.pp_group(),
                        world.pp_member(), {.grid = &grid});
      EXPECT_EQ(translate_samples(weights, pipeline, data,
                                  {.samples = 20, .microbatch = 7, .grid = &grid}, world),
                expected);
      world.gather({});
      engine.flush();
    });
  }
}

// Rank 0 alone reads it, and says so to the others: they have not lost it.
TEST_F(FamilyRun, ATokeniserThatCannotBeReadIsRefusedByAllRanks) {
  std::filesystem::create_directories(folder_ / "other.tokeniser");
  std::ofstream(folder_ / "other.tokeniser/vocab.txt") << "";
  run_ranks(2, [&](Transport& transport) {
    Engine engine(transport, {.deadline = std::chrono::seconds(20)});
    ProgressThread progress_thread(engine);
    World world({.dp = 2}, progress_thread);
    EXPECT_EQ(ValidationBleu(folder_ / "pairs-valid", world).why_not(), "");
    EXPECT_NE(ValidationBleu(folder_ / "nothing", world).why_not().find("nothing.tokeniser does"),
              std::string::npos);
    std::string refusal;
    try {
      ValidationBleu(folder_ / "other", world);
    } catch (const FileError& error) {
      refusal = error.what();
    } catch (const ConfigError& error) {
      refusal = error.what();
    }
    EXPECT_NE(refusal.find("other.tokeniser"), std::string::npos) << "rank " << world.rank();
    engine.flush();
    world.gather({});
    engine.flush();
  });
}

// With dropout: its masks are drawn by places in the whole sample. Stages get other shapes with
// every microbatch.
TEST_F(FamilyRun, PaddingToTheLongestOfAMicrobatchChangesNothing) {
  for (const FamilyRow& row : some_of(kRows, 2)) {
    if (std::string(row.data) == "text") continue;  // samples without padding
    SCOPED_TRACE(row.name);
    const auto make = [&](const std::string& name, std::int64_t pp, std::int64_t dp) {
      RunConfig c = config_of(row, name, pp, dp);
      c.run.precision = RunPrecision::float64;
      c.model.context = 64;  // more than any sample has
      return c;
    };
    const TrainSummary whole = train({.config = make("context", 1, 1)});
    for (const auto& [pp, dp, schedule] :
         {std::tuple{1, 1, "1f1b"}, {2, 1, "zero_bubble"}, {2, 2, "1f1b"}}) {
      SCOPED_TRACE(fmt::format("{} on {}x{}", schedule, pp, dp));
      RunConfig c = make(fmt::format("longest {} {}", pp, dp), pp, dp);
      c.task.pad = Padding::longest;
      c.pipeline.schedule = schedule;
      const TrainSummary cut = run(c);
      EXPECT_NEAR(cut.loss, whole.loss, 1e-11);
      const auto [tokens, flops] = computed_work(c, read_family(cut.checkpoint));
      EXPECT_EQ(cut.tokens, tokens) << "of " << whole.tokens;
      EXPECT_LT(cut.tokens, whole.tokens);
      EXPECT_EQ(cut.all_tokens, cut.tokens);
      EXPECT_NEAR(cut.flops, flops, 1e-12 * flops) << "of " << whole.flops;
      EXPECT_LT(cut.flops, whole.flops);
      EXPECT_NEAR(cut.evaluation->loss, whole.evaluation->loss, 1e-11);
      expect_near(cut.evaluation->metrics, whole.evaluation->metrics);
      EXPECT_LT(largest_difference(cut.checkpoint, whole.checkpoint, c), 1e-10);
    }
  }
}

}  // namespace
}  // namespace laconic
