// Every verb as a user types it: what it answers, what it makes, what it refuses.
#include <fmt/format.h>

#include <cmath>
#include <cstdlib>
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

// Every verb, and every verb of a verb, as the help of the program lists them.
TEST_F(CommandLine, EachHelpHasExamplesOfItsOwnVerb) {
  const std::string all = expect_exit(0, {"--help"}).out;
  std::vector<Words> verbs;
  for (const char* verb : {"train", "prepare", "generate", "evaluate", "export", "config", "codec",
                           "lab", "schedule", "compare", "doctor"}) {
    EXPECT_TRUE(contains(all, fmt::format("\n  {} ", verb))) << verb;
    verbs.push_back({verb});
  }
  for (const char* verb : {"check", "show"}) verbs.push_back({"config", verb});
  for (const char* verb : {"list", "show", "encode", "inspect", "decode", "bench"})
    verbs.push_back({"codec", verb});
  for (const char* verb : {"up", "run", "rate", "status", "down", "report"})
    verbs.push_back({"lab", verb});
  for (const Words& verb : verbs) {
    Words words = verb;
    words.emplace_back("--help");
    const std::string help = expect_exit(0, words).out;
    const std::string name = fmt::format("laconic {}", fmt::join(verb, " "));
    const std::size_t examples = help.find("Examples:");
    ASSERT_NE(examples, std::string::npos) << name;
    EXPECT_TRUE(contains(help.substr(examples), name)) << help;
    Words asked = {"help"};
    asked.insert(asked.end(), verb.begin(), verb.end());
    EXPECT_EQ(expect_exit(0, asked).out, help);
  }
  EXPECT_EQ(expect_exit(0, {"help"}).out, all);
  EXPECT_TRUE(contains(expect_exit(2, {"help", "trian"}).err, "did you mean 'train'?"));
}

TEST_F(CommandLine, AVerbThatIsMissingIsAnsweredWithHelp) {
  EXPECT_EQ(expect_exit(2, {}).err, expect_exit(0, {"--help"}).out);
  for (const char* verb : {"config", "codec", "lab"})
    EXPECT_TRUE(contains(expect_exit(2, {verb}).err, "Examples:")) << verb;
}

TEST_F(CommandLine, AWrongLineIsRefusedWithItsReason) {
  const struct {
    Words words;
    const char* reason;
  } cases[] = {
      {{"train", "--hlep"}, "laconic train: no option '--hlep'; did you mean '--help'?"},
      {{"train", "run.toml", "--rezume=auto"}, "no option '--rezume'; did you mean '--resume'?"},
      {{"config", "check", "--nodata", "run.toml"}, "did you mean '--no-data'?"},
      {{"generate", "x", "--temperature", "-1"}, "--temperature: -1 is below 0; "},
      {{"generate", "x", "--tokens", "-5"}, "--tokens: -5 is below 0; "},
      {{"evaluate", "x", "--data", "d", "--batch", "0"}, "--batch: 0 is below 1; "},
      {{"prepare", "text.txt", "--out", "x", "--train-bpe", "99999999999"},
       "--train-bpe: '99999999999' is no number, or too large"},
      {{"prepare", "text.txt", "--out", "x/", "--train-bpe", "5"}, "--out: \"x/\" names no prefix"},
      {{"prepare", "text.txt", "--out", "x", "--valid", "3"}, "--valid: 3 is not within"},
      {{"train", "run.toml", "--set", "train.steps=1000000000000000000000"},
       "1000000000000000000000 is beyond"},
      {{"train", "run.toml", "--resume", "atuo"}, "did you mean 'auto'?"},
      {{"train", "run.toml", "--resume", "auto", "--overwrite"},
       "--overwrite: throws away what --resume auto would go on from"},
      {{"train", "run.toml", "--json", "/proc/x.json"}, "--json /proc/x.json: "},
      {{"train", "run.toml", "--json", "/dev/null"}, "--json /dev/null: is no plain file"},
      {{"trian", "run.toml"}, "no verb 'trian'; did you mean 'train'?"},
      {{"config", "shwo"}, "no verb 'shwo'; did you mean 'show'?"},
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
  for (const auto& c : cases) {
    const std::string refusal = expect_exit(2, c.words).err;
    EXPECT_TRUE(contains(refusal, c.reason)) << c.reason << " is not in\n" << refusal;
    EXPECT_LT(refusal.size(), 400u) << refusal;
  }
}

TEST_F(CommandLine, AFileErrorIsToldLikeAnyOther) {
  const ProcessResult outcome = expect_exit(1, {"prepare", "text.txt", "--out", "text.txt/x"});
  EXPECT_EQ(outcome.err, "laconic: text.txt: cannot create directories: Not a directory\n");
}

TEST_F(CommandLine, ConfigCheckLooksAtTheDataUnlessToldNotTo) {
  const ProcessResult missing = expect_exit(2, {"config", "check", "run.toml"});
  for (const char* part : {"data.train: data.idx does not exist", "data.valid: data-valid.idx"})
    EXPECT_TRUE(contains(missing.err, part)) << missing.err;
  expect_exit(0, {"config", "check", "run.toml", "--no-data"});
  prepare();
  const std::string fine = expect_exit(0, {"config", "check", "run.toml"}).out;
  EXPECT_TRUE(contains(fine, "data.train: 13,")) << fine;
  EXPECT_TRUE(contains(fine, "run.toml: no problems\n")) << fine;
  const std::string small =
      expect_exit(2, {"config", "check", "run.toml", "--set", "model.vocabulary=50"}).err;
  EXPECT_TRUE(contains(small, "data.train: data.bin: tokens: they range")) << small;
  const std::string wide =
      expect_exit(2, {"config", "check", "run.toml", "--set", "model.context=99999"}).err;
  EXPECT_TRUE(contains(wide, "data.valid: ")) << wide;
  EXPECT_TRUE(
      contains(expect_exit(0, {"config", "check", "run.toml", "--set", "optimiser.warmup=500"}).out,
               "warning: optimiser.warmup = 500 does not fit into the schedule of 100 steps"));
  cut_in_half(folder_ / "data.bin");
  EXPECT_TRUE(contains(expect_exit(2, {"config", "check", "run.toml"}).err, "data.train: "));
}

TEST_F(CommandLine, WhatConfigShowPrintsIsAConfiguration) {
  prepare();
  expect_exit(0, {"config", "check", "run.toml"});
  const ProcessResult shown =
      expect_exit(0, {"config", "show", "run.toml", "--set", "run.folder=größe \"日本\"/a b",
                      "--set", "optimiser.lr=1"});
  write_text(folder_ / "shown.toml", shown.out);
  expect_exit(0, {"config", "check", "shown.toml"});
  EXPECT_EQ(expect_exit(0, {"config", "show", "shown.toml"}).out, shown.out);
  EXPECT_TRUE(contains(expect_exit(0, {"config", "show"}).out, "decay_steps = 0"));
}

TEST_F(CommandLine, APresetIsAConfigurationToo) {
  const std::string shown =
      expect_exit(0, {"config", "show", "preset:gpt-tiny", "--set", "data.train=data"}).out;
  EXPECT_TRUE(contains(shown, "width = 128")) << shown;
  const std::string refusal = expect_exit(2, {"config", "check", "preset:gpt-tyni"}).err;
  EXPECT_TRUE(contains(refusal, "gpt-tyni.toml")) << refusal;
  EXPECT_TRUE(contains(refusal, "gpt-tiny, gpt2")) << refusal;
}

TEST_F(CommandLine, AnEmptyConfigurationOnlyLacksItsData) {
  write_text(folder_ / "empty.toml", "");
  const ProcessResult outcome = expect_exit(2, {"config", "check", "empty.toml"});
  EXPECT_FALSE(contains(outcome.err, "cannot be read")) << outcome.err;
  expect_exit(0, {"config", "check", "empty.toml", "--set", "data.train=data", "--no-data"});
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

// The library behind it has a protobuf of its own, which must not meet libtorch's.
TEST_F(Pipeline, ASentencePieceModelIsPreparedTrainedAndContinued) {
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

// Runs a line of bash in the folder, with $laconic as the program.
ProcessResult run_line(ProcessSpec start, const std::string& laconic, const std::string& line) {
  start.words = {"/bin/bash", "-o", "pipefail", "-c", line};
  start.environment["laconic"] = laconic;
  return Process(start).wait();
}

TEST_F(Pipeline, SamplesAndPromptsOfStandardInputAreWhatEachAloneWouldBe) {
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
  for (int i = 0; i < 3; ++i)
    EXPECT_EQ(text_of(fmt::format("--prompt ab --seed {}", 7 + i)),
              std::vector<std::string>{three[static_cast<std::size_t>(i)]});
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

TEST_F(Pipeline, AStrideOfTheContextEvaluatesAsWithout) {
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

TEST_F(Pipeline, StandardInputIsPreparedLikeAFile) {
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

TEST_F(Pipeline, AFinishedRunHasNothingToDoAndSaysSo) {
  prepare();
  expect_exit(0, {"train", "run.toml", "--json", "first.json"});
  const auto before = snapshot(folder_ / "runs/a/checkpoints");
  const std::string out =
      expect_exit(0, {"train", "run.toml", "--resume", "auto", "--json", "again.json"}).out;
  EXPECT_TRUE(contains(out, "nothing to do: " + checkpoint("runs/a", 6) + " has done 6 steps"))
      << out;
  EXPECT_FALSE(contains(out, "tokens trained on")) << out;
  EXPECT_EQ(snapshot(folder_ / "runs/a/checkpoints"), before);
  EXPECT_EQ(json_of(folder_ / "again.json")["step"], 6);
  const std::string more = expect_exit(0, {"train", "run.toml", "--resume", "auto", "--set",
                                           "train.steps=8", "--json", "more.json"})
                               .out;
  EXPECT_TRUE(contains(more, "tokens trained on")) << more;
  EXPECT_TRUE(contains(more, "of these since step 6")) << more;
  EXPECT_EQ(json_of(folder_ / "more.json")["all_tokens"], 8 * 4 * 16);
  EXPECT_EQ(json_of(folder_ / "more.json")["tokens"], 2 * 4 * 16);
}

TEST_F(Pipeline, ResumeTakesTheFolderOfARun) {
  prepare();
  expect_exit(0, {"train", "run.toml", "--set", "train.steps=4"});
  for (const char* given : {"runs/a", "runs/a/", "runs/a/checkpoints"}) {
    const std::string out = expect_exit(0, {"train", "run.toml", "--resume", given, "--set",
                                            "run.folder=runs/b", "--overwrite"})
                                .out;
    EXPECT_TRUE(contains(out, "step-00000004, step 4")) << out;
  }
  expect_exit(0, {"train", "run.toml", "--resume", "runs/a"});  // its own
  EXPECT_EQ(text(checkpoint("runs/a", 6) + "/model.safetensors"),
            text(checkpoint("runs/b", 6) + "/model.safetensors"));
  const ProcessResult refused =
      expect_exit(2, {"train", "run.toml", "--resume", "runs/a", "--set", "run.folder=runs/b"});
  EXPECT_TRUE(contains(refused.err, "runs/b already holds step-00000006")) << refused.err;
}

TEST_F(Pipeline, AWarmUpThatDoesNotFitIsShortenedWithAWarning) {
  prepare();
  const Words sets = {"--set", "optimiser.decay_steps=0", "--set"};
  const auto out = [&](const char* run, const char* warmup) {
    Words words = {"train", "run.toml", "--set", std::string("run.folder=runs/") + run};
    words.insert(words.end(), sets.begin(), sets.end());
    words.push_back(std::string("optimiser.warmup=") + warmup);
    return expect_exit(0, words).out;
  };
  EXPECT_TRUE(contains(out("a", "60"), "warning: optimiser.warmup = 60 does not fit"));
  EXPECT_FALSE(contains(out("b", "6"), "warning"));
  expect_same_end("runs/a", "runs/b", 6);
  EXPECT_FALSE(contains(out("c", "0.5"), "warning"));
  EXPECT_FALSE(contains(out("d", "3"), "warning"));
  expect_same_end("runs/c", "runs/d", 6);
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
