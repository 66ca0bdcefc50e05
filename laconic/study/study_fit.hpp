// study/study_fit.hpp — models of a measure that are fitted on half of the trials and tell the
// other half, and how far they are from it.
//
// A model is a sum of expressions of measures, each times a coefficient that is not below 0: a cost
// model, of seconds of computing, of encoding, and of bytes over what links carry. Differences are
// relative: a step of a tenth of a second counts as much as one of ten. Rounds of the same settings
// are in the same half, and which half that is depends on their names alone, so that neither an
// axis nor an order of trials is left out. Each half is told by what is fitted on the other one.
//
// What one could get wrong: coefficients are those of one machine and of these trials.
#pragma once

#include <string>
#include <vector>

#include "laconic/study/study_row.hpp"

namespace laconic {

struct FittedModel {
  std::string of;                    // the setting of `by`; empty: of all
  std::vector<double> coefficients;  // of the first half, by term; empty: too few settings
  std::size_t trials = 0;
  double mean_error = 0,
         most_error = 0;  // of all, by what the other half says: |told / measured - 1|
};

// Rows have those measures that are in terms; they get the measures NAME, what the model tells, and
// NAME.error. A model for each setting of `by`.
std::vector<FittedModel> fit(const StudyFile& study, const FitSpec& spec,
                             std::vector<StudyRow>& rows);

// Minimises the sum of (sum_j c_j terms[i][j] / measured[i] - 1)^2 over coefficients c that are not
// below 0. Requires: every row of `terms` has as many numbers; none of `measured` is 0.
std::vector<double> fitted_coefficients(const std::vector<std::vector<double>>& terms,
                                        const std::vector<double>& measured);

// A table of all models of a study, or nothing.
std::string fits_section(const StudyFile& study, const std::vector<StudyRow>& rows,
                         const std::string& page);

}  // namespace laconic
