// schedule/gantt.hpp — a timed schedule as a picture.
#pragma once

#include <string>

#include "laconic/schedule/estimate.hpp"

namespace laconic {

struct GanttOptions {
  int columns = 100;      // of the terminal, names of ranks included
  bool messages = false;  // a line per wire as well
  bool colour = false;    // ANSI, by kind of action
};
// One line per rank (and wire): microbatch numbers in boxes as long as they last, dots where idle.
std::string gantt_text(const Schedule& schedule, const Timing& timing,
                       const GanttOptions& options = {});

// A complete SVG document: a lane per rank, messages as slanted lines between them, a time axis,
// a legend. Readable without colour: kinds differ in shade and letter.
std::string gantt_svg(const Schedule& schedule, const Timing& timing, const std::string& title);

}  // namespace laconic
