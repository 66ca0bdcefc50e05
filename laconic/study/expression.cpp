#include "laconic/study/expression.hpp"

#include <fmt/format.h>

#include <cctype>
#include <charconv>
#include <cmath>
#include <limits>

namespace laconic {

namespace {

constexpr double kUnknown = std::numeric_limits<double>::quiet_NaN();

// Computes while it reads: products before sums, from the left. What is unknown is not a number,
// which passes through all operations.
class ExpressionReader {
 public:
  ExpressionReader(const std::string& text, const ValueOf& value_of)
      : text_(text), value_of_(value_of) {}

  double read() {
    const double value = sum();
    if (problem_.empty() && peek() != '\0') fail("an operator");
    return value;
  }
  const std::string& problem() const { return problem_; }

 private:
  char peek() {
    while (at_ < text_.size() && text_[at_] == ' ') ++at_;
    return at_ < text_.size() ? text_[at_] : '\0';
  }
  double fail(const char* wanted) {
    if (problem_.empty())
      problem_ = fmt::format("'{}': {} is missing after '{}'", text_, wanted, text_.substr(0, at_));
    at_ = text_.size();
    return kUnknown;
  }
  double sum() {
    double value = product();
    for (char sign = peek(); sign == '+' || sign == '-'; sign = peek()) {
      ++at_;
      const double other = product();
      value = sign == '+' ? value + other : value - other;
    }
    return value;
  }
  double product() {
    double value = factor();
    for (char sign = peek(); sign == '*' || sign == '/'; sign = peek()) {
      ++at_;
      const double other = factor();
      value = sign == '*' ? value * other : value / other;
    }
    return value;
  }
  double factor() {
    const char first = peek();
    if (first == '(') return bracket();
    if (std::isdigit(static_cast<unsigned char>(first))) return number();
    if (std::isalpha(static_cast<unsigned char>(first))) return name();
    return fail("a number, a name or a bracket");
  }
  double bracket() {
    ++at_;
    const double value = sum();
    if (peek() != ')') return fail("')'");
    ++at_;
    return value;
  }
  double number() {
    double value = 0;
    const auto [end, error] =
        std::from_chars(text_.data() + at_, text_.data() + text_.size(), value);
    if (error != std::errc()) return fail("a number that can be represented");
    at_ = static_cast<std::size_t>(end - text_.data());
    return value;
  }
  double name() {
    const std::size_t begin = at_;
    const auto belongs = [](char c) {
      return std::isalnum(static_cast<unsigned char>(c)) || c == '_' || c == '.';
    };
    while (at_ < text_.size() && belongs(text_[at_])) ++at_;
    return value_of_(text_.substr(begin, at_ - begin)).value_or(kUnknown);
  }

  const std::string& text_;
  const ValueOf& value_of_;
  std::size_t at_ = 0;
  std::string problem_;
};

}  // namespace

std::optional<double> evaluate(const std::string& text, const ValueOf& value_of) {
  const double value = ExpressionReader(text, value_of).read();
  return std::isfinite(value) ? std::optional(value) : std::nullopt;
}

std::string check_expression(const std::string& text) {
  const ValueOf any = [](const std::string&) { return 1.0; };
  ExpressionReader reader(text, any);
  reader.read();
  return reader.problem();
}

}  // namespace laconic
