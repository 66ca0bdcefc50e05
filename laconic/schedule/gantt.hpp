// schedule/gantt.hpp — a timed schedule as a picture.
#pragma once

#include <string>
#include <vector>

#include "laconic/schedule/estimate.hpp"

namespace laconic {

struct GanttOptions {
  int columns = 100;      // the terminal's; names of ranks are in there
  bool messages = false;  // a line per wire as well
  bool colour = false;    // ANSI, by kind of action
};
// One line per rank (and wire, and rank whose sums take time): microbatch numbers in boxes as long
// as they last, dots where idle, a time axis below. A column shows what happens in the middle of
// its time, so that a box narrower than one may be missing. From a name that does not fit its box
// the stage goes first and then the microbatch. Requires: columns >= 40.
std::string gantt_text(const Schedule& schedule, const Timing& timing,
                       const GanttOptions& options = {});

// A complete SVG document: a lane per rank, messages as slanted lines between them, a time axis,
// a legend. Readable without colour: kinds differ in shade and letter.
std::string gantt_svg(const Schedule& schedule, const Timing& timing, const std::string& title);

// Round numbers from 0 to `end`, at most `most` of them: where an axis has its marks.
// Requires: end >= 0, most >= 2.
std::vector<double> axis_marks(double end, int most);

}  // namespace laconic
