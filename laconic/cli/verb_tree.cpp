#include "laconic/cli/verb_tree.hpp"

#include <CLI/CLI.hpp>
#include <algorithm>
#include <cctype>

#include "laconic/base/text.hpp"

namespace laconic {

namespace {

bool is_placeholder(const std::string& word) {
  return std::none_of(word.begin(), word.end(),
                      [](unsigned char letter) { return std::islower(letter) != 0; });
}

// CLI11 has the choices of a value in the text of its type: "TEXT:{cpu,cuda}". Ours may have them
// as "none|auto|PATH", where capitals stand for something else.
void read_type(const std::string& type, OptionEntry& entry) {
  const std::size_t brace = type.find('{'), end = type.find('}');
  if (brace != std::string::npos && end != std::string::npos)
    entry.choices = split(type.substr(brace + 1, end - brace - 1), ',');
  for (const std::string& word : split(type.substr(0, type.find(':')), '|'))
    if (is_placeholder(word))
      entry.value = word;
    else
      entry.choices.push_back(word);
  if (entry.value.empty()) entry.value = "WORD";
  if (entry.value == "TEXT" && !entry.choices.empty()) entry.value = "WORD";
  if (entry.value == "INT" || entry.value == "UINT" || entry.value == "FLOAT")
    entry.value = "NUMBER";
}

OptionEntry describe_option(const CLI::Option& option) {
  OptionEntry entry{.help = option.get_description(),
                    .default_value = option.get_default_str(),
                    .is_required = option.get_required(),
                    .may_repeat = option.get_expected_max() > 1};
  for (const std::string& name : option.get_snames()) entry.names.push_back("-" + name);
  for (const std::string& name : option.get_lnames()) entry.names.push_back("--" + name);
  if (option.get_items_expected_max() > 0) read_type(option.get_type_name(), entry);
  // A place is called by its name, whatever its type.
  if (entry.names.empty()) entry.value = option.get_name(true);
  return entry;
}

void list_leaves(const VerbEntry& verb, const std::string& words, std::vector<VerbPath>& leaves) {
  for (const VerbEntry& child : verb.verbs) {
    const std::string path = words.empty() ? child.name : words + " " + child.name;
    if (child.verbs.empty()) leaves.push_back({path, &child});
    list_leaves(child, path, leaves);
  }
}

}  // namespace

VerbEntry describe_verbs(const CLI::App& app) {
  VerbEntry verb{.name = app.get_name(), .help = app.get_description(), .footer = app.get_footer()};
  for (const CLI::Option* option : app.get_options())
    (option->get_positional() ? verb.places : verb.options).push_back(describe_option(*option));
  for (const CLI::App* child : app.get_subcommands(nullptr))
    if (!child->get_group().empty()) verb.verbs.push_back(describe_verbs(*child));
  return verb;
}

std::vector<VerbPath> leaf_verbs(const VerbEntry& root) {
  std::vector<VerbPath> leaves;
  list_leaves(root, "", leaves);
  return leaves;
}

ValueKind kind_of(const OptionEntry& option) {
  const auto is_one_of = [&](std::initializer_list<std::string_view> words) {
    return std::find(words.begin(), words.end(), option.value) != words.end();
  };
  if (is_one_of({"CONFIG"})) return ValueKind::config;
  if (is_one_of({"KEY=VALUE"})) return ValueKind::assignment;
  if (is_one_of({"SPEC"})) return ValueKind::codec;
  if (is_one_of({"KIND|FILE"})) return ValueKind::schedule;
  if (is_one_of({"COMMAND"})) return ValueKind::command;
  if (is_one_of({"FOLDER", "RUN"})) return ValueKind::folder;
  if (is_one_of({"FILE", "PATH", "PREFIX", "INPUT", "MODEL", "ORIGINAL"})) return ValueKind::file;
  return ValueKind::other;
}

}  // namespace laconic
