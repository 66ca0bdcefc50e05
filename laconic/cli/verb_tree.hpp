// cli/verb_tree.hpp — the command line as a table: verbs, their options, what options take.
//
// Made from the same CLI11 objects that parse and print --help, so completion scripts and the man
// page cannot say anything else. Plain data; knows nothing of CLI11 or shells.
#pragma once

#include <string>
#include <string_view>
#include <vector>

namespace CLI {
class App;
}

namespace laconic {

struct OptionEntry {
  std::vector<std::string> names;    // "-o", "--output"; empty: known by its place
  std::string value;                 // "FILE", "N", "CONFIG"; empty: a flag
  std::vector<std::string> choices;  // what the value may be, or some of that, where it is known
  std::string help;
  std::string default_value;
  bool is_required = false;
  bool may_repeat = false;
};

struct VerbEntry {
  std::string name;
  std::string help;
  std::string footer;  // examples
  std::vector<OptionEntry> places;
  std::vector<OptionEntry> options;
  std::vector<VerbEntry> verbs;
};

VerbEntry describe_verbs(const CLI::App& app);

// Verbs that do the work, each with its words ("lab run") and its entry, in the order of --help.
struct VerbPath {
  std::string words;
  const VerbEntry* verb;
};
std::vector<VerbPath> leaf_verbs(const VerbEntry& root);

// What a value names, for shells to complete. `option` may also list choices.
enum class ValueKind { other, file, folder, config, assignment, codec, schedule, command };
ValueKind kind_of(const OptionEntry& option);

}  // namespace laconic
