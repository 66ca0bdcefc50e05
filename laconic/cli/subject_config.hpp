// cli/subject_config.hpp — a configuration that is asked about without being run.
#pragma once

#include "laconic/base/problem.hpp"
#include "laconic/config/run_config.hpp"

namespace laconic {

// Everything that keeps it from being run, but for data, which need not be there. Where the
// configuration does not say how many token ids there are its data may: then it does afterwards.
Problems check_subject(RunConfig& config);

}  // namespace laconic
