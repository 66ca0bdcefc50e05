#include "laconic/study/work.hpp"

#include <gtest/gtest.h>

#include <algorithm>
#include <cstdlib>

#include "laconic/base/text.hpp"

namespace laconic {
namespace {

const Places kPlaces = {.laconic = "bin/laconic",
                        .python = "/usr/bin/python3",
                        .source = ".",
                        .work = "out/scratch",
                        .peer_setting = {{"OPENBLAS_CORETYPE", "Haswell"}},
                        .allocator = {{"MALLOC_ARENA_MAX", "1"}}};

const StudyFile& study() {
  static const StudyFile file =
      read_study(std::string(std::getenv("LACONIC_SOURCE")) + "/studies/lab-report.toml");
  return file;
}

TEST(CommandOfATrial, TrainsInALabOfItsOwn) {
  const Trial trial{.rate = "50mbit",
                    .hosts = 4,
                    .model = "pipeline",
                    .preset = "ac-sgd",
                    .set = {{"mesh.pp", "4"}, {"run.threads", "2"}},
                    .warmup = 7,
                    .steps = 3};
  const std::string text = join(command_of(trial, study(), kPlaces, "out/scratch/run"), " ");
  EXPECT_TRUE(
      text.starts_with("bin/laconic lab run --ephemeral --hosts 4 --rate 50mbit --threads 1 "
                       "--json out/scratch/run/lab.json -- bin/laconic train "
                       "./presets/ac-sgd.toml --set "))
      << text;
  for (const char* part :
       {" --set mesh.pp=4 ", " --set train.steps=10 ", " --set run.threads=2 ",
        " --set model.layers=8 ", " --set model.width=256 ", " --set model.vocabulary=2048 ",
        " --set data.train=out/scratch/pipeline ", " --set run.folder=out/scratch/run/run ",
        " --set network.preflight=false ", " --set checkpoint.at_end=false ",
        " --set optimiser.lr=0.0003 ", " --json out/scratch/run/summary.json"})
    EXPECT_NE(text.find(part), std::string::npos) << part << " in " << text;
}

TEST(CommandOfATrial, SetsTheVariablesOfItsSettings) {
  const Trial trial{.rate = "none",
                    .hosts = 2,
                    .model = "pipeline",
                    .environment = {{"ONE", "1"}, {"TWO", "a b"}}};
  const std::vector<std::string> words = command_of(trial, study(), kPlaces, "f");
  EXPECT_EQ(std::vector<std::string>(words.begin(), words.begin() + 5),
            (std::vector<std::string>{"env", "ONE=1", "TWO=a b", "bin/laconic", "train"}));
}

TEST(CommandOfATrial, BeginsFromTheWeightsOfThePeerWhereThereAreSome) {
  const Trial trial{.rate = "unshaped", .model = "replicas"};
  auto keys = keys_of(trial, study(), kPlaces, "f");
  EXPECT_EQ(keys["model.start"], "out/scratch/weights");
  EXPECT_FALSE(keys.contains("model.layers"));
  EXPECT_EQ(keys["data.shuffle"], "false");
  EXPECT_EQ(keys["train.batch"], "8");
  keys = keys_of(without_weights(trial, study().models), study(), kPlaces, "f");
  EXPECT_EQ(keys["model.start"], "");
  EXPECT_EQ(keys["model.width"], "384");
  EXPECT_NE(without_weights(trial, study().models), trial);
  for (const Trial& other :
       {Trial{.model = "pipeline"}, Trial{.program = Program::ddp, .model = "replicas"}})
    EXPECT_EQ(without_weights(other, study().models), other);
}

TEST(CommandOfATrial, OutsideALabStartsItsRanksItself) {
  const Trial trial{.rate = "none", .hosts = 4, .model = "pipeline"};
  const auto words = command_of(trial, study(), kPlaces, "f");
  EXPECT_EQ((std::vector(words.begin(), words.begin() + 3)),
            (std::vector<std::string>{"bin/laconic", "train", "out/scratch/defaults.toml"}));
  EXPECT_EQ((std::vector(words.end() - 2, words.end())),
            (std::vector<std::string>{"--ranks", "4"}));
}

TEST(CommandOfATrial, GivesThePeerTheSameModelDataAndKernels) {
  const Trial trial{.rate = "20mbit",
                    .program = Program::ddp,
                    .hosts = 4,
                    .model = "replicas",
                    .set = {{"hook", "fp16"}},
                    .warmup = 1,
                    .steps = 2};
  const std::string text = join(command_of(trial, study(), kPlaces, "f"), " ");
  EXPECT_NE(text.find(" -- env OPENBLAS_CORETYPE=Haswell /usr/bin/python3 "
                      "./bench/peers/torch_ddp.py --layers 6 --width 384 --heads 6 --context 128 "
                      "--vocabulary 8192 --batch 8 --data out/scratch/replicas --weights "
                      "out/scratch/weights --lr 0.0003 --warmup 1 --steps 2 --hook fp16"),
            std::string::npos)
      << text;
}

TEST(CommandOfATrial, GivesThePeerOurAllocatorWhereItIsAskedFor) {
  const Trial trial{.rate = "20mbit",
                    .program = Program::ddp,
                    .model = "replicas",
                    .set = {{"allocator", "ours"}}};
  const std::string text = join(command_of(trial, study(), kPlaces, "f"), " ");
  EXPECT_NE(text.find(" -- env MALLOC_ARENA_MAX=1 OPENBLAS_CORETYPE=Haswell /usr/bin/python3 "),
            std::string::npos)
      << text;
  EXPECT_EQ(text.find("allocator"), std::string::npos) << text;
}

TEST(Preparation, IsLinesForAShell) {
  const std::vector<Trial> trials = {{.model = "pipeline"}, {.model = "replicas"}};
  const std::string prepare = "bin/laconic prepare --documents paragraph --overwrite ";
  const std::vector<std::string> lines = {
      "mkdir -p out/scratch",
      "echo '# All defaults: the command line says the rest.' > out/scratch/defaults.toml",
      prepare + "./examples/quickstart/corpus --train-bpe 2048 --out out/scratch/pipeline-all",
      R"(tokens=$(sed -n 's/.*"tokens": *\([0-9]*\).*/\1/p' out/scratch/pipeline-all.json))",
      "bytes=$(cat ./examples/quickstart/corpus/*.txt | wc -c)",
      "cat ./examples/quickstart/corpus/*.txt | head -c $((26688 * bytes / tokens)) > "
      "out/scratch/pipeline.txt",
      prepare +
          "out/scratch/pipeline.txt --tokeniser out/scratch/pipeline-all.tokeniser --out "
          "out/scratch/pipeline",
      prepare + "./examples/quickstart/corpus --train-bpe 8192 --out out/scratch/replicas",
      "/usr/bin/python3 ./bench/peers/torch_ddp.py --make-weights out/scratch/weights --layers 6 "
      "--width 384 --heads 6 --context 128 --vocabulary 8192 --batch 8"};
  EXPECT_EQ(preparation_of(kPlaces, study().models, trials), lines);
  EXPECT_EQ(preparation_of(kPlaces, study().models, {trials[0]}),
            (std::vector(lines.begin(), lines.begin() + 7)));
  Places without_python = kPlaces;
  without_python.python = "";
  EXPECT_EQ(preparation_of(without_python, study().models, trials),
            (std::vector(lines.begin(), lines.end() - 1)));
}

TEST(Preflight, IsAskedForWhereSomethingFollowsFromIt) {
  EXPECT_FALSE(needs_preflight("", {}));
  EXPECT_FALSE(needs_preflight("ac-sgd", {}));
  EXPECT_FALSE(needs_preflight("", {{"pp.gradient.when", "epilogue"}}));
  EXPECT_FALSE(needs_preflight("optimus-cc", {{"dp.gradient.stages", "0.75"}}));
  EXPECT_FALSE(needs_preflight("embrace", {{"embedding.rows.method", "alltoall"}}));
  EXPECT_TRUE(needs_preflight("optimus-cc", {}));
  EXPECT_TRUE(needs_preflight("embrace", {}));
  EXPECT_TRUE(needs_preflight("", {{"dp.gradient.stages", "auto"}}));
  EXPECT_TRUE(needs_preflight("", {{"embedding.rows.method", "auto"}}));
  EXPECT_TRUE(needs_preflight("", {{"pp.gradient.when", "critical"}}));
  EXPECT_TRUE(needs_preflight("", {{"steering.bypass", "auto"}}));
  // Where all trials of a study set it.
  StudyFile all;
  all.base = {{"steering.bypass", "auto"}};
  EXPECT_EQ(keys_of({}, all, {}, "folder").at("network.preflight"), "true");
  all.base["network.preflight"] = "false";
  EXPECT_EQ(keys_of({}, all, {}, "folder").at("network.preflight"), "false");
}

TEST(DescriptionOfAModel, IsOfItsShape) {
  EXPECT_EQ(description_of(*find_model(study().models, "pipeline")),
            "8 layers of width 256, 4 heads, a context of 128 tokens, a vocabulary of 2048");
  EXPECT_EQ(description_of(*find_model(study().models, "replicas")),
            "6 layers of width 384, 6 heads, a context of 128 tokens, a vocabulary of 8192");
  EXPECT_EQ(description_of({}), "");
}

TEST(PlacesInATextOfAStudy, AreFoundAsWholeWords) {
  EXPECT_EQ(with_places("$work/a $workers $source$(x) $data", kPlaces),
            "out/scratch/a $workers .$(x) ");
}

TEST(ObstacleToATrial, IsAFileOrAProgramThatIsNotThere) {
  const std::vector<StudyModel> models = {{.name = "here", .needs = {"/"}},
                                          {.name = "there", .needs = {"$data/nowhere/x.xz"}}};
  EXPECT_EQ(obstacle_to({.model = "here"}, models, kPlaces), "");
  EXPECT_EQ(obstacle_to({.model = "there"}, models, kPlaces),
            "skipped: there is no nowhere/x.xz in $LACONIC_DATA or ../shared/data");
  EXPECT_TRUE(obstacle_to({.program = Program::ddp}, models, {}).starts_with("skipped: "));
}

TEST(EnvironmentOfTrials, LeavesOutWhatWouldChangeThem) {
  EXPECT_EQ(quiet_environment({{"PATH", "/bin"},
                               {"OMP_NUM_THREADS", "7"},
                               {"OPENBLAS_CORETYPE", "Prescott"},
                               {"MALLOC_ARENA_MAX", "9"},
                               {"RANK", "3"},
                               {"RANKING", "first"},
                               {"WORLD_SIZE", "4"},
                               {"MASTER_ADDR", "there"},
                               {"LD_PRELOAD", "evil.so"},
                               {"HOME", "/root"}}),
            (Environment{{"PATH", "/bin"}, {"RANKING", "first"}, {"HOME", "/root"}}));
}

TEST(EnvironmentOfTrials, GivesThePeerKernelsButNotOurAllocator) {
  EXPECT_EQ(peer_setting({{"OPENBLAS_CORETYPE", "Haswell", ""},
                          {"OMP_NUM_THREADS", "1", ""},
                          {"GOMP_SPINCOUNT", "1000", ""},
                          {"MALLOC_ARENA_MAX", "1", ""},
                          {"GLIBC_TUNABLES", "x", ""}},
                         "/blas"),
            (Environment{{"OPENBLAS_CORETYPE", "Haswell"}, {"LD_LIBRARY_PATH", "/blas"}}));
  EXPECT_EQ(peer_setting({}, ""), Environment{});
  EXPECT_EQ(allocator_setting({{"OPENBLAS_CORETYPE", "Haswell", ""},
                               {"GOMP_SPINCOUNT", "1000", ""},
                               {"MALLOC_ARENA_MAX", "1", ""},
                               {"GLIBC_TUNABLES", "x", ""}}),
            (Environment{{"MALLOC_ARENA_MAX", "1"}, {"GLIBC_TUNABLES", "x"}}));
}

}  // namespace
}  // namespace laconic
