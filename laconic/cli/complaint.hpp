// cli/complaint.hpp — says why the words of a command line make no sense, in better words than
// CLI11's. Used by cli/arguments.cpp only.
#pragma once

#include <string>
#include <vector>

namespace CLI {
class App;
class ParseError;
}  // namespace CLI

namespace laconic {

// The verb that words begin with, as far as they are verbs, and what comes behind.
struct ChosenVerb {
  CLI::App* verb = nullptr;
  std::vector<std::string> rest;
};
ChosenVerb choose_verb(CLI::App& app, const std::vector<std::string>& words);

std::string help_of(const CLI::App* verb);  // as --help prints it

// Prints "VERB: WHAT", and where all options are listed.
void complain(const ChosenVerb& chosen, const std::string& what);
// What CLI11 found wrong; in words of ours where its own are about its doings.
std::string reason_of(const CLI::ParseError& error);

// Prints nothing and returns false unless the reason is an option that does not exist: CLI11 tells
// first what is missing.
bool complain_of_option(const ChosenVerb& chosen);
// The same for a verb that does not exist: CLI11 would only say that one is required.
bool complain_of_verb(const ChosenVerb& chosen);

}  // namespace laconic
