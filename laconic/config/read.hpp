// config/read.hpp — TOML to RunConfig (read.cpp) and back (write.cpp).
//
// Reading is strict: an unknown key, a wrong type or a value outside its
// choices is a problem with file, line, column and the nearest known key. All
// problems of all files and overrides are reported together.
//
//   extends = "preset:NAME"   the file NAME.toml in the presets folder
//   extends = "other.toml"    relative to the file that says it
//
// What extends brings is read first, then the file itself, then --set.
#pragma once

#include <string>
#include <string_view>
#include <vector>

#include "laconic/base/problem.hpp"
#include "laconic/config/run_config.hpp"

namespace laconic {

struct ConfigSource {
  std::string path;  // of the TOML file, or "preset:NAME"; empty: defaults and overrides only
  std::vector<std::string> sets;  // "section.key=value", as given to --set
  std::string presets_folder;     // where "preset:NAME" is looked for
  bool is_checked = true;         // otherwise values are not checked against each other
};

// Reads, and checks. Throws ConfigError with every problem found.
RunConfig read_config(const ConfigSource& source);

// Reads one TOML text into `config`, without checking values against each other. `name` stands in
// messages. The pure core of read_config(); also what the fuzzer feeds.
Problems apply_toml(std::string_view text, const std::string& name, RunConfig& config);

// "section.key=value"; the value is TOML, or else, and where a text is wanted, a plain text.
Problems apply_set(const std::string& assignment, RunConfig& config);

// The resolved configuration as TOML that read_config() accepts, with each key's help as comment.
std::string to_toml(const RunConfig& config, bool with_help);

// Keys whose values differ, as "section.key: before -> after".
std::vector<std::string> differences(const RunConfig& before, const RunConfig& after);

}  // namespace laconic
