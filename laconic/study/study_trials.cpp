#include "laconic/study/study_trials.hpp"

#include <fmt/format.h>

#include <algorithm>
#include <cctype>
#include <cstdlib>
#include <set>

#include "laconic/base/error.hpp"
#include "laconic/base/text.hpp"
#include "laconic/config/read.hpp"
#include "laconic/config/toml_tree.hpp"
#include "laconic/report/table.hpp"
#include "laconic/study/trial_estimate.hpp"

namespace laconic {

namespace {

using Names = std::vector<std::string>;

bool has(const Names& names, const std::string& name) {
  return std::find(names.begin(), names.end(), name) != names.end();
}

void add_once(Names& names, const std::string& name) {
  if (!has(names, name)) names.push_back(name);
}

// All rows of settings, the last axis fastest.
std::vector<Names> product_of(const StudyFile& study, const Names& axes) {
  std::vector<Names> rows = {{}};
  for (const std::string& axis : axes) {
    std::vector<Names> longer;
    for (const Names& row : rows)
      for (const Setting& setting : find_axis(study, axis)->settings) {
        longer.push_back(row);
        longer.back().push_back(setting.name);
      }
    rows = std::move(longer);
  }
  return rows;
}

std::map<std::string, std::string> by_axis(const StudyPart& part, const Names& row) {
  std::map<std::string, std::string> settings;
  for (std::size_t i = 0; i < row.size(); ++i) settings[part.axes[i]] = row[i];
  return settings;
}

std::vector<Names> rows_of(const StudyFile& study, const StudyPart& part) {
  std::vector<Names> rows = part.list.empty() ? product_of(study, part.axes) : part.list;
  std::erase_if(rows, [&](const Names& row) {
    const auto settings = by_axis(part, row);
    const auto fits_it = [&](const Choice& choice) { return fits(choice, settings); };
    return (!part.only.empty() && std::none_of(part.only.begin(), part.only.end(), fits_it)) ||
           std::any_of(part.without.begin(), part.without.end(), fits_it);
  });
  return rows;
}

void overlay(Keys& keys, const Keys& more) {
  for (const auto& [key, value] : more) keys[key] = value;
}

// Ranks of the mesh that the keys say: a grid may be "2,2,2".
int ranks_of(const Keys& keys) {
  int ranks = 1;
  for (const char* key : {"mesh.pp", "mesh.dp", "mesh.tp"})
    if (const auto found = keys.find(key); found != keys.end())
      for (const std::string& number : split(found->second, ','))
        ranks *= std::max(1, std::atoi(number.c_str()));
  return ranks;
}

// Steps of several kinds are what their setting says: each kind must be where it says.
void count_steps(const StudyFile& study, const StudyPart& part, std::int64_t warmup, Trial& trial) {
  trial.warmup = part.warmup;
  trial.steps = part.steps;
  const StudyModel* model = find_model(study.models, trial.model);
  if (!trial.kinds.empty()) {
    trial.warmup = warmup;
    trial.steps = 0;
    for (const CountedSteps& kind : trial.kinds) trial.steps += kind.steps;
    return;
  }
  if (part.long_steps && model != nullptr &&
      estimated_step_seconds(trial, *model) > part.long_steps->over) {
    trial.warmup = part.long_steps->warmup;
    trial.steps = part.long_steps->steps;
  }
  if (part.warmup > 0) trial.warmup = std::max(trial.warmup, warmup);  // or all steps count
}

// The program of a trial is that of any of its settings which is not Laconic's.
Program program_of(const std::vector<const Setting*>& settings) {
  for (const Setting* setting : settings)
    if (setting->program != Program::laconic) return setting->program;
  return Program::laconic;
}

Keys keys_in(const StudyPart& part, const std::vector<const Setting*>& settings,
             const std::map<std::string, std::string>& names, Program program) {
  Keys keys;
  if (program == Program::laconic) keys = part.set;
  for (const Setting* setting : settings) overlay(keys, setting->set);
  for (const Amendment& amendment : part.amendments)
    if (fits(amendment.of, names)) overlay(keys, amendment.set);
  return keys;
}

StudyTrial trial_in(const StudyFile& study, const StudyPart& part, const Names& row, int round) {
  StudyTrial planned{.settings = by_axis(part, row)};
  Trial& trial = planned.trial;
  trial = {.part = part.name, .rate = part.rate, .round = round, .model = part.model};
  std::vector<const Setting*> settings;
  std::int64_t warmup = 0;
  Names method;
  for (std::size_t i = 0; i < row.size(); ++i) {
    const Setting& setting = *find_setting(*find_axis(study, part.axes[i]), row[i]);
    settings.push_back(&setting);
    warmup = std::max(warmup, setting.warmup);
    if (!setting.preset.empty()) trial.preset = setting.preset;
    if (!setting.model.empty()) trial.model = setting.model;
    if (!setting.rate.empty()) trial.rate = setting.rate;
    if (!setting.kinds.empty()) trial.kinds = setting.kinds;
    overlay(trial.environment, setting.environment);
    if (setting.rate.empty()) method.push_back(setting.name);
  }
  trial.method = method.empty() ? "all" : join(method, ", ");
  trial.program = program_of(settings);
  trial.set = keys_in(part, settings, planned.settings, trial.program);
  if (!part.seeds.empty()) {
    planned.seed = part.seeds[static_cast<std::size_t>(round - 1)];
    if (trial.program == Program::laconic) trial.set["run.seed"] = std::to_string(planned.seed);
  }
  Keys all = study.base;
  if (const StudyModel* model = find_model(study.models, trial.model)) overlay(all, model->set);
  overlay(all, trial.set);
  trial.hosts = part.hosts > 0 ? part.hosts : ranks_of(all);
  count_steps(study, part, warmup, trial);
  return planned;
}

std::string in_small_letters(std::string text) {
  for (char& c : text) c = static_cast<char>(std::tolower(static_cast<unsigned char>(c)));
  return text;
}

std::string unknown(const std::string& name, const Names& known) {
  const std::string likely = nearest(name, known);
  return fmt::format("there is no '{}' in this study{}; there are: {}", name,
                     likely.empty() ? "" : ": did you mean '" + likely + "'?", join(known, ", "));
}

// What a word of --only asks for; its axis is "" for letters of a name.
struct Wanted {
  std::string axis;
  Names names;
};

Wanted parse_wanted(const StudyFile& study, const std::vector<StudyTrial>& planned,
                    const std::string& word) {
  const std::size_t equals = word.find('=');
  if (equals == std::string::npos) return {"", {in_small_letters(word)}};
  Wanted wanted{word.substr(0, equals), split(word.substr(equals + 1), ',')};
  Names axes = {"part", "rate"}, known;
  for (const StudyAxis& axis : study.axes) axes.push_back(axis.name);
  if (!has(axes, wanted.axis))
    throw ConfigError(fmt::format("--only {}: {}", word, unknown(wanted.axis, axes)));
  if (wanted.axis == "part")
    known = parts_of(trials_of(planned));
  else if (const StudyAxis* axis = find_axis(study, wanted.axis))
    for (const Setting& setting : axis->settings) known.push_back(setting.name);
  if (wanted.axis == "rate")
    for (const StudyTrial& one : planned) add_once(known, one.trial.rate);
  for (const std::string& name : wanted.names)
    if (!has(known, name))
      throw ConfigError(fmt::format("--only {}: {}", word, unknown(name, known)));
  return wanted;
}

bool is_wanted(const StudyTrial& planned, const Wanted& wanted) {
  if (wanted.axis.empty())
    return (id_of(planned.trial) + " " + in_small_letters(planned.trial.method))
               .find(wanted.names[0]) != std::string::npos;
  if (wanted.axis == "rate" && has(wanted.names, planned.trial.rate)) return true;
  if (wanted.axis == "part") return has(wanted.names, planned.trial.part);
  const auto found = planned.settings.find(wanted.axis);
  return found != planned.settings.end() && has(wanted.names, found->second);
}

}  // namespace

bool fits(const Choice& choice, const std::map<std::string, std::string>& settings) {
  return std::all_of(choice.begin(), choice.end(), [&](const auto& wanted) {
    const auto found = settings.find(wanted.first);
    return found != settings.end() && has(wanted.second, found->second);
  });
}

std::vector<StudyTrial> expand(const StudyFile& study) {
  std::vector<StudyTrial> planned;
  Problems problems;
  for (const StudyPart& part : study.parts) {
    const std::vector<Names> rows = rows_of(study, part);
    if (rows.empty())
      problems.push_back({fmt::format("part '{}'", part.name), "its filters leave no trial"});
    for (int round = 1; round <= part.rounds; ++round)
      for (const Names& row : rows) planned.push_back(trial_in(study, part, row, round));
  }
  std::set<std::string> ids;
  for (const StudyTrial& one : planned) {
    if (const std::string id = id_of(one.trial); !ids.insert(id).second)
      problems.push_back({id, "two trials have this name"});
    if (find_model(study.models, one.trial.model) == nullptr && !study.models.empty())
      problems.push_back({id_of(one.trial), "neither its part nor its settings name a model"});
  }
  refuse(problems);
  return planned;
}

std::vector<Trial> trials_of(const std::vector<StudyTrial>& planned) {
  std::vector<Trial> trials;
  for (const StudyTrial& one : planned) trials.push_back(one.trial);
  return trials;
}

std::size_t count_settings(const std::vector<StudyTrial>& planned) {
  std::set<std::string> settings;
  for (StudyTrial one : planned) {
    one.trial.round = 0;
    settings.insert(id_of(one.trial));
  }
  return settings.size();
}

namespace {

// Everything that is wrong with one trial, as text; empty: nothing.
std::string problems_of_trial(const Trial& trial, const StudyFile& study, const Places& places,
                              const std::string& presets_folder) {
  ConfigSource from{.path = with_places(config_of(trial, study), places),
                    .presets_folder = presets_folder};
  for (const auto& [key, value] : keys_of(trial, study, places, "folder"))
    from.sets.push_back(key + "=" + value);
  try {
    const int ranks = size(mesh_of(read_config(from)));
    return ranks == trial.hosts
               ? ""
               : fmt::format(
                     "its mesh has {} ranks, and {} hosts are counted: say so by hosts of "
                     "the part",
                     ranks, trial.hosts);
  } catch (const ConfigError& error) {
    return std::string(trim(to_text(error.problems())));
  }
}

}  // namespace

Problems check_trials(const StudyFile& study, const std::vector<Trial>& trials,
                      const Places& places, const std::string& presets_folder) {
  std::vector<std::pair<std::string, Names>> found;  // what is wrong, and with which trials
  for (const Trial& trial : trials) {
    if (trial.program != Program::laconic) continue;
    const std::string text = problems_of_trial(trial, study, places, presets_folder);
    if (text.empty()) continue;
    const auto same = std::find_if(found.begin(), found.end(),
                                   [&](const auto& one) { return one.first == text; });
    if (same == found.end())
      found.push_back({text, {id_of(trial)}});
    else
      same->second.push_back(id_of(trial));
  }
  Problems problems;
  for (const auto& [text, ids] : found)
    problems.push_back(
        {ids.size() == 1 ? ids[0] : fmt::format("{} and {} more", ids[0], ids.size() - 1), text});
  return problems;
}

std::vector<std::string> parts_of(const std::vector<Trial>& trials) {
  Names parts;
  for (const Trial& trial : trials) add_once(parts, trial.part);
  return parts;
}

std::vector<StudyTrial> chosen(const StudyFile& study, const std::vector<StudyTrial>& planned,
                               const std::vector<std::string>& words) {
  std::vector<Wanted> wanted;
  for (const std::string& word : words) wanted.push_back(parse_wanted(study, planned, word));
  std::vector<StudyTrial> found;
  for (const StudyTrial& one : planned)
    if (std::all_of(wanted.begin(), wanted.end(),
                    [&](const Wanted& each) { return is_wanted(one, each); }))
      found.push_back(one);
  if (found.empty())
    throw ConfigError(
        fmt::format("no trial fits --only {}; --list shows all", join(words, " --only ")));
  return found;
}

std::string to_text(const std::vector<Trial>& trials, const std::vector<StudyModel>& models) {
  Table table({{"trial", Align::left}, {"hosts"}, {"steps"}, {"about"}});
  for (const Trial& trial : trials)
    table.add({id_of(trial), std::to_string(trial.hosts),
               fmt::format("{} + {}", trial.warmup, trial.steps),
               human_seconds(estimated_seconds(trial, models))});
  return to_text(table) + fmt::format("{} trials, about {} on two cores with nothing else to do\n",
                                      trials.size(),
                                      human_seconds(estimated_seconds(trials, models)));
}

}  // namespace laconic
