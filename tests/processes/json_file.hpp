// tests/processes/json_file.hpp — what a verb wrote with --json.
#pragma once

#include <nlohmann/json.hpp>
#include <string>

#include "tests/processes/process.hpp"

namespace laconic {

inline nlohmann::json json_of(const std::string& path) {
  return nlohmann::json::parse(read_text(path));
}

}  // namespace laconic
