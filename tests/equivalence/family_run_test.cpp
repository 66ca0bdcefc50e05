// Every family with each of its tasks: any mesh trains the model that one process trains. One
// table; a new family or task is a row.
#include <nlohmann/json.hpp>

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
      if (task != TaskKind::causal) options.source.records = resolved(RecordOptions{.task = task});
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

TEST_F(FamilyRun, APipelineIsOneProcessBitForBit) {
  for (const FamilyRow& row : kRows) {
    SCOPED_TRACE(row.name);
    const TrainSummary alone = train({.config = config_of(row, "one", 1)});
    EXPECT_GT(alone.loss, 0);
    for (const std::int64_t pp : {2, 4})
      for (const char* schedule : {"1f1b", "zero_bubble"}) {
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

TEST_F(FamilyRun, InDoublePrecisionAnyMeshTrainsTheSameModel) {
  for (const FamilyRow& row : kRows) {
    SCOPED_TRACE(row.name);
    RunConfig one = config_of(row, "one", 1);
    one.run.dtype = Dtype::f64;
    const TrainSummary alone = train({.config = one});
    for (const auto& [pp, dp, micro] : {std::tuple{1, 2, 4}, {2, 2, 1}, {3, 1, 8}}) {
      SCOPED_TRACE(fmt::format("{}x{}, microbatches of {}", pp, dp, micro));
      RunConfig c = config_of(row, fmt::format("{}x{}", pp, dp), pp, dp);
      c.run.dtype = Dtype::f64;
      c.train.microbatch = micro;
      const TrainSummary together = run(c);
      EXPECT_NEAR(together.loss, alone.loss, 1e-11);
      EXPECT_NEAR(together.evaluation->loss, alone.evaluation->loss, 1e-11);
      EXPECT_LT(largest_difference(together.checkpoint, alone.checkpoint, c), 1e-10);
    }
  }
}

TEST_F(FamilyRun, GoesOnAsIfNeverStoppedWithShortMessages) {
  for (const FamilyRow& row : kRows) {
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
  }
}

TEST_F(FamilyRun, PaddingToTheLongestOfAMicrobatchChangesNothing) {
  for (const FamilyRow& row : kRows) {
    if (std::string(row.data) == "text" || std::string(row.data) == "sentences") continue;
    SCOPED_TRACE(row.name);
    RunConfig whole = config_of(row, "context", 1), cut = config_of(row, "longest", 1);
    for (RunConfig* c : {&whole, &cut}) {
      c->run.dtype = Dtype::f64;
      c->model.dropout = 0;  // masks of dropout are by element
    }
    cut.task.pad = Padding::longest;
    const TrainSummary a = train({.config = whole}), b = train({.config = cut});
    EXPECT_NEAR(a.loss, b.loss, 1e-11);
    EXPECT_LT(largest_difference(a.checkpoint, b.checkpoint, whole), 1e-10);
  }
}

}  // namespace
}  // namespace laconic
