// What a study file must have besides its form, and how files are found.
#include "laconic/study/study_file.hpp"

#include <fmt/format.h>

#include <algorithm>
#include <cerrno>
#include <charconv>
#include <cstring>
#include <filesystem>
#include <fstream>
#include <sstream>

#include "laconic/base/error.hpp"
#include "laconic/base/text.hpp"
#include "laconic/config/toml_tree.hpp"

namespace laconic {

namespace {

using Names = std::vector<std::string>;

bool is_among(const Names& names, const std::string& name) {
  return std::find(names.begin(), names.end(), name) != names.end();
}

template <class T>
Names names_of(const std::vector<T>& all) {
  Names names;
  for (const T& one : all) names.push_back(one.name);
  return names;
}

// Names in a file that must be names of something in it.
class NameCheck {
 public:
  NameCheck(const StudyFile& study, const std::string& file) : study_(study), file_(file) {}

  void require(const std::string& where, const char* kind, const std::string& name,
               const Names& known) {
    if (!is_among(known, name))
      problems_.push_back({file_, fmt::format("{}: there is no {} '{}'{}", where, kind, name,
                                              suggestion(name, known))});
  }
  void require_choice(const std::string& where, const Choice& choice, const Names& axes) {
    for (const auto& [axis, settings] : choice) {
      require(where, "axis", axis, axes);
      if (const StudyAxis* known = find_axis(study_, axis))
        for (const std::string& setting : settings)
          require(where, "setting", setting, names_of(known->settings));
    }
  }
  void report(const std::string& where, const std::string& what) {
    problems_.push_back({file_, where + ": " + what});
  }
  Problems problems_;

 private:
  const StudyFile& study_;
  const std::string& file_;
};

void check_rows(const StudyFile& study, const StudyPart& part, const std::string& where,
                NameCheck& check) {
  for (const Names& row : part.list) {
    if (row.size() != part.axes.size())
      check.report(where, fmt::format("list has a row of {} settings for {} axes", row.size(),
                                      part.axes.size()));
    for (std::size_t i = 0; i < std::min(row.size(), part.axes.size()); ++i)
      check.require_choice(where, {{part.axes[i], {row[i]}}}, names_of(study.axes));
  }
}

void check_part(const StudyFile& study, const StudyPart& part, NameCheck& check) {
  const std::string where = fmt::format("part '{}'", part.name);
  for (const std::string& axis : part.axes)
    check.require(where, "axis", axis, names_of(study.axes));
  for (const auto* choices : {&part.only, &part.without})
    for (const Choice& choice : *choices) check.require_choice(where, choice, part.axes);
  for (const Amendment& amendment : part.amendments)
    check.require_choice(where, amendment.of, part.axes);
  check_rows(study, part, where, check);
  if (!part.model.empty()) check.require(where, "model", part.model, names_of(study.models));
}

}  // namespace

Problems check_study(const StudyFile& study, const std::string& file) {
  NameCheck check(study, file);
  const Names axes = names_of(study.axes), parts = names_of(study.parts),
              measures = names_of(study.measures);
  for (const StudyAxis& axis : study.axes) {
    if (std::count(axes.begin(), axes.end(), axis.name) > 1)
      check.report(fmt::format("axis '{}'", axis.name), "there are two of that name");
    for (const Setting& setting : axis.settings)
      if (!setting.model.empty())
        check.require(fmt::format("axis '{}', setting '{}'", axis.name, setting.name), "model",
                      setting.model, names_of(study.models));
  }
  if (study.parts.empty()) check.report("study", "there is no [[part]], and so no trial");
  for (const StudyPart& part : study.parts) check_part(study, part, check);
  for (const Rule& rule : study.rules) {
    const std::string where = fmt::format("rule '{}'", rule.name);
    check.require_choice(where, rule.of, axes);
    check.require_choice(where, rule.against, axes);
    check.require(where, "measure", rule.measure, measures);
    for (const std::string& part : rule.parts) check.require(where, "part", part, parts);
  }
  for (const TableSpec& table : study.tables) {
    const std::string where = fmt::format("table '{}'", table.title);
    check.require(where, "part", table.part, parts);
    check.require(where, "measure", table.measure, measures);
    for (const Names& by : {table.rows, table.columns})
      for (const std::string& axis : by) check.require(where, "axis", axis, axes);
  }
  for (const FigureSpec& figure : study.figures) {
    const std::string where = fmt::format("figure '{}'", figure.name);
    check.require(where, "part", figure.part, parts);
    check.require(where, "measure", figure.y, measures);
    check.require(where, "axis", figure.curves, axes);
    if (!is_among(axes, figure.x)) check.require(where, "measure or axis", figure.x, measures);
  }
  return check.problems_;
}

const Setting* find_setting(const StudyAxis& axis, const std::string& name) {
  const auto found = std::find_if(axis.settings.begin(), axis.settings.end(),
                                  [&](const Setting& setting) { return setting.name == name; });
  return found == axis.settings.end() ? nullptr : &*found;
}

const StudyModel* find_model(const std::vector<StudyModel>& models, const std::string& name) {
  const auto found = std::find_if(models.begin(), models.end(),
                                  [&](const StudyModel& model) { return model.name == name; });
  return found == models.end() ? nullptr : &*found;
}

const StudyAxis* find_axis(const StudyFile& study, const std::string& name) {
  const auto found = std::find_if(study.axes.begin(), study.axes.end(),
                                  [&](const StudyAxis& axis) { return axis.name == name; });
  return found == study.axes.end() ? nullptr : &*found;
}

std::optional<Relation> parse_relation(const std::string& text) {
  Names words = split(std::string(trim(text)), ' ');
  std::erase(words, "");
  Relation relation;
  const auto ends_with = [&](const Names& end) {
    return words.size() >= end.size() && std::equal(end.rbegin(), end.rend(), words.rbegin());
  };
  if (ends_with({"up", "to", "noise"})) {
    relation.has_noise = true;
    words.resize(words.size() - 3);
  }
  const auto read_margin = [&] {  // "0.5 %", or "0.01"
    if (words.empty()) return false;
    const std::string& word = words.front();
    const auto [end, error] =
        std::from_chars(word.data(), word.data() + word.size(), relation.margin);
    if (error != std::errc() || end != word.data() + word.size() || !(relation.margin >= 0))
      return false;
    words.erase(words.begin());
    if (!words.empty() && words.front() == "%") {
      relation.is_share = true;
      relation.margin /= 100;
      words.erase(words.begin());
    }
    return true;
  };
  if (words == Names{"above"} || words == Names{"below"} || words == Names{"not", "above"} ||
      words == Names{"not", "below"}) {
    relation.is_at_most = words.size() == 2;
  } else if (!words.empty() && words.front() == "within") {
    words.erase(words.begin());
    return read_margin() && words.empty() ? std::optional(relation) : std::nullopt;
  } else if (words.size() > 2 && words[0] == "at" && (words[1] == "most" || words[1] == "least")) {
    relation.is_at_most = words[1] == "most";
    words.erase(words.begin(), words.begin() + 2);
    if (!read_margin() || words.size() != 1) return std::nullopt;
  } else {
    return std::nullopt;
  }
  if (words.back() != "above" && words.back() != "below") return std::nullopt;
  relation.side = words.back() == "above" ? Relation::Side::above : Relation::Side::below;
  return relation;
}

namespace {

constexpr int kDeepestStudy = 8;

std::string text_of_study(const std::string& path) {
  errno = 0;
  std::ifstream file(path);
  file.peek();
  if (!file.is_open() || file.bad())
    throw ConfigError(Problems{{path, fmt::format("cannot be read: {}", std::strerror(errno))}});
  std::stringstream text;
  if (!file.eof()) text << file.rdbuf();
  return text.str();
}

void apply_study_file(const std::string& path, int depth, StudyFile& study) {
  if (depth > kDeepestStudy)
    throw ConfigError(fmt::format("{}: extends goes {} files deep: is it a circle?", path, depth));
  const std::string text = text_of_study(path);
  const TomlNode root = parse_toml_tree(text, path);
  if (const TomlNode* extends = root.find("extends"))
    apply_study_file((std::filesystem::path(path).parent_path() / extends->text).string(),
                     depth + 1, study);
  apply_study(text, path, study);
  if (root.find("config") != nullptr && !study.config.starts_with('$'))
    study.config = (std::filesystem::path(path).parent_path() / study.config).string();
  refuse(check_study(study, path));
}

}  // namespace

StudyFile read_study(const std::string& path) {
  StudyFile study;
  apply_study_file(path, 0, study);
  return study;
}

}  // namespace laconic
