// study/report.hpp — the lab report: pages, figures and commands of a folder, from outcomes.
//
//   FOLDER/README.md           what is where, machine, commit, command, failures
//   FOLDER/bandwidth.md ...    one page for each part
//   FOLDER/figures/NAME.*      data, gnuplot script, SVG and PNG
//   FOLDER/commands.txt        what makes the data, then every command of every trial
//   FOLDER/raw/                the outcomes as JSON: put there by whoever ran them, not by this
//   FOLDER/summary.md          the page people read
//   docs/results/README.md     the same; of a whole study of size "full" in a folder of that one,
//                              in which no trial has failed
//
// Only write_report() touches the disk and calls gnuplot; without gnuplot the pages say so, and
// scripts and data are there all the same. Written twice from the same outcomes, pages are the
// same.
#pragma once

#include <cstddef>
#include <string>
#include <vector>

#include "laconic/study/plot.hpp"
#include "laconic/study/report_markdown.hpp"
#include "laconic/study/study_file.hpp"
#include "laconic/study/trial.hpp"

namespace laconic {

struct ReportFacts {
  std::string date;     // "2026-11-15"
  std::string machine;  // one line
  std::string commit;
  std::string command;     // that made the report
  std::string size;        // "full", "short"
  std::size_t trials = 0;  // of a report of that size
  std::vector<StudyModel> models = {};
};

// Data, script and drawings of those that have data, in FOLDER/figures. Throws SystemError.
Drawn write_figures(const std::string& folder, const std::vector<Figure>& figures);

// Makes the folder if it is missing. Throws SystemError.
void write_report(const std::string& folder, const std::vector<Outcome>& outcomes,
                  const ReportFacts& facts);

}  // namespace laconic
