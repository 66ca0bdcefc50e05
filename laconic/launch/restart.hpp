// launch/restart.hpp — with which words a run that failed is started again.
#pragma once

#include <map>
#include <string>
#include <vector>

namespace laconic {

// The same words, but to go on from the newest good checkpoint: --resume auto instead of any
// --resume and --overwrite. Right only when this run has saved one: --resume auto would take that
// of an older run which --overwrite was to throw away.
std::vector<std::string> words_to_resume(const std::vector<std::string>& words);

// The checkpoints of a run folder, each with something that differs when it is written anew.
// Unfinished ones do not count. Empty when there is no such folder.
using SavedCheckpoints = std::map<std::string, std::string>;
SavedCheckpoints saved_checkpoints(const std::string& folder);

// Whether `now` has one that was not there `before`.
bool has_new(const SavedCheckpoints& before, const SavedCheckpoints& now);

}  // namespace laconic
