// cli/number_check.hpp — checks of options that are numbers, for CLI::Option::check().
//
// CLI11's own let NaN through, and name limits with 309 digits. What is no number at all converts
// to 0 here, and is refused by whoever converts it.
#pragma once

#include <cmath>
#include <cstdlib>
#include <string>

namespace laconic {

// Each returns what is wrong with `text`; empty: nothing.

inline std::string refuse_nan(const std::string& text) {
  return std::isnan(std::strtod(text.c_str(), nullptr)) ? text + " is not a number" : "";
}

inline std::string refuse_negative(const std::string& text) {
  const double number = std::strtod(text.c_str(), nullptr);
  if (number < 0) return text + " is below 0";
  return std::isinf(number) ? text + " is too large" : refuse_nan(text);
}

inline std::string refuse_below_one(const std::string& text) {
  return std::strtod(text.c_str(), nullptr) < 1 ? text + " is below 1" : refuse_negative(text);
}

inline std::string refuse_not_positive(const std::string& text) {
  const double number = std::strtod(text.c_str(), nullptr);
  return number > 0 ? refuse_negative(text) : text + " is not above 0";
}

}  // namespace laconic
