#include <fmt/format.h>

#include <map>

#include "laconic/base/text.hpp"
#include "laconic/config/quoted_toml.hpp"
#include "laconic/config/read.hpp"

namespace laconic {

namespace {

// Prints one section; called by Section::visit().
struct SectionWriter {
  bool with_help;
  std::string text;

  template <class T>
  void operator()(const char* key, T& value, const char* help) {
    add_line(key, literal(value), help);
  }
  template <class E, std::size_t kSize>
  void operator()(const char* key, E& value, const char* help,
                  const std::array<Named<E>, kSize>& names) {
    add_line(key, literal(value, names), fmt::format("{}: {}", help, join(names_in(names), " | ")));
  }
  void operator()(const char* key, std::string& value, const char* help, AlsoAsList) {
    (*this)(key, value, help);
  }

  void add_line(const char* key, const std::string& value, const std::string& help) {
    const std::string line = fmt::format("{} = {}", key, value);
    text += (with_help ? fmt::format("{:<28} # {}", line, help) : line) + "\n";
  }

  static std::string literal(std::int64_t value) { return fmt::format("{}", value); }
  static std::string literal(bool value) { return value ? "true" : "false"; }
  static std::string literal(double value) {
    std::string digits = fmt::format("{}", value);
    const bool is_real = digits.find_first_of(".enia") != std::string::npos;  // also inf, nan
    return is_real ? digits : digits + ".0";
  }
  static std::string literal(const StepsOrShare& value) {
    return value.share == 0 ? literal(value.steps) : literal(value.share);
  }
  static std::string literal(const Device& value) { return literal(to_text(value)); }
  static std::string literal(const std::string& value) { return quoted_toml(value); }
  template <class E, std::size_t kSize>
  static std::string literal(E value, const std::array<Named<E>, kSize>& names) {
    return literal(std::string(name_in(names, value)));
  }
};

struct FileWriter {
  bool with_help;
  std::string text;

  template <class Section>
  void operator()(const char* key, Section& section) {
    SectionWriter writer{with_help, {}};
    section.visit(writer);
    text += fmt::format("{}[{}]\n{}", text.empty() ? "" : "\n", key, writer.text);
  }
};

// Every key as "section.key" with its value as TOML; walks sections and keys alike.
struct Flattener {
  std::map<std::string, std::string> values;
  std::string section;

  template <class Section>
  void operator()(const char* key, Section& value) {
    section = key;
    value.visit(*this);
  }
  template <class T>
  void operator()(const char* key, T& value, const char*) {
    values[section + "." + key] = SectionWriter::literal(value);
  }
  template <class E, std::size_t kSize>
  void operator()(const char* key, E& value, const char*,
                  const std::array<Named<E>, kSize>& names) {
    values[section + "." + key] = SectionWriter::literal(value, names);
  }
  void operator()(const char* key, std::string& value, const char* help, AlsoAsList) {
    (*this)(key, value, help);
  }
};

}  // namespace

std::vector<std::string> differences(const RunConfig& before, const RunConfig& after) {
  RunConfig a = before, b = after;
  Flattener old, now;
  a.visit(old);
  b.visit(now);
  std::vector<std::string> lines;
  for (const auto& [key, value] : now.values)
    if (old.values.at(key) != value)
      lines.push_back(fmt::format("{}: {} -> {}", key, old.values.at(key), value));
  return lines;
}

std::string to_toml(const RunConfig& config, bool with_help) {
  RunConfig copy = config;  // visit() is written once, for reading, hence not const
  FileWriter writer{with_help, {}};
  copy.visit(writer);
  return writer.text;
}

}  // namespace laconic
