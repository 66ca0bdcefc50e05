#include "laconic/study/lab_report.hpp"

#include <fmt/format.h>

#include <algorithm>
#include <cctype>
#include <map>

#include "laconic/base/error.hpp"
#include "laconic/base/text.hpp"
#include "laconic/report/table.hpp"
#include "laconic/study/lab_report_methods.hpp"
#include "laconic/study/trial_estimate.hpp"
#include "laconic/study/work.hpp"

namespace laconic {

namespace {

using MeshKeys = std::map<std::string, std::string>;

// Hosts and batch.
struct Layout {
  int pp = 1, dp = 1, microbatch = 4, microbatches = 8;
  int hosts() const { return pp * dp; }
  int batch() const { return microbatch * microbatches * dp; }
  MeshKeys keys() const {
    return {{"mesh.pp", std::to_string(pp)},
            {"mesh.dp", std::to_string(dp)},
            {"train.batch", std::to_string(batch())},
            {"train.microbatch", std::to_string(microbatch)}};
  }
};

struct Part {
  std::string name;
  std::string model;
  Layout layout;
  std::vector<Method> methods;
  std::vector<std::string> rates;
  int rounds = 2;
  std::int64_t loss_steps = 0;  // of a part that is about losses, where all steps count
  MeshKeys set = {};            // by all methods of the part; what a method sets wins
  bool rounds_are_seeds = false;
};

// Steps that count. Short ones differ more from each other, and more of them cost little.
struct Counted {
  std::int64_t of_short = 5, of_long = 3;
};
constexpr double kLongStep = 3;  // seconds, as estimated
// Then buffers are there, DDP has put its buckets in order, and steps are alike.
constexpr std::int64_t kStepsToSettle = 4;
// What settles is a matter of milliseconds: little in a step that waits for its link.
constexpr std::int64_t kLongStepsToSettle = 2;
// The default of steering.after, in which a bypass is measured, and one step to change over.
constexpr std::int64_t kStepsToBypass = 9;

bool remembers(const Method& method) {
  return method.preset == "ac-sgd";
}

// Steps of one epoch and of the one that has samples of both.
std::int64_t epoch_steps(const Layout& layout) {
  return (kPipelineSamples + layout.batch() - 1) / layout.batch();
}

// The same for all methods of a part, but for those that decide or remember something later.
std::int64_t warmup_of(const Part& part, const Method& method, bool is_long) {
  std::int64_t warmup = kStepsToSettle;
  if (is_long) {
    warmup = kLongStepsToSettle;
  } else if (std::any_of(part.methods.begin(), part.methods.end(), remembers)) {
    warmup = std::max(warmup, epoch_steps(part.layout));
  }
  if (remembers(method)) warmup = std::max(warmup, epoch_steps(part.layout));
  if (method.set.contains("steering.bypass")) warmup = std::max(warmup, kStepsToBypass);
  // DDP's hook begins after two steps that travel whole, and then once makes its factors.
  if (const auto hook = method.set.find("hook");
      hook != method.set.end() && hook->second == "powersgd")
    warmup = std::max<std::int64_t>(warmup, 3);
  return warmup;
}

Trial trial_of(const Part& part, const Method& method, const std::string& rate, int round,
               const Counted& counted) {
  Trial trial{.part = part.name,
              .method = method.name,
              .rate = rate,
              .round = round,
              .program = method.program,
              .hosts = part.layout.hosts(),
              .model = part.model,
              .preset = method.preset,
              .set = method.set,
              .warmup = 0,
              .steps = part.loss_steps};
  if (part.loss_steps > 0)
    for (const auto& [key, value] : method.loss) trial.set[key] = value;
  // The batch of the replicas is that of the peer, and all of it at once.
  MeshKeys mesh = part.model == "replicas" ? MeshKeys{{"mesh.dp", std::to_string(part.layout.dp)}}
                                           : part.layout.keys();
  if (method.program == Program::laconic) {  // what is set wins
    trial.set.merge(mesh);
    trial.set.merge(MeshKeys(part.set));
    if (part.rounds_are_seeds) trial.set["run.seed"] = std::to_string(round);
  }
  if (part.loss_steps > 0) return trial;
  const bool is_long = estimated_step_seconds(trial) > kLongStep;
  trial.warmup = warmup_of(part, method, is_long);
  trial.steps = is_long ? counted.of_long : counted.of_short;
  return trial;
}

std::vector<Method> named(const std::vector<Method>& methods,
                          const std::vector<std::string>& names) {
  std::vector<Method> found;
  for (const Method& method : methods)
    if (std::find(names.begin(), names.end(), method.name) != names.end()) found.push_back(method);
  return found;
}

std::vector<Method> without(std::vector<Method> methods, const std::vector<std::string>& names) {
  std::erase_if(methods, [&](const Method& method) {
    return std::find(names.begin(), names.end(), method.name) != names.end();
  });
  return methods;
}

const Layout kStages{.pp = 4};
const Layout kBoth{.pp = 4, .dp = 2};
// As where Optimus-CC was made for: gradients between replicas are most of what travels.
const Layout kFewTokens{.pp = 4, .dp = 2, .microbatch = 1};
const Layout kReplicas{.dp = 4};
// Where a pipeline that sends everything whole has less than a fifth of its unshaped speed.
const char* const kVerySlow = "14mbit";
// Where communication is about half of a step of Optimus-CC's base. Its losses are compared there
// too, since the network decides which stages and messages it encodes.
const char* const kHalfWaiting = "138mbit";

// What bypassing sends depends on the rate, so no single loss belongs to it.
std::vector<Method> without_bypass(std::vector<Method> methods) {
  std::erase_if(methods,
                [](const Method& method) { return method.set.contains("steering.bypass"); });
  return methods;
}

// Losses are the same in every round: these parts have one. So has a rate at which a step waits for
// its link for most of a minute: rounds differ less there than the steps of one, and another would
// take a quarter of an hour. Nor does it matter there how a peer cuts its buckets. Schedules are
// compared with what is predicted of each, not with each other: one round of all of them.
std::vector<Part> full_parts() {
  return {
      {"bandwidth",
       "pipeline",
       kStages,
       bandwidth_methods(),
       {"unshaped", "10gbit", "1gbit", "500mbit", "300mbit", "100mbit", "50mbit", kVerySlow}},
      {"end-to-end", "pipeline", kBoth, end_to_end_methods(), {"unshaped", "100mbit", kVerySlow}},
      {"optimus-cc", "pipeline", kFewTokens, optimus_methods(), {"unshaped", kHalfWaiting}},
      {"data-parallel", "replicas", kReplicas, replica_methods(), {"unshaped", "1gbit", "100mbit"}},
      {.name = "data-parallel",
       .model = "replicas",
       .layout = kReplicas,
       .methods = without(replica_methods(), {"DDP, 5 MB buckets", "DDP, our allocator settings",
                                              "DDP, fp16 hook, 5 MB buckets"}),
       .rates = {"20mbit"},
       .rounds = 1},
      {.name = "loss",
       .model = "replicas",
       .layout = kReplicas,
       .methods = without_bypass(replica_methods()),
       .rates = {"unshaped"},
       .rounds = 1,
       .loss_steps = 60},
      {.name = "optimus-cc loss",
       .model = "pipeline",
       .layout = kFewTokens,
       .methods = optimus_methods(),
       .rates = {kHalfWaiting},
       .rounds = 1,
       .loss_steps = 60},
      {"honesty",
       "pipeline",
       kStages,
       named(bandwidth_methods(), {"fp32", "ac-sgd"}),
       {"none", "unshaped"}},
      {.name = "honesty",
       .model = "pipeline",
       .layout = kStages,
       .methods = schedule_methods(),
       .rates = {"100mbit", "20mbit"},
       .rounds = 1}};
}

std::vector<Part> brief_parts() {
  std::vector<Part> parts = {
      {"bandwidth", "pipeline", kStages, bandwidth_methods(), {"unshaped", "100mbit", kVerySlow}},
      {"end-to-end", "pipeline", kBoth, end_to_end_methods(), {"100mbit"}},
      {"optimus-cc", "pipeline", kFewTokens, named(optimus_methods(), {"base"}), {"unshaped"}},
      {"optimus-cc", "pipeline", kFewTokens, optimus_methods(), {kHalfWaiting}},
      {"data-parallel", "replicas", kReplicas, replica_methods(), {"1gbit", "100mbit"}},
      {.name = "loss",
       .model = "replicas",
       .layout = kReplicas,
       .methods = named(replica_methods(), {"DDP", "laconic, raw", "laconic, 4 bits"}),
       .rates = {"unshaped"},
       .loss_steps = 20},
      {"honesty", "pipeline", kStages, named(bandwidth_methods(), {"fp32"}), {"none"}},
      {"honesty", "pipeline", kStages, schedule_methods(), {"100mbit"}}};
  for (Part& part : parts) {
    part.rounds = 1;
    std::erase_if(part.methods, [](const Method& method) { return !method.is_brief; });
  }
  return parts;
}

// A part of Size::quality: from scratch on a text that is not ours, three seeds, evaluated at the
// end. Ranks are processes of this machine without a lab: no rate changes a loss.
Part quality_part(const std::string& model, const Layout& layout, std::vector<Method> methods) {
  const bool is_low_rank = model == kLowRankModel;
  return {.name = is_low_rank ? "low-rank validation loss" : "validation loss",
          .model = model,
          .layout = layout,
          .methods = std::move(methods),
          .rates = {"none"},
          .rounds = 3,
          .loss_steps = is_low_rank ? 1000 : 260,  // about four epochs
          .set = {{"optimiser.lr", "1e-3"},
                  {"optimiser.min_lr", is_low_rank ? "1e-5" : "1e-4"},
                  {"optimiser.schedule", "cosine"},
                  {"optimiser.warmup", is_low_rank ? "100" : "26"},
                  {"evaluate.samples", "256"}},
          .rounds_are_seeds = true};
}

// Batches of 32 samples on any mesh. Low-rank gradients carry what they lost from microbatch to
// microbatch, so they have many.
std::vector<Part> quality_parts() {
  return {
      quality_part(kQualityModel, {.pp = 4, .microbatch = 8, .microbatches = 4}, quality_methods()),
      quality_part(kQualityModel, {.pp = 4, .dp = 2, .microbatch = 4, .microbatches = 4},
                   replicated_quality_methods()),
      quality_part(kLowRankModel, {.pp = 4, .microbatch = 2, .microbatches = 16},
                   low_rank_methods()),
      quality_part(kLowRankModel, {.pp = 4, .dp = 2, .microbatch = 1, .microbatches = 16},
                   replicated_low_rank_methods())};
}

std::vector<Part> parts_of(Size size) {
  switch (size) {
    case Size::brief: return brief_parts();
    case Size::full: return full_parts();
    case Size::quality: return quality_parts();
  }
  return {};
}

std::string in_small_letters(std::string text) {
  for (char& c : text) c = static_cast<char>(std::tolower(static_cast<unsigned char>(c)));
  return text;
}

std::string unknown(const std::string& name, const std::vector<std::string>& known) {
  const std::string likely = nearest(name, known);
  return fmt::format("there is no '{}' in a report of this size{}; there are: {}", name,
                     likely.empty() ? "" : ": did you mean '" + likely + "'?", join(known, ", "));
}

}  // namespace

Size parse_report_size(const std::string& text) {
  if (text == "short") return Size::brief;
  if (text == "full") return Size::full;
  if (text == "quality") return Size::quality;
  throw ConfigError(fmt::format("--size {}: there are short, full and quality", text));
}

std::vector<Trial> lab_report_trials(Size size) {
  std::vector<Trial> trials;
  const Counted counted = size == Size::full ? Counted{} : Counted{3, 2};
  for (const Part& part : parts_of(size))
    // Rounds lie as far apart as they can: the machine of one minute is not that of another.
    for (int round = 1; round <= part.rounds; ++round)
      for (const std::string& rate : part.rates)
        for (const Method& method : part.methods)
          trials.push_back(trial_of(part, method, rate, round, counted));
  return trials;
}

std::vector<std::string> parts_of(const std::vector<Trial>& trials) {
  std::vector<std::string> parts;
  for (const Trial& trial : trials)
    if (std::find(parts.begin(), parts.end(), trial.part) == parts.end())
      parts.push_back(trial.part);
  return parts;
}

std::vector<Trial> chosen(const std::vector<Trial>& trials, const TrialFilter& filter) {
  const auto has = [](const std::vector<std::string>& names, const std::string& name) {
    return std::find(names.begin(), names.end(), name) != names.end();
  };
  std::vector<std::string> rates;
  for (const Trial& trial : trials)
    if (!has(rates, trial.rate)) rates.push_back(trial.rate);
  Problems problems;
  const auto refuse_others = [&](const char* option, const std::vector<std::string>& wanted,
                                 const std::vector<std::string>& known) {
    for (const std::string& name : wanted)
      if (!has(known, name)) problems.push_back({option, unknown(name, known)});
  };
  refuse_others("--part", filter.parts, parts_of(trials));
  refuse_others("--rate", filter.rates, rates);
  refuse(problems);
  const std::string method = in_small_letters(filter.method);
  std::vector<Trial> found;
  for (const Trial& trial : trials)
    if ((filter.parts.empty() || has(filter.parts, trial.part)) &&
        (filter.rates.empty() || has(filter.rates, trial.rate)) &&
        in_small_letters(trial.method).find(method) != std::string::npos)
      found.push_back(trial);
  if (found.empty())
    throw ConfigError(
        fmt::format("no trial of these parts and rates has '{}' in the name of its method; --list "
                    "shows them",
                    filter.method));
  return found;
}

std::string to_text(const std::vector<Trial>& trials) {
  Table table({{"trial", Align::left}, {"hosts"}, {"steps"}, {"about"}});
  for (const Trial& trial : trials)
    table.add({id_of(trial), std::to_string(trial.hosts),
               fmt::format("{} + {}", trial.warmup, trial.steps),
               human_seconds(estimated_seconds(trial))});
  return to_text(table) + fmt::format("{} trials, about {} on two cores with nothing else to do\n",
                                      trials.size(), human_seconds(estimated_seconds(trials)));
}

}  // namespace laconic
