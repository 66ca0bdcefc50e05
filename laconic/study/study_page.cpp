#include "laconic/study/study_page.hpp"

#include <fmt/format.h>

#include <algorithm>
#include <cmath>

#include "laconic/base/text.hpp"
#include "laconic/file/atomic_file.hpp"
#include "laconic/study/chart.hpp"
#include "laconic/study/report.hpp"
#include "laconic/study/report_markdown.hpp"
#include "laconic/study/statistics.hpp"
#include "laconic/study/study_rule.hpp"

namespace laconic {

namespace {

using Names = std::vector<std::string>;
using RowList = std::vector<const StudyRow*>;

MeasureSpec measure_of(const StudyFile& study, const std::string& name) {
  for (const MeasureSpec& measure : study.measures)
    if (measure.name == name) return measure;
  return {.name = name, .title = name};
}

std::string setting_at(const StudyRow& row, const std::string& axis) {
  const auto found = row.settings.find(axis);
  return found == row.settings.end() ? "–" : found->second;
}

Names settings_at(const StudyRow& row, const Names& axes) {
  Names names;
  for (const std::string& axis : axes) names.push_back(setting_at(row, axis));
  return names;
}

RowList rows_of_part(const std::vector<StudyRow>& rows, const std::string& part) {
  RowList found;
  for (const StudyRow& row : rows)
    if (row.part == part) found.push_back(&row);
  return found;
}

// RowList with the same settings of these axes, in the order of the first of them.
std::vector<std::pair<Names, RowList>> grouped(const RowList& rows, const Names& axes) {
  std::vector<std::pair<Names, RowList>> groups;
  for (const StudyRow* row : rows) {
    const Names key = settings_at(*row, axes);
    auto group = std::find_if(groups.begin(), groups.end(),
                              [&](const auto& one) { return one.first == key; });
    if (group == groups.end()) group = groups.insert(groups.end(), {key, {}});
    group->second.push_back(row);
  }
  return groups;
}

Average average_over(const RowList& rows, const std::string& measure) {
  std::vector<double> values;
  for (const StudyRow* row : rows)
    if (const auto found = row->measures.find(measure);
        row->failure.empty() && found != row->measures.end())
      values.push_back(found->second);
  return average_of(values);
}

std::string cell_of(const RowList& rows, const MeasureSpec& measure) {
  const Average average = average_over(rows, measure.name);
  if (average.count > 0) return to_text(average, measure);
  const bool has_failed =
      !rows.empty() && std::all_of(rows.begin(), rows.end(),
                                   [](const StudyRow* row) { return !row->failure.empty(); });
  return has_failed ? "failed" : "–";
}

Names axes_of_part(const StudyFile& study, const std::string& part) {
  Names axes;
  for (const StudyPart& one : study.parts)
    if (one.name == part)
      for (const std::string& axis : one.axes)
        if (std::find(axes.begin(), axes.end(), axis) == axes.end()) axes.push_back(axis);
  return axes;
}

std::string about_of_part(const StudyFile& study, const std::string& part) {
  std::string about;
  for (const StudyPart& one : study.parts)
    if (one.name == part && !one.about.empty()) about += one.about + "\n\n";
  return about;
}

// Every case of a part with every measure.
std::string part_table(const StudyFile& study, const std::vector<StudyRow>& rows,
                       const std::string& part) {
  const Names axes = axes_of_part(study, part);
  std::vector<MeasureSpec> measures = study.measures;
  if (!study.baseline.empty()) {  // shown as the first of them is
    measures.push_back(measures.empty() ? MeasureSpec{} : measures.front());
    measures.back().name = measures.back().title = study.baseline;
  }
  std::vector<Column> columns;
  for (const std::string& axis : axes) columns.push_back({axis, Align::left});
  for (const MeasureSpec& measure : measures) columns.push_back({measure.title});
  std::vector<Names> lines;
  for (const auto& [key, group] : grouped(rows_of_part(rows, part), axes)) {
    Names line = key;
    for (const MeasureSpec& measure : measures) line.push_back(cell_of(group, measure));
    lines.push_back(std::move(line));
  }
  return lines.empty() ? "Nothing of it has been run.\n\n" : markdown_table(columns, lines);
}

std::string pivot(const StudyFile& study, const std::vector<StudyRow>& rows,
                  const TableSpec& table) {
  const RowList part = rows_of_part(rows, table.part);
  const MeasureSpec measure = measure_of(study, table.measure);
  const auto across = grouped(part, table.columns);
  std::vector<Column> columns;
  for (const std::string& axis : table.rows) columns.push_back({axis, Align::left});
  for (const auto& [key, group] : across)
    columns.push_back({table.columns.empty() ? measure.title : join(key, ", ")});
  std::vector<Names> lines;
  for (const auto& [key, group] : grouped(part, table.rows)) {
    Names line = key;
    for (const auto& [column, ignored] : across) {
      RowList both;
      for (const StudyRow* row : group)
        if (settings_at(*row, table.columns) == column) both.push_back(row);
      line.push_back(cell_of(both, measure));
    }
    lines.push_back(std::move(line));
  }
  return lines.empty() ? "Nothing of it has been run.\n\n" : markdown_table(columns, lines);
}

std::string rules_section(const StudyFile& study, const std::vector<StudyTrial>& planned,
                          const std::vector<StudyRow>& rows) {
  if (study.rules.empty()) return "";
  std::vector<Names> lines;
  std::map<RuleVerdict, int> counts;
  for (const Rule& rule : study.rules) {
    const RuleResult result = judge(rule, planned, rows);
    ++counts[result.verdict];
    const MeasureSpec measure = measure_of(study, rule.measure);
    lines.push_back({rule.name, fmt::format("{} {}", measure.title, rule.is),
                     to_text(result.verdict), to_text(result, measure), rule.about});
  }
  return fmt::format(
             "## Rules\n\nOf {} rules {} kept, {} broken, {} cannot be judged. Rounds are paired: "
             "differences are between runs of one seed.\n\n",
             study.rules.size(), with_count(counts[RuleVerdict::kept], "is", "are"),
             with_count(counts[RuleVerdict::broken], "is", "are"), counts[RuleVerdict::undecided]) +
         markdown_table({{"rule", Align::left},
                         {"", Align::left},
                         {"verdict", Align::left},
                         {"measured", Align::left},
                         {"remarks", Align::left}},
                        lines);
}

std::string keys_text(const Setting& setting) {
  Names words;
  if (!setting.preset.empty()) words.push_back("preset " + setting.preset);
  for (const auto& [key, value] : setting.set) words.push_back(fmt::format("{}={}", key, value));
  return words.empty() ? "" : "`" + join(words, " ") + "`";
}

std::string settings_section(const StudyFile& study) {
  std::string text = "## Settings\n\n";
  for (const StudyAxis& axis : study.axes) {
    std::vector<Names> lines;
    for (const Setting& setting : axis.settings)
      lines.push_back({setting.name, setting.about, keys_text(setting)});
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
      "each trial with its command\n\nNumbers are measured: means over rounds, ± the standard "
      "deviation of the sample, n rounds.\n\n",
      study.title.empty() ? study.name : study.title,
      study.about.empty() ? "" : std::string(trim(study.about)) + "\n\n", rows.size(),
      planned.size(), count_settings(planned), failed, began.substr(0, 10),
      all_of_rows(rows, &StudyRow::machine), all_of_rows(rows, &StudyRow::commit), command);
}

std::string failures_section(const std::vector<StudyRow>& rows) {
  std::string list;
  for (const StudyRow& row : rows)
    if (!row.failure.empty())
      list += fmt::format("- {}: {}\n", row.id, printable(row.failure, 400));
  return list.empty() ? "" : "## Trials that failed\n\n" + list + "\n";
}

// Where a group of rows is on the x axis: by its setting's value, or by what was measured.
std::optional<double> place_of(const StudyFile& study, const FigureSpec& figure,
                               const RowList& rows) {
  if (const StudyAxis* axis = find_axis(study, figure.x)) {
    const Setting* setting = find_setting(*axis, setting_at(*rows.front(), figure.x));
    return setting != nullptr ? setting->value : std::nullopt;
  }
  const Average average = average_over(rows, figure.x);
  return average.count > 0 ? std::optional(average.mean) : std::nullopt;
}

Figure figure_in_study(const StudyFile& study, const FigureSpec& spec,
                       const std::vector<StudyRow>& rows) {
  const MeasureSpec y = measure_of(study, spec.y), x = measure_of(study, spec.x);
  Figure figure{.name = spec.name,
                .title = spec.title,
                .x_label = x.title,
                .y_label = y.title,
                .kind = FigureKind::ranges,
                .log_x = spec.log_x,
                .log_y = spec.log_y};
  for (const auto& [key, of_curve] : grouped(rows_of_part(rows, spec.part), {spec.curves})) {
    Curve curve{key.front(), {}};
    for (const auto& [ignored, group] : grouped(of_curve, axes_of_part(study, spec.part))) {
      const Average average = average_over(group, spec.y);
      const std::optional<double> at = place_of(study, spec, group);
      if (average.count == 0 || !at) continue;
      const double mean = average.mean * y.scale, spread = average.deviation * y.scale;
      curve.points.push_back({*at * x.scale, mean, mean - spread, mean + spread});
    }
    std::sort(curve.points.begin(), curve.points.end(),
              [](const Point& a, const Point& b) { return a.x < b.x; });
    if (!curve.points.empty() && figure.curves.size() < kMostCurves) figure.curves.push_back(curve);
  }
  return figure;
}

}  // namespace

std::vector<Figure> study_figures(const StudyFile& study, const std::vector<StudyRow>& rows) {
  std::vector<Figure> figures;
  for (const FigureSpec& spec : study.figures)
    figures.push_back(figure_in_study(study, spec, rows));
  return figures;
}

std::string study_page(const StudyFile& study, const std::vector<StudyTrial>& planned,
                       const std::vector<StudyRow>& rows, const std::string& command,
                       bool has_png) {
  std::string page =
      facts_section(study, planned, rows, command) + rules_section(study, planned, rows);
  for (const Figure& figure : study_figures(study, rows))
    page += has_data(figure)
                ? fmt::format("![{0}](figures/{1}.svg)\n\n{0} ({2}[data](figures/{1}.dat))\n\n",
                              figure.title, figure.name,
                              has_png ? fmt::format("[PNG](figures/{}.png), ", figure.name) : "")
                : fmt::format("{}: nothing to draw yet.\n\n", figure.title);
  for (const TableSpec& table : study.tables)
    page += fmt::format("## {}\n\n{}", table.title, pivot(study, rows, table));
  for (const std::string& part : parts_of(trials_of(planned)))
    page += fmt::format("## Part \"{}\"\n\n{}{}", part, about_of_part(study, part),
                        part_table(study, rows, part));
  return page + settings_section(study) + failures_section(rows);
}

void write_study(const std::string& folder, const StudyFile& study,
                 const std::vector<StudyTrial>& planned, const std::vector<StudyRow>& rows,
                 const std::string& command) {
  std::string lines;
  for (const StudyRow& row : rows) lines += to_json_line(row) + "\n";
  write_atomically(folder + "/outcomes.jsonl", lines);
  const std::vector<Figure> figures = study_figures(study, rows);
  bool has_png = false;
  if (std::any_of(figures.begin(), figures.end(), has_data)) {
    const Drawn drawn = write_figures(folder, figures);
    has_png = drawn.reason.empty();
    for (Figure figure : figures)
      if (!has_png && has_data(figure)) {  // ours has neither error bars nor logarithms
        figure.kind = FigureKind::lines;
        figure.log_x = figure.log_y = false;
        write_atomically(fmt::format("{}/figures/{}.svg", folder, figure.name), chart_svg(figure));
      }
  }
  write_atomically(folder + "/README.md", study_page(study, planned, rows, command, has_png));
}

}  // namespace laconic
