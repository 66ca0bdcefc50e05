// lab/lab_plan.hpp — the commands that make, change and remove a lab, as plain data.
//
// Each is a list of words for ip or tc, run without a shell. A pair of
// interfaces is made with its ends already in their namespaces: the machine's
// own network never sees them, not even for a moment.
#pragma once

#include <string>
#include <vector>

#include "laconic/lab/lab_spec.hpp"

namespace laconic {

using Words = std::vector<std::string>;

struct LabStep {
  Words words;
  Words
      undo;  // what takes it back, with everything that came to stand on it; empty: nothing needed
  bool operator==(const LabStep&) const = default;
};

// Requires of all: check(spec) found nothing.
std::vector<LabStep> up_plan(const LabSpec& spec);
std::vector<LabStep> rate_plan(const LabSpec& spec);  // on a lab that is up
// For namespaces that were found, the bridge's first: a lab may be there in part.
std::vector<LabStep> down_plan(const std::vector<std::string>& namespaces);

// One line for each step, the words with blanks between them.
std::string to_text(const std::vector<LabStep>& plan);

}  // namespace laconic
