#include "laconic/config/read.hpp"

#include <fmt/format.h>

#include <algorithm>
#include <cerrno>
#include <cmath>
#include <cstring>
#include <filesystem>
#include <fstream>
#include <limits>
#include <sstream>

// toml++ 3.3 asserts, and so ends the process, on some malformed dates ("1979-05-27Tp7"), although
// it reports them well without.
#ifndef TOML_ASSERT
#define TOML_ASSERT(condition) static_assert(true)
#endif
#include <toml++/toml.h>

#include "laconic/base/error.hpp"
#include "laconic/base/text.hpp"
#include "laconic/config/quoted_toml.hpp"
#include "laconic/config/toml_tree.hpp"

namespace laconic {

namespace {

constexpr int kDeepestExtends = 16;

std::string position(const std::string& name, const toml::source_region& source) {
  return fmt::format("{}:{}:{}", name, source.begin.line, source.begin.column);
}

std::string type_name(const toml::node& node) {
  if (const auto text = node.value_exact<std::string>())
    return fmt::format("the text '{}'", printable(*text));
  if (const auto number = node.value_exact<double>()) return fmt::format("{}", *number);
  std::ostringstream text;
  text << node.type();
  return text.str();
}

std::string with_suggestion(const std::string& what, const std::string& word,
                            const std::vector<std::string>& known) {
  return what + suggestion(word, known);
}

// Keys that have another name by now. Files that people still have, and the configurations that
// older runs keep, are read as if they said the name of now.
struct RenamedKey {
  std::string_view section, before, now;
};
constexpr RenamedKey kRenamedKeys[] = {{"run", "dtype", "precision"}};

// Keys that sections like these have and these cannot have: why not is what people want to know.
struct ImpossibleKey {
  std::string_view section, key, why;
};
constexpr std::string_view kOtherSamples =
    "the next message is about other samples, and what one lost is no part of it: use a codec that "
    "loses less; of weights' gradients tp.weight.feedback remembers it";
constexpr std::string_view kNoReferences =
    "messages within a layer remember nothing: [pp.activation] and [pp.gradient] do, between "
    "stages";
constexpr ImpossibleKey kImpossibleKeys[] = {{"tp.activation", "feedback", kOtherSamples},
                                             {"tp.gradient", "feedback", kOtherSamples},
                                             {"tp.activation", "memory", kNoReferences},
                                             {"tp.gradient", "memory", kNoReferences}};

// Reads the keys of one table into one section: called by Section::visit() with every key there is.
class SectionReader {
 public:
  SectionReader(const toml::table& table, std::string section, const std::string& name,
                Problems& problems)
      : table_(table), section_(std::move(section)), name_(name), problems_(problems) {}

  template <class T>
  void operator()(const char* key, T& value, const char*) {
    if (const toml::node* node = find(key)) read(*node, key, value);
  }
  template <class E, std::size_t kSize>
  void operator()(const char* key, E& value, const char*,
                  const std::array<Named<E>, kSize>& names) {
    const toml::node* node = find(key);
    std::string word;
    if (node == nullptr || !read(*node, key, word)) return;
    if (const std::optional<E> found = value_in(names, word))
      value = *found;
    else
      report_unknown_name(*node, key, word, names_in(names));
  }
  void operator()(const char* key, std::string& value, const char*, AlsoAsList) {
    const toml::node* node = find(key);
    if (node == nullptr) return;
    const toml::array* list = node->as_array();
    if (list != nullptr)
      read_list(*list, key, value);
    else if (const auto number = node->value_exact<std::int64_t>())
      value = std::to_string(*number);
    else
      read(*node, key, value);
  }

  void report_unknown_keys() {
    for (const auto& [key, node] : table_) {
      const std::string word(key.str());
      if (std::find(known_.begin(), known_.end(), word) != known_.end() || is_old_name(word))
        continue;
      problems_.push_back({position(name_, key.source()), unknown_key(word)});
    }
  }

 private:
  std::string unknown_key(const std::string& word) const {
    for (const ImpossibleKey& row : kImpossibleKeys)
      if (row.section == section_ && row.key == word)
        return fmt::format("there is no {}.{}: {}", section_, word, row.why);
    return with_suggestion(fmt::format("unknown key '{}' in [{}]", word, section_), word, known_);
  }

  // What the file says of a key, by its name or by an older one; null when nothing.
  const toml::node* find(const char* key) {
    known_.emplace_back(key);
    const toml::node* node = table_.get(key);
    for (const RenamedKey& row : kRenamedKeys) {
      if (row.section != section_ || row.now != key) continue;
      const toml::node* old = table_.get(row.before);
      if (node != nullptr && old != nullptr)
        problems_.push_back({position(name_, old->source()),
                             fmt::format("{0}.{1} is called {0}.{2} now, and both are given",
                                         section_, row.before, row.now)});
      if (node == nullptr) node = old;
    }
    return node;
  }
  bool is_old_name(const std::string& word) const {
    return std::ranges::any_of(kRenamedKeys, [&](const RenamedKey& row) {
      return row.section == section_ && row.before == word;
    });
  }

  bool read(const toml::node& node, const char* key, std::int64_t& value) {
    return assign(node.value_exact<std::int64_t>(), node, key, "an integer", value);
  }
  bool read(const toml::node& node, const char* key, double& value) {
    const auto whole = node.value_exact<std::int64_t>();
    const auto number =
        whole ? std::optional<double>(static_cast<double>(*whole)) : node.value_exact<double>();
    return assign(number, node, key, "a number", value);
  }
  bool read(const toml::node& node, const char* key, StepsOrShare& value) {
    std::optional<StepsOrShare> found;
    if (const auto whole = node.value_exact<std::int64_t>()) found = *whole;
    if (const auto share = node.value_exact<double>(); share && *share < 1) found = *share;
    return assign(found, node, key, "a whole number of steps, or a share of them below 1", value);
  }
  bool read(const toml::node& node, const char* key, Device& value) {
    std::string word;
    if (!read(node, key, word)) return false;
    const std::optional<Device> found = parse_device(word);
    if (found)
      value = *found;
    else
      report_unknown_name(node, key, word, device_words());
    return found.has_value();
  }
  bool read(const toml::node& node, const char* key, bool& value) {
    return assign(node.value_exact<bool>(), node, key, "true or false", value);
  }
  bool read(const toml::node& node, const char* key, std::string& value) {
    return assign(node.value_exact<std::string>(), node, key, "a text in quotes", value);
  }

  bool read_list(const toml::array& list, const char* key, std::string& value) {
    std::vector<std::string> numbers;
    for (const toml::node& node : list) {
      std::int64_t number = 0;
      if (!assign(node.value_exact<std::int64_t>(), node, key, "a list of integers", number))
        return false;
      numbers.push_back(std::to_string(number));
    }
    value = join(numbers, ",");
    return true;
  }

  template <class T>
  bool assign(const std::optional<T>& found, const toml::node& node, const char* key,
              const char* wanted, T& value) {
    if (found) {
      value = *found;
    } else {
      problems_.push_back(
          {position(name_, node.source()),
           fmt::format("{}.{} must be {}, not {}", section_, key, wanted, type_name(node))});
    }
    return found.has_value();
  }

  void report_unknown_name(const toml::node& node, const char* key, const std::string& word,
                           const std::vector<std::string>& known) {
    problems_.push_back(
        {position(name_, node.source()),
         with_suggestion(fmt::format("{}.{} cannot be '{}'", section_, key, word), word, known)});
  }

  const toml::table& table_;
  std::string section_;
  const std::string& name_;
  Problems& problems_;
  std::vector<std::string> known_;
};

// Walks the sections: called by RunConfig::visit().
class FileReader {
 public:
  FileReader(const toml::table& root, const std::string& name) : root_(root), name_(name) {}

  template <class Section>
  void operator()(const char* key, Section& section) {
    known_.emplace_back(key);
    const toml::table* table = table_at(key);
    if (table == nullptr) return;
    SectionReader reader(*table, key, name_, problems_);
    section.visit(reader);
    reader.report_unknown_keys();
  }

  Problems finish() {
    report_unknown_sections(root_, "");
    return std::move(problems_);
  }

 private:
  // The table of a section, whose name may have dots; null when it is not there or is none.
  const toml::table* table_at(const std::string& section) {
    const toml::table* table = &root_;
    for (const std::string& word : split(section, '.')) {
      const toml::node* node = table->get(word);
      if (node == nullptr) return nullptr;
      table = node->as_table();
      if (table == nullptr) {
        problems_.push_back({position(name_, node->source()),
                             fmt::format("'{}' is a section: write [{}]", word, section)});
        return nullptr;
      }
    }
    return table;
  }

  bool is_known(const std::string& section) const {
    return std::find(known_.begin(), known_.end(), section) != known_.end();
  }
  bool is_prefix(const std::string& section) const {
    return std::any_of(known_.begin(), known_.end(),
                       [&](const std::string& known) { return known.starts_with(section + "."); });
  }

  void report_unknown_sections(const toml::table& table, const std::string& prefix) {
    for (const auto& [key, node] : table) {
      const std::string word = prefix + std::string(key.str());
      if (word == "extends" || is_known(word)) continue;
      if (is_prefix(word)) {
        if (node.is_table()) report_unknown_sections(*node.as_table(), word + ".");
        continue;
      }
      problems_.push_back(
          {position(name_, key.source()),
           with_suggestion(fmt::format("unknown section '{}'", word), word, known_)});
    }
  }

  const toml::table& root_;
  const std::string& name_;
  std::vector<std::string> known_;
  Problems problems_;
};

Problems apply_table(const toml::table& root, const std::string& name, RunConfig& config) {
  FileReader reader(root, name);
  config.visit(reader);
  return reader.finish();
}

Problem syntax_problem(const toml::parse_error& error, const std::string& name) {
  return {position(name, error.source()), std::string(error.description())};
}

std::string resolve_extends(const std::string& what, const std::string& from,
                            const ConfigSource& source) {
  constexpr std::string_view kPreset = "preset:";
  if (what.starts_with(kPreset))
    return source.presets_folder + "/" + what.substr(kPreset.size()) + ".toml";
  return (std::filesystem::path(from).parent_path() / what).string();
}

// What a file lacked; a file that is not there or is no TOML says nothing about values.
struct Reading {
  Problems problems;
  bool is_whole = true;
};

Reading unreadable(const std::string& path, int error_number, const ConfigSource& source) {
  std::vector<std::string> presets;
  std::error_code ignored;
  if (std::filesystem::path(path).parent_path() == source.presets_folder)
    for (const auto& entry : std::filesystem::directory_iterator(source.presets_folder, ignored))
      if (entry.path().extension() == ".toml") presets.push_back(entry.path().stem().string());
  std::sort(presets.begin(), presets.end());
  const std::string known = presets.empty() ? "" : " (presets: " + join(presets, ", ") + ")";
  return {{{path, fmt::format("cannot be read: {}{}", std::strerror(error_number), known)}}, false};
}

Reading apply_file(const std::string& path, const ConfigSource& source, int depth,
                   RunConfig& config) {
  if (depth > kDeepestExtends)
    return {{{path, fmt::format("extends goes {} files deep: is it a circle?", depth)}}, false};
  errno = 0;
  std::ifstream file(path);
  file.peek();  // a folder can be opened, not read; an empty file is fine
  if (!file.is_open() || file.bad()) return unreadable(path, errno, source);
  std::stringstream text;
  if (!file.eof()) text << file.rdbuf();
  Reading reading;
  try {
    const toml::table root = toml::parse(text.str(), path);
    if (const toml::node* extends = root.get("extends")) {
      if (const auto what = extends->value_exact<std::string>())
        reading = apply_file(resolve_extends(*what, path, source), source, depth + 1, config);
      else
        reading.problems.push_back(
            {position(path, extends->source()), "extends must be a text in quotes"});
    }
    append(reading.problems, apply_table(root, path, config));
  } catch (const toml::parse_error& error) {
    reading.problems.push_back(syntax_problem(error, path));
    reading.is_whole = false;
  }
  return reading;
}

}  // namespace

std::string quoted_toml(const std::string& text) {
  std::ostringstream quoted;
  quoted << toml::toml_formatter{toml::value<std::string>{text}, toml::format_flags::none};
  return quoted.str();
}

Problems apply_toml(std::string_view text, const std::string& name, RunConfig& config) {
  try {
    return apply_table(toml::parse(text, name), name, config);
  } catch (const toml::parse_error& error) {
    return {syntax_problem(error, name)};
  }
}

namespace {

bool is_whole_number(std::string_view text) {
  if (text.starts_with('-') || text.starts_with('+')) text.remove_prefix(1);
  return !text.empty() && text.find_first_not_of("0123456789_") == std::string_view::npos;
}

}  // namespace

Problems apply_set(const std::string& assignment, RunConfig& config) {
  const std::string name = "--set " + assignment;
  const std::size_t equals = assignment.find('=');
  const std::string key(trim(std::string_view(assignment).substr(0, equals)));
  const std::size_t dot = key.rfind('.');  // names of sections may have dots, keys have none
  const std::vector<std::string> path = split(key, '.');
  if (equals == std::string::npos || path.size() < 2 ||
      std::any_of(path.begin(), path.end(), [](const std::string& word) { return word.empty(); }))
    return {{name, "write section.key=value"}};
  const std::string value(trim(std::string_view(assignment).substr(equals + 1)));
  toml::table text{{path.back(), value}};
  for (auto word = path.rbegin() + 1; word != path.rend(); ++word)
    text = toml::table{{*word, std::move(text)}};
  Problems problems;
  try {
    problems = apply_table(
        toml::parse(fmt::format("[{}]\n{} = {}", key.substr(0, dot), path.back(), value), name),
        name, config);
    // A number where a text is wanted: dp.gradient.stages=0.75.
    if (!problems.empty() && apply_table(text, name, config).empty()) return {};
  } catch (const toml::parse_error&) {  // not TOML: an unquoted text such as float64 or data/wiki
    problems = apply_table(text, name, config);
    if (!problems.empty() && is_whole_number(value))
      problems = {{name, fmt::format("{} is beyond the whole numbers that can be had, which end at "
                                     "{}",
                                     value, std::numeric_limits<std::int64_t>::max())}};
  }
  return all_at(name, std::move(problems));  // lines of our own rewriting help nobody
}

RunConfig read_config(const ConfigSource& source) {
  RunConfig config;
  Reading reading;
  if (!source.path.empty())
    reading = apply_file(resolve_extends(source.path, "", source), source, 0, config);
  for (const std::string& set : source.sets) append(reading.problems, apply_set(set, config));
  if (reading.is_whole && source.is_checked) append(reading.problems, check(config));
  refuse(reading.problems);
  return config;
}

}  // namespace laconic
