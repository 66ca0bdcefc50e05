// The command line itself: help, wrong words, configurations, and what is refused before any work.
#include <fmt/format.h>

#include <filesystem>

#include "tests/processes/workplace.hpp"

namespace laconic {
namespace {

namespace fs = std::filesystem;

using CommandLine = Workplace;

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
                           "lab", "schedule", "layout", "plan", "compare", "study", "doctor"}) {
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

}  // namespace
}  // namespace laconic
