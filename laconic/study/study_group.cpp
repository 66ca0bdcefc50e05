#include "laconic/study/study_group.hpp"

#include <algorithm>
#include <optional>

#include "laconic/base/text.hpp"
#include "laconic/study/markdown.hpp"

namespace laconic {

namespace {

using Names = std::vector<std::string>;
using RowList = std::vector<const StudyRow*>;

std::string setting_at(const StudyRow& row, const std::string& axis) {
  const auto found = row.settings.find(axis);
  return found == row.settings.end() ? "–" : found->second;
}

Names settings_at(const StudyRow& row, const Names& axes) {
  Names names;
  for (const std::string& axis : axes) names.push_back(setting_at(row, axis));
  return names;
}

RowList rows_of_part(const std::vector<StudyRow>& rows, const std::string& part,
                     const Choice& only) {
  RowList found;
  for (const StudyRow& row : rows)
    if (row.part == part && fits(only, row.settings)) found.push_back(&row);
  return found;
}

// Rows with the same settings of these axes, in the order of the first of them.
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

const char* const kNothing = "–";

std::string cell_of(const RowList& rows, const MeasureSpec& measure) {
  const Average average = average_over(rows, measure.name);
  if (average.count > 0) return to_text(average, measure);
  const bool has_failed =
      !rows.empty() && std::all_of(rows.begin(), rows.end(),
                                   [](const StudyRow* row) { return !row->failure.empty(); });
  return has_failed ? "failed" : kNothing;
}

Names axes_of_part(const StudyFile& study, const std::string& part) {
  Names axes;
  for (const StudyPart& one : study.parts)
    if (one.name == part)
      for (const std::string& axis : one.axes)
        if (std::find(axes.begin(), axes.end(), axis) == axes.end()) axes.push_back(axis);
  return axes;
}

// "100mbit", or "100mbit, loss" of several measures.
std::string title_of_column(const Names& settings, const MeasureSpec& measure, bool is_alone) {
  Names words = settings;
  if (settings.empty() || !is_alone) words.push_back(measure.title);
  return join(words, ", ");
}

// Where a group of rows is on the x axis: by its setting's value, or by what was measured.
std::optional<double> place_of(const StudyFile& study, const std::string& x, const RowList& rows) {
  if (const StudyAxis* axis = find_axis(study, x)) {
    const Setting* setting = find_setting(*axis, setting_at(*rows.front(), x));
    return setting != nullptr ? setting->value : std::nullopt;
  }
  const Average average = average_over(rows, x);
  return average.count > 0 ? std::optional(average.mean) : std::nullopt;
}

Point point_of(double x, const Average& average, const MeasureSpec& y) {
  const double mean = average.mean * y.scale, spread = average.deviation * y.scale;
  if (y.has_range) return {x, mean, average.least * y.scale, average.most * y.scale};
  return {x, mean, mean - spread, mean + spread};
}

// A bar for each setting of x, of which every measure is a piece.
void add_bars(const StudyFile& study, const RowList& rows, const FigureSpec& spec, Figure& figure) {
  figure.kind = FigureKind::stacked;
  const auto bars = grouped(rows, {spec.x});
  for (std::size_t bar = 0; bar < bars.size(); ++bar)
    figure.ticks.push_back({static_cast<double>(bar), bars[bar].first.front()});
  for (const std::string& name : spec.y) {
    const MeasureSpec y = measure_of(study, name);
    Curve curve{y.title, {}};
    for (std::size_t bar = 0; bar < bars.size(); ++bar)
      curve.points.push_back(
          point_of(static_cast<double>(bar), average_over(bars[bar].second, name), y));
    if (!bars.empty() && figure.curves.size() < kMostCurves) figure.curves.push_back(curve);
  }
}

// A row for each setting of one axis, a column for each of another.
void add_fields(const StudyFile& study, const RowList& rows, const FigureSpec& spec,
                Figure& figure) {
  const MeasureSpec y = measure_of(study, spec.y.front());
  const auto columns = grouped(rows, {spec.x});
  for (std::size_t i = 0; i < columns.size(); ++i)
    figure.ticks.push_back({static_cast<double>(i), columns[i].first.front()});
  for (const auto& [key, of_row] : grouped(rows, {spec.curves})) {
    Curve fields{key.front(), {}};
    for (const Tick& tick : figure.ticks) {
      RowList both;
      for (const StudyRow* row : of_row)
        if (setting_at(*row, spec.x) == tick.label) both.push_back(row);
      if (const Average average = average_over(both, y.name); average.count > 0)
        fields.points.push_back(point_of(tick.x, average, y));
    }
    if (!fields.points.empty()) figure.curves.push_back(fields);
  }
}

void add_curves(const StudyFile& study, const RowList& rows, const FigureSpec& spec,
                Figure& figure) {
  const MeasureSpec y = measure_of(study, spec.y.front());
  const double scale = find_axis(study, spec.x) ? 1 : measure_of(study, spec.x).scale;
  for (const auto& [key, of_curve] : grouped(rows, {spec.curves})) {
    Curve curve{key.front(), {}};
    for (const auto& [ignored, group] : grouped(of_curve, axes_of_part(study, spec.part))) {
      const Average average = average_over(group, y.name);
      const std::optional<double> at = place_of(study, spec.x, group);
      if (average.count > 0 && at) curve.points.push_back(point_of(*at * scale, average, y));
    }
    std::sort(curve.points.begin(), curve.points.end(),
              [](const Point& a, const Point& b) { return a.x < b.x; });
    if (!curve.points.empty() && figure.curves.size() < kMostCurves) figure.curves.push_back(curve);
  }
  // Settings stand at their values by name.
  for (const auto& [key, group] : grouped(rows, {spec.x}))
    if (const auto at = place_of(study, spec.x, group); at && find_axis(study, spec.x) != nullptr)
      figure.ticks.push_back({*at, key.front()});
}

}  // namespace

MeasureSpec measure_of(const StudyFile& study, const std::string& name) {
  for (const MeasureSpec& measure : study.measures)
    if (measure.name == name) return measure;
  // As the first of them: the baseline is its kin.
  MeasureSpec measure = study.measures.empty() ? MeasureSpec{} : study.measures.front();
  measure.name = measure.title = name;
  return measure;
}

std::string table_text(const StudyFile& study, const std::vector<StudyRow>& rows,
                       const TableSpec& table) {
  const RowList part = rows_of_part(rows, table.part, table.only);
  const auto across = grouped(part, table.columns);
  std::vector<Column> columns;
  for (const std::string& axis : table.rows) columns.push_back({axis, Align::left});
  for (const auto& [key, group] : across)
    for (const std::string& name : table.measures)
      columns.push_back(
          {title_of_column(key, measure_of(study, name), table.measures.size() == 1)});
  std::vector<Names> lines;
  for (const auto& [key, group] : grouped(part, table.rows)) {
    Names line = key;
    for (const auto& [column, ignored] : across) {
      RowList both;
      for (const StudyRow* row : group)
        if (settings_at(*row, table.columns) == column) both.push_back(row);
      for (const std::string& name : table.measures)
        line.push_back(cell_of(both, measure_of(study, name)));
    }
    const auto numbers = line.begin() + static_cast<std::ptrdiff_t>(key.size());
    if (std::any_of(numbers, line.end(), [](const std::string& cell) { return cell != kNothing; }))
      lines.push_back(std::move(line));
  }
  return lines.empty() ? "Nothing of it has been run.\n\n" : markdown_table(columns, lines);
}

TableSpec table_of_part(const StudyFile& study, const std::string& part) {
  TableSpec table{.part = part, .rows = axes_of_part(study, part)};
  for (const MeasureSpec& measure : study.measures) table.measures.push_back(measure.name);
  if (!study.baseline.empty()) table.measures.push_back(study.baseline);
  return table;
}

Figure figure_of(const StudyFile& study, const std::vector<StudyRow>& rows,
                 const FigureSpec& spec) {
  Figure figure{.name = spec.name,
                .title = spec.title,
                .x_label = find_axis(study, spec.x) ? spec.x : measure_of(study, spec.x).title,
                .y_label = measure_of(study, spec.y.front()).title,
                .kind = spec.kind,
                .log_x = spec.log_x,
                .log_y = spec.log_y};
  const RowList part = rows_of_part(rows, spec.part, spec.only);
  if (spec.y.size() > 1) {
    add_bars(study, part, spec, figure);
    figure.y_label = "";
  } else if (spec.kind == FigureKind::heat) {
    add_fields(study, part, spec, figure);
  } else {
    add_curves(study, part, spec, figure);
  }
  return figure;
}

}  // namespace laconic
