// What is written about keys outside of the code: presets and docs/config.md.
#include <gtest/gtest.h>

#include <algorithm>
#include <cstdlib>
#include <filesystem>
#include <fstream>
#include <map>
#include <regex>
#include <set>

#include "laconic/architecture/model_spec.hpp"
#include "laconic/base/error.hpp"
#include "laconic/config/model_family.hpp"
#include "laconic/config/read.hpp"

namespace laconic {
namespace {

namespace fs = std::filesystem;

fs::path source_folder() {
  const char* source = std::getenv("LACONIC_SOURCE");
  return source != nullptr ? source : ".";
}

std::vector<fs::path> presets() {
  std::vector<fs::path> paths;
  for (const auto& entry : fs::directory_iterator(source_folder() / "presets"))
    if (entry.is_regular_file()) paths.push_back(entry.path());
  return paths;
}

std::string refusal(const fs::path& preset, std::vector<std::string> sets) {
  sets.insert(sets.begin(), "data.train=data");
  try {
    read_config({preset.string(), std::move(sets), (source_folder() / "presets").string()});
  } catch (const ConfigError& error) {
    return error.what();
  }
  return "";
}

TEST(Presets, AllAreAcceptedInEveryMesh) {
  ASSERT_GE(presets().size(), 13U);
  // Steps that replicas make alone are for replicas.
  const std::set<std::string> local = {"replicas-20mbit",  "replicas-5mbit", "diloco",
                                       "streaming-diloco", "sparse-loco",    "muloco"};
  for (const fs::path& preset : presets())
    for (const char* mesh : {"", "mesh.pp=2", "mesh.dp=2", "mesh.pp=4"}) {
      if (preset.stem() == "lm-paper" && std::string(mesh) == "mesh.pp=4") continue;  // 3 blocks
      if (local.contains(preset.stem()) && std::string(mesh) != "mesh.dp=2") continue;
      EXPECT_EQ(refusal(preset, mesh[0] == 0 ? std::vector<std::string>{"run.seed=1"}
                                             : std::vector<std::string>{mesh, "train.batch=16"}),
                "")
          << preset << " with " << mesh;
    }
}

TEST(Presets, TheScheduleFollowsTheStepsThatOneCanAfford) {
  const fs::path folder = source_folder() / "presets";
  for (const char* name : {"gpt-tiny", "gpt-small", "gpt2"})
    for (const char* steps : {"train.steps=20", "train.steps=100"}) {
      const RunConfig config = read_config({(folder / (std::string(name) + ".toml")).string(),
                                            {"data.train=data", steps},
                                            folder.string()});
      EXPECT_TRUE(warnings_of(config).empty()) << name << ", " << steps;
      EXPECT_LE(warmup_steps(config.optimiser, config.train.steps), config.train.steps / 10)
          << name << ", " << steps;
    }
  // What they have meant so far, at their own lengths.
  const auto warmup = [&](const char* name) {
    const RunConfig config =
        read_config({(folder / name).string(), {"data.train=data"}, folder.string()});
    return warmup_steps(config.optimiser, config.train.steps);
  };
  EXPECT_EQ(warmup("gpt-tiny.toml"), 20);
  EXPECT_EQ(warmup("gpt-small.toml"), 100);
}

TEST(Presets, ThoseOfPipelinesSayWhatTheyAreNamedFor) {
  const auto preset = [](const std::string& name) {
    const fs::path folder = source_folder() / "presets";
    return read_config({(folder / (name + ".toml")).string(),
                        {"data.train=data", "mesh.pp=2", "mesh.dp=2"},
                        folder.string()});
  };
  EXPECT_TRUE(preset("ac-sgd").remembers_samples());
  EXPECT_TRUE(preset("ac-sgd").model.dropout_by_sample);
  EXPECT_EQ(preset("ac-sgd").shards(), 2);
  EXPECT_EQ(preset("optimus-cc").pp_gradient.memory, LinkMemory::feedback);
  EXPECT_EQ(preset("optimus-cc").shards(), 1);
  EXPECT_FALSE(preset("rotated").remembers_samples());
  EXPECT_TRUE(preset("pipeline-20mbit").pipeline.is_automatic());
  EXPECT_TRUE(preset("pipeline-20mbit").remembers_samples());
  EXPECT_EQ(preset("pipeline-20mbit").embedding_tied.late, 1);
}

TEST(Presets, ThoseOfLocalUpdatesHaveThePapersSettings) {
  struct Row {
    const char* preset;
    LocalMethod method;
    double outer_lr, outer_momentum;
    OptimiserKind inside = OptimiserKind::adamw;
    const char* codec = "raw";
  };
  const char* e3m0 = "quantise:bits=4,grid=powers";
  for (const Row& row :
       {Row{"diloco", LocalMethod::diloco, 0.6, 0.9},
        {"streaming-diloco", LocalMethod::streaming_diloco, 0.4, 0.9, OptimiserKind::adamw, e3m0},
        {"sparse-loco", LocalMethod::sparse_loco, 1, 0},
        {"muloco", LocalMethod::diloco, 0.9, 0.8, OptimiserKind::muon}}) {
    const fs::path folder = source_folder() / "presets";
    const RunConfig config = read_config({(folder / (std::string(row.preset) + ".toml")).string(),
                                          {"data.train=data", "mesh.dp=2"},
                                          folder.string()});
    const OuterStep outer = outer_step(config.local);
    EXPECT_EQ(config.local.steps, 30) << row.preset;
    EXPECT_EQ(config.local.method, row.method) << row.preset;
    EXPECT_EQ(outer.lr, row.outer_lr) << row.preset;
    EXPECT_EQ(outer.momentum, row.outer_momentum) << row.preset;
    EXPECT_EQ(config.optimiser.kind, row.inside) << row.preset;
    EXPECT_EQ(config.local.memory, 0.95) << row.preset;
    EXPECT_EQ(config.dp_gradient.codec, row.codec) << row.preset;
    if (row.inside != OptimiserKind::muon) continue;
    EXPECT_EQ(config.optimiser.muon_lr, 0.0625);
    EXPECT_EQ(config.optimiser.muon_momentum, 0.9);
    EXPECT_EQ(config.optimiser.muon_scale, MuonScale::original);
  }
}

TEST(Presets, ThoseOfGridsSayWhatTheyAreNamedFor) {
  const fs::path folder = source_folder() / "presets";
  const auto preset = [&](const std::string& name, const std::string& tp) {
    return read_config(
        {(folder / (name + ".toml")).string(), {"data.train=data", tp}, folder.string()});
  };
  const RunConfig cube = preset("tensor-3d", "run.seed=1");
  EXPECT_EQ(cube.mesh.tp, "2,2,2");
  EXPECT_EQ(cube.tp_activation.codec, "raw");
  const RunConfig short_sums = preset("tensor-8bit", "mesh.tp=2");
  EXPECT_EQ(short_sums.tensor.method, TensorMethod::one_d);
  for (const std::string& codec : {short_sums.tp_activation.codec, short_sums.tp_gradient.codec})
    EXPECT_TRUE(codec.starts_with("quantise:bits=8")) << codec;
}

// EmbRace's table of models, in MiB: spec embrace.md 4.1.
TEST(Presets, ThoseOfEmbraceHaveThePapersSizes) {
  struct Row {
    const char* preset;
    std::vector<std::string> tables;
    double table_size, all;
    std::int64_t not_here = 0;  // parameters that the paper counts and nobody computes with
  };
  constexpr std::int64_t kPooler = 768 * 768 + 768;
  const std::vector<Row> rows = {
      {"lm-paper", {"embedding.weight", "softmax.weight"}, 3099.5, 3186.5},
      {"gnmt-paper", {"encoder.embedding.weight", "decoder.embedding.weight"}, 252.5, 739.1},
      {"transformer-big",
       {"encoder.embed_tokens.weight", "decoder.embed_tokens.weight"},
       263.1,
       1067.5},
      {"bert-base-span", {"bert.embeddings.word_embeddings.weight"}, 89.4, 417.7, kPooler}};
  const auto mib = [](std::int64_t elements) {
    return 4 * static_cast<double>(elements) / (1 << 20);
  };
  const auto spec_of = [](const std::string& preset, std::vector<std::string> sets) {
    const fs::path folder = source_folder() / "presets";
    sets.emplace_back("data.train=data");
    const RunConfig config =
        read_config({(folder / (preset + ".toml")).string(), std::move(sets), folder.string()});
    return model_spec(family_of(config, {}), config.model.context);
  };
  for (const Row& row : rows) {
    SCOPED_TRACE(row.preset);
    const ModelSpec spec = spec_of(row.preset, {});
    std::int64_t tables = 0;
    std::size_t found = 0;
    for (const ParameterSpec& p : spec.parameters)
      if (std::ranges::count(row.tables, p.name) > 0) tables += elements_of(p), ++found;
    EXPECT_EQ(found, row.tables.size());
    EXPECT_NEAR(mib(tables), row.table_size, 0.1);
    EXPECT_NEAR(mib(parameter_count(spec) + row.not_here), row.all, 0.1);
  }
  // Parallax's language model differs by its recurrent projection.
  EXPECT_NEAR(mib(parameter_count(spec_of("lm-paper", {"model.projection=recurrent"}))), 3138.6,
              0.1);
}

// Every "section.key", without sections' structure.
struct KeyCollector {
  std::set<std::string> keys;
  std::string section;

  template <class Section>
  void operator()(const char* key, Section& value) {
    section = key;
    value.visit(*this);
  }
  template <class T, class... Hint>
  void operator()(const char* key, T&, const char*, const Hint&...) {
    keys.insert(section + "." + key);
  }
};

// Rows "| `key` | `default` |" under a heading "### [section], ...": a key without a dot belongs to
// the first section of the heading.
std::map<std::string, std::string> documented_defaults() {
  std::ifstream file(source_folder() / "docs/config.md");
  const std::regex heading("### \\[([a-z.]+)\\].*"), row("\\| `([a-z_0-9.]+)` \\| `([^`]*)` \\|.*");
  std::map<std::string, std::string> defaults;
  std::string section;
  std::smatch match;
  for (std::string line; std::getline(file, line);) {
    if (std::regex_match(line, match, heading)) section = match[1];
    if (!std::regex_match(line, match, row)) continue;
    const std::string key = match[1];
    defaults[key.find('.') == std::string::npos ? section + "." + key : key] = match[2];
  }
  return defaults;
}

TEST(Document, ListsEveryKeyWithItsDefaultAndNoOther) {
  RunConfig config;
  KeyCollector collector;
  config.visit(collector);
  const std::map<std::string, std::string> documented = documented_defaults();
  for (const std::string& key : collector.keys)
    EXPECT_TRUE(documented.contains(key)) << key << " is not in docs/config.md";
  for (const auto& [key, value] : documented) {
    RunConfig same;
    EXPECT_EQ(to_text(apply_set(key + "=" + value, same)), "");
    EXPECT_EQ(differences(config, same), std::vector<std::string>()) << key;
  }
}

}  // namespace
}  // namespace laconic
