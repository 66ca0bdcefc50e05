// run/run_folder.hpp — what the folder of a run holds, as far as names tell.
//
// No checkpoint is read here: whether one is good is for checkpoint/checkpoint.hpp to say. So the
// front can tell that a folder is taken before any rank is started.
#pragma once

#include <cstdint>
#include <optional>
#include <string>
#include <vector>

#include "laconic/base/problem.hpp"

namespace laconic {

inline constexpr const char* kResumeNone = "none";
inline constexpr const char* kResumeAuto = "auto";
inline constexpr const char* kResumeBest = "best";  // also the name of the link to it

std::string checkpoints_of(const std::string& run_folder);  // where its step-NNN folders are

std::string step_folder_name(std::int64_t step);  // "step-00000100"
// The step of a folder that is called so; nothing for any other name.
std::optional<std::int64_t> step_of_folder(const std::string& path);
// Paths of the step folders in `folder`, newest first, good or damaged.
std::vector<std::string> step_folders(const std::string& folder);

// Where the checkpoints are that `--resume PATH` means, if PATH is a run folder, or a folder of
// checkpoints; nothing when it is neither.
std::optional<std::string> checkpoints_meant(const std::string& path);

// What is wrong with --resume and --overwrite themselves.
Problems check_resume(const std::string& resume, bool overwrite);

// Checkpoints of `run_folder` that a start would have to throw away, newest first: all of them, or
// those after the one that `resume` names, if it is one of them.
std::vector<std::string> checkpoints_in_the_way(const std::string& run_folder,
                                                const std::string& resume);
// The refusal where there are some and nobody said --overwrite.
Problems check_vacant(const std::string& run_folder, const std::string& resume, bool overwrite);

}  // namespace laconic
