// From text to a model and back: prepare, evaluate, export and generate, as a user types them.
#include <fmt/format.h>

#include <cstdlib>
#include <filesystem>
#include <map>
#include <nlohmann/json.hpp>

#include "laconic/base/test_effort.hpp"
#include "tests/processes/json_file.hpp"
#include "tests/processes/workplace.hpp"

namespace laconic {
namespace {

namespace fs = std::filesystem;

using TextAndModel = Workplace;

TEST_F(TextAndModel, PrepareTakesTextJsonLinesAndFoldersAndNeverReplacesUnasked) {
  write_text(folder_ / "in/b.jsonl", "{\"body\": \"Zwei\\nZeilen\"}\n{\"body\": \"é\"}\n");
  write_text(folder_ / "in/deep/a.txt", "one\n\ntwo\nthree");
  write_text(folder_ / "in/ignored.png", "\x89PNG");
  expect_exit(0, {"prepare", "in", "--out", "all", "--text-key", "body", "--documents", "paragraph",
                  "--json", "prepared.json"});
  EXPECT_EQ(json_of(folder_ / "prepared.json")["train"]["documents"], 4);
  EXPECT_TRUE(contains(expect_exit(2, {"prepare", "in/b.jsonl", "--out", "x"}).err, "b.jsonl:1"));

  const auto before = snapshot(folder_.path());
  const ProcessResult refused = expect_exit(2, {"prepare", "text.txt", "--out", "all"});
  for (const char* path : {"all.bin", "all.idx", "all.json", "all.tokeniser"})
    EXPECT_TRUE(contains(refused.err, path)) << refused.err;
  auto after = snapshot(folder_.path());
  for (const char* output : {"process.out", "process.err"}) after[output] = before.at(output);
  EXPECT_EQ(after, before);
  expect_exit(0, {"prepare", "text.txt", "--out", "all", "--overwrite"});
}

TEST_F(TextAndModel, FromTextToAnExportedModelThatEvaluatesAlike) {
  prepare();
  expect_exit(0, {"train", "run.toml", "--json", "train.json"});
  EXPECT_EQ(json_of(folder_ / "train.json")["step"], 6);
  expect_exit(0, {"evaluate", "runs/a", "--data", "data-valid", "--json", "e1.json", "--samples",
                  "99999999"});
  expect_exit(0, {"export", "runs/a", "hf", "--shard-bytes", "4000"});
  const auto before = snapshot(folder_ / "hf");
  EXPECT_TRUE(contains(expect_exit(2, {"export", "runs/a", "hf"}).err, "hf exists"));
  EXPECT_EQ(snapshot(folder_ / "hf"), before);
  expect_exit(0, {"evaluate", "hf", "--data", "data-valid", "--json", "e2.json"});
  const nlohmann::json e1 = json_of(folder_ / "e1.json"), e2 = json_of(folder_ / "e2.json");
  EXPECT_EQ(e1["loss"], e2["loss"]);
  EXPECT_EQ(e1["samples"], e2["samples"]);
  EXPECT_NEAR(e1["loss"], json_of(folder_ / "train.json")["validation_loss"], 1e-6);
}

TEST_F(TextAndModel, PromptsAndCompletionsArePreparedTrainedAndEvaluated) {
  std::string lines;
  for (int i = 10; i < 70; ++i)
    lines += fmt::format("{{\"prompt\": \"What is {}? \", \"completion\": \"It is {}.\"}}\n", i, i);
  write_text(folder_ / "pairs.jsonl", lines);
  const ProcessResult prepared =
      expect_exit(0, {"prepare", "pairs.jsonl", "--out", "pairs", "--valid", "0.2"});
  EXPECT_TRUE(contains(prepared.out, "60 documents are prompts and completions")) << prepared.out;
  expect_exit(0, {"train", "run.toml", "--set", "data.train=pairs", "--set",
                  "data.valid=pairs-valid", "--json", "run.json"});
  const auto evaluated = [&](const char* stride) {
    expect_exit(0, {"evaluate", "runs/a", "--data", "pairs-valid", "--json", "e.json", "--batch",
                    "32", "--stride", stride});
    return json_of(folder_ / "e.json");
  };
  const nlohmann::json plain = evaluated("0");
  const double loss = plain["loss"];
  EXPECT_NEAR(loss, json_of(folder_ / "run.json")["validation_loss"].get<double>(), 1e-4);
  // Twelve documents of 22 tokens, of which 10 are of a completion, the end included: 263 targets,
  // as the first token is none. Windows of 16 leave out the last 7, all of a completion, those that
  // begin 3 apart the last one, and those that begin 1 apart none. Of a window often nothing
  // counts.
  EXPECT_EQ(plain["tokens"], 12 * 10 - 7);
  EXPECT_EQ(plain["samples"], 16);
  for (const auto& [stride, tokens] : {std::pair("3", 119), std::pair("1", 120)}) {
    const nlohmann::json overlapping = evaluated(stride);
    EXPECT_EQ(overlapping["tokens"], tokens) << stride;
    EXPECT_NEAR(overlapping["loss"].get<double>(), loss, 0.5) << stride;
    EXPECT_NE(overlapping["loss"], plain["loss"]) << stride;
  }
}

TEST_F(TextAndModel, TranslationsAreMeasuredInTrainingAsByEvaluate) {
  std::string lines;
  for (int i = 0; i < 60; ++i)
    lines += fmt::format("{{\"source\": \"{}\", \"target\": \"a b c {} d e\"}}\n", i % 3, i % 3);
  write_text(folder_ / "pairs.jsonl", lines);
  expect_exit(
      0, {"prepare", "pairs.jsonl", "--task", "translate", "--out", "pairs", "--valid", "0.2"});
  Words sets;
  for (const char* set :
       {"data.train=pairs", "data.valid=pairs-valid", "task.kind=translate", "model.kind=seq2seq",
        "model.context=20", "model.width=32", "model.dropout=0", "train.steps=60", "train.batch=8",
        "evaluate.bleu_samples=7", "report.every=60"})
    sets = sets + Words{"--set", set};
  for (const auto& [name, mesh] :
       {std::pair<std::string, Words>{"alone", {}},
        {"mesh",
         {"--set", "mesh.pp=2", "--set", "mesh.dp=2", "--set", "network.transport=in_process"}}}) {
    SCOPED_TRACE(name);
    const ProcessResult trained = expect_exit(
        0, Words{"train", "run.toml", "--set", "run.folder=runs/" + name, "--json", "train.json"} +
               sets + mesh);
    expect_exit(0, {"evaluate", "runs/" + name, "--data", "pairs-valid", "--samples", "7", "--beam",
                    "1", "--json", "e.json"});
    const double score = json_of(folder_ / "train.json")["metrics"]["bleu"];
    EXPECT_GT(score, 1);
    EXPECT_EQ(score, json_of(folder_ / "e.json")["metrics"]["bleu"].get<double>());
    EXPECT_TRUE(contains(trained.out, fmt::format("| bleu {:.4f} |", score))) << trained.out;
    EXPECT_TRUE(contains(text("runs/" + name + "/log.jsonl"), "\"metrics\":{\"bleu\":"));
  }
  const ProcessResult without =
      expect_exit(0, Words{"train", "run.toml", "--set", "run.folder=runs/n"} + sets +
                         Words{"--set", "evaluate.bleu_samples=0", "--set", "train.steps=1"});
  EXPECT_FALSE(contains(without.out, "bleu")) << without.out;
}

TEST_F(TextAndModel, GenerateIsAFunctionOfModelPromptAndSeed) {
  prepare();
  expect_exit(0, {"train", "run.toml"});
  const Words words = {"generate", "runs/a",     "--prompt", "a\nb é", "--tokens",
                       "20",       "--show-ids", "--json",   "g.json", "--seed"};
  const auto with_seed = [&](const char* seed) {
    Words all = words;
    all.emplace_back(seed);
    return expect_exit(0, all).out;
  };
  const std::string first = with_seed("7");
  const nlohmann::json json = json_of(folder_ / "g.json");
  EXPECT_EQ(json["ids"].size(), 20u);
  EXPECT_EQ(json["prompt_ids"].size(), 6u);  // é is two bytes
  EXPECT_TRUE(first.starts_with("a\nb é"));
  std::vector<int> ids = json["ids"];
  EXPECT_TRUE(contains(first, fmt::format("ids: {}\n", fmt::join(ids, ","))));
  EXPECT_EQ(with_seed("7"), first);
  EXPECT_NE(with_seed("8"), first);

  const Words greedy = {"generate", "runs/a", "--prompt", "ab", "--tokens", "5", "--greedy"};
  const Words cold = {"generate",      "runs/a", "--prompt-ids", "97,98", "--tokens", "5",
                      "--temperature", "0",      "--seed",       "9"};
  EXPECT_EQ(expect_exit(0, greedy).out, "ab" + expect_exit(0, cold).out);

  const ProcessResult refused = expect_exit(2, {"generate", "runs/a", "--prompt-ids", "5,257,-1"});
  EXPECT_TRUE(contains(refused.err, "token id 257 is not in [0, 257)")) << refused.err;
  EXPECT_TRUE(contains(refused.err, "token id -1 ")) << refused.err;
}

// Runs a line of bash in the folder, with $laconic as the program.
ProcessResult run_line(ProcessSpec start, const std::string& laconic, const std::string& line) {
  start.words = {"/bin/bash", "-o", "pipefail", "-c", line};
  start.environment["laconic"] = laconic;
  return Process(start).wait();
}

TEST_F(TextAndModel, SamplesAndPromptsOfStandardInputAreWhatEachAloneWouldBe) {
  prepare();
  expect_exit(0, {"train", "run.toml"});
  const auto text_of = [&](const std::string& words) {
    const ProcessResult result = run_line(
        spec({}), program(), "$laconic generate runs/a --tokens 12 --json g.json " + words);
    EXPECT_EQ(result.exit_code, 0) << to_text(result);
    const nlohmann::json json = json_of(folder_ / "g.json");
    std::vector<std::string> texts;
    for (const nlohmann::json& sample : json["samples"]) texts.push_back(sample["text"]);
    return texts;
  };
  const std::vector<std::string> three = text_of("--prompt ab --seed 7 --samples 3");
  ASSERT_EQ(three.size(), 3u);
  EXPECT_NE(three[0], three[1]);
  for (const std::size_t i : some_of(std::vector<std::size_t>{0, 1, 2}, 3, 1))
    EXPECT_EQ(text_of(fmt::format("--prompt ab --seed {}", 7 + i)),
              std::vector<std::string>{three[i]});
  const std::vector<std::string> lines = text_of("--stdin --seed 7 --samples 2 <<< $'ab\n\ncd'");
  ASSERT_EQ(lines.size(), 4u);
  EXPECT_EQ(lines[0], three[0]);
  EXPECT_EQ(lines[1], three[1]);
  EXPECT_EQ(std::vector<std::string>{lines[2]}, text_of("--prompt cd --seed 7"));
  EXPECT_EQ(text_of("--stdin --whole --seed 7 <<< $'ab\n\ncd'"),
            text_of("--prompt $'ab\n\ncd' --seed 7"));

  // A stop string is cut off. The model knows nothing yet, and makes any bytes: take two that go
  // through a command line.
  const auto printed = [&](const std::string& words) {
    return run_line(spec({}), program(),
                    "$laconic generate runs/a --prompt ab --tokens 40 --json g.json " + words)
        .out;
  };
  const std::string whole = printed("");
  std::size_t at = 4;
  while (at + 2 < whole.size() && (static_cast<unsigned char>(whole[at]) <= ' ' ||
                                   static_cast<unsigned char>(whole[at + 1]) <= ' '))
    ++at;
  const std::string stop = whole.substr(at, 2);
  write_text(folder_ / "stop", stop);
  EXPECT_EQ(printed("--stop nowhere --stop \"$(cat stop)\""),
            whole.substr(0, whole.find(stop)) + "\n");
  EXPECT_EQ(json_of(folder_ / "g.json")["samples"][0]["ended_by"], "stop");

  const auto refusal = [&](const std::string& words) {
    return run_line(spec({}), program(), "$laconic generate runs/a " + words).err;
  };
  EXPECT_TRUE(contains(refusal("--stdin < /dev/null"), "no line with a prompt"));
  EXPECT_TRUE(contains(refusal("--prompt a --stop ''"), "--stop"));
  EXPECT_TRUE(contains(refusal("--prompt a --greedy --samples 2"), "2 greedy texts"));
  EXPECT_TRUE(contains(refusal("--prompt a --stdin"), "--prompt"));
  EXPECT_TRUE(contains(refusal("--prompt a --whole"), "--stdin"));
}

TEST_F(TextAndModel, AStrideOfTheContextEvaluatesAsWithout) {
  prepare();
  expect_exit(0, {"train", "run.toml"});
  const auto evaluated = [&](const Words& more) {
    Words words = {"evaluate", "runs/a", "--data", "data-valid", "--json", "e.json"};
    words.insert(words.end(), more.begin(), more.end());
    expect_exit(0, words);
    return json_of(folder_ / "e.json");
  };
  const nlohmann::json plain = evaluated({});
  const std::string context = std::to_string(plain["context"].get<int>());
  const nlohmann::json same = evaluated({"--stride", context}), half = evaluated({"--stride", "3"});
  EXPECT_EQ(same["loss"], plain["loss"]);
  EXPECT_EQ(same["tokens"], plain["tokens"]);
  EXPECT_GT(half["samples"], plain["samples"]);
  EXPECT_NE(half["loss"], plain["loss"]);
  EXPECT_TRUE(contains(
      expect_exit(2, {"evaluate", "runs/a", "--data", "data-valid", "--stride", "9999"}).err,
      "--stride 9999 is more than --context " + context));
}

// On the CPU tf32 is float32, and bfloat16 rounds: near it, and not the same.
TEST_F(TextAndModel, AModelIsUsedInEveryPrecision) {
  prepare();
  expect_exit(0, {"train", "run.toml", "--set", "train.steps=30"});
  write_text(folder_ / "ask.jsonl", "{\"text\": \"Line 3 of\"}\n");
  std::map<std::string, double> losses, answers;
  std::map<std::string, std::string> texts;
  std::vector<std::string> dtypes = {"float64", "float32", "bfloat16"};
  if (is_thorough()) dtypes.push_back("tf32");
  for (const std::string& dtype : dtypes) {
    expect_exit(
        0, {"evaluate", "runs/a", "--data", "data-valid", "--json", "e.json", "--dtype", dtype});
    losses[dtype] = json_of(folder_ / "e.json")["loss"];
    texts[dtype] = expect_exit(0, {"generate", "runs/a", "--prompt", "Line", "--tokens", "12",
                                   "--greedy", "--show-ids", "--dtype", dtype})
                       .out;
    expect_exit(
        0, {"predict", "runs/a", "--input", "ask.jsonl", "--json", "a.jsonl", "--dtype", dtype});
    answers[dtype] = nlohmann::json::parse(text("a.jsonl"))["log_probability"].back();
  }
  EXPECT_NEAR(losses["float32"], losses["float64"], 1e-5);
  EXPECT_NE(losses["bfloat16"], losses["float32"]);
  EXPECT_NEAR(losses["bfloat16"], losses["float32"], 0.01 * losses["float32"]);
  EXPECT_FALSE(texts["bfloat16"].empty());
  EXPECT_NE(answers["bfloat16"], answers["float32"]);
  EXPECT_NEAR(answers["bfloat16"], answers["float32"], 0.1);
  if (is_thorough()) {  // on the CPU
    EXPECT_EQ(losses["tf32"], losses["float32"]);
    EXPECT_EQ(texts["tf32"], texts["float32"]);
    EXPECT_EQ(answers["tf32"], answers["float32"]);
  }
  EXPECT_TRUE(contains(
      expect_exit(2, {"evaluate", "runs/a", "--data", "data-valid", "--dtype", "float16"}).err,
      "--dtype"));
}

TEST_F(TextAndModel, StandardInputIsPreparedLikeAFile) {
  expect_exit(0, {"prepare", "text.txt", "--out", "file"});
  for (const char* pipe : {"cat text.txt", "gzip -c text.txt"}) {
    const ProcessResult result = run_line(
        spec({}), program(),
        std::string(pipe) + " | $laconic prepare - --out piped --overwrite --tokenizer bytes");
    ASSERT_EQ(result.exit_code, 0) << to_text(result);
    EXPECT_EQ(text("piped.bin"), text("file.bin"));
  }
  const ProcessResult cut = run_line(
      spec({}), program(), "gzip -c text.txt | head -c 100 | $laconic prepare - --out cut");
  EXPECT_EQ(cut.exit_code, 2);
  EXPECT_TRUE(contains(cut.err, "standard input: byte 100: gzip data is truncated")) << cut.err;
  EXPECT_FALSE(fs::exists(folder_ / "cut.idx"));
}

// The library behind it has a protobuf of its own, which must not meet libtorch's.
TEST_F(TextAndModel, ASentencePieceModelIsPreparedTrainedAndContinued) {
  const char* source = std::getenv("LACONIC_SOURCE");
  const std::string model =
      std::string(source ? source : ".") + "/tests/golden/tokeniser/sentencepiece-bpe.model";
  std::string text;
  for (int i = 0; i < 200; ++i) text += fmt::format("it was the age of wisdom {}\n", i);
  write_text(folder_ / "ages.txt", text);
  const ProcessResult prepared =
      laconic({"prepare", "ages.txt", "--out", "ages", "--tokeniser", model});
  if (contains(prepared.err, "built without SentencePiece")) GTEST_SKIP() << prepared.err;
  ASSERT_EQ(prepared.exit_code, 0) << prepared.err;
  expect_exit(0, {"train", "run.toml", "--set", "data.train=ages", "--set", "data.valid=ages"});
  expect_exit(0, {"generate", "runs/a", "--prompt", "it was", "--tokens", "5"});
  const ProcessResult evaluated = expect_exit(0, {"evaluate", "runs/a", "--data", "ages"});
  EXPECT_FALSE(contains(evaluated.out, "bits/byte")) << evaluated.out;
}

}  // namespace
}  // namespace laconic
