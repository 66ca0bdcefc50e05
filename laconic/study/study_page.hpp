// study/study_page.hpp — the pages and the figures of a study, from its file and its rows alone.
//
//   OUT/README.md        rules and their verdicts, tables, figures, what settings mean, failures
//   OUT/PAGE.md          rules, figures and tables that the file puts there
//   OUT/figures/NAME.*   data, gnuplot script, SVG, and PNG where there is gnuplot
//
// All but write_study() is pure: written twice from the same rows, pages are the same.
#pragma once

#include <string>
#include <vector>

#include "laconic/study/plot.hpp"
#include "laconic/study/study_row.hpp"

namespace laconic {

std::vector<Figure> study_figures(const StudyFile& study, const std::vector<StudyRow>& rows);

// Rows have derived measures (study/study_measure.hpp). `has_png`: by gnuplot; otherwise figures
// are SVG alone. `page` is one of the file's, or empty: README.md.
std::string study_page(const StudyFile& study, const std::vector<StudyTrial>& planned,
                       const std::vector<StudyRow>& rows, const std::string& command, bool has_png,
                       const std::string& page = "");

// Requires: rows as they are in lines. Throws SystemError.
void write_study(const std::string& folder, const StudyFile& study,
                 const std::vector<StudyTrial>& planned, const std::vector<StudyRow>& rows,
                 const std::string& command);

}  // namespace laconic
