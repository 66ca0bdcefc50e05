// study/lab_report_methods.hpp — what the parts of a lab report compare, as rows of tables.
//
// Outcomes and pages know a method by its name alone: under another name it is another method, and
// is measured anew. To add one, add a row; study/lab_report.cpp says in which parts it is run.
#pragma once

#include <map>
#include <string>
#include <vector>

#include "laconic/study/trial.hpp"

namespace laconic {

struct Method {
  std::string name;
  std::string preset;                      // what the configuration extends; may be empty
  std::map<std::string, std::string> set;  // as in a Trial
  bool is_brief = false;                   // also in the short report
  Program program = Program::laconic;
  std::map<std::string, std::string> loss = {};  // what else is set where losses are compared
};

std::vector<Method> bandwidth_methods();
std::vector<Method> end_to_end_methods();
std::vector<Method> optimus_methods();
std::vector<Method> replica_methods();
std::vector<Method> schedule_methods();
// Methods of Size::quality. "uncompressed" is what the others of its part are compared with.
std::vector<Method> quality_methods();
std::vector<Method> low_rank_methods();
// On two replicas, compared with "uncompressed, dp 2".
std::vector<Method> replicated_quality_methods();
std::vector<Method> replicated_low_rank_methods();

}  // namespace laconic
