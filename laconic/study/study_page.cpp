#include "laconic/study/study_page.hpp"

#include <fmt/format.h>

#include <algorithm>
#include <map>

#include "laconic/base/text.hpp"
#include "laconic/file/atomic_file.hpp"
#include "laconic/study/chart.hpp"
#include "laconic/study/draw.hpp"
#include "laconic/study/heat_map.hpp"
#include "laconic/study/markdown.hpp"
#include "laconic/study/study_fit.hpp"
#include "laconic/study/study_group.hpp"
#include "laconic/study/study_measure.hpp"
#include "laconic/study/study_rule.hpp"

namespace laconic {

namespace {

using Names = std::vector<std::string>;

// A rule as a line of a table, and what it came to.
struct JudgedRule {
  const Rule& rule;
  MeasureSpec measure;
  RuleResult result;
};

std::vector<JudgedRule> judged_rules(const StudyFile& study, const std::vector<StudyTrial>& planned,
                                     const std::vector<StudyRow>& rows, const std::string& page) {
  std::vector<JudgedRule> judged;
  for (const Rule& rule : study.rules)
    if (rule.page == page)
      judged.push_back({rule, measure_of(study, rule.measure), judge(rule, planned, rows)});
  return judged;
}

std::string counts_text(const std::vector<JudgedRule>& judged, const std::string& rules) {
  std::map<RuleVerdict, int> counts;
  for (const JudgedRule& one : judged) ++counts[one.result.verdict];
  return fmt::format("Of {} {} {} kept, {} broken, {} cannot be judged.", judged.size(), rules,
                     with_count(counts[RuleVerdict::kept], "is", "are"),
                     with_count(counts[RuleVerdict::broken], "is", "are"),
                     counts[RuleVerdict::undecided]);
}

// Every case in which a rule does not hold, where the file asks for them.
std::string broken_cases(const std::vector<JudgedRule>& judged) {
  std::string text;
  for (const JudgedRule& one : judged) {
    if (!one.rule.lists) continue;
    std::string list;
    for (const RulePair& pair : one.result.pairs)
      if (pair.is_known && !pair.holds) list += "- " + to_text(pair, one.measure) + "\n";
    text += fmt::format("Not so, \"{}\":{}\n\n", one.rule.name,
                        list.empty() ? " nowhere." : "\n\n" + std::string(trim(list)));
  }
  return text;
}

std::string rules_section(const StudyFile& study, const std::vector<StudyTrial>& planned,
                          const std::vector<StudyRow>& rows, const std::string& page) {
  const std::vector<JudgedRule> judged = judged_rules(study, planned, rows, page);
  if (judged.empty()) return "";
  std::vector<Names> lines;
  for (const auto& [rule, measure, result] : judged)
    lines.push_back({rule.name, fmt::format("{} {}", measure.title, rule.is),
                     to_text(result.verdict), to_text(result, measure), rule.about});
  return fmt::format(
             "## Rules\n\n{} Rounds are paired: differences are between runs of one seed.\n\n",
             counts_text(judged, "rules")) +
         markdown_table({{"rule", Align::left},
                         {"", Align::left},
                         {"verdict", Align::left},
                         {"measured", Align::left},
                         {"remarks", Align::left}},
                        lines) +
         broken_cases(judged);
}

std::string about_of_part(const StudyFile& study, const std::string& part) {
  std::string about;
  for (const StudyPart& one : study.parts)
    if (one.name == part && !one.about.empty()) about += one.about + "\n\n";
  return about;
}

// What other pages are there, and how their rules came out.
std::string contents_section(const StudyFile& study, const std::vector<StudyTrial>& planned,
                             const std::vector<StudyRow>& rows) {
  if (study.pages.empty()) return "";
  std::string lines;
  for (const PageSpec& page : study.pages) {
    const std::vector<JudgedRule> judged = judged_rules(study, planned, rows, page.name);
    lines += fmt::format("- [{}]({}.md){}\n", page.title, page.name,
                         judged.empty() ? "" : ". " + counts_text(judged, "rules"));
  }
  return "## Pages\n\n" + lines + "\n";
}

std::string keys_text(const Setting& setting) {
  Names words;
  if (!setting.preset.empty()) words.push_back("preset " + setting.preset);
  for (const auto& [key, value] : setting.set) words.push_back(fmt::format("{}={}", key, value));
  for (const auto& [name, value] : setting.environment)
    words.push_back(fmt::format("{}={}", name, value));
  return words.empty() ? "" : "`" + join(words, " ") + "`";
}

// "Counted: 4 steps for 1 part of a long run, 12 for 15."
std::string kinds_text(const Setting& setting) {
  std::string text;
  for (const CountedSteps& kind : setting.kinds)
    text += text.empty()
                ? fmt::format("Counted: {} steps for {} part of a long run", kind.steps, kind.share)
                : fmt::format(", {} for {}", kind.steps, kind.share);
  return text.empty() ? "" : text + ".";
}

std::string settings_section(const StudyFile& study) {
  std::string text = "## Settings\n\n";
  for (const StudyAxis& axis : study.axes) {
    std::vector<Names> lines;
    for (const Setting& setting : axis.settings)
      lines.push_back({setting.name, std::string(trim(setting.about + " " + kinds_text(setting))),
                       keys_text(setting)});
    text +=
        fmt::format("**{}**{}\n\n", axis.name, axis.about.empty() ? "" : ": " + axis.about) +
        markdown_table({{"", Align::left}, {"meaning", Align::left}, {"keys", Align::left}}, lines);
  }
  return text;
}

// Each once, in the order in which they came.
std::string all_of_rows(const std::vector<StudyRow>& rows, std::string StudyRow::*member) {
  Names values;
  for (const StudyRow& row : rows)
    if (!(row.*member).empty() &&
        std::find(values.begin(), values.end(), row.*member) == values.end())
      values.push_back(row.*member);
  return values.empty() ? "–" : join(values, "; ");
}

std::string spread_text(const StudyFile& study) {
  const bool has_range = !study.measures.empty() && study.measures.front().has_range;
  return has_range ? "in brackets the least and the most of n rounds"
                   : "± the standard deviation of the sample, n rounds";
}

std::string facts_section(const StudyFile& study, const std::vector<StudyTrial>& planned,
                          const std::vector<StudyRow>& rows, const std::string& command) {
  const auto failed = std::count_if(rows.begin(), rows.end(),
                                    [](const StudyRow& row) { return !row.failure.empty(); });
  std::string began;
  for (const StudyRow& row : rows)
    if (!row.began.empty() && (began.empty() || row.began < began)) began = row.began;
  return fmt::format(
      "# {}\n\n{}- {} of {} trials, {} settings; {} failed or were skipped\n- begun: {}\n- "
      "machine: "
      "{}\n- commit: {}\n- command: `{}`\n- results: [outcomes.jsonl](outcomes.jsonl), a line for "
      "each trial with its command\n\nNumbers are means over rounds, {}.\n\n",
      study.title.empty() ? study.name : study.title,
      study.about.empty() ? "" : std::string(trim(study.about)) + "\n\n", rows.size(),
      planned.size(), count_settings(planned), failed, began.substr(0, 10),
      all_of_rows(rows, &StudyRow::machine), all_of_rows(rows, &StudyRow::commit), command,
      spread_text(study));
}

std::string failures_section(const std::vector<StudyRow>& rows) {
  std::string list;
  for (const StudyRow& row : rows)
    if (!row.failure.empty())
      list += fmt::format("- {}: {}\n", row.id, printable(row.failure, 400));
  return list.empty() ? "" : "## Trials that failed\n\n" + list + "\n";
}

std::string figures_and_tables(const StudyFile& study, const std::vector<StudyRow>& rows,
                               bool has_png, const std::string& page) {
  std::string text;
  for (const FigureSpec& spec : study.figures) {
    if (spec.page != page) continue;
    const std::string png = has_png ? fmt::format("[PNG](figures/{}.png), ", spec.name) : "";
    text += has_data(figure_of(study, rows, spec))
                ? fmt::format("![{0}](figures/{1}.svg)\n\n{0} ({2}[data](figures/{1}.dat))\n\n",
                              spec.title, spec.name, png)
                : fmt::format("{}: nothing to draw yet.\n\n", spec.title);
  }
  for (const TableSpec& table : study.tables) {
    if (table.page != page) continue;
    text += fmt::format("## {}\n\n", table.title);
    if (!table.about.empty()) text += std::string(trim(table.about)) + "\n\n";
    text += table_text(study, rows, table);
  }
  return text;
}

// Without gnuplot: neither error bars nor logarithms.
std::string own_svg(Figure figure) {
  if (figure.kind == FigureKind::heat) return heat_svg(figure);
  if (figure.kind != FigureKind::scatter) figure.kind = FigureKind::lines;
  figure.log_x = figure.log_y = false;
  return chart_svg(figure);
}

}  // namespace

std::vector<Figure> study_figures(const StudyFile& study, const std::vector<StudyRow>& rows) {
  std::vector<Figure> figures;
  for (const FigureSpec& spec : study.figures) figures.push_back(figure_of(study, rows, spec));
  return figures;
}

std::string study_page(const StudyFile& study, const std::vector<StudyTrial>& planned,
                       const std::vector<StudyRow>& rows, const std::string& command, bool has_png,
                       const std::string& page) {
  for (const PageSpec& spec : study.pages)
    if (spec.name == page)
      return fmt::format("# {}\n\n{}\n\n", spec.title, trim(spec.about)) +
             rules_section(study, planned, rows, page) + fits_section(study, rows, page) +
             figures_and_tables(study, rows, has_png, page);
  std::string text = facts_section(study, planned, rows, command) +
                     contents_section(study, planned, rows) +
                     rules_section(study, planned, rows, "") + fits_section(study, rows, "") +
                     figures_and_tables(study, rows, has_png, "");
  if (study.pages.empty())
    for (const std::string& part : parts_of(trials_of(planned)))
      text += fmt::format("## Part \"{}\"\n\n{}{}", part, about_of_part(study, part),
                          table_text(study, rows, table_of_part(study, part)));
  return text + settings_section(study) + failures_section(rows);
}

void write_study(const std::string& folder, const StudyFile& study,
                 const std::vector<StudyTrial>& planned, const std::vector<StudyRow>& rows,
                 const std::string& command) {
  std::string lines;
  for (const StudyRow& row : rows) lines += to_json_line(row) + "\n";
  write_atomically(folder + "/outcomes.jsonl", lines);
  std::vector<StudyRow> derived = rows;
  add_derived(study, derived);
  const std::vector<Figure> figures = study_figures(study, derived);
  bool has_png = false;
  if (std::any_of(figures.begin(), figures.end(), has_data)) {
    has_png = draw_figures(folder, figures).empty();
    for (const Figure& figure : figures)
      if (!has_png && has_data(figure))
        write_atomically(fmt::format("{}/figures/{}.svg", folder, figure.name), own_svg(figure));
  }
  std::vector<PageSpec> pages = study.pages;
  pages.push_back({});
  for (const PageSpec& page : pages)
    write_atomically(fmt::format("{}/{}.md", folder, page.name.empty() ? "README" : page.name),
                     study_page(study, planned, derived, command, has_png, page.name));
}

}  // namespace laconic
