// cli/study_places.hpp — what `laconic study` and `laconic lab report` have in common: where things
// are on this machine, how trials are run here, and what is said at the end.
#pragma once

#include <string>
#include <vector>

#include "laconic/study/run.hpp"
#include "laconic/study/study_file.hpp"
#include "laconic/study/work.hpp"

namespace laconic {

// As one would type it here: relative where it is below the current folder.
std::string as_typed(const std::string& path);

// The tree or the installation that presets_folder() belongs to; `file` must be in it. Throws
// ConfigError.
std::string source_folder(const std::string& file = "");

// Python is looked for where weights or a peer need it.
Places find_places(const std::string& out, const StudyFile& study,
                   const std::vector<Trial>& trials);

// Refuses where trials need a lab and there can be none.
void require_labs(const std::vector<Trial>& trials);

// Everything but what the caller decides: retry, jobs and whether runs are kept. Refers to `study`
// and `places`.
Study study_here(const StudyFile& study, const Places& places, const std::string& out,
                 const std::vector<Trial>& trials, double deadline_seconds);

// The exit code. `again` is the command that goes on.
int tell_end(const StudyEnd& end, std::size_t trials, const std::string& again);

}  // namespace laconic
