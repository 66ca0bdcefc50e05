#include "laconic/config/read.hpp"

#include <gtest/gtest.h>

#include <filesystem>
#include <fstream>
#include <map>

#include "laconic/base/error.hpp"

namespace laconic {
namespace {

std::string problems_of(std::string_view toml) {
  RunConfig config;
  return to_text(apply_toml(toml, "run.toml", config));
}

// A folder of files that goes away with the test.
class ConfigFiles : public testing::Test {
 protected:
  ConfigFiles()
      : folder_(std::filesystem::temp_directory_path() /
                fmt::format("laconic-config-{}", getpid())) {
    std::filesystem::create_directories(folder_ / "presets");
  }
  ~ConfigFiles() override { std::filesystem::remove_all(folder_); }

  std::string write(const std::string& name, const std::string& text) {
    std::ofstream(folder_ / name) << text;
    return (folder_ / name).string();
  }
  RunConfig read(const std::string& path, std::vector<std::string> sets = {}) {
    return read_config({path, std::move(sets), (folder_ / "presets").string()});
  }
  std::string refusal(const std::string& path, std::vector<std::string> sets = {}) {
    try {
      read(path, std::move(sets));
    } catch (const ConfigError& error) {
      return error.what();
    }
    return "(accepted)";
  }

  std::filesystem::path folder_;
};

TEST(Config, EveryKeyIsReadFromWhatIsPrinted) {
  RunConfig config;
  config.run.folder = "odd \"name\" \\ \n";
  config.run.seed = 7;
  config.model.dropout = 0.125;
  config.model.recompute = true;
  config.optimiser.lr = 1;
  config.optimiser.schedule = LearningRateShape::linear;
  for (const bool with_help : {false, true}) {
    RunConfig back;
    EXPECT_EQ(to_text(apply_toml(to_toml(config, with_help), "printed", back)), "");
    EXPECT_EQ(to_toml(back, false), to_toml(config, false));
  }
}

// Every key that has a fixed set of values, with their names.
struct NamedKeys {
  std::map<std::string, std::vector<std::string>> names;
  std::string section;

  template <class Section>
  void operator()(const char* key, Section& value) {
    section = key;
    value.visit(*this);
  }
  template <class T, class... Mark>
  void operator()(const char*, T&, const char*, const Mark&...) {}
  template <class E, std::size_t kSize>
  void operator()(const char* key, E&, const char*, const std::array<Named<E>, kSize>& table) {
    names[section + "." + key] = names_in(table);
  }
};

TEST(Config, EveryNameOfAValueIsReadAndPrintedAgain) {
  RunConfig config;
  NamedKeys keys;
  config.visit(keys);
  ASSERT_EQ(keys.names.size(), 46U);
  for (const auto& [key, names] : keys.names)
    for (const std::string& name : names) {
      SCOPED_TRACE(key + " = " + name);
      RunConfig changed;
      ASSERT_EQ(to_text(apply_set(key + "=" + name, changed)), "");
      const std::string line = key.substr(key.rfind('.') + 1) + " = \"" + name + "\"\n";
      EXPECT_NE(to_toml(changed, false).find(line), std::string::npos);
      EXPECT_LE(differences(config, changed).size(), 1U);
      RunConfig again;
      EXPECT_EQ(to_text(apply_toml(to_toml(changed, true), "printed", again)), "");
      EXPECT_EQ(differences(changed, again), std::vector<std::string>());
    }
}

TEST(Config, OtherNamesAreRefusedWithTheNearestAndChangeNothing) {
  const struct {
    const char* set;
    const char* what;
  } cases[] = {
      {"run.dtype=float23", "run.precision cannot be 'float23'; did you mean 'float32'?"},
      {"run.device=cdua", "run.device cannot be 'cdua'; did you mean 'cuda'?"},
      {"run.precision=float23", "run.precision cannot be 'float23'; did you mean 'float32'?"},
      // Names that the enum has, but not the key.
      {"pp.activation.memory=feedback",
       "pp.activation.memory cannot be 'feedback' (known: none, delta, slot_feedback)"},
      {"pp.gradient.when=never",
       "pp.gradient.when cannot be 'never' (known: always, epilogue, critical)"},
      {"steering.guard=3", "steering.guard must be a text in quotes, not integer"},
  };
  for (const auto& c : cases) {
    RunConfig config;
    const Problems problems = apply_set(c.set, config);
    ASSERT_EQ(problems.size(), 1U) << c.set;
    EXPECT_EQ(problems[0].what, c.what);
    EXPECT_EQ(differences({}, config), std::vector<std::string>()) << c.set;
  }
}

TEST(Config, AnOlderNameOfAKeyMeansTheSame) {
  RunConfig config;
  EXPECT_EQ(to_text(apply_toml("[run]\ndtype = \"float64\"\n", "run.toml", config)), "");
  EXPECT_EQ(config.run.precision, RunPrecision::float64);
  EXPECT_EQ(to_toml(config, false).find("dtype"), std::string::npos);
  RunConfig set;
  EXPECT_EQ(to_text(apply_set("run.dtype=float64", set)), "");
  EXPECT_EQ(set.run.precision, RunPrecision::float64);
  EXPECT_EQ(problems_of("[run]\nprecision = \"float32\"\ndtype = \"float64\"\n"),
            "run.toml:3:9: run.dtype is called run.precision now, and both are given");
  EXPECT_EQ(problems_of("[train]\ndtype = 1\n").substr(0, 40),
            "run.toml:2:1: unknown key 'dtype' in [tr");
}

TEST(Config, AMeshIsWhatTheConfigurationAsksFor) {
  RunConfig config;
  config.mesh = {.pp = 3, .dp = 5};
  EXPECT_EQ(mesh_of(config), (Mesh{.pp = 3, .dp = 5}));
}

TEST(Config, UnknownKeysNameLineColumnAndNearestKey) {
  EXPECT_EQ(problems_of("[model]\nlayer = 3\n  wdith = 2\n"),
            "run.toml:2:1: unknown key 'layer' in [model]; did you mean 'layers'?\n"
            "run.toml:3:3: unknown key 'wdith' in [model]; did you mean 'width'?");
  EXPECT_EQ(problems_of("[optimizer]\nlr = 1"),
            "run.toml:1:2: unknown section 'optimizer'; did you mean 'optimiser'?");
}

TEST(Config, KeysThatCannotBeSayWhy) {
  RunConfig config;
  EXPECT_EQ(to_text(apply_set("tp.activation.feedback=true", config)),
            "--set tp.activation.feedback=true: there is no tp.activation.feedback: the next "
            "message is about other samples, and what one lost is no part of it: use a codec that "
            "loses less; of weights' gradients tp.weight.feedback remembers it");
  const std::string both = problems_of("[tp.gradient]\nfeedback = true\nmemory = \"delta\"\n");
  EXPECT_NE(both.find("run.toml:2:1: there is no tp.gradient.feedback: "), std::string::npos)
      << both;
  EXPECT_NE(both.find("run.toml:3:1: there is no tp.gradient.memory: "), std::string::npos) << both;
  EXPECT_EQ(to_text(apply_set("tp.weight.feedback=false", config)), "");
}

TEST(Config, WrongTypesAreReportedTogetherWithPosition) {
  EXPECT_EQ(
      problems_of(
          "[model]\nlayers = \"six\"\nrecompute = 1\n[run]\nprecision = \"float16\"\nseed = 1.5"),
      "run.toml:6:8: run.seed must be an integer, not 1.5\n"
      "run.toml:5:13: run.precision cannot be 'float16'; did you mean 'bfloat16'?\n"
      "run.toml:2:10: model.layers must be an integer, not the text 'six'\n"
      "run.toml:3:13: model.recompute must be true or false, not integer");
}

TEST(Config, SyntaxErrorsNameTheLine) {
  EXPECT_NE(problems_of("[model]\nlayers = = 3").find("run.toml:2:"), std::string::npos);
}

TEST(Config, AnIntegerIsAlsoANumber) {
  RunConfig config;
  EXPECT_TRUE(apply_toml("[optimiser]\nlr = 1", "x", config).empty());
  EXPECT_EQ(config.optimiser.lr, 1.0);
}

TEST(Config, SetTakesTomlOrPlainText) {
  RunConfig config;
  EXPECT_TRUE(apply_set("model.layers=3", config).empty());
  EXPECT_TRUE(apply_set("run.precision=float64", config).empty());
  EXPECT_TRUE(apply_set("data.train = data/wiki-2", config).empty());
  EXPECT_TRUE(apply_set("run.folder=\"a b\"", config).empty());
  EXPECT_EQ(config.model.layers, 3);
  EXPECT_EQ(config.run.precision, RunPrecision::float64);
  EXPECT_EQ(config.data.train, "data/wiki-2");
  EXPECT_EQ(config.run.folder, "a b");
  EXPECT_EQ(to_text(apply_set("model.layrs=3", config)),
            "--set model.layrs=3: unknown key 'layrs' in [model]; did you mean 'layers'?");
  for (const char* bad : {"", "=", "model=3", "a.b.c=1", "model.=1", ".x=1", "model.layers"})
    EXPECT_FALSE(apply_set(bad, config).empty()) << bad;
}

TEST(Config, ATextThatIsAListMayBeWrittenAsOne) {
  for (const char* value : {"[2, 3, 3, 2]", "\"2,3,3,2\"", "[ 2,3,\n3,2, ]"}) {
    RunConfig config;
    EXPECT_EQ(to_text(apply_toml(std::string("[pipeline]\nsplit = ") + value, "x", config)), "");
    EXPECT_EQ(config.pipeline.split, "2,3,3,2");
    RunConfig back;
    EXPECT_TRUE(apply_toml(to_toml(config, true), "printed", back).empty());
    EXPECT_TRUE(differences(config, back).empty());
  }
  EXPECT_EQ(problems_of("[pipeline]\nsplit = [2, \"3\"]"),
            "run.toml:2:13: pipeline.split must be a list of integers, not the text '3'");
  EXPECT_EQ(problems_of("[pipeline]\nsplit = 4"), "");
  EXPECT_EQ(problems_of("[pipeline]\nsplit = true"),
            "run.toml:2:9: pipeline.split must be a text in quotes, not boolean");
  EXPECT_EQ(problems_of("[run]\nfolder = [1]"),
            "run.toml:2:10: run.folder must be a text in quotes, not array");
}

TEST(Config, SetTakesListsAndNumbersWhereTextsAreWanted) {
  for (const char* value : {"2,3,3,2", "[2,3,3,2]", "\"2,3,3,2\""}) {
    RunConfig config;
    EXPECT_EQ(to_text(apply_set(std::string("pipeline.split=") + value, config)), "");
    EXPECT_EQ(config.pipeline.split, "2,3,3,2");
  }
  RunConfig config;
  EXPECT_EQ(to_text(apply_set("dp.gradient.stages=0.75", config)), "");
  EXPECT_EQ(config.dp_gradient.stages, "0.75");
  EXPECT_EQ(to_text(apply_set("run.seed=1.5", config)),
            "--set run.seed=1.5: run.seed must be an integer, not 1.5");
}

TEST(Config, ANumberThatIsTooLargeIsNotCalledAText) {
  const std::string large = "1000000000000000000000";
  RunConfig config;
  EXPECT_EQ(to_text(apply_set("train.steps=" + large, config)),
            "--set train.steps=" + large + ": " + large +
                " is beyond the whole numbers that can be had, which end at 9223372036854775807");
  EXPECT_EQ(to_text(apply_set("train.steps=10^21", config)),
            "--set train.steps=10^21: train.steps must be an integer, not the text '10^21'");
  EXPECT_EQ(to_text(apply_set("run.folder=" + large, config)), "");
  EXPECT_EQ(config.run.folder, large);
}

TEST(Config, AWarmUpIsANumberOfStepsOrAShareOfThem) {
  RunConfig config;
  config.data.train = "data";
  config.train.steps = 50;
  const auto steps_of = [&](const char* value) {
    EXPECT_EQ(to_text(apply_set(std::string("optimiser.warmup=") + value, config)), "");
    EXPECT_EQ(to_text(check(config)), "");
    RunConfig again;
    EXPECT_EQ(to_text(apply_toml(to_toml(config, true), "printed", again)), "");
    EXPECT_EQ(differences(config, again), std::vector<std::string>());
    return warmup_steps(config.optimiser, config.train.steps);
  };
  EXPECT_EQ(steps_of("7"), 7);
  EXPECT_EQ(steps_of("0.1"), 5);
  EXPECT_EQ(steps_of("0.0"), 0);
  EXPECT_TRUE(warnings_of(config).empty());
  EXPECT_EQ(steps_of("50"), 50);
  EXPECT_TRUE(warnings_of(config).empty());
  EXPECT_EQ(steps_of("60"), 50);
  ASSERT_EQ(warnings_of(config).size(), 1U);
  EXPECT_TRUE(warnings_of(config)[0].starts_with(
      "optimiser.warmup = 60 does not fit into the schedule of 50 steps: shortened to 50"));
  config.optimiser.decay_steps = 100;
  EXPECT_EQ(steps_of("60"), 60);
  EXPECT_EQ(steps_of("0.1"), 10);
  for (const char* value : {"2.5", "1.0", "nan", "ten"})
    EXPECT_EQ(apply_set(std::string("optimiser.warmup=") + value, config).size(), 1U) << value;
  for (const char* value : {"-1", "-0.5"}) {
    EXPECT_EQ(to_text(apply_set(std::string("optimiser.warmup=") + value, config)), "");
    EXPECT_EQ(check(config).size(), 1U) << value;
  }
}

TEST(Config, ImpossibleSizesAreReportedTogether) {
  RunConfig config;
  config.model.heads = 5;
  config.model.dropout = 1.0;
  config.train.microbatch = 3;
  config.optimiser.beta2 = std::numeric_limits<double>::quiet_NaN();
  EXPECT_EQ(to_text(check(config)),
            "model.heads: heads = 5 does not divide width = 384\n"
            "model.dropout: dropout = 1 is not in [0, 1)\n"
            "data.train: no training data: give the prefix that `laconic prepare` wrote\n"
            "train.microbatch: microbatch = 3 does not divide batch = 8\n"
            "optimiser.beta2: beta2 = nan is not in [0, 1)");
}

TEST(Config, SectionsMayHaveDots) {
  RunConfig config;
  EXPECT_TRUE(apply_toml("[dp.gradient]\ncodec = \"sign\"\n", "a.toml", config).empty());
  EXPECT_EQ(config.dp_gradient.codec, "sign");
  EXPECT_TRUE(apply_set("dp.gradient.codec=quantise:bits=4", config).empty());
  EXPECT_EQ(config.dp_gradient.codec, "quantise:bits=4");
  EXPECT_TRUE(apply_set("dp.gradient.rank=4", config).empty());
  EXPECT_EQ(config.dp_gradient.rank, 4);
  RunConfig again;
  EXPECT_TRUE(apply_toml(to_toml(config, true), "again", again).empty());
  EXPECT_TRUE(differences(config, again).empty());
}

TEST(Config, UnknownSectionsBehindADotAreReported) {
  RunConfig config;
  const Problems problems =
      apply_toml("[dp]\nrank = 3\n[dp.gradients]\ncodec = \"raw\"\n", "a.toml", config);
  ASSERT_EQ(problems.size(), 2U);
  EXPECT_NE(to_text(problems).find("unknown section 'dp.gradients'; did you mean 'dp.gradient'?"),
            std::string::npos)
      << to_text(problems);
  EXPECT_NE(to_text(problems).find("unknown section 'dp.rank'"), std::string::npos);
  EXPECT_EQ(apply_toml("dp = 3\n", "a.toml", config).size(), 1U);
  EXPECT_EQ(apply_set("dp..codec=raw", config).size(), 1U);
}

TEST(Config, RanksMustShareTheBatch) {
  RunConfig config;
  config.data.train = "data";
  config.train.batch = 12;
  config.mesh.dp = 5;
  EXPECT_EQ(to_text(check(config)), "mesh.dp: dp = 5 does not divide train.batch = 12");
  config.mesh.dp = 3;
  config.train.microbatch = 3;
  EXPECT_EQ(to_text(check(config)),
            "train.microbatch: microbatch = 3 does not divide the 4 samples of a rank "
            "(train.batch = 12, mesh.dp = 3)");
  config.train.microbatch = 2;
  EXPECT_TRUE(check(config).empty());
}

TEST(Config, NetworkPoliciesAreCheckedTogether) {
  RunConfig config;
  config.data.train = "data";
  config.dp_gradient.codec = "quantise:bits=9";
  config.dp_gradient.method = GradientMethod::compressed_adam;
  config.network.deadline = 0;
  config.local.steps = 7;
  const std::string text = to_text(check(config));
  for (const char* part :
       {"dp.gradient.codec: ", "dp.gradient.warmup: ", "network.deadline: ",
        "local.steps: steps = 7 with mesh.dp = 1: ", "local.steps: local updates send changes",
        "train.steps: train.steps = 1000 is not a multiple of local.steps = 7"})
    EXPECT_NE(text.find(part), std::string::npos) << part << " in\n" << text;
}

TEST(Config, TasksAreCheckedTogether) {
  RunConfig config;
  config.data.train = "d";
  EXPECT_EQ(to_text(check(config)), "");
  for (const char* set : {"task.kind=classify", "task.mask_share=0", "task.whole_words=true",
                          "task.next_sentence=true", "task.masks=sample", "task.pad=longest",
                          "task.label_smoothing=0.1", "mesh.pp=2", "pp.activation.memory=delta",
                          "pp.activation.codec=quantise:bits=8"})
    EXPECT_EQ(to_text(apply_set(set, config)), "");
  const std::string text = to_text(check(config));
  for (const char* part :
       {"task.kind: kind = \"classify\" is nothing that this model does (GPT, 6 layers",
        "task.mask_share: mask_share = 0 is not in (0, 1]",
        "task.whole_words: whole_words = true with kind = \"classify\"",
        "task.next_sentence: next_sentence = true with kind = \"classify\"",
        "task.masks: masks = \"sample\" with kind = \"classify\"",
        "task.label_smoothing: label_smoothing = 0.1 with kind = \"classify\"",
        "task.pad: pad = \"longest\" with pp.activation.memory = \"delta\""})
    EXPECT_NE(text.find(part), std::string::npos) << part << " is not in\n" << text;
}

TEST(Config, ShortSamplesGoThroughPipelinesWithDropout) {
  RunConfig config;
  config.data.train = "d";
  for (const char* set :
       {"model.kind=bert", "task.kind=classify", "task.pad=longest", "mesh.pp=2",
        "model.dropout=0.1", "pp.gradient.memory=feedback", "pp.gradient.codec=quantise:bits=8"})
    EXPECT_EQ(to_text(apply_set(set, config)), "");
  EXPECT_EQ(to_text(check(config)), "");
}

TEST(Config, ImpossibleOptimisersAreRefusedTogether) {
  RunConfig config;
  config.data.train = "data";
  for (const char* set :
       {"optimiser.kind=muon", "optimiser.lr=0", "optimiser.min_lr=0", "optimiser.muon_lr=0.02",
        "optimiser.muon_momentum=1", "optimiser.schedule=wsd", "optimiser.decay_length=1001",
        "dp.gradient.method=compressed_adam", "dp.gradient.warmup=5", "evaluate.patience=2",
        "evaluate.min_improvement=-1", "checkpoint.best=true", "run.memory=-1"})
    EXPECT_TRUE(apply_set(set, config).empty()) << set;
  const std::string text = to_text(check(config));
  for (const char* part :
       {"optimiser.muon_lr: muon_lr = 0.02 with lr = 0", "optimiser.muon_momentum: ",
        "optimiser.decay_length: decay_length = 1001 is longer than the schedule of 1000 steps",
        "dp.gradient.method: compressed_adam sends the first moment of adamw",
        "evaluate.patience: patience = 2 with every = 0", "evaluate.min_improvement: ",
        "checkpoint.best: best = true but data.valid is empty", "run.memory: "})
    EXPECT_NE(text.find(part), std::string::npos) << part << " in\n" << text;
  RunConfig sgd;
  sgd.data.train = "data";
  sgd.optimiser.kind = OptimiserKind::sgd;
  sgd.optimiser.nesterov = true;
  EXPECT_TRUE(check(sgd).empty());
  sgd.optimiser.momentum = 0;
  sgd.optimiser.decay_length = 0;
  EXPECT_EQ(to_text(check(sgd)),
            "optimiser.decay_length: decay_length = 0 is neither a share between 0 and 1 nor a "
            "whole number of steps\n"
            "optimiser.nesterov: nesterov = true with momentum = 0: there is no momentum to look "
            "along");
}

TEST_F(ConfigFiles, ExtendsIsReadFirstAndSetLast) {
  write("presets/small.toml", "[model]\nlayers = 2\nwidth = 64\nheads = 2\n[data]\ntrain = \"d\"");
  write("base.toml", "extends = \"preset:small\"\n[model]\nwidth = 32\ncontext = 16");
  const std::string path = write("run.toml", "extends = \"base.toml\"\n[model]\ncontext = 8");
  const RunConfig config = read(path, {"model.heads=4"});
  EXPECT_EQ(config.model.layers, 2);
  EXPECT_EQ(config.model.width, 32);
  EXPECT_EQ(config.model.context, 8);
  EXPECT_EQ(config.model.heads, 4);
}

TEST_F(ConfigFiles, CirclesMissingFilesAndPresetsAreRefused) {
  const std::string circle = write("a.toml", "extends = \"a.toml\"");
  EXPECT_NE(refusal(circle).find("is it a circle?"), std::string::npos);
  EXPECT_NE(refusal("/nowhere/x.toml").find("/nowhere/x.toml: cannot be read"), std::string::npos);
  write("presets/known.toml", "");
  const std::string unknown = write("b.toml", "extends = \"preset:unknown\"");
  EXPECT_NE(refusal(unknown).find("(presets: known)"), std::string::npos);
}

TEST_F(ConfigFiles, ProblemsOfFileOverridesAndValuesComeTogether) {
  const std::string path =
      write("run.toml", "[model]\nlayerz = 1\nheads = 7\n[data]\ntrain = \"d\"");
  const std::string text = refusal(path, {"train.stepz=1"});
  EXPECT_NE(text.find("layerz"), std::string::npos);
  EXPECT_NE(text.find("stepz"), std::string::npos);
  EXPECT_NE(text.find("heads = 7 does not divide width = 384"), std::string::npos);
}

}  // namespace
}  // namespace laconic
