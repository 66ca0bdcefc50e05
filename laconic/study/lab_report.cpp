#include "laconic/study/lab_report.hpp"

#include <fmt/format.h>

#include <algorithm>
#include <cctype>
#include <cstdlib>

#include "laconic/base/error.hpp"
#include "laconic/base/text.hpp"
#include "laconic/lab/lab_spec.hpp"
#include "laconic/report/table.hpp"
#include "laconic/study/work.hpp"

namespace laconic {

namespace {

using Keys = std::map<std::string, std::string>;

struct Method {
  std::string name;
  std::string preset;
  Keys set;
  bool is_brief = false;  // also in the short report
  Program program = Program::laconic;
  Keys loss = {};  // what else is set where losses are compared
};

Keys operator+(Keys keys, const Keys& more) {
  for (const auto& [key, value] : more) keys[key] = value;
  return keys;
}

// What several parts compare with.

// The embedding is then summed in two acts, as if nobody had thought of it.
const Keys kUnfused = {{"embedding.tied.fused", "false"}};
const Keys kBypass = {{"steering.bypass", "auto"}};
// Of steering.after: what is measured before it is decided, and a step to change over.
constexpr std::int64_t kStepsToBypass = 9;

std::string quantise(int bits) {
  return fmt::format("quantise:bits={},block=64", bits);
}

Method direct(int forward, int backward) {
  return {fmt::format("DirectQ, {} and {} bits", forward, backward),
          "",
          {{"pp.activation.codec", quantise(forward)},
           {"pp.gradient.codec", quantise(backward)},
           {"embedding.tied.codec", quantise(8)}}};
}

Method delta(int forward, int backward) {
  return {fmt::format("AC-SGD, {} and {} bits", forward, backward),
          "ac-sgd",
          {{"pp.activation.codec", quantise(forward)}, {"pp.gradient.codec", quantise(backward)}}};
}

Method fp16() {
  const std::string half = "half:kind=f16";
  return {
      "fp16",
      "",
      {{"pp.activation.codec", half}, {"pp.gradient.codec", half}, {"embedding.tied.codec", half}},
      true};
}

std::vector<Method> bandwidth_methods() {
  return {{"fp32", "", kUnfused, true},
          fp16(),
          direct(3, 6),
          direct(4, 8),
          delta(2, 4),
          delta(3, 6),
          delta(4, 8),
          {"ac-sgd", "ac-sgd", {}, true},
          {"rotated", "rotated", {}},
          {"ac-sgd, bypass auto", "ac-sgd", kBypass}};
}

// The sum of the embedding is one of gradients: it goes with those between replicas.
std::vector<Method> end_to_end_methods() {
  const Keys plain = {{"embedding.tied.codec", "raw"}, {"dp.gradient.codec", "raw"}};
  return {{"nothing", "", {}, true},
          {"activations only", "ac-sgd", plain},
          {"gradients only",
           "",
           {{"embedding.tied.codec", quantise(8)}, {"dp.gradient.codec", quantise(4)}}},
          {"both", "ac-sgd", {}, true}};
}

// CB: gradients between stages by low rank; LEP: what a message lost is in the next one; FE: one
// sum for the embedding; SC: low rank between replicas too, on the stages where it is worth it.
std::vector<Method> optimus_methods() {
  const Keys cb = {{"pp.gradient.codec", "low_rank:rank=16"}, {"pp.gradient.when", "epilogue"}};
  const Keys lep = {{"pp.gradient.memory", "feedback"}};
  const Keys critical = {{"pp.gradient.when", "critical"}};
  return {{"base", "", kUnfused, true},
          {"CB", "", kUnfused + cb + Keys{{"pp.gradient.memory", "none"}}},
          {"CB + LEP", "", kUnfused + cb + lep},
          {"CB + LEP + FE", "", cb + lep + Keys{{"embedding.tied.fused", "true"}}},
          {"CB + LEP + FE + SC", "optimus-cc", {}, true},
          {"CB + LEP, critical", "", kUnfused + cb + lep + critical}};
}

std::vector<Method> replica_methods() {
  const auto codec = [](const std::string& text) { return Keys{{"dp.gradient.codec", text}}; };
  const Program ddp = Program::ddp;
  return {{"DDP", "", {}, true, ddp},
          {"DDP, 5 MB buckets", "", {{"bucket-mb", "5"}}, false, ddp},
          {"DDP, our allocator settings", "", {{"allocator", "ours"}}, false, ddp},
          {"DDP, fp16 hook", "", {{"hook", "fp16"}}, true, ddp},
          {"DDP, PowerSGD hook rank 32", "", {{"hook", "powersgd"}, {"rank", "32"}}, false, ddp},
          {"laconic, raw", "", codec("raw"), true},
          {"laconic, 4 bits", "", codec("quantise:bits=4"), true},
          {"laconic, 3 bits", "", codec("quantise:bits=3")},
          {"laconic, PowerSGD rank 32, 8 bits", "",
           codec("quantise:bits=8") + Keys{{"dp.gradient.method", "power_sgd"},
                                           {"dp.gradient.rank", "32"},
                                           {"dp.gradient.by_block", "true"}},
           true},
          {.name = "laconic, compressed Adam, sign",
           .set = codec("sign") +
                  Keys{{"dp.gradient.method", "compressed_adam"}, {"dp.gradient.warmup", "1"}},
           // So many that the second moment is worth freezing.
           .loss = {{"dp.gradient.warmup", "10"}}},
          {"laconic, 4 bits, bypass auto", "", codec("quantise:bits=4") + kBypass}};
}

std::vector<Method> schedule_methods() {
  std::vector<Method> methods;
  for (const char* kind : {"gpipe", "1f1b", "zero_bubble", "interleaved"})
    methods.push_back({kind, "", kUnfused + Keys{{"pipeline.schedule", kind}}});
  methods[1].is_brief = true;
  methods[3].set["pipeline.chunks"] = "2";
  return methods;
}

// Hosts and batch.
struct Layout {
  int pp = 1, dp = 1, microbatch = 4, microbatches = 8;
  int hosts() const { return pp * dp; }
  int batch() const { return microbatch * microbatches * dp; }
  Keys keys() const {
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
  std::int64_t loss_steps = 0;  // of a part that is about losses, where all steps count
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

double estimated_step(const Trial& trial);

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
  if (part.loss_steps > 0) trial.set = trial.set + method.loss;
  // The batch of the replicas is that of the peer, and all of it at once.
  const Keys mesh = part.model == "replicas" ? Keys{{"mesh.dp", std::to_string(part.layout.dp)}}
                                             : part.layout.keys();
  if (method.program == Program::laconic) trial.set = mesh + trial.set;
  if (part.loss_steps > 0) return trial;
  const bool is_long = estimated_step(trial) > kLongStep;
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

std::vector<Part> full_parts() {
  return {
      {"bandwidth",
       "pipeline",
       kStages,
       bandwidth_methods(),
       {"unshaped", "10gbit", "1gbit", "500mbit", "300mbit", "100mbit", "50mbit", kVerySlow}},
      {"end-to-end",
       "pipeline",
       kBoth,
       end_to_end_methods(),
       {"unshaped", "100mbit", "50mbit", kVerySlow}},
      {"optimus-cc",
       "pipeline",
       kFewTokens,
       optimus_methods(),
       {"unshaped", kHalfWaiting, "50mbit"}},
      {"data-parallel",
       "replicas",
       kReplicas,
       replica_methods(),
       {"unshaped", "1gbit", "300mbit", "100mbit", "20mbit"}},
      {"loss", "replicas", kReplicas, without_bypass(replica_methods()), {"unshaped"}, 60},
      {"optimus-cc loss", "pipeline", kFewTokens, optimus_methods(), {kHalfWaiting}, 60},
      {"honesty", "pipeline", kStages, named(bandwidth_methods(), {"fp32", "ac-sgd"}), {"none"}},
      {"honesty", "pipeline", kStages, schedule_methods(), {"100mbit", "20mbit"}}};
}

std::vector<Part> brief_parts() {
  std::vector<Part> parts = {
      {"bandwidth", "pipeline", kStages, bandwidth_methods(), {"unshaped", "100mbit", kVerySlow}},
      {"end-to-end", "pipeline", kBoth, end_to_end_methods(), {"50mbit"}},
      {"optimus-cc", "pipeline", kFewTokens, named(optimus_methods(), {"base"}), {"unshaped"}},
      {"optimus-cc", "pipeline", kFewTokens, optimus_methods(), {kHalfWaiting}},
      {"data-parallel", "replicas", kReplicas, replica_methods(), {"1gbit", "100mbit"}},
      {"loss",
       "replicas",
       kReplicas,
       named(replica_methods(), {"DDP", "laconic, raw", "laconic, 4 bits"}),
       {"unshaped"},
       20},
      {"honesty", "pipeline", kStages, named(bandwidth_methods(), {"fp32"}), {"none"}},
      {"honesty", "pipeline", kStages, schedule_methods(), {"100mbit"}}};
  for (Part& part : parts)
    std::erase_if(part.methods, [](const Method& method) { return !method.is_brief; });
  return parts;
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

// How many times fewer bytes, roughly.
double shrinkage(const std::string& codec) {
  if (codec.starts_with("quantise:bits=")) return 32 / (std::atof(codec.c_str() + 14) + 0.5);
  if (codec.starts_with("half")) return 2;
  if (codec.starts_with("sign")) return 30;
  return codec.starts_with("low_rank") ? 4 : 1;
}

std::string value_of(const Trial& trial, const std::string& key, const std::string& otherwise) {
  const auto found = trial.set.find(key);
  return found != trial.set.end() ? found->second : otherwise;
}

int number_of(const Trial& trial, const std::string& key) {
  return std::atoi(value_of(trial, key, "1").c_str());
}

constexpr double kReplicasParameters = 13.8e6;

// Megabits that pass the busiest link of a step one after the other.
double replica_megabits(const Trial& trial, double parameters) {
  const double whole =
      32e-6 * parameters * 2 * (1 - 1.0 / std::max(2, number_of(trial, "mesh.dp")));
  if (value_of(trial, "dp.gradient.method", "") == "power_sgd" || trial.preset == "optimus-cc" ||
      value_of(trial, "hook", "") == "powersgd")
    return whole / 10;
  if (value_of(trial, "hook", "") == "fp16") return whole / 2;
  const char* usual = trial.preset == "ac-sgd" ? "quantise:bits=4" : "raw";
  return whole / shrinkage(value_of(trial, "dp.gradient.codec", usual));
}

double boundary_megabits(const Trial& trial) {
  const bool is_encoded = trial.preset == "ac-sgd" || trial.preset == "rotated";
  const double message = 32e-6 * 128 * 256 * number_of(trial, "train.microbatch");
  const double forward =
      shrinkage(value_of(trial, "pp.activation.codec", is_encoded ? "quantise:bits=4" : "raw"));
  const double backward =
      shrinkage(value_of(trial, "pp.gradient.codec", is_encoded ? "quantise:bits=6" : "raw"));
  const int ways = 8 + number_of(trial, "mesh.pp") - 1;  // microbatches, and to fill the pipeline
  return ways * message * (1 / forward + 1 / backward);
}

double step_megabits(const Trial& trial) {
  if (trial.program == Program::ddp || trial.model == "replicas")
    return replica_megabits(trial, kReplicasParameters) * (trial.program == Program::ddp ? 1.5 : 1);
  const double sums = number_of(trial, "mesh.dp") > 1 ? replica_megabits(trial, 2.2e6) : 0;
  return boundary_megabits(trial) + sums;
}

double computing_seconds(const Trial& trial) {
  return trial.model == "replicas" ? 0.9 : 0.2 + 1.2 * number_of(trial, "train.batch") / 32;
}

double travelling_seconds(const Trial& trial, double megabits) {
  const auto rate = static_cast<double>(parse_rate(trial.rate).value_or(0));
  return rate > 0 ? megabits * 1e6 / (0.956 * rate) : 0;
}

double estimated_step(const Trial& trial) {
  return computing_seconds(trial) + travelling_seconds(trial, step_megabits(trial));
}

// Of what the sum of it all says, trials took so much.
constexpr double kTaken = 0.8;

}  // namespace

std::vector<Trial> lab_report_trials(Size size) {
  std::vector<Trial> trials;
  const int rounds = size == Size::full ? 2 : 1;
  const Counted counted = size == Size::full ? Counted{} : Counted{3, 2};
  for (const Part& part : size == Size::full ? full_parts() : brief_parts())
    for (const std::string& rate : part.rates)
      // Losses are the same in every round.
      for (int round = 1; round <= (part.loss_steps > 0 ? 1 : rounds); ++round)
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

std::vector<Trial> chosen(const std::vector<Trial>& trials, const Choice& choice) {
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
  refuse_others("--part", choice.parts, parts_of(trials));
  refuse_others("--rate", choice.rates, rates);
  if (!problems.empty()) throw ConfigError(std::move(problems));
  const std::string method = in_small_letters(choice.method);
  std::vector<Trial> found;
  for (const Trial& trial : trials)
    if ((choice.parts.empty() || has(choice.parts, trial.part)) &&
        (choice.rates.empty() || has(choice.rates, trial.rate)) &&
        in_small_letters(trial.method).find(method) != std::string::npos)
      found.push_back(trial);
  if (found.empty())
    throw ConfigError(
        fmt::format("no trial of these parts and rates has '{}' in the name of its method; --list "
                    "shows them",
                    choice.method));
  return found;
}

double estimated_seconds(const Trial& trial) {
  double seconds = 3 + 0.35 * trial.hosts + (needs_preflight(trial) ? 3 : 0);
  // Python takes longer to start, and DDP then sends the whole model, twice over its first link.
  if (trial.program == Program::ddp)
    seconds += 5 + travelling_seconds(trial, 2 * 32e-6 * kReplicasParameters);
  return kTaken *
         (seconds + static_cast<double>(trial.warmup + trial.steps) * estimated_step(trial));
}

double estimated_seconds(const std::vector<Trial>& trials) {
  double seconds = 0;
  for (const Trial& trial : trials) seconds += estimated_seconds(trial);
  return seconds;
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
