// study/expression.hpp — sums and ratios of measures, as a study file writes them.
//
//   "against.step_seconds / step_seconds"
//   "(first_epoch_seconds + 5 * step_seconds) / 6"
//
// Numbers, names, + - * / and brackets. A name that has no value makes the whole unknown, and so
// does what is not finite, such as a division by 0. Pure.
#pragma once

#include <functional>
#include <optional>
#include <string>

namespace laconic {

using ValueOf = std::function<std::optional<double>(const std::string& name)>;

// Requires: check_expression(text) is empty.
std::optional<double> evaluate(const std::string& text, const ValueOf& value_of);

// What is wrong with it, and where; empty: nothing.
std::string check_expression(const std::string& text);

}  // namespace laconic
