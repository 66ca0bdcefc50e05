// TOML to StudyFile: every problem with its line, and the nearest word that there is.
#include <fmt/format.h>

#include <algorithm>
#include <filesystem>

#include "laconic/base/error.hpp"
#include "laconic/config/toml_tree.hpp"
#include "laconic/study/expression.hpp"
#include "laconic/study/study_file.hpp"
#include "laconic/study/study_table.hpp"

namespace laconic {

namespace {

using Names = std::vector<std::string>;

// The name in front of what is read, for messages: "axis compressor".
std::string title_of(const char* kind, const TomlNode& node) {
  const TomlNode* name = node.find("name");
  return name != nullptr && name->kind == TomlNode::Kind::text
             ? fmt::format("{} '{}'", kind, name->text)
             : kind;
}

void read_program(StudyTable& reader, Setting& setting) {
  std::string name;
  reader.read("program", name);
  if (name == "ddp")
    setting.program = Program::ddp;
  else if (!name.empty() && name != "laconic")
    reader.report(*reader.find("program"),
                  fmt::format("program '{}' is none (known: laconic, ddp)", name));
}

void read_kinds(StudyTable& reader, Setting& setting, Problems& problems) {
  double shares = 0;
  reader.each("kinds", [&](const TomlNode& item) {
    CountedSteps& kind = setting.kinds.emplace_back();
    StudyTable inner(item, fmt::format("setting '{}', kinds", setting.name), problems);
    inner.read_count("steps", kind.steps, 1);
    inner.read_number("share", kind.share);
    inner.report_unknown();
    if (kind.share < 0) inner.report(item, fmt::format("share = {} is below 0", kind.share));
    shares += kind.share;
  });
  if (!setting.kinds.empty() && !(shares > 0))
    reader.report(*reader.find("kinds"), "no kind of step has a share above 0");
}

Setting setting_in(const TomlNode& node, const std::string& axis, Problems& problems) {
  Setting setting;
  if (node.kind == TomlNode::Kind::text) {
    setting.name = node.text;
    return setting;
  }
  StudyTable reader(node, fmt::format("axis '{}', {}", axis, title_of("setting", node)), problems);
  reader.require("name", setting.name);
  reader.read("about", setting.about);
  reader.read_keys("set", setting.set);
  reader.read("preset", setting.preset);
  reader.read_keys("environment", setting.environment);
  reader.read("model", setting.model);
  reader.read("rate", setting.rate);
  reader.read_count("warmup", setting.warmup, 0);
  if (node.find("value") != nullptr) reader.read_number("value", setting.value.emplace());
  reader.find("value");
  read_program(reader, setting);
  if (setting.program == Program::ddp && !setting.environment.empty())
    reader.report(*reader.find("environment"), "is for Laconic, and program = \"ddp\"");
  read_kinds(reader, setting, problems);
  reader.report_unknown();
  return setting;
}

StudyAxis axis_in(const TomlNode& node, Problems& problems) {
  StudyAxis axis;
  StudyTable reader(node, title_of("axis", node), problems);
  reader.require("name", axis.name);
  reader.read("about", axis.about);
  reader.each("settings", [&](const TomlNode& item) {
    axis.settings.push_back(setting_in(item, axis.name, problems));
  });
  if (axis.settings.empty()) reader.report(node, "has no settings");
  Names names;
  for (const Setting& setting : axis.settings) {
    if (std::find(names.begin(), names.end(), setting.name) != names.end())
      reader.report(node, fmt::format("has two settings '{}'", setting.name));
    names.push_back(setting.name);
  }
  reader.report_unknown();
  return axis;
}

void read_rounds(StudyTable& reader, StudyPart& part) {
  reader.read_count("rounds", part.rounds, 1);
  const TomlNode* seeds = reader.find("seeds");
  if (seeds == nullptr) return;
  part.seeds.clear();
  for (const TomlNode& item : seeds->items)
    if (item.kind == TomlNode::Kind::integer)
      part.seeds.push_back(static_cast<std::int64_t>(item.value));
    else
      reader.report_wrong(item, "seeds", "a list of whole numbers");
  if (part.seeds.empty()) reader.report_wrong(*seeds, "seeds", "a list of whole numbers");
  part.rounds = static_cast<int>(part.seeds.size());
}

void read_long_steps(StudyTable& reader, StudyPart& part, Problems& problems) {
  const TomlNode* node = reader.find("long");
  if (node == nullptr) return;
  LongSteps& steps = part.long_steps.emplace();
  StudyTable inner(*node, fmt::format("part '{}', long", part.name), problems);
  inner.read_number("over", steps.over);
  inner.read_count("warmup", steps.warmup, 0);
  inner.read_count("steps", steps.steps, 1);
  inner.report_unknown();
}

StudyPart part_in(const TomlNode& node, const StudyPart& usual, Problems& problems) {
  StudyPart part = usual;
  StudyTable reader(node, title_of("part", node), problems);
  reader.require("name", part.name);
  reader.read("about", part.about);
  reader.read("model", part.model);
  reader.read("rate", part.rate);
  reader.read_names("axes", part.axes);
  reader.each("list",
              [&](const TomlNode& row) { part.list.push_back(reader.names_in(row, "list")); });
  reader.read_choices("only", part.only);
  reader.read_choices("without", part.without);
  reader.read_keys("set", part.set);
  reader.each("amend", [&](const TomlNode& item) {
    Amendment& amendment = part.amendments.emplace_back();
    StudyTable inner(item, fmt::format("part '{}', amend", part.name), problems);
    inner.read_choice("of", amendment.of);
    inner.read_keys("set", amendment.set);
    inner.report_unknown();
  });
  read_rounds(reader, part);
  reader.read_count("warmup", part.warmup, 0);
  // A part that says how many steps it wants has as many whatever they take.
  if (node.find("steps") != nullptr) part.long_steps.reset();
  reader.read_count("steps", part.steps, 1);
  read_long_steps(reader, part, problems);
  reader.read_count("hosts", part.hosts, 1);
  reader.report_unknown();
  return part;
}

StudyModel model_in(const std::string& name, const TomlNode& node, Problems& problems) {
  StudyModel model{.name = name};
  StudyTable reader(node, fmt::format("model '{}'", name), problems);
  reader.read_keys("set", model.set);
  reader.read_names("needs", model.needs);
  reader.read_number("step_seconds", model.step_seconds);
  reader.read_number("sample_seconds", model.sample_seconds);
  reader.read_number("summed", model.summed);
  reader.each("prepare", [&](const TomlNode& item) {
    Preparation& preparation = model.prepare.emplace_back();
    StudyTable inner(item, fmt::format("model '{}', prepare", name), problems);
    inner.read_names("makes", preparation.makes);
    inner.read_names("lines", preparation.lines);
    inner.report_unknown();
    if (preparation.makes.empty())
      inner.report(item, "makes is missing: what says that it is done");
  });
  reader.report_unknown();
  return model;
}

bool reads_range(StudyTable& reader) {
  std::string spread;
  reader.read("spread", spread);
  if (!spread.empty() && spread != "range" && spread != "deviation")
    reader.report(*reader.find("spread"),
                  fmt::format("spread '{}' is none (known: deviation, range)", spread));
  return spread == "range";
}

MeasureSpec measure_in(const TomlNode& node, bool has_range, Problems& problems) {
  MeasureSpec measure{.has_range = has_range};
  if (node.kind == TomlNode::Kind::text) {
    measure.name = measure.title = node.text;
    return measure;
  }
  StudyTable reader(node, title_of("measure", node), problems);
  reader.require("name", measure.name);
  measure.title = measure.name;
  reader.read("title", measure.title);
  reader.read("unit", measure.unit);
  reader.read_number("scale", measure.scale);
  reader.read_count("digits", measure.digits, 0);
  reader.read_count("figures", measure.figures, 1);
  reader.read("is", measure.is);
  reader.read("after", measure.after);
  reader.read_choices("against", measure.against);
  for (const char* key : {"is", "after"})
    if (const TomlNode* text = node.find(key))
      if (const std::string problem = check_expression(text->text); !problem.empty())
        reader.report(*text, problem);
  if (!measure.is.empty() && !measure.after.empty())
    reader.report(node,
                  "has both is and after: a measure is an expression, or a loss after a time");
  reader.report_unknown();
  return measure;
}

Rule rule_in(const TomlNode& node, Problems& problems) {
  Rule rule;
  StudyTable reader(node, title_of("rule", node), problems);
  reader.require("name", rule.name);
  reader.read("about", rule.about);
  reader.require("measure", rule.measure);
  reader.read_names("parts", rule.parts);
  reader.read_choice("of", rule.of);
  reader.read_choice("against", rule.against);
  reader.read_choice("where", rule.where);
  reader.require("is", rule.is);
  reader.read_count("cases", rule.cases, 1);
  reader.read_flag("list", rule.lists);
  reader.read("page", rule.page);
  if (rule.of.empty()) reader.report(node, "of names an axis and its settings");
  if (const auto relation = parse_relation(rule.is, rule.against.empty()))
    rule.relation = *relation;
  else if (!rule.is.empty())
    reader.report(
        *node.find("is"),
        rule.against.empty()
            ? fmt::format("'{}' is no relation to a number, and there is no against: write \"at "
                          "least 4.9\", \"at most 5 %\" or \"within 3 %\"",
                          rule.is)
            : fmt::format("'{}' is no relation: write \"within 0.5 %\", \"below\", \"not above\", "
                          "\"at least 3 % below\", \"at most 5 % above\" or \"at least 3 times\", "
                          "each also with \"up to noise\" behind it",
                          rule.is));
  reader.report_unknown();
  return rule;
}

TableSpec table_in(const TomlNode& node, Problems& problems) {
  TableSpec table;
  StudyTable reader(node, title_of("table", node), problems);
  reader.require("title", table.title);
  reader.read("about", table.about);
  reader.read("page", table.page);
  reader.require("part", table.part);
  reader.read_names("measure", table.measures);
  if (table.measures.empty()) reader.report(node, "measure is missing");
  reader.read_choice("only", table.only);
  reader.read_names("rows", table.rows);
  reader.read_names("columns", table.columns);
  reader.report_unknown();
  return table;
}

void read_figure_kind(StudyTable& reader, FigureSpec& figure) {
  std::string kind;
  reader.read("kind", kind);
  if (kind == "scatter")
    figure.kind = FigureKind::scatter;
  else if (kind == "heat")
    figure.kind = FigureKind::heat;
  else if (!kind.empty())
    reader.report(*reader.find("kind"),
                  fmt::format("kind '{}' is none (known: heat, scatter)", kind));
}

FigureSpec figure_in(const TomlNode& node, Problems& problems) {
  FigureSpec figure;
  StudyTable reader(node, title_of("figure", node), problems);
  reader.require("name", figure.name);
  reader.require("title", figure.title);
  reader.require("part", figure.part);
  reader.read("page", figure.page);
  reader.require("x", figure.x);
  reader.read_names("y", figure.y);
  if (figure.y.empty()) reader.report(node, "y is missing");
  reader.read("curves", figure.curves);
  if (figure.curves.empty() == (figure.y.size() == 1))
    reader.report(node, "curves is the axis that tells curves of one measure apart");
  read_figure_kind(reader, figure);
  reader.read_choice("only", figure.only);
  reader.read_flag("log_x", figure.log_x);
  reader.read_flag("log_y", figure.log_y);
  reader.report_unknown();
  return figure;
}

FitSpec fit_in(const TomlNode& node, Problems& problems) {
  FitSpec fit;
  StudyTable reader(node, title_of("fit", node), problems);
  reader.require("name", fit.name);
  fit.title = fit.name;
  reader.read("title", fit.title);
  reader.read("page", fit.page);
  reader.require("measure", fit.measure);
  reader.read_names("parts", fit.parts);
  if (fit.parts.empty()) reader.report(node, "parts is missing");
  reader.read_names("terms", fit.terms);
  if (fit.terms.empty()) reader.report(node, "terms is missing");
  for (const std::string& term : fit.terms)
    if (const std::string problem = check_expression(term); !problem.empty())
      reader.report(*node.find("terms"), problem);
  reader.read("by", fit.by);
  reader.read_choice("only", fit.only);
  reader.report_unknown();
  return fit;
}

PageSpec page_in(const TomlNode& node, Problems& problems) {
  PageSpec page;
  StudyTable reader(node, title_of("page", node), problems);
  reader.require("name", page.name);
  reader.require("title", page.title);
  reader.read("about", page.about);
  reader.report_unknown();
  return page;
}

// What parts have in common stands at the top of the file.
StudyPart usual_part(StudyTable& reader, Problems& problems) {
  StudyPart part{.name = "the study"};
  reader.read("model", part.model);
  reader.read("rate", part.rate);
  read_rounds(reader, part);
  reader.read_count("warmup", part.warmup, 0);
  reader.read_count("steps", part.steps, 1);
  read_long_steps(reader, part, problems);
  return part;
}

template <class T, class Read>
void read_list(StudyTable& reader, const char* key, std::vector<T>& list, const Read& read) {
  if (reader.find(key) != nullptr) list.clear();  // an empty list, too, replaces the other file's
  reader.each(key, [&](const TomlNode& node) { list.push_back(read(node)); });
}

void read_models(StudyTable& reader, StudyFile& study, Problems& problems) {
  const TomlNode* models = reader.find("models");
  if (models == nullptr) return;
  if (models->kind != TomlNode::Kind::table)
    reader.report_wrong(*models, "models", "a table of models");
  for (const auto& [name, node] : models->entries)
    study.models.push_back(model_in(name, node, problems));
}

std::string name_of_file(const std::string& path) {
  return std::filesystem::path(path).stem().string();
}

Problems apply_tree(const TomlNode& root, StudyFile& study) {
  Problems problems;
  StudyTable reader(root, "study", problems);
  reader.find("extends");
  reader.read("title", study.title);
  reader.read("about", study.about);
  reader.read("config", study.config);
  reader.read_keys("base", study.base);
  read_models(reader, study, problems);
  const StudyPart usual = usual_part(reader, problems);
  reader.each("axis", [&](const TomlNode& node) { study.axes.push_back(axis_in(node, problems)); });
  read_list(reader, "part", study.parts,
            [&](const TomlNode& node) { return part_in(node, usual, problems); });
  const bool has_range = reads_range(reader);
  read_list(reader, "measures", study.measures,
            [&](const TomlNode& node) { return measure_in(node, has_range, problems); });
  reader.read("baseline", study.baseline);
  read_list(reader, "page", study.pages,
            [&](const TomlNode& node) { return page_in(node, problems); });
  read_list(reader, "rule", study.rules,
            [&](const TomlNode& node) { return rule_in(node, problems); });
  read_list(reader, "table", study.tables,
            [&](const TomlNode& node) { return table_in(node, problems); });
  read_list(reader, "figure", study.figures,
            [&](const TomlNode& node) { return figure_in(node, problems); });
  read_list(reader, "fit", study.fits,
            [&](const TomlNode& node) { return fit_in(node, problems); });
  reader.report_unknown();
  for (const StudyPart& part : study.parts) study.known_parts.push_back(part.name);
  return problems;
}

}  // namespace

void apply_study(std::string_view text, const std::string& name, StudyFile& study) {
  study.name = name_of_file(name);
  Problems problems = apply_tree(parse_toml_tree(text, name), study);
  refuse(problems);
}

}  // namespace laconic
