// study/study_group.hpp — rows of a study with the same settings, and tables and figures of them.
//
// Pure. Rows have derived measures (study/study_measure.hpp).
#pragma once

#include <string>
#include <vector>

#include "laconic/study/plot.hpp"
#include "laconic/study/study_row.hpp"

namespace laconic {

// As the file shows it; one that the file does not list is shown by its name.
MeasureSpec measure_of(const StudyFile& study, const std::string& name);

// Lines are settings of the table's rows, columns those of its columns, each with every measure.
// Lines in which nothing was measured are left out.
std::string table_text(const StudyFile& study, const std::vector<StudyRow>& rows,
                       const TableSpec& table);
// Every case of a part with every measure and the baseline.
TableSpec table_of_part(const StudyFile& study, const std::string& part);

Figure figure_of(const StudyFile& study, const std::vector<StudyRow>& rows, const FigureSpec& spec);

}  // namespace laconic
