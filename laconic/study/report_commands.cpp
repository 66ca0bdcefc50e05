// Every command of a report, after those that make its data: lines to be run in their order.
#include <fmt/format.h>

#include <algorithm>
#include <filesystem>
#include <set>
#include <string_view>

#include "laconic/study/report_pages.hpp"
#include "laconic/study/work.hpp"

namespace laconic {

namespace {

constexpr std::string_view kPeerScript = "/bench/peers/torch_ddp.py";

// What trials with the same data need, and where their commands have it. A report whose folder was
// moved before it went on has several.
struct DataUse {
  Places places;
  std::vector<Trial> trials;
};

// The folder of its dataset; empty where the command names none.
std::string data_folder(const Outcome& outcome) {
  const bool is_peer = outcome.trial.program == Program::ddp;
  const auto data = setting_of(outcome, is_peer ? "data" : "data.train");
  return data ? std::filesystem::path(*data).parent_path().string() : "";
}

// Not every command names the source tree and the interpreter.
void learn_places(const Outcome& outcome, Places& places) {
  const std::vector<std::string>& words = outcome.command;
  places.laconic = words.front();
  for (std::size_t i = 1; i < words.size(); ++i) {
    const std::size_t presets = words[i].rfind("/presets/");
    if (words[i - 1] == "train" && presets != std::string::npos)
      places.source = words[i].substr(0, presets);
    if (!words[i].ends_with(kPeerScript)) continue;
    places.python = words[i - 1];
    places.source = words[i].substr(0, words[i].size() - kPeerScript.size());
  }
  // Laconic begins from weights of the peer's.
  if (places.python.empty() && !setting_of(outcome, "model.start").value_or("").empty())
    places.python = "python3";
}

std::vector<DataUse> data_uses(const Outcomes& outcomes) {
  std::vector<DataUse> uses;
  for (const Outcome& outcome : outcomes) {
    const std::string folder = data_folder(outcome);
    if (folder.empty() || outcome.command.empty()) continue;
    auto use = std::find_if(uses.begin(), uses.end(),
                            [&](const DataUse& one) { return one.places.work == folder; });
    if (use == uses.end()) {
      uses.push_back({.places = {.source = ".", .work = folder}, .trials = {}});
      use = uses.end() - 1;
    }
    learn_places(outcome, use->places);
    use->trials.push_back(outcome.trial);
  }
  return uses;
}

// Paths are relative to the folder of the call: mostly the root of the tree, which git finds. With
// sudo the tree belongs to somebody else, of whom git is wary.
std::string way_to_folder(const std::vector<DataUse>& uses) {
  const bool is_root = std::all_of(uses.begin(), uses.end(),
                                   [](const DataUse& use) { return use.places.source == "."; });
  if (!is_root) return "# Paths are those of the folder in which this was called.\n";
  return "# Paths are those of the root of the source tree.\n"
         "cd \"$(git -c 'safe.directory=*' rev-parse --show-toplevel)\"\n";
}

// Every folder that a command writes to.
std::set<std::string> written_folders(const Outcomes& outcomes) {
  std::set<std::string> folders;
  for (const Outcome& outcome : outcomes)
    for (std::size_t i = 0; i + 1 < outcome.command.size(); ++i)
      if (outcome.command[i] == "--json")
        folders.insert(std::filesystem::path(outcome.command[i + 1]).parent_path().string());
  return folders;
}

std::string preparation_text(const Outcomes& outcomes, const ReportFacts& facts) {
  const std::vector<DataUse> uses = data_uses(outcomes);
  std::string text = fmt::format(
      "# As root, for the labs, after ./dev build. This is what was run by\n#   {}\n"
      "# Trials inherit no variable that changes threads, libraries, allocator or ranks (OMP_*,\n"
      "# MALLOC_*, RANK, ...).\n",
      facts.command);
  text += way_to_folder(uses) + "\n# What trials need\n";
  for (const DataUse& use : uses)
    for (const std::string& line : preparation_of(use.places, facts.models, use.trials))
      text += line + "\n";
  for (const std::string& folder : written_folders(outcomes))
    text += shell_line({"mkdir", "-p", folder}) + "\n";
  return text + "\n";
}

}  // namespace

std::string commands_text(const Outcomes& outcomes, const ReportFacts& facts) {
  std::string lines = preparation_text(outcomes, facts);
  for (const Outcome& outcome : outcomes)
    lines += fmt::format(
        "# {}{}\n{}\n\n", described(outcome.trial), outcome.failure.empty() ? "" : ": failed",
        outcome.command.empty() ? "# no command is known" : shell_line(outcome.command));
  return lines;
}

}  // namespace laconic
