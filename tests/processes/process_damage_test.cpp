// Damaged, foreign and missing inputs: refused by name, and nothing on the disk is touched.
#include <fmt/format.h>

#include <filesystem>
#include <functional>

#include "laconic/base/test_effort.hpp"
#include "tests/processes/workplace.hpp"

namespace laconic {
namespace {

namespace fs = std::filesystem;

class Damage : public Workplace {
 protected:
  // Every test begins with data and a finished run; they are made once.
  Damage() {
    static const TemporaryFolder made;
    if (fs::is_empty(made.path())) {
      prepare();
      expect_exit(0, {"train", "run.toml"});
      fs::copy(folder_.path(), made.path(), fs::copy_options::recursive);
    } else {
      fs::copy(made.path(), folder_.path(),
               fs::copy_options::recursive | fs::copy_options::overwrite_existing);
    }
  }

  // Everything but the log of the processes themselves.
  std::map<std::string, std::string> everything() const {
    auto all = snapshot(folder_.path());
    all.erase("process.out");
    all.erase("process.err");
    return all;
  }

  void expect_refused(const Words& words, const std::string& reason) const {
    const auto before = everything();
    const ProcessResult outcome = expect_exit(2, words);
    EXPECT_NE(outcome.err.find(reason), std::string::npos) << reason << " is not in\n"
                                                           << outcome.err;
    EXPECT_EQ(everything(), before);
  }

  std::string last() const { return checkpoint("runs/a", 6); }
};

struct Case {
  const char* file;  // in the checkpoint, or after the prefix
  std::function<void(const std::string&)> harm;
  const char* reason;
};

void remove(const std::string& path) {
  fs::remove(path);
}

void fill_with_garbage(const std::string& path) {
  write_text(path, std::string("\0{garbage", 9));
}

void flip_in_the_middle(const std::string& path) {
  flip_bit(path, fs::file_size(path) / 2);
}

TEST_F(Damage, ADamagedCheckpointIsRefusedByNameAndNothingIsTouched) {
  const std::vector<Case> cases = {
      {"state.json", cut_in_half, "state.json"},
      {"model.safetensors", cut_in_half, "model.safetensors: size"},
      {"model.safetensors", flip_in_the_middle, "model.safetensors: check sum"},
      {"optimiser.safetensors", remove, "optimiser.safetensors: is missing"},
      {"config.json", fill_with_garbage, "config.json"}};
  for (const Case& c : some_of(cases, 2)) {
    fs::remove_all(folder_ / "bad");
    fs::copy(folder_ / last(), folder_ / "bad", fs::copy_options::recursive);
    c.harm(folder_ / ("bad/" + std::string(c.file)));
    expect_refused({"train", "run.toml", "--resume", "bad", "--set", "run.folder=runs/b"},
                   c.reason);
  }
}

TEST_F(Damage, EveryUserOfACheckpointChecksIt) {
  fs::copy(folder_ / last(), folder_ / "bad", fs::copy_options::recursive);
  flip_in_the_middle(folder_ / "bad/model.safetensors");
  const char* reason = "model.safetensors: check sum";
  expect_refused({"generate", "bad", "--prompt", "a"}, reason);
  EXPECT_EQ(laconic({"generate", "bad", "--prompt", "a"}).err.find("--resume"), std::string::npos);
  expect_refused({"evaluate", "bad", "--data", "data"}, reason);
  expect_refused({"train", "run.toml", "--set", "model.start=bad", "--set", "run.folder=runs/b"},
                 reason);
}

TEST_F(Damage, AForeignFolderIsNoCheckpointToResume) {
  expect_exit(0, {"export", "runs/a", "hf"});
  expect_refused({"train", "run.toml", "--resume", "hf", "--set", "run.folder=runs/b"},
                 "hf: state.json: is missing");
  expect_refused({"train", "run.toml", "--resume", "nowhere", "--set", "run.folder=runs/b"},
                 "nowhere");
  expect_refused({"evaluate", "data.tokeniser", "--data", "data"}, "data.tokeniser");
  expect_refused({"generate", "nowhere", "--prompt", "a"}, "nowhere: does not exist");
}

TEST_F(Damage, ResumeAutoNamesADamagedCheckpointAndTakesTheOneBefore) {
  const std::string good = text(last() + "/model.safetensors");
  flip_in_the_middle(folder_ / (last() + "/model.safetensors"));
  const ProcessResult outcome = expect_exit(0, {"train", "run.toml", "--resume", "auto"});
  EXPECT_NE(outcome.out.find("passing over a damaged checkpoint: " + last()), std::string::npos)
      << outcome.out;
  EXPECT_NE(outcome.out.find("continuing from " + checkpoint("runs/a", 4)), std::string::npos);
  EXPECT_TRUE(text(last() + "/model.safetensors") == good);
  EXPECT_EQ(losses("runs/a").size(), 6u);
}

TEST_F(Damage, ADamagedDatasetIsRefusedByNameAndNothingIsTouched) {
  const std::vector<Case> cases = {
      {".bin", cut_in_half, ".bin file may be truncated"},
      {".bin", remove, "bad.bin: does not exist"},
      {".idx", cut_in_half, "bad.idx: "},
      {".idx", [](const std::string& p) { flip_bit(p, 0); }, "bad.idx: magic"},
      {".json", cut_in_half, "bad.json: "}};
  for (const Case& c : some_of(cases, 2)) {
    for (const char* end : {".bin", ".idx", ".json"})
      fs::copy_file(folder_ / ("data" + std::string(end)), folder_ / ("bad" + std::string(end)),
                    fs::copy_options::overwrite_existing);
    c.harm(folder_ / ("bad" + std::string(c.file)));
    expect_refused({"train", "run.toml", "--overwrite", "--set", "data.train=bad"}, c.reason);
  }
}

TEST_F(Damage, ADatasetOfAnotherVocabularyIsRefused) {
  expect_refused({"train", "run.toml", "--overwrite", "--set", "model.vocabulary=50"},
                 "data.bin: tokens: they range from 32 to 256");
  expect_exit(0, {"prepare", "text.txt", "--out", "bpe", "--train-bpe", "300"});
  expect_refused({"evaluate", "runs/a", "--data", "bpe"}, "bpe.bin: tokens");
  expect_refused({"train", "run.toml", "--resume", last(), "--set", "data.train=bpe"},
                 "model.vocabulary = 257");
}

TEST_F(Damage, ADamagedVocabularyIsRefusedByName) {
  expect_exit(0, {"prepare", "text.txt", "--out", "bpe", "--train-bpe", "300"});
  cut_in_half(folder_ / "bpe.tokeniser/vocab.json");
  expect_refused({"prepare", "text.txt", "--out", "q", "--tokeniser", "bpe.tokeniser"},
                 "bpe.tokeniser/vocab.json");
  expect_refused({"generate", "runs/a", "--prompt", "a", "--tokeniser", "bpe.tokeniser"},
                 "bpe.tokeniser/vocab.json");
  expect_refused({"generate", "runs/a", "--prompt", "a", "--tokeniser", "nowhere"}, "nowhere");
}

TEST_F(Damage, AnOldRunStaysUntilOverwriteIsSaidAndNothingElseIsWrong) {
  expect_refused({"train", "run.toml"}, "runs/a already holds step-00000006");
  expect_refused({"train", "run.toml", "--overwrite", "--set", "data.train=nowhere"}, "nowhere");
  expect_refused({"train", "run.toml", "--overwrite", "--set", "model.width=16777216"},
                 "the machine has");

  expect_refused({"train", "run.toml", "--resume", checkpoint("runs/a", 2)},
                 "already holds step-00000006");
  const std::string model = text(last() + "/model.safetensors");
  expect_exit(0, {"train", "run.toml", "--resume", checkpoint("runs/a", 2), "--overwrite", "--set",
                  "train.steps=4"});
  EXPECT_EQ(steps_saved("runs/a"), (std::vector<std::int64_t>{2, 4}));
  EXPECT_EQ(losses("runs/a").size(), 4u);
  expect_exit(0, {"train", "run.toml", "--overwrite"});
  EXPECT_EQ(steps_saved("runs/a"), (std::vector<std::int64_t>{2, 4, 6}));
  EXPECT_EQ(losses("runs/a").size(), 6u);
  EXPECT_TRUE(text(last() + "/model.safetensors") == model);
}

TEST_F(Damage, ADamagedLogCostsNoCheckpoint) {
  write_text(folder_ / "runs/a/log.jsonl", "garbage\n{\"step\":1}\n");
  const ProcessResult outcome =
      expect_exit(2, {"train", "run.toml", "--resume", checkpoint("runs/a", 2), "--overwrite"});
  EXPECT_NE(outcome.err.find("log.jsonl: line 1"), std::string::npos) << outcome.err;
  EXPECT_EQ(steps_saved("runs/a"), (std::vector<std::int64_t>{2, 4, 6}));
  expect_exit(0, {"train", "run.toml", "--overwrite"});  // a new run does not need the old log
}

}  // namespace
}  // namespace laconic
