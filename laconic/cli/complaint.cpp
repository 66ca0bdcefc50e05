#include "laconic/cli/complaint.hpp"

#include <fmt/format.h>

#include <CLI/CLI.hpp>
#include <algorithm>
#include <iostream>

#include "laconic/base/text.hpp"

namespace laconic {

namespace {

// "laconic config check"
std::string path_of(const CLI::App* verb) {
  const CLI::App* parent = verb->get_parent();
  return parent == nullptr ? verb->get_name() : path_of(parent) + " " + verb->get_name();
}

}  // namespace

ChosenVerb choose_verb(CLI::App& app, const std::vector<std::string>& words) {
  CLI::App* verb = &app;
  std::size_t used = 0;
  while (used < words.size() && verb->get_require_subcommand_min() > 0) {
    const std::vector<CLI::App*> known = verb->get_subcommands(nullptr);
    const auto next = std::find_if(known.begin(), known.end(), [&](const CLI::App* one) {
      return one->get_name() == words[used];
    });
    if (next == known.end()) break;
    verb = *next;
    ++used;
  }
  return {verb, {words.begin() + static_cast<std::ptrdiff_t>(used), words.end()}};
}

std::string help_of(const CLI::App* verb) {
  const CLI::App* parent = verb->get_parent();
  return verb->help(parent == nullptr ? "" : path_of(parent));
}

void complain(const ChosenVerb& chosen, const std::string& what) {
  const std::string path = path_of(chosen.verb);
  std::cerr << path << ": " << what << (what.ends_with('?') ? " (`" : "; `") << path
            << " --help` lists all options" << (what.ends_with('?') ? ")\n" : "\n");
}

std::string reason_of(const CLI::ParseError& error) {
  const std::string what = error.what();
  constexpr std::string_view kConversion = "Could not convert: ";
  const std::size_t equals = what.find(" = ");
  if (!what.starts_with(kConversion) || equals == std::string::npos) return what;
  return fmt::format("{}: '{}' is no number, or too large",
                     what.substr(kConversion.size(), equals - kConversion.size()),
                     what.substr(equals + 3));
}

bool complain_of_option(const ChosenVerb& chosen) {
  for (std::size_t i = 0; i < chosen.rest.size(); ++i) {
    const std::string& word = chosen.rest[i];
    if (word == "--") return false;
    if (word.size() < 2 || word[0] != '-' || word.find_first_of("0123456789.") == 1) continue;
    const std::string name = word.substr(0, word.find('='));
    if (const CLI::Option* option = chosen.verb->get_option_no_throw(name)) {
      if (option->get_items_expected_max() > 0 && name == word) ++i;  // its value
      continue;
    }
    std::vector<std::string> known;
    for (const CLI::Option* option : chosen.verb->get_options())
      for (const std::string& long_name : option->get_lnames()) known.push_back("--" + long_name);
    const std::string likely = nearest(name, known);
    const bool has_command = chosen.verb->get_option_no_throw("COMMAND") != nullptr;
    complain(chosen, fmt::format("no option '{}'{}{}", name,
                                 has_command ? "; put -- before COMMAND, if it is one of that" : "",
                                 likely.empty() ? "" : "; did you mean '" + likely + "'?"));
    return true;
  }
  return false;
}

bool complain_of_verb(const ChosenVerb& chosen) {
  if (chosen.verb->get_require_subcommand_min() == 0 || chosen.rest.empty() ||
      chosen.rest[0].starts_with('-'))
    return false;
  std::vector<std::string> known;
  for (const CLI::App* verb : chosen.verb->get_subcommands(nullptr))
    known.push_back(verb->get_name());
  const std::string likely = nearest(chosen.rest[0], known);
  std::cerr << "laconic: no verb '" << chosen.rest[0] << "'"
            << (likely.empty() ? "" : "; did you mean '" + likely + "'?")
            << " (there are: " << join(known, ", ") << ")\n";
  return true;
}

}  // namespace laconic
