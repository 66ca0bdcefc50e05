#include "laconic/cli/lab_command.hpp"

#include <fmt/format.h>
#include <unistd.h>

#include <algorithm>
#include <memory>

#include "laconic/base/error.hpp"
#include "laconic/base/text.hpp"
#include "laconic/file/atomic_file.hpp"
#include "laconic/lab/blocked_signals.hpp"
#include "laconic/lab/lab.hpp"
#include "laconic/lab/lab_launch.hpp"
#include "laconic/machine/cpu.hpp"

namespace laconic {

namespace {

// tbf only limits a rate, and netem, which would delay packets, is missing from many kernels.
constexpr const char* kLatencyHint =
    "packets wait only for the rate; for latency add --set network.shape=latency=5ms to `laconic "
    "train`";

// What every verb that acts begins with.
void prepare(const LabSpec& spec) {
  Problems problems = check(spec);
  append(problems, check(detect_lab_rights()));
  if (process_of_run(spec.name))
    problems.push_back({"--name", fmt::format("'{}' is the name of a run's own lab", spec.name)});
  refuse(problems);
  for (const std::string& name : remove_leftovers())
    fmt::print(stderr, "laconic: removed the lab '{}', left behind by a run that is no more\n",
               name);
}

FoundLab need_whole_lab(const std::string& name) {
  const std::optional<FoundLab> lab = find_lab(name);
  if (!lab) throw ConfigError(fmt::format("no lab '{}' is up; `laconic lab up` makes one", name));
  if (!lab->is_whole)
    throw ConfigError(fmt::format(
        "the lab '{0}' is there only in part; `laconic lab down --name {0}` removes it", name));
  return *lab;
}

const char* hosts_word(int hosts) {
  return hosts == 1 ? "host" : "hosts";
}

// The lab that a run asked for: one that is up, or one made for it.
struct RunLab {
  std::unique_ptr<TemporaryLab> own;
  std::string name;
  int hosts = 0;
};

LabSpec spec_of(const LabRunCommand& command) {
  LabSpec spec{.name = command.name};
  if (command.hosts) spec.hosts = *command.hosts;
  if (command.rate) spec.rate = *command.rate;
  return spec;
}

// A lab that is up is as it is; who asks for another size or rate is told, not obeyed by half.
RunLab use(const FoundLab& lab, const LabRunCommand& command) {
  Problems problems;
  const auto differ = [&](const char* option, const std::string& asked, const std::string& is) {
    problems.push_back({option, fmt::format("{} was asked for, and the lab '{}' that is up has {}; "
                                            "--ephemeral makes another for this run",
                                            asked, lab.name, is)});
  };
  if (command.hosts && *command.hosts != lab.hosts)
    differ("--hosts", std::to_string(*command.hosts), std::to_string(lab.hosts));
  if (command.rate)
    if (const std::uint64_t rate = read_status(lab).hosts[0].bits_per_second;
        rate != *parse_rate(*command.rate))
      differ("--rate", *command.rate, rate_to_text(rate));
  refuse(problems);
  return {nullptr, lab.name, lab.hosts};
}

RunLab find_or_make(const LabRunCommand& command) {
  if (!command.ephemeral && find_lab(command.name))
    return use(need_whole_lab(command.name), command);
  if (!command.ephemeral && !command.hosts && !command.rate)
    throw ConfigError(
        fmt::format("no lab '{}' is up: make one with `laconic lab up`, or give "
                    "--hosts and --rate for one that ends with this run",
                    command.name));
  LabSpec spec = spec_of(command);
  spec.name = name_of_run(::getpid());
  return {std::make_unique<TemporaryLab>(spec), spec.name, spec.hosts};
}

}  // namespace

int run_lab(const LabUpCommand& command) {
  const LabSpec spec{command.name, command.hosts, command.rate, command.queue_ms};
  prepare(spec);
  bring_up(spec);
  fmt::print("{} is up: {} {}, {} to {}, {} each way\n", spec.name, spec.hosts,
             hosts_word(spec.hosts), host_address(0), host_address(spec.hosts - 1), spec.rate);
  fmt::print("{}\n", kLatencyHint);
  return 0;
}

int run_lab(const LabDownCommand& command) {
  prepare({.name = command.name});
  const std::optional<FoundLab> lab = find_lab(command.name);
  if (lab) take_down(*lab);
  fmt::print("{}\n", lab ? command.name + " is down" : "no lab '" + command.name + "' is up");
  return 0;
}

int run_lab(const LabRateCommand& command) {
  LabSpec spec{.name = command.name, .rate = command.rate, .queue_ms = command.queue_ms};
  prepare(spec);
  spec.hosts = need_whole_lab(command.name).hosts;
  change_rate(spec);
  fmt::print("{}: {} each way\n", spec.name, spec.rate);
  return 0;
}

int run_lab(const LabStatusCommand& command) {
  refuse(check(detect_lab_rights()));
  std::vector<LabStatus> labs;
  for (const FoundLab& lab : find_labs())
    if (command.name.empty() || lab.name == command.name) labs.push_back(read_status(lab));
  if (labs.empty() && !command.name.empty())
    throw ConfigError(fmt::format("no lab '{}' is up", command.name));
  if (command.json == "-") {
    fmt::print("{}", to_json(labs));
    return 0;
  }
  if (labs.empty()) fmt::print("no lab is up\n");
  for (const LabStatus& lab : labs) fmt::print("{}", to_text(lab));
  if (!command.json.empty()) write_atomically(command.json, to_json(labs));
  return 0;
}

int run_lab(const LabRunCommand& command) {
  prepare(spec_of(command));
  const BlockedSignals blocked;  // until the lab of this run is gone
  const RunLab lab = find_or_make(command);
  const int ranks = lab.hosts * command.ranks_per_host;
  const int threads =
      command.threads > 0 ? command.threads : std::max(1, usable_threads(detect_cpu()) / ranks);
  const LabRun run{.lab = lab.name,
                   .hosts = lab.hosts,
                   .ranks_per_host = command.ranks_per_host,
                   .threads = threads,
                   .port = command.port,
                   .grace_seconds = command.grace_seconds,
                   .words = command.words};
  if (command.json.empty()) return launch_in_lab(run);
  const LabStatus before = read_status(need_whole_lab(lab.name));
  const int exit_code = launch_in_lab(run);
  if (const std::optional<FoundLab> still = find_lab(lab.name); still && still->is_whole)
    write_atomically(command.json, to_json({counted_since(before, read_status(*still))}));
  return exit_code;
}

}  // namespace laconic
