// cli/summary_argument.hpp — --json, which many verbs have.
#pragma once

#include <CLI/CLI.hpp>
#include <string>

namespace laconic {

inline void add_summary(CLI::App& verb, std::string& json) {
  verb.add_option("--json", json, "also write a summary to FILE")->type_name("FILE");
}

}  // namespace laconic
