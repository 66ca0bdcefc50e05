#include "laconic/study/work.hpp"

#include <fmt/format.h>

#include <algorithm>
#include <cctype>
#include <filesystem>
#include <nlohmann/json.hpp>
#include <stdexcept>
#include <string_view>

#include "laconic/base/text.hpp"
#include "laconic/file/atomic_file.hpp"
#include "laconic/file/json.hpp"
#include "laconic/lab/tool.hpp"

namespace laconic {

namespace {

namespace fs = std::filesystem;
using Words = std::vector<std::string>;

constexpr const char* kDefaults = "# All defaults: the command line says the rest.";
constexpr const char* kPython = "$python";
// Where a model starts from weights these are theirs; the peer is told them all the same.
constexpr const char* kShape[] = {"layers", "width", "heads", "context", "vocabulary"};

std::string defaults_of(const Places& places) {
  return places.work + "/defaults.toml";
}
std::string peer_of(const Places& places) {
  return places.source + "/bench/peers/torch_ddp.py";
}

void append(Words& words, const Words& more) {
  words.insert(words.end(), more.begin(), more.end());
}

std::string value_of(const Keys& keys, const std::string& key) {
  const auto found = keys.find(key);
  return found == keys.end() ? "" : found->second;
}

// Each name with a place behind it.
std::vector<std::pair<std::string_view, std::string>> named_places(const Places& places) {
  return {{"$laconic", places.laconic},
          {kPython, places.python},
          {"$source", places.source},
          {"$work", places.work},
          {"$data", places.corpora}};
}

std::string replaced(const std::string& text,
                     const std::vector<std::pair<std::string_view, std::string>>& places) {
  std::string result;
  for (std::size_t at = 0; at < text.size();) {
    const std::string_view rest = std::string_view(text).substr(at);
    const auto found = std::find_if(places.begin(), places.end(), [&](const auto& place) {
      const std::size_t end = place.first.size();
      return rest.starts_with(place.first) &&
             (rest.size() == end ||
              (std::isalnum(static_cast<unsigned char>(rest[end])) == 0 && rest[end] != '_'));
    });
    result += found == places.end() ? std::string(1, text[at]) : found->second;
    at += found == places.end() ? 1 : found->first.size();
  }
  return result;
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

// A line of a preparation for a shell, in which places are words.
std::string line_with_places(const std::string& line, const Places& places) {
  auto named = named_places(places);
  for (auto& [name, place] : named)
    place = name == "$data" && place.empty() ? "\"${LACONIC_DATA:-../shared/data}\""
                                             : shell_word(place);
  return replaced(line, named);
}

bool uses_python(const Preparation& preparation) {
  return std::any_of(
      preparation.lines.begin(), preparation.lines.end(),
      [](const std::string& line) { return line.find(kPython) != std::string::npos; });
}

// Of a model that trials have, in the order of models.
template <class Do>
void each_preparation(const Places& places, const std::vector<StudyModel>& models,
                      const std::vector<Trial>& trials, const Do& act) {
  for (const StudyModel& model : models)
    if (std::any_of(trials.begin(), trials.end(),
                    [&](const Trial& trial) { return trial.model == model.name; }))
      for (const Preparation& preparation : model.prepare)
        if (!places.python.empty() || !uses_python(preparation)) act(model, preparation);
}

bool starts_from_peer(const StudyModel* model) {
  return model != nullptr && std::any_of(model->prepare.begin(), model->prepare.end(), uses_python);
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

Words train_words(const Trial& trial, const StudyFile& study, const Places& places,
                  const std::string& folder) {
  const std::string config = config_of(trial, study);
  Words words;
  if (!trial.environment.empty()) words.push_back("env");
  for (const auto& [name, value] : trial.environment) words.push_back(name + "=" + value);
  append(words,
         {places.laconic, "train",
          config.empty()         ? defaults_of(places)
          : trial.preset.empty() ? with_places(config, places)
                                 : fmt::format("{}/presets/{}.toml", places.source, trial.preset)});
  for (const auto& [key, value] : keys_of(trial, study, places, folder))
    append(words, {"--set", key + "=" + value});
  append(words, {"--json", folder + "/summary.json"});
  return words;
}

constexpr const char* kAllocator = "allocator";  // of a trial, no option of the peer

Words peer_words(const Trial& trial, const StudyFile& study, const Places& places) {
  Words words = {"env"};
  Environment setting = places.peer_setting;
  if (trial.set.contains(kAllocator))
    setting.insert(places.allocator.begin(), places.allocator.end());
  for (const auto& [name, value] : setting) words.push_back(name + "=" + value);
  append(words, {places.python, peer_of(places)});
  Keys keys = study.base;
  for (const auto& [key, value] : find_model(study.models, trial.model)->set)
    keys[key] = with_places(value, places);
  for (const char* name : kShape)
    append(words, {fmt::format("--{}", name), value_of(keys, fmt::format("model.{}", name))});
  append(words, {"--batch", value_of(keys, "train.batch"), "--data", value_of(keys, "data.train"),
                 "--weights", value_of(keys, "model.start"), "--lr", value_of(keys, "optimiser.lr"),
                 "--warmup", std::to_string(trial.warmup), "--steps", std::to_string(trial.steps)});
  for (const auto& [name, value] : trial.set)
    if (name != kAllocator) append(words, {"--" + name, value});
  return words;
}

}  // namespace

std::string with_places(const std::string& text, const Places& places) {
  return replaced(text, named_places(places));
}

std::string description_of(const StudyModel& model) {
  std::vector<std::string> numbers;
  for (const char* name : kShape)
    numbers.push_back(value_of(model.set, fmt::format("model.{}", name)));
  if (std::find(numbers.begin(), numbers.end(), "") != numbers.end()) return "";
  return fmt::format("{} layers of width {}, {} heads, a context of {} tokens, a vocabulary of {}",
                     numbers[0], numbers[1], numbers[2], numbers[3], numbers[4]);
}

void prepare_work(const Places& places, const std::vector<StudyModel>& models,
                  const std::vector<Trial>& trials) {
  fs::create_directories(places.work);
  write_atomically(defaults_of(places), fmt::format("{}\n", kDefaults));
  each_preparation(places, models, trials, [&](const StudyModel& model, const Preparation& one) {
    const auto is_there = [&](const std::string& path) {
      return fs::exists(with_places(path, places));
    };
    if (std::all_of(one.makes.begin(), one.makes.end(), is_there) ||
        !std::all_of(model.needs.begin(), model.needs.end(), is_there))
      return;
    Words lines = {"set -e"};
    for (const std::string& line : one.lines) lines.push_back(line_with_places(line, places));
    const ToolOutcome outcome = run_tool({"sh", "-c", join(lines, "\n")});
    if (outcome.exit_code != 0)
      throw std::runtime_error(fmt::format("the data of model {}: exit code {} of\n{}\n{}",
                                           model.name, outcome.exit_code, join(lines, "\n"),
                                           outcome.error));
  });
}

std::vector<std::string> preparation_of(const Places& places, const std::vector<StudyModel>& models,
                                        const std::vector<Trial>& trials) {
  std::vector<std::string> lines = {
      shell_line({"mkdir", "-p", places.work}),
      fmt::format("echo '{}' > {}", kDefaults, shell_line({defaults_of(places)}))};
  each_preparation(places, models, trials, [&](const StudyModel&, const Preparation& one) {
    for (const std::string& line : one.lines) lines.push_back(line_with_places(line, places));
  });
  return lines;
}

std::string shell_line(const std::vector<std::string>& words) {
  std::vector<std::string> typed;
  for (const std::string& word : words) typed.push_back(shell_word(word));
  return join(typed, " ");
}

std::string obstacle_to(const Trial& trial, const std::vector<StudyModel>& models,
                        const Places& places) {
  if (trial.program == Program::ddp && places.python.empty())
    return "skipped: there is no PyTorch for python3 here (Debian: python3-torch)";
  const StudyModel* model = find_model(models, trial.model);
  if (model == nullptr) return "";
  for (const std::string& path : model->needs)
    if (!fs::exists(with_places(path, places)))
      return path.starts_with("$data/")
                 ? fmt::format("skipped: there is no {} in $LACONIC_DATA or ../shared/data",
                               path.substr(6))
                 : fmt::format("skipped: there is no {}", with_places(path, places));
  return "";
}

double samples_of(const Trial& trial, const StudyFile& study, const Places& places) {
  const StudyModel* model = find_model(study.models, trial.model);
  if (model == nullptr) return 0;
  const std::string data = with_places(value_of(model->set, "data.train"), places) + ".json";
  const double context = std::atof(value_of(model->set, "model.context").c_str());
  if (!fs::exists(data) || context < 1) return 0;
  const nlohmann::json json = read_json(data);
  if (!json.contains("tokens")) return 0;
  return static_cast<double>((json.at("tokens").get<std::int64_t>() - 1) /
                             static_cast<std::int64_t>(context));
}

Trial without_weights(Trial trial, const std::vector<StudyModel>& models) {
  if (trial.program == Program::laconic && starts_from_peer(find_model(models, trial.model)))
    trial.set["model.start"] = "";
  return trial;
}

constexpr const char* kNoPreset = "-";  // none has this name

bool needs_preflight(const std::string& preset, const Keys& keys) {
  // What presets leave to an estimate, unless something else is set.
  const auto is = [&](const char* key, const char* value, const char* from_preset) {
    const auto found = keys.find(key);
    return found != keys.end() ? found->second == value : preset == from_preset;
  };
  return is("dp.gradient.stages", "auto", "optimus-cc") ||
         is("embedding.rows.method", "auto", "embrace") ||
         is("pp.gradient.when", "critical", kNoPreset) || is("steering.bypass", "auto", kNoPreset);
}

Keys keys_of(const Trial& trial, const StudyFile& study, const Places& places,
             const std::string& folder) {
  Keys keys = study.base;
  if (const StudyModel* model = find_model(study.models, trial.model))
    for (const auto& [key, value] : model->set) keys[key] = value;
  keys["run.folder"] = folder + "/run";
  keys["train.steps"] = std::to_string(trial.warmup + trial.steps);
  for (const auto& [key, value] : trial.set) keys[key] = value;
  keys.try_emplace("network.preflight", needs_preflight(trial.preset, keys) ? "true" : "false");
  if (!value_of(keys, "model.start").empty())
    for (const char* name : kShape)
      if (const std::string key = fmt::format("model.{}", name); !trial.set.contains(key))
        keys.erase(key);
  for (auto& [key, value] : keys) value = with_places(value, places);
  return keys;
}

std::string config_of(const Trial& trial, const StudyFile& study) {
  return trial.preset.empty() ? study.config : "preset:" + trial.preset;
}

std::vector<std::string> command_of(const Trial& trial, const StudyFile& study,
                                    const Places& places, const std::string& folder) {
  Words words = trial.program == Program::laconic ? train_words(trial, study, places, folder)
                                                  : peer_words(trial, study, places);
  if (trial.rate == "none") {
    append(words, {"--ranks", std::to_string(trial.hosts)});
    return words;
  }
  Words all = in_lab(trial, places, folder);
  append(all, words);
  return all;
}

}  // namespace laconic
