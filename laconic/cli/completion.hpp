// cli/completion.hpp — scripts by which shells complete the words of laconic. Pure text.
#pragma once

#include <map>
#include <string>
#include <vector>

#include "laconic/cli/verb_tree.hpp"

namespace laconic {

// Words that no option table has, because they come from elsewhere.
struct CompletionWords {
  std::vector<std::string> presets;                      // names, without "preset:"
  std::vector<std::string> codecs;                       // names
  std::vector<std::string> schedules;                    // kinds
  std::map<std::string, std::vector<std::string>> keys;  // of --set, with their values if known
};

std::string completion_for_bash(const VerbEntry& root, const CompletionWords& words);
std::string completion_for_zsh(const VerbEntry& root, const CompletionWords& words);
std::string completion_for_fish(const VerbEntry& root, const CompletionWords& words);

// What this program knows: keys of RunConfig, codecs, schedules, the presets in that folder.
CompletionWords known_words(const std::string& presets_folder);

}  // namespace laconic
