#include "laconic/study/work.hpp"

#include <fmt/format.h>

#include <algorithm>
#include <cctype>
#include <filesystem>
#include <nlohmann/json.hpp>
#include <stdexcept>
#include <string_view>

#include "laconic/base/error.hpp"
#include "laconic/base/text.hpp"
#include "laconic/file/atomic_file.hpp"
#include "laconic/file/json.hpp"
#include "laconic/file/mapped_file.hpp"
#include "laconic/lab/tool.hpp"

namespace laconic {

namespace {

namespace fs = std::filesystem;
using Words = std::vector<std::string>;

struct Shape {
  std::string name;
  int layers, width, heads, context, vocabulary;
};

constexpr const char* kDefaults = "# All defaults: the command line says the rest.";
constexpr const char* kLearningRate = "0.0003";
constexpr int kReplicasBatch = 8;

const Shape* find_shape(const std::string& model) {
  static const Shape shapes[] = {{"pipeline", 8, 256, 4, 128, 2048},
                                 {"replicas", 6, 384, 6, 128, 8192},
                                 {kQualityModel, 4, 256, 4, 128, 8192},
                                 {kLowRankModel, 3, 64, 4, 32, 512}};
  for (const Shape& shape : shapes)
    if (shape.name == model) return &shape;
  return nullptr;
}

const Shape& shape_of(const std::string& model) {
  const Shape* shape = find_shape(model);
  if (!shape) throw std::invalid_argument(fmt::format("no model '{}'", model));
  return *shape;
}

std::string prefix_of(const Places& places, const std::string& model) {
  return places.work + "/" + model;
}
std::string weights_of(const Places& places) {
  return places.work + "/weights";
}
std::string defaults_of(const Places& places) {
  return places.work + "/defaults.toml";
}
std::string peer_of(const Places& places) {
  return places.source + "/bench/peers/torch_ddp.py";
}

void append(Words& words, const Words& more) {
  words.insert(words.end(), more.begin(), more.end());
}

Words shape_words(const Shape& shape) {
  Words words;
  for (const auto& [name, value] : {std::pair{"layers", shape.layers},
                                    {"width", shape.width},
                                    {"heads", shape.heads},
                                    {"context", shape.context},
                                    {"vocabulary", shape.vocabulary},
                                    {"batch", kReplicasBatch}})
    append(words, {fmt::format("--{}", name), std::to_string(value)});
  return words;
}

void run_or_throw(const Words& words) {
  const ToolOutcome outcome = run_tool(words);
  if (outcome.exit_code != 0)
    throw std::runtime_error(
        fmt::format("{}: exit code {}: {}", join(words, " "), outcome.exit_code, outcome.error));
}

bool has_dataset(const std::string& prefix) {
  return fs::exists(prefix + ".idx") && fs::exists(prefix + ".json");
}

bool uses_model(const std::vector<Trial>& trials, const std::string& model) {
  return std::any_of(trials.begin(), trials.end(),
                     [&](const Trial& trial) { return trial.model == model; });
}

std::string corpus_of(const Places& places) {
  return places.source + "/examples/quickstart/corpus";
}

Words dataset_words(const Places& places, const Words& more) {
  Words words = {places.laconic, "prepare", "--documents", "paragraph", "--overwrite"};
  append(words, more);
  return words;
}

// The pipeline has the beginning of the corpus, but the vocabulary of all of it.
Words vocabulary_words(const Places& places) {
  const Shape& shape = shape_of("pipeline");
  return dataset_words(places, {corpus_of(places), "--train-bpe", std::to_string(shape.vocabulary),
                                "--out", prefix_of(places, shape.name) + "-all"});
}

Words pipeline_words(const Places& places) {
  const std::string prefix = prefix_of(places, "pipeline");
  return dataset_words(
      places, {prefix + ".txt", "--tokeniser", prefix + "-all.tokeniser", "--out", prefix});
}

Words replicas_words(const Places& places) {
  const Shape& shape = shape_of("replicas");
  return dataset_words(places, {corpus_of(places), "--train-bpe", std::to_string(shape.vocabulary),
                                "--out", prefix_of(places, shape.name)});
}

Words weights_words(const Places& places) {
  Words words = {places.python, peer_of(places), "--make-weights", weights_of(places)};
  append(words, shape_words(shape_of("replicas")));
  return words;
}

// Half a sample more than kPipelineSamples, since the text is cut by bytes.
std::int64_t pipeline_tokens() {
  return (2 * kPipelineSamples + 1) * shape_of("pipeline").context / 2;
}

void prepare_pipeline(const Places& places) {
  run_or_throw(vocabulary_words(places));
  std::vector<std::string> files;
  for (const fs::directory_entry& entry : fs::directory_iterator(corpus_of(places)))
    if (entry.path().extension() == ".txt") files.push_back(entry.path().string());
  std::sort(files.begin(), files.end());
  std::string text;
  for (const std::string& file : files) text += MappedFile(file).text();
  const std::string prefix = prefix_of(places, "pipeline");
  const auto tokens = read_json(prefix + "-all.json").at("tokens").get<std::int64_t>();
  const auto bytes = static_cast<std::int64_t>(text.size());
  text.resize(static_cast<std::size_t>(pipeline_tokens() * bytes / tokens));
  write_atomically(prefix + ".txt", text);
  run_or_throw(pipeline_words(places));
}

// The same by tools that every shell has.
std::vector<std::string> pipeline_lines(const Places& places) {
  const std::string prefix = prefix_of(places, "pipeline");
  const std::string corpus = shell_line({corpus_of(places)});
  return {shell_line(vocabulary_words(places)),
          fmt::format(R"(tokens=$(sed -n 's/.*"tokens": *\([0-9]*\).*/\1/p' {}))",
                      shell_line({prefix + "-all.json"})),
          fmt::format("bytes=$(cat {}/*.txt | wc -c)", corpus),
          fmt::format("cat {}/*.txt | head -c $(({} * bytes / tokens)) > {}", corpus,
                      pipeline_tokens(), shell_line({prefix + ".txt"})),
          shell_line(pipeline_words(places))};
}

// So much of WikiText-2 that four epochs are some hundred steps: a tenth, and a twentieth.
std::int64_t corpus_bytes(const std::string& model) {
  return model == kQualityModel ? 1080000 : 540000;
}

// The beginning of the training text with a vocabulary of its own, and all of the validation text,
// as lines for a shell.
std::vector<std::string> wikitext_lines(const Places& places, const std::string& model) {
  const std::string prefix = prefix_of(places, model), valid = prefix + "-valid";
  const std::string corpora =
      places.corpora.empty() ? "\"${LACONIC_DATA:-../shared/data}\"" : shell_line({places.corpora});
  const auto prepare = [&](const std::string& out, const Words& tokeniser) {
    Words words = {places.laconic, "prepare", out + ".txt", "--overwrite", "--out", out};
    append(words, tokeniser);
    return shell_line(words);
  };
  return {
      fmt::format("xz -dc {}/wikitext-2/train.txt.xz | head -c {} > {}", corpora,
                  corpus_bytes(model), shell_line({prefix + ".txt"})),
      fmt::format("xz -dc {}/wikitext-2/valid.txt.xz > {}", corpora, shell_line({valid + ".txt"})),
      prepare(prefix, {"--train-bpe", std::to_string(shape_of(model).vocabulary)}),
      prepare(valid, {"--tokeniser", prefix + ".tokeniser"})};
}

std::string shell_word(const std::string& word) {
  const bool is_plain = !word.empty() && std::all_of(word.begin(), word.end(), [](unsigned char c) {
    return std::isalnum(c) != 0 ||
           std::string_view("_-+=./:,@%").find(static_cast<char>(c)) != std::string_view::npos;
  });
  if (is_plain) return word;
  std::string quoted = "'";
  for (const char letter : word)
    quoted += letter == '\'' ? std::string("'\\''") : std::string(1, letter);
  return quoted + "'";
}

Words in_lab(const Trial& trial, const Places& places, const std::string& folder) {
  return {places.laconic,
          "lab",
          "run",
          "--ephemeral",
          "--hosts",
          std::to_string(trial.hosts),
          "--rate",
          trial.rate,
          "--threads",
          "1",
          "--json",
          folder + "/lab.json",
          "--"};
}

Words train_words(const Trial& trial, const Places& places, const std::string& folder) {
  Words words = {places.laconic, "train",
                 trial.preset.empty()
                     ? defaults_of(places)
                     : fmt::format("{}/presets/{}.toml", places.source, trial.preset)};
  for (const auto& [key, value] : keys_of(trial, places, folder))
    append(words, {"--set", key + "=" + value});
  append(words, {"--json", folder + "/summary.json"});
  return words;
}

constexpr const char* kAllocator = "allocator";  // of a trial, no option of the peer

Words peer_words(const Trial& trial, const Places& places) {
  Words words = {"env"};
  Environment setting = places.peer_setting;
  if (trial.set.contains(kAllocator))
    setting.insert(places.allocator.begin(), places.allocator.end());
  for (const auto& [name, value] : setting) words.push_back(name + "=" + value);
  append(words, {places.python, peer_of(places)});
  append(words, shape_words(shape_of(trial.model)));
  append(words, {"--data", prefix_of(places, trial.model), "--weights", weights_of(places), "--lr",
                 kLearningRate, "--warmup", std::to_string(trial.warmup), "--steps",
                 std::to_string(trial.steps)});
  for (const auto& [name, value] : trial.set)
    if (name != kAllocator) append(words, {"--" + name, value});
  return words;
}

}  // namespace

std::string description_of(const std::string& model) {
  const Shape* shape = find_shape(model);
  if (!shape) return "";
  return fmt::format("{} layers of width {}, {} heads, a context of {} tokens, a vocabulary of {}",
                     shape->layers, shape->width, shape->heads, shape->context, shape->vocabulary);
}

void prepare_work(const Places& places, const std::vector<Trial>& trials) {
  fs::create_directories(places.work);
  write_atomically(defaults_of(places), fmt::format("{}\n", kDefaults));
  if (uses_model(trials, "pipeline") && !has_dataset(prefix_of(places, "pipeline")))
    prepare_pipeline(places);
  for (const std::string model : {kQualityModel, kLowRankModel})
    if (uses_model(trials, model) && !places.corpora.empty() &&
        !has_dataset(prefix_of(places, model) + "-valid"))
      for (const std::string& line : wikitext_lines(places, model))
        run_or_throw({"sh", "-c", line});
  if (!uses_model(trials, "replicas")) return;
  if (!has_dataset(prefix_of(places, "replicas"))) run_or_throw(replicas_words(places));
  // The configuration is written last.
  if (!places.python.empty() && !fs::exists(weights_of(places) + "/config.json"))
    run_or_throw(weights_words(places));
}

std::vector<std::string> preparation_of(const Places& places, const std::vector<Trial>& trials) {
  std::vector<std::string> lines = {
      shell_line({"mkdir", "-p", places.work}),
      fmt::format("echo '{}' > {}", kDefaults, shell_line({defaults_of(places)}))};
  if (uses_model(trials, "pipeline")) append(lines, pipeline_lines(places));
  for (const std::string model : {kQualityModel, kLowRankModel})
    if (uses_model(trials, model)) append(lines, wikitext_lines(places, model));
  if (!uses_model(trials, "replicas")) return lines;
  lines.push_back(shell_line(replicas_words(places)));
  if (!places.python.empty()) lines.push_back(shell_line(weights_words(places)));
  return lines;
}

std::string shell_line(const std::vector<std::string>& words) {
  std::vector<std::string> typed;
  for (const std::string& word : words) typed.push_back(shell_word(word));
  return join(typed, " ");
}

bool needs_corpora(const std::string& model) {
  return model == kQualityModel || model == kLowRankModel;
}

double samples_of(const Places& places, const std::string& model) {
  const nlohmann::json json = read_json(prefix_of(places, model) + ".json");
  return static_cast<double>((json.at("tokens").get<std::int64_t>() - 1) / shape_of(model).context);
}

Trial without_weights(Trial trial) {
  if (trial.model == "replicas" && trial.program == Program::laconic) trial.set["model.start"] = "";
  return trial;
}

bool needs_preflight(const Trial& trial) {
  const auto is = [&](const char* key, const char* value) {
    const auto found = trial.set.find(key);
    return found != trial.set.end() && found->second == value;
  };
  // The preset leaves it to the estimate which stages are worth it.
  const bool chooses_stages =
      trial.preset == "optimus-cc" && !trial.set.contains("dp.gradient.stages");
  return chooses_stages || is("dp.gradient.stages", "auto") || is("pp.gradient.when", "critical") ||
         is("steering.bypass", "auto");
}

std::map<std::string, std::string> keys_of(const Trial& trial, const Places& places,
                                           const std::string& folder) {
  const Shape& shape = shape_of(trial.model);
  std::map<std::string, std::string> keys = {
      {"run.folder", folder + "/run"},
      {"run.threads", "1"},
      {"data.train", prefix_of(places, trial.model)},
      {"train.steps", std::to_string(trial.warmup + trial.steps)},
      {"optimiser.lr", kLearningRate},
      {"optimiser.schedule", "constant"},
      {"optimiser.warmup", "0"},
      {"report.tensorboard", "false"},
      {"checkpoint.at_end", "false"},  // it would have to cross the slow links
      {"network.preflight", needs_preflight(trial) ? "true" : "false"},
      {"network.deadline", "600"}};
  if (needs_corpora(trial.model)) keys["data.valid"] = prefix_of(places, trial.model) + "-valid";
  if (trial.model == "replicas") {
    keys["train.batch"] = std::to_string(kReplicasBatch);
    keys["data.shuffle"] = "false";  // the order of the peer
  }
  if (trial.model == "replicas" && !trial.set.contains("model.start")) {
    keys["model.start"] = weights_of(places);
  } else {
    for (const auto& [name, value] : {std::pair{"layers", shape.layers},
                                      {"width", shape.width},
                                      {"heads", shape.heads},
                                      {"context", shape.context},
                                      {"vocabulary", shape.vocabulary}})
      keys[fmt::format("model.{}", name)] = std::to_string(value);
  }
  for (const auto& [key, value] : trial.set) keys[key] = value;
  return keys;
}

std::vector<std::string> command_of(const Trial& trial, const Places& places,
                                    const std::string& folder) {
  Words words = trial.program == Program::laconic ? train_words(trial, places, folder)
                                                  : peer_words(trial, places);
  if (trial.rate == "none") {
    append(words, {"--ranks", std::to_string(trial.hosts)});
    return words;
  }
  Words all = in_lab(trial, places, folder);
  append(all, words);
  return all;
}

}  // namespace laconic
