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

namespace {

void check_axes(const StudyFile& study, NameCheck& check) {
  const Names axes = names_of(study.axes);
  for (const StudyAxis& axis : study.axes) {
    if (std::count(axes.begin(), axes.end(), axis.name) > 1)
      check.report(fmt::format("axis '{}'", axis.name), "there are two of that name");
    for (const Setting& setting : axis.settings)
      if (!setting.model.empty())
        check.require(fmt::format("axis '{}', setting '{}'", axis.name, setting.name), "model",
                      setting.model, names_of(study.models));
  }
}

// Rules, tables and figures may name parts of a file that this one extends.
void check_pages(const StudyFile& study, NameCheck& check) {
  const Names axes = names_of(study.axes), measures = names_of(study.measures);
  Names pages = names_of(study.pages);
  pages.emplace_back();
  for (const MeasureSpec& measure : study.measures)
    for (const Choice& choice : measure.against)
      check.require_choice(fmt::format("measure '{}'", measure.name), choice, axes);
  for (const Rule& rule : study.rules) {
    const std::string where = fmt::format("rule '{}'", rule.name);
    for (const Choice& choice : {rule.of, rule.against, rule.where})
      check.require_choice(where, choice, axes);
    check.require(where, "measure", rule.measure, measures);
    for (const std::string& part : rule.parts)
      check.require(where, "part", part, study.known_parts);
    check.require(where, "page", rule.page, pages);
  }
  for (const TableSpec& table : study.tables) {
    const std::string where = fmt::format("table '{}'", table.title);
    check.require(where, "part", table.part, study.known_parts);
    check.require(where, "page", table.page, pages);
    check.require_choice(where, table.only, axes);
    for (const std::string& name : table.measures) check.require(where, "measure", name, measures);
    for (const Names& by : {table.rows, table.columns})
      for (const std::string& axis : by) check.require(where, "axis", axis, axes);
  }
  for (const FitSpec& fit : study.fits) {
    const std::string where = fmt::format("fit '{}'", fit.name);
    check.require(where, "measure", fit.measure, measures);
    for (const std::string& part : fit.parts) check.require(where, "part", part, study.known_parts);
    check.require(where, "page", fit.page, pages);
    check.require_choice(where, fit.only, axes);
    if (!fit.by.empty()) check.require(where, "axis", fit.by, axes);
  }
  for (const FigureSpec& figure : study.figures) {
    const std::string where = fmt::format("figure '{}'", figure.name);
    check.require(where, "part", figure.part, study.known_parts);
    check.require(where, "page", figure.page, pages);
    check.require_choice(where, figure.only, axes);
    for (const std::string& name : figure.y) check.require(where, "measure", name, measures);
    if (!figure.curves.empty()) check.require(where, "axis", figure.curves, axes);
    if (figure.kind == FigureKind::heat) check.require(where, "axis", figure.x, axes);
    if (!is_among(axes, figure.x)) check.require(where, "measure or axis", figure.x, measures);
  }
}

}  // namespace

Problems check_study(const StudyFile& study, const std::string& file) {
  NameCheck check(study, file);
  check_axes(study, check);
  if (study.parts.empty()) check.report("study", "there is no [[part]], and so no trial");
  for (const StudyPart& part : study.parts) check_part(study, part, check);
  check_pages(study, check);
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

namespace {

bool is_plain_relation(const Names& words) {
  return words == Names{"above"} || words == Names{"below"} || words == Names{"not", "above"} ||
         words == Names{"not", "below"};
}

// "at least 3 times" is at least 200 % above, "at most 0.8 times" at least 20 % below.
std::optional<Relation> times_as(Relation relation) {
  if (relation.is_share) return std::nullopt;
  const bool is_above = relation.margin >= 1;
  relation.side = is_above ? Relation::Side::above : Relation::Side::below;
  relation.margin = is_above ? relation.margin - 1 : 1 - relation.margin;
  if (!is_above) relation.is_at_most = !relation.is_at_most;
  relation.is_share = true;
  return relation;
}

}  // namespace

std::optional<Relation> parse_relation(const std::string& text, bool is_to_number) {
  Names words = split(std::string(trim(text)), ' ');
  std::erase(words, "");
  Relation relation{.is_to_number = is_to_number};
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
      relation.is_share = !is_to_number;
      relation.margin /= 100;
      words.erase(words.begin());
    }
    return true;
  };
  if (!is_to_number && is_plain_relation(words)) {
    relation.is_at_most = words.size() == 2;
  } else if (!words.empty() && words.front() == "within") {
    words.erase(words.begin());
    return read_margin() && words.empty() ? std::optional(relation) : std::nullopt;
  } else if (words.size() > 2 && words[0] == "at" && (words[1] == "most" || words[1] == "least")) {
    relation.is_at_most = words[1] == "most";
    words.erase(words.begin(), words.begin() + 2);
    if (!read_margin() || words.size() != (is_to_number ? 0 : 1)) return std::nullopt;
  } else {
    return std::nullopt;
  }
  if (is_to_number) words = {"above"};  // or not: is_at_most says it
  if (words.back() == "times") return times_as(relation);
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
