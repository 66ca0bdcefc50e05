#include "laconic/cli/schedule_command.hpp"

#include <fmt/format.h>

#include <algorithm>
#include <cmath>
#include <cstdint>
#include <filesystem>
#include <nlohmann/json.hpp>

#include "laconic/base/error.hpp"
#include "laconic/cli/schedule_report.hpp"
#include "laconic/file/atomic_file.hpp"
#include "laconic/file/mapped_file.hpp"
#include "laconic/lab/lab_spec.hpp"
#include "laconic/report/console.hpp"
#include "laconic/schedule/check.hpp"
#include "laconic/schedule/choice.hpp"
#include "laconic/schedule/gantt.hpp"
#include "laconic/schedule/lower.hpp"

namespace laconic {

namespace {

namespace fs = std::filesystem;

// Some hundred bytes each, and nobody can look at more.
constexpr int kMostForwards = 1'000'000;
constexpr std::uintmax_t kMostFileBytes = 64 << 20;

// --- what was asked

// Large enough for everything, small enough for sums of a million.
constexpr double kMost = 1e15;

void check_number(Problems& problems, const char* option, double value, double least) {
  if (!(value >= least && value <= kMost))
    problems.push_back({option, fmt::format("{} is not from {} to {}", value, least, kMost)});
}

// Ranks have numbers below a thousand in files as well.
void check_count(Problems& problems, const char* option, const std::optional<int>& count,
                 int most) {
  if (count && (*count < 1 || *count > most))
    problems.push_back({option, fmt::format("{} is not from 1 to {}", *count, most)});
}

void check_output(Problems& problems, const char* option, const std::string& path) {
  if (path.empty()) return;
  const fs::path folder = fs::absolute(path).parent_path();
  if (!fs::is_directory(folder))
    problems.push_back({option, fmt::format("the folder {} does not exist", folder.string())});
  else if (fs::is_directory(path))
    problems.push_back({option, fmt::format("{} is a folder", path)});
}

Problems check_numbers(const ScheduleCommand& c) {
  Problems problems;
  for (const double s : c.forward) check_number(problems, "--forward", s, 0);
  for (const double s : c.backward) check_number(problems, "--backward", s, 0);
  check_number(problems, "--activation", c.activation, 0);
  check_number(problems, "--gradient", c.gradient.value_or(0), 0);
  check_number(problems, "--latency", c.latency, 0);
  check_number(problems, "--reduction", c.reduction, 0);
  check_number(problems, "--step", c.step, 0);
  check_number(problems, "--bytes", c.bytes.value_or(0), 0);
  check_number(problems, "--ratio", c.ratio, 1);
  if (!(c.weight_share >= 0 && c.weight_share <= 1))
    problems.push_back({"--weight-share", fmt::format("{} is not from 0 to 1", c.weight_share)});
  return problems;
}

void check_rate(Problems& problems, const ScheduleCommand& command) {
  if (command.bytes && command.rate.empty())
    problems.push_back({"--bytes", "needs --rate, as in --rate 100mbit"});
  if (!command.rate.empty() && parse_rate(command.rate).value_or(0) == 0)
    problems.push_back({"--rate", fmt::format("'{}' is not a rate from 100kbit to 100gbit, as in "
                                              "20mbit or 1.5gbit",
                                              command.rate)});
}

bool is_automatic(const ScheduleCommand& command) {
  return command.what == "auto";
}

Problems check_words(const ScheduleCommand& command) {
  Problems problems = check_numbers(command);
  check_rate(problems, command);
  check_count(problems, "--ranks", command.ranks, 1000);
  check_count(problems, "--microbatches", command.microbatches, kMostForwards);
  check_count(problems, "--chunks", command.chunks, 1000);
  check_output(problems, "--svg", command.svg);
  if (command.compare && (command.text || command.lowered || command.gantt || command.messages ||
                          !command.svg.empty()))
    problems.push_back({"--compare", "prints a table of all kinds and draws none of them"});
  if (command.compare && !command.what.empty())
    problems.push_back({"--compare", fmt::format("compares all kinds, not '{}'", command.what)});
  check_number(problems, "--overhead", command.overhead, 0);
  check_number(problems, "--most-live", command.most_live.value_or(0), 0);
  if (is_automatic(command) && (command.text || command.lowered || command.gantt ||
                                command.messages || !command.svg.empty()))
    problems.push_back({"auto", "prints a table of candidates and draws none of them"});
  if (is_automatic(command))
    for (const std::vector<double>* seconds : {&command.forward, &command.backward})
      if (command.overhead > std::ranges::min(*seconds))
        problems.push_back(
            {"--overhead", fmt::format("{} is more than the {} s of a microbatch", command.overhead,
                                       std::ranges::min(*seconds))});
  try {
    parse_when(command.when);
  } catch (const ConfigError& error) {
    problems.push_back({"--when", error.what()});
  }
  return problems;
}

PipelineShape shape_for(ScheduleKind kind, const ScheduleCommand& command, bool is_compared) {
  const int ranks = command.ranks.value_or(4);
  const int least = kind == ScheduleKind::interleaved || kind == ScheduleKind::zb_v ? 2 : 1;
  int chunks = command.chunks.value_or(least);
  if (is_compared && kind != ScheduleKind::interleaved) chunks = least;
  const int microbatches = command.microbatches.value_or(2 * ranks);
  const int stages = ranks * chunks;
  if (stages > kMostForwards / microbatches)
    throw ConfigError(
        fmt::format("{} ranks, {} chunks and {} microbatches are more than {} "
                    "forwards",
                    ranks, chunks, microbatches, kMostForwards));
  return {ranks, stages, microbatches};
}

void require_one_or_all(const char* option, const std::vector<double>& seconds, int ranks) {
  if (seconds.size() != 1 && seconds.size() != static_cast<std::size_t>(ranks))
    throw ConfigError(
        Problems{{option, fmt::format("{} values for {} ranks: give one, or one for each rank",
                                      seconds.size(), ranks)}});
}

std::vector<StageCost> stage_costs(const ScheduleCommand& command, const Schedule& schedule) {
  const PipelineShape& shape = schedule.shape;
  require_one_or_all("--forward", command.forward, shape.ranks);
  require_one_or_all("--backward", command.backward, shape.ranks);
  std::vector<int> chunks(static_cast<std::size_t>(shape.ranks));
  for (const int rank : schedule.placement) ++chunks[static_cast<std::size_t>(rank)];
  std::vector<StageCost> stages;
  for (int stage = 0; stage < shape.stages; ++stage) {
    const auto rank = static_cast<std::size_t>(rank_of_stage(schedule, stage));
    // A stage's share of what its rank takes.
    const auto share = [&](const std::vector<double>& seconds) {
      return seconds[seconds.size() == 1 ? 0 : rank] / chunks[rank];
    };
    const double backward = share(command.backward);
    stages.push_back({.forward = share(command.forward),
                      .backward = backward,
                      .backward_input = backward * (1 - command.weight_share),
                      .backward_weight = backward * command.weight_share,
                      .reduction = share({command.reduction})});
  }
  return stages;
}

Costs costs_for(const ScheduleCommand& command, const Schedule& schedule) {
  Costs costs;
  costs.stages = stage_costs(command, schedule);
  EdgeCost edge{command.activation, command.gradient.value_or(command.activation), 0};
  if (command.bytes) {
    const auto rate = static_cast<double>(*parse_rate(command.rate));
    edge.activation = edge.gradient = 8 * *command.bytes / rate;
  }
  edge.encoded_gradient = edge.gradient / command.ratio;
  costs.edges = {edge};
  costs.latency = command.latency;
  costs.step = command.step;
  costs.wiring = command.wiring == "hosts"      ? Wiring::hosts
                 : command.wiring == "switched" ? Wiring::switched
                                                : Wiring::pairs;
  costs.full_duplex = !command.half_duplex;
  costs.exchange = command.paired ? Exchange::paired : Exchange::asynchronous;
  return costs;
}

// --- one schedule

Problems check_given_shape(const ScheduleCommand& command, const PipelineShape& shape) {
  Problems problems;
  const auto compare = [&](const char* option, const std::optional<int>& asked, int is) {
    if (asked && *asked != is)
      problems.push_back(
          {option, fmt::format("{} was asked for, and {} has {}", *asked, command.what, is)});
  };
  compare("--ranks", command.ranks, shape.ranks);
  compare("--microbatches", command.microbatches, shape.microbatches);
  compare("--chunks", command.chunks, chunks_of(shape));
  return problems;
}

Schedule read_schedule(const ScheduleCommand& command) {
  const MappedFile file(command.what);
  if (file.bytes().size() > kMostFileBytes)
    throw FileError(command.what, "size",
                    fmt::format("{} bytes are more than {}", file.bytes().size(), kMostFileBytes));
  Problems problems;
  try {
    const Schedule schedule = parse_schedule(file.text());
    problems = check_given_shape(command, schedule.shape);
    if (problems.empty()) return schedule;
  } catch (const ConfigError& error) {
    for (const Problem& problem : error.problems())
      problems.push_back({problem.where.empty()
                              ? command.what
                              : fmt::format("{}, {}", command.what, problem.where),
                          problem.what});
  }
  throw ConfigError(std::move(problems));
}

bool looks_like_a_file(const std::string& what) {
  return what.find('/') != std::string::npos || what.find('.') != std::string::npos ||
         fs::exists(what);
}

Schedule make_schedule(const ScheduleCommand& command) {
  const std::string what = command.what.empty() ? "1f1b" : command.what;
  const auto is_what = [&](ScheduleKind kind) { return name_of(kind) == what; };
  if (std::ranges::none_of(kScheduleKinds, is_what) && looks_like_a_file(what))
    return read_schedule(command);
  const ScheduleKind kind = parse_schedule_kind(what);
  const PipelineShape shape = shape_for(kind, command, false);
  refuse(check(kind, shape));
  return build(kind, shape);
}

// The picture is what a person needs first; the list of reasons follows from the guard.
Schedule lowered_if_sound(const Schedule& schedule) {
  Problems problems = check(schedule);
  if (problems.empty()) {
    Schedule whole = lowered(schedule);
    problems = check(whole);
    if (problems.empty()) return whole;
  }
  fmt::print("{}", picture_of_fault(schedule));
  throw ConfigError(std::move(problems));
}

int columns_of(const ScheduleCommand& command) {
  if (command.columns > 0) return command.columns;
  if (!is_live_terminal(stdout)) return 100;
  return std::max(40, static_cast<int>(std::min<std::size_t>(terminal_columns(stdout), 10000)));
}

void print_schedule(const ScheduleCommand& command, const Schedule& schedule,
                    const TimedSchedule& timed) {
  if (command.text) fmt::print("{}", to_text(compute_only(schedule)));
  if (command.lowered) fmt::print("{}", to_text(timed.lowered));
  if ((command.text || command.lowered) && !command.gantt) return;
  fmt::print("{}\n{}",
             gantt_text(timed.lowered, timed.timing,
                        {columns_of(command), command.messages, wants_colour(stdout)}),
             describe(timed));
}

int run_one(const ScheduleCommand& command) {
  const Schedule schedule = make_schedule(command);
  Schedule whole = lowered_if_sound(schedule);
  const Costs costs = costs_for(command, whole);
  refuse(check(costs, whole));
  const std::string name = command.what.empty() ? "1f1b" : command.what;
  const TimedSchedule timed =
      time_schedule(name, std::move(whole), costs, parse_when(command.when));
  print_schedule(command, schedule, timed);
  if (!command.svg.empty())
    write_atomically(command.svg, gantt_svg(timed.lowered, timed.timing, name));
  if (!command.json.empty()) {
    nlohmann::ordered_json json = {{"command", "schedule"}};
    json.update(to_json(timed));
    write_atomically(command.json, json.dump(2) + "\n");
  }
  return 0;
}

// --- all kinds

struct ScheduleComparison {
  std::vector<TimedSchedule> timed;   // the fastest first
  std::vector<std::string> left_out;  // with the reason
};

// Times that differ in their last digits are one; fewer activations then count.
bool is_better(const TimedSchedule& a, const TimedSchedule& b) {
  const double difference = a.timing.makespan - b.timing.makespan;
  if (std::abs(difference) > 1e-9 * b.timing.makespan) return difference < 0;
  return most_live(a) < most_live(b);
}

ScheduleComparison compare(const ScheduleCommand& command) {
  ScheduleComparison all;
  for (const ScheduleKind kind : kScheduleKinds) {
    const PipelineShape shape = shape_for(kind, command, true);
    Problems problems = check(kind, shape);
    if (problems.empty()) {
      Schedule whole = lowered(build(kind, shape));
      const Costs costs = costs_for(command, whole);
      problems = check(costs, whole);
      if (problems.empty())
        all.timed.push_back(time_schedule(std::string(name_of(kind)), std::move(whole), costs,
                                          parse_when(command.when)));
    }
    if (!problems.empty())
      all.left_out.push_back(fmt::format("{}: left out, {}", name_of(kind), problems[0].what));
  }
  std::ranges::stable_sort(all.timed, is_better);
  return all;
}

int run_compare(const ScheduleCommand& command) {
  const ScheduleComparison all = compare(command);
  fmt::print("{}", describe(all.timed));
  for (const std::string& line : all.left_out) fmt::print("{}\n", line);
  if (command.json.empty()) return 0;
  nlohmann::ordered_json json = {{"command", "schedule --compare"},
                                 {"schedules", nlohmann::ordered_json::array()},
                                 {"left_out", all.left_out}};
  for (const TimedSchedule& timed : all.timed) json["schedules"].push_back(to_json(timed));
  write_atomically(command.json, json.dump(2) + "\n");
  return 0;
}

// --- the order and the microbatches to take

// The same step in `parts` times as many microbatches.
ScheduleCommand cut_finer(ScheduleCommand command, int parts) {
  const auto cut = [&](double& seconds, double fixed) {
    seconds = fixed + (seconds - fixed) / parts;
  };
  for (double& seconds : command.forward) cut(seconds, command.overhead);
  for (double& seconds : command.backward) cut(seconds, command.overhead);
  cut(command.activation, 0);
  if (command.gradient) cut(*command.gradient, 0);
  if (command.bytes) cut(*command.bytes, 0);
  command.microbatches = command.microbatches.value_or(2 * command.ranks.value_or(4)) * parts;
  return command;
}

struct ScheduleTrials {
  std::vector<ScheduleCandidate> candidates;
  std::vector<TimedSchedule> timed;
  std::vector<std::string> left_out;
};

void try_kind(ScheduleKind kind, const ScheduleCommand& command, int parts, ScheduleTrials& all) {
  const PipelineShape shape = shape_for(kind, command, false);
  Problems problems = check(kind, shape);
  if (problems.empty()) {
    Schedule whole = lowered(build(kind, shape));
    const Costs costs = costs_for(command, whole);
    problems = check(costs, whole);
    if (problems.empty()) {
      all.timed.push_back(time_schedule(std::string(name_of(kind)), std::move(whole), costs,
                                        parse_when(command.when)));
      const double live = most_live(all.timed.back()) / parts;
      all.candidates.push_back({.kind = kind,
                                .microbatches = shape.microbatches,
                                .seconds = all.timed.back().timing.makespan,
                                .held = live,
                                .fits = live <= command.most_live.value_or(live)});
    }
  }
  if (!problems.empty())
    all.left_out.push_back(fmt::format("{} in {} microbatches: left out, {}", name_of(kind),
                                       shape.microbatches, problems[0].what));
}

int run_auto(const ScheduleCommand& command) {
  ScheduleTrials all;
  for (int parts = 1; parts <= command.finer; parts *= 2) {
    const ScheduleCommand finer = cut_finer(command, parts);
    for (const ScheduleKind kind : kinds_for_chunks(command.chunks.value_or(1)))
      try_kind(kind, finer, parts, all);
  }
  const std::optional<std::size_t> taken = choose(all.candidates);
  fmt::print("{}", describe(all.candidates, taken));
  for (const std::string& line : all.left_out) fmt::print("{}\n", line);
  if (!command.json.empty()) {
    nlohmann::ordered_json json = {{"command", "schedule auto"},
                                   {"schedules", nlohmann::ordered_json::array()},
                                   {"left_out", all.left_out}};
    for (const TimedSchedule& timed : all.timed) json["schedules"].push_back(to_json(timed));
    if (taken) json["taken"] = *taken;
    write_atomically(command.json, json.dump(2) + "\n");
  }
  if (!taken)
    throw ConfigError(Problems{
        {"--most-live", fmt::format("{} are too few for any of {} candidates",
                                    command.most_live.value_or(0), all.candidates.size())}});
  return 0;
}

// --- fragments of Streaming DiLoCo

bool is_streaming(const ScheduleCommand& command) {
  return command.what == "streaming";
}

int run_streaming(const ScheduleCommand& command) {
  FragmentSpec spec = command.fragments;
  spec.blocks = command.layers + 2;
  Problems problems;
  check_count(problems, "--layers", command.layers, 1000);
  if (spec.steps > kMostForwards)
    problems.push_back({"--steps", fmt::format("{} is more than {}", spec.steps, kMostForwards)});
  for (Problem& problem : check(spec)) {
    if (problem.where == "blocks") continue;  // told already
    problem.where = problem.where == "layers" ? "--fragment" : "--" + problem.where;
    problems.push_back(std::move(problem));
  }
  refuse(problems);
  fmt::print("{}", to_text(spec));
  return 0;
}

}  // namespace

int run_schedule(const ScheduleCommand& command) {
  if (is_streaming(command)) return run_streaming(command);
  refuse(check_words(command));
  if (is_automatic(command)) return run_auto(command);
  return command.compare ? run_compare(command) : run_one(command);
}

}  // namespace laconic
