// Every verb as a user types it: what it answers, what it makes, what it refuses.
#include <fmt/format.h>

#include <cmath>
#include <filesystem>
#include <nlohmann/json.hpp>

#include "tests/processes/workplace.hpp"

namespace laconic {
namespace {

namespace fs = std::filesystem;

using CommandLine = Workplace;
using Pipeline = Workplace;

bool contains(const std::string& text, const std::string& part) {
  return text.find(part) != std::string::npos;
}

nlohmann::json json_of(const std::string& path) {
  return nlohmann::json::parse(read_text(path));
}

TEST_F(CommandLine, HelpAndVersionAreAnswersAndNotErrors) {
  EXPECT_TRUE(contains(expect_exit(0, {"--version"}).out, "laconic "));
  EXPECT_TRUE(contains(expect_exit(0, {"--help"}).out, "Examples:"));
  for (const char* verb :
       {"train", "prepare", "generate", "evaluate", "export", "config", "doctor"})
    EXPECT_TRUE(contains(expect_exit(0, {verb, "--help"}).out, "--help")) << verb;
}

TEST_F(CommandLine, AWrongLineIsRefusedWithItsReason) {
  const struct {
    Words words;
    const char* reason;
  } cases[] = {{{}, "required"},
               {{"trian", "run.toml"}, "no verb 'trian'; did you mean 'train'?"},
               {{"config", "shwo"}, "no verb 'shwo'; did you mean 'show'?"},
               {{"config"}, "required"},
               {{"train"}, "CONFIG"},
               {{"train", "run.toml", "--bogus"}, "--bogus"},
               {{"train", "run.toml", "--set"}, "--set"},
               {{"train", "run.toml", "--set", "steps"}, "section.key=value"},
               {{"evaluate", "x"}, "--data"},
               {{"generate", "x", "--temperature", "nan"}, "not a number"},
               {{"generate", "x", "--top-p", "1.5"}, "--top-p"},
               {{"generate", "x", "--prompt", "a", "--prompt-ids", "1"}, "--prompt"},
               {{"train", "nowhere.toml"}, "nowhere.toml: cannot be read: No such file"},
               {{"train", "run.toml", "--json", "no/such/folder/x.json"}, "does not exist"},
               {{"config", "check", "."}, "Is a directory"}};
  for (const auto& c : cases)
    EXPECT_TRUE(contains(expect_exit(2, c.words).err, c.reason)) << c.reason;
}

TEST_F(CommandLine, WhatConfigShowPrintsIsAConfiguration) {
  expect_exit(0, {"config", "check", "run.toml"});
  const ProcessResult shown =
      expect_exit(0, {"config", "show", "run.toml", "--set", "run.folder=größe \"日本\"/a b",
                      "--set", "optimiser.lr=1"});
  write_text(folder_ / "shown.toml", shown.out);
  expect_exit(0, {"config", "check", "shown.toml"});
  EXPECT_EQ(expect_exit(0, {"config", "show", "shown.toml"}).out, shown.out);
  EXPECT_TRUE(contains(expect_exit(0, {"config", "show"}).out, "decay_steps = 0"));
}

TEST_F(CommandLine, AnEmptyConfigurationOnlyLacksItsData) {
  write_text(folder_ / "empty.toml", "");
  const ProcessResult outcome = expect_exit(2, {"config", "check", "empty.toml"});
  EXPECT_FALSE(contains(outcome.err, "cannot be read")) << outcome.err;
  expect_exit(0, {"config", "check", "empty.toml", "--set", "data.train=data"});
}

TEST_F(CommandLine, TrainTellsEveryProblemAtOnceWithoutItsWorker) {
  fs::create_directory(folder_ / "alone");
  fs::copy_file(program(), folder_ / "alone/laconic");
  write_text(folder_ / "bad.toml",
             "[model]\nlayer = 2\nwidth = 16\nheads = 5\n[run]\nseed = 1.5\nfolder = \"r\"\n");
  ProcessSpec front = spec({"train", "bad.toml", "--set", "optimiser.lr=nan"});
  front.words[0] = folder_ / "alone/laconic";
  const ProcessResult outcome = Process(front).wait();
  EXPECT_EQ(outcome.exit_code, 2) << to_text(outcome);
  for (const char* part : {"bad.toml:2:1: unknown key 'layer' in [model]; did you mean 'layers'?",
                           "bad.toml:6:8: run.seed must be an integer",
                           "heads = 5 does not divide width = 16", "lr = nan", "data.train"})
    EXPECT_TRUE(contains(outcome.err, part)) << part << " is not in\n" << outcome.err;
  EXPECT_FALSE(fs::exists(folder_ / "r"));

  front.words = {folder_ / "alone/laconic", "train", "run.toml"};
  const ProcessResult lonely = Process(front).wait();
  EXPECT_EQ(lonely.exit_code, 1);
  EXPECT_TRUE(contains(lonely.err, "alone/laconic-worker: cannot run")) << lonely.err;
}

TEST_F(CommandLine, SizesNoMachineHasAreRefusedInWords) {
  prepare();
  for (const Words& sets :
       {Words{"model.width=16777216"}, Words{"model.width=16777216", "model.layers=16777216"},
        Words{"train.batch=16777216", "model.width=1024"}, Words{"train.batch=9223372036854775807"},
        Words{"train.steps=9223372036854775807"}}) {
    Words words = {"train", "run.toml"};
    for (const std::string& set : sets) words.insert(words.end(), {"--set", set});
    const ProcessResult outcome = expect_exit(2, words);
    EXPECT_FALSE(contains(outcome.err, "frame #")) << outcome.err;
    EXPECT_LT(outcome.err.size(), 500u) << outcome.err;
    EXPECT_FALSE(fs::exists(folder_ / "runs"));
  }
}

TEST_F(CommandLine, MemoryThatRunsOutIsToldInOneLine) {
#ifdef __SANITIZE_ADDRESS__
  GTEST_SKIP() << "the sanitizer itself reserves more than any limit";
#endif
  prepare();
  // The estimate would refuse it before: run.memory says that all is well.
  ProcessSpec limited = spec({"train", "run.toml", "--set", "train.batch=1048576", "--set",
                              "run.memory=1000000000000000"});
  limited.memory_bytes = std::uint64_t{3} << 29;
  const ProcessResult outcome = Process(limited).wait();
  if (outcome.exit_code == 127)
    GTEST_SKIP() << "libtorch's own libraries do not fit: " << outcome.err;
  EXPECT_EQ(outcome.exit_code, 1) << to_text(outcome);
  EXPECT_TRUE(contains(outcome.err, "out of memory")) << outcome.err;
  EXPECT_LT(outcome.err.size(), 200u) << outcome.err;
}

TEST_F(Pipeline, PrepareTakesTextJsonLinesAndFoldersAndNeverReplacesUnasked) {
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

TEST_F(Pipeline, FromTextToAnExportedModelThatEvaluatesAlike) {
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

TEST_F(Pipeline, TheBestCheckpointIsFoundByItsName) {
  prepare();
  const Words train = {"train", "run.toml",
                       "--set", "evaluate.every=2",
                       "--set", "checkpoint.best=true",
                       "--set", "data.valid=data-valid"};
  const auto with = [](Words words, const Words& more) {
    words.insert(words.end(), more.begin(), more.end());
    return words;
  };
  expect_exit(0, with(train, {"--json", "run.json"}));
  const nlohmann::json run = json_of(folder_ / "run.json");
  EXPECT_EQ(run["stopped_early"], false);
  expect_exit(0, {"evaluate", "runs/a/best", "--data", "data-valid", "--json", "best.json"});
  EXPECT_NEAR(json_of(folder_ / "best.json")["loss"].get<double>(),
              run["best_validation_loss"].get<double>(), 1e-4);
  expect_exit(0, {"generate", "runs/a/best", "--prompt", "a", "--tokens", "2"});
  const ProcessResult resumed =
      expect_exit(0, with(train, {"--resume", "best", "--overwrite", "--set", "train.steps=8"}));
  EXPECT_TRUE(contains(resumed.out, fmt::format("step {}\n", run["best_step"].get<int>())));
  EXPECT_TRUE(
      contains(expect_exit(2, {"generate", "runs/best", "--prompt", "a"}).err, "runs/best"));
}

TEST_F(Pipeline, PromptsAndCompletionsArePreparedTrainedAndEvaluated) {
  std::string lines;
  for (int i = 0; i < 60; ++i)
    lines += fmt::format("{{\"prompt\": \"What is {}? \", \"completion\": \"It is {}.\"}}\n", i, i);
  write_text(folder_ / "pairs.jsonl", lines);
  const ProcessResult prepared =
      expect_exit(0, {"prepare", "pairs.jsonl", "--out", "pairs", "--valid", "0.2"});
  EXPECT_TRUE(contains(prepared.out, "60 documents are prompts and completions")) << prepared.out;
  expect_exit(0, {"train", "run.toml", "--set", "data.train=pairs", "--set",
                  "data.valid=pairs-valid", "--json", "run.json"});
  expect_exit(0, {"evaluate", "runs/a", "--data", "pairs-valid", "--json", "e.json"});
  const nlohmann::json found = json_of(folder_ / "e.json");
  EXPECT_NEAR(found["loss"].get<double>(),
              json_of(folder_ / "run.json")["validation_loss"].get<double>(), 1e-4);
  // Twelve completions of 8 or 9 bytes and an end each, less what the last window leaves out.
  EXPECT_LT(found["tokens"].get<int>(), 12 * 10 + 1);
  EXPECT_GT(found["tokens"].get<int>(), 12 * 9 / 2);
}

TEST_F(Pipeline, GenerateIsAFunctionOfModelPromptAndSeed) {
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

TEST_F(Pipeline, TheSameSeedGivesTheSameRunAndAnotherThreadNearlyTheSame) {
  prepare();
  for (const char* run : {"a", "b", "größe 日本"})
    expect_exit(0, {"train", "run.toml", "--set", "run.folder=runs/" + std::string(run)});
  expect_same_end("runs/b", "runs/a", 6);
  expect_same_end("runs/größe 日本", "runs/a", 6);
  expect_exit(0, {"train", "run.toml", "--set", "run.folder=runs/two", "--set", "run.threads=2"});
  const auto one = losses("runs/a"), two = losses("runs/two");
  ASSERT_EQ(one.size(), two.size());
  for (const auto& [step, loss] : one) EXPECT_NEAR(loss, two.at(step), 1e-4) << step;
}

TEST_F(Pipeline, NoStepsStillMakeAModelNewOrFromACheckpoint) {
  prepare();
  expect_exit(0, {"train", "run.toml", "--set", "train.steps=0"});
  EXPECT_EQ(steps_saved("runs/a"), std::vector<std::int64_t>{0});
  expect_exit(0, {"train", "run.toml", "--resume", "auto"});
  expect_exit(0, {"train", "run.toml", "--set", "run.folder=runs/b", "--set", "train.steps=0",
                  "--set", "model.start=" + checkpoint("runs/a", 6)});
  EXPECT_EQ(steps_saved("runs/b"), std::vector<std::int64_t>{0});
  EXPECT_EQ(text(checkpoint("runs/b", 0) + "/model.safetensors"),
            text(checkpoint("runs/a", 6) + "/model.safetensors"));
  EXPECT_TRUE(contains(expect_exit(2, {"train", "run.toml", "--set", "run.folder=runs/c", "--set",
                                       "model.start=runs/a"})
                           .err,
                       "runs/a/config.json"));
}

TEST_F(Pipeline, ADatasetSmallerThanOneWindowIsRefusedWithNumbers) {
  write_text(folder_ / "short.txt", "fifteen letters");
  expect_exit(0, {"prepare", "short.txt", "--out", "data"});
  const ProcessResult outcome = expect_exit(2, {"train", "run.toml", "--set", "data.valid="});
  EXPECT_TRUE(contains(outcome.err, "data has 16 tokens, but one sample of 16 tokens needs 17"))
      << outcome.err;
  expect_exit(0, {"train", "run.toml", "--set", "data.valid=", "--set", "model.context=15"});
}

}  // namespace
}  // namespace laconic
