// study/study_trials.hpp — the trials of a study file, in the order in which they run.
//
// By part, round, and its axes in their order: rounds of a part lie as far apart as possible, since
// a machine is not alike at all times. A trial is known by its part, its rate, its method (the
// settings of all axes that choose no rate) and its round. All of it is pure.
#pragma once

#include <string>
#include <vector>

#include "laconic/base/problem.hpp"
#include "laconic/study/study_file.hpp"
#include "laconic/study/work.hpp"

namespace laconic {

struct StudyTrial {
  Trial trial;
  std::map<std::string, std::string> settings;  // by axis of its part
  std::int64_t seed = 0;                        // 0: its part has none
};

// Whether settings, by axis, are among those of a choice.
bool fits(const Choice& choice, const std::map<std::string, std::string>& settings);

// Throws ConfigError where two trials would have one name, or a part has none at all.
std::vector<StudyTrial> expand(const StudyFile& study);
std::vector<Trial> trials_of(const std::vector<StudyTrial>& planned);

// How many there are if rounds of one setting are counted once.
std::size_t count_settings(const std::vector<StudyTrial>& planned);

// What the checker says of each trial's configuration, as the command line would have it. A problem
// that several trials share is told once.
Problems check_trials(const StudyFile& study, const std::vector<Trial>& trials,
                      const Places& places, const std::string& presets_folder);

// The names of all parts.
std::vector<std::string> parts_of(const std::vector<Trial>& trials);

// Some of them, by words: "axis=setting,setting", "part=name", "rate=100mbit" (of links, whichever
// axis has it), or some letters of a trial's name or method. A trial is kept that all of them fit.
// Throws ConfigError that names the nearest for what is none, and when nothing is left.
std::vector<StudyTrial> chosen(const StudyFile& study, const std::vector<StudyTrial>& planned,
                               const std::vector<std::string>& words);

// One line for each trial and a total, with how long they may take, for --list.
std::string to_text(const std::vector<Trial>& trials, const std::vector<StudyModel>& models);

}  // namespace laconic
