// metric/test_golden.hpp — for tests only: what other libraries computed (tests/golden/metric).
#pragma once

#include <cstdlib>
#include <fstream>
#include <nlohmann/json.hpp>
#include <string>

namespace laconic {

// Throws when the file is not there: tools/make_metric_golden.py makes it.
inline nlohmann::json metric_golden(const std::string& name) {
  const char* root = std::getenv("LACONIC_SOURCE");
  std::ifstream file(std::string(root ? root : ".") + "/tests/golden/metric/" + name);
  return nlohmann::json::parse(file);
}

}  // namespace laconic
