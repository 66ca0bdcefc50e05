#include "laconic/lab/lab.hpp"

#include <fmt/format.h>
#include <unistd.h>

#include <algorithm>
#include <cerrno>
#include <chrono>
#include <csignal>
#include <cstdlib>
#include <filesystem>
#include <fstream>
#include <map>
#include <thread>

#include "laconic/base/error.hpp"
#include "laconic/base/text.hpp"
#include "laconic/lab/blocked_signals.hpp"
#include "laconic/lab/tool.hpp"

namespace laconic {

namespace {

namespace fs = std::filesystem;

// Where `ip netns add` puts names.
constexpr const char* kNamespaces = "/run/netns";
constexpr auto kPatience = std::chrono::seconds(2);

std::vector<std::string> namespace_names() {
  std::vector<std::string> names;
  std::error_code none;  // no folder, no namespaces
  for (const fs::directory_entry& entry : fs::directory_iterator(kNamespaces, none))
    names.push_back(entry.path().filename().string());
  return names;
}

// In a container root may lack what namespaces need.
std::string hint(const std::string& error) {
  return error.find("not permitted") == std::string::npos
             ? ""
             : " (a container must allow namespaces: CAP_SYS_ADMIN and CAP_NET_ADMIN)";
}

std::string run_or_throw(const Words& words) {
  const ToolOutcome outcome = run_tool(words);
  if (outcome.exit_code != 0)
    throw std::runtime_error(fmt::format("{}: exit code {}: {}{}", join(words, " "),
                                         outcome.exit_code, outcome.error, hint(outcome.error)));
  return outcome.output;
}

// Whatever these say: it is too late to mend anything.
void undo(const std::vector<LabStep>& done) {
  for (auto step = done.rbegin(); step != done.rend(); ++step)
    if (!step->undo.empty()) run_tool(step->undo);
}

void walk(const std::vector<LabStep>& plan) {
  const BlockedSignals blocked;
  std::vector<LabStep> done;
  try {
    for (const LabStep& step : plan) {
      if (BlockedSignals::is_pending()) throw std::runtime_error("interrupted");
      run_or_throw(step.words);
      done.push_back(step);
    }
  } catch (...) {
    undo(done);
    throw;
  }
}

std::vector<int> processes_in(const std::string& name) {
  std::vector<int> processes;
  for (const std::string& line : split(run_tool({"ip", "netns", "pids", name}).output, '\n'))
    if (const int process = std::atoi(line.c_str()); process > 0) processes.push_back(process);
  return processes;
}

void end_processes_in(const std::string& name) {
  const auto give_up = std::chrono::steady_clock::now() + kPatience;
  for (const int process : processes_in(name)) ::kill(process, SIGTERM);
  while (!processes_in(name).empty() && std::chrono::steady_clock::now() < give_up)
    std::this_thread::sleep_for(std::chrono::milliseconds(20));
  for (const int process : processes_in(name)) ::kill(process, SIGKILL);
}

// Numbers of processes are used again: one that is no laconic does not keep a lab, nor does one
// that has ended and that nobody has waited for yet.
bool runs_laconic(int process) {
  std::ifstream file(fmt::format("/proc/{}/stat", process));
  std::string line;  // "4711 (laconic) S ..."
  if (!std::getline(file, line)) return false;
  const std::string name = " (laconic) ";
  const std::size_t at = line.find(name);
  return at != std::string::npos && line.at(at + name.size()) != 'Z';
}

void sort_parts(FoundLab& lab) {
  std::sort(lab.namespaces.begin(), lab.namespaces.end(), [](const auto& a, const auto& b) {
    return parse_namespace(a)->host < parse_namespace(b)->host;
  });
  lab.is_whole = lab.hosts > 0 && lab.namespaces.front() == bridge_namespace(lab.name) &&
                 lab.namespaces.back() == host_namespace(lab.name, lab.hosts - 1);
}

bool is_gone_soon(const std::string& name) {
  const auto give_up = std::chrono::steady_clock::now() + kPatience;
  while (find_lab(name)) {
    if (std::chrono::steady_clock::now() >= give_up) return false;
    std::this_thread::sleep_for(std::chrono::milliseconds(20));
  }
  return true;
}

}  // namespace

LabRights detect_lab_rights() {
  return {::geteuid(), find_tool("ip"), find_tool("tc")};
}

Problems check(const LabRights& rights) {
  Problems problems;
  if (rights.effective_user != 0)
    problems.push_back({"", "lab needs root: it makes network namespaces; run it with sudo"});
  for (const auto& [tool, path] : {std::pair{"ip", rights.ip}, std::pair{"tc", rights.tc}})
    if (path.empty())
      problems.push_back(
          {"", fmt::format("lab needs the program {}: install the package iproute2", tool)});
  return problems;
}

std::vector<FoundLab> labs_among(const std::vector<std::string>& namespaces) {
  std::map<std::string, FoundLab> labs;
  for (const std::string& name : namespaces)
    if (const std::optional<LabPart> part = parse_namespace(name)) {
      FoundLab& lab = labs[part->lab];
      lab.name = part->lab;
      lab.hosts += part->host >= 0 ? 1 : 0;
      lab.namespaces.push_back(name);
    }
  std::vector<FoundLab> found;
  for (auto& [name, lab] : labs) {
    sort_parts(lab);
    found.push_back(std::move(lab));
  }
  return found;
}

std::vector<FoundLab> find_labs() {
  return labs_among(namespace_names());
}

std::optional<FoundLab> find_lab(const std::string& name) {
  for (FoundLab& lab : find_labs())
    if (lab.name == name) return std::move(lab);
  return std::nullopt;
}

void bring_up(const LabSpec& spec) {
  if (const std::optional<FoundLab> lab = find_lab(spec.name))
    throw ConfigError(
        fmt::format("the lab '{0}' is {1} with {2} hosts; `laconic lab down --name "
                    "{0}` removes it",
                    spec.name, lab->is_whole ? "up" : "there in part", lab->hosts));
  walk(up_plan(spec));
}

void change_rate(const LabSpec& spec) {
  walk(rate_plan(spec));
}

// Others may be at it, too: the run whose lab it is, ending just now, or another command that has
// found a leftover. Only what is still there afterwards is a failure.
void take_down(const FoundLab& lab) {
  const BlockedSignals blocked;
  for (const std::string& name : lab.namespaces) end_processes_in(name);
  std::string failures;
  for (const LabStep& step : down_plan(lab.namespaces))
    if (const ToolOutcome outcome = run_tool(step.words); outcome.exit_code != 0)
      failures += fmt::format("{}{}: {}", failures.empty() ? "" : "\n", join(step.words, " "),
                              outcome.error);
  if (!failures.empty() && !is_gone_soon(lab.name)) throw std::runtime_error(failures);
}

std::vector<std::string> remove_leftovers() {
  std::vector<std::string> removed;
  for (const FoundLab& lab : find_labs()) {
    const std::optional<int> process = process_of_run(lab.name);
    if (!process || *process == ::getpid() || runs_laconic(*process)) continue;
    take_down(lab);
    removed.push_back(lab.name);
  }
  return removed;
}

LabStatus read_status(const FoundLab& lab) {
  LabStatus status{lab.name, {}};
  for (const std::string& name : lab.namespaces) {
    const int number = parse_namespace(name)->host;
    if (number < 0) continue;
    HostStatus host{.name = name, .address = host_address(number)};
    read_counters(run_or_throw({"ip", "-j", "-s", "-n", name, "address", "show", "dev", "eth0"}),
                  host);
    host.bits_per_second =
        read_rate(run_or_throw({"tc", "-j", "-n", name, "qdisc", "show", "dev", "eth0"}));
    status.hosts.push_back(std::move(host));
  }
  return status;
}

TemporaryLab::TemporaryLab(const LabSpec& spec) : name_(spec.name) {
  bring_up(spec);
}

TemporaryLab::~TemporaryLab() {
  try {
    if (const std::optional<FoundLab> lab = find_lab(name_)) take_down(*lab);
  } catch (const std::exception& error) {
    fmt::print(stderr, "laconic: the lab of this run is not removed whole: {}\n", error.what());
  }
}

}  // namespace laconic
