#include "laconic/study/study_fit.hpp"

#include <fmt/format.h>

#include <algorithm>
#include <cmath>
#include <optional>
#include <set>

#include "laconic/base/text.hpp"
#include "laconic/study/expression.hpp"
#include "laconic/study/markdown.hpp"
#include "laconic/study/study_measure.hpp"

namespace laconic {

namespace {

using Numbers = std::vector<double>;

// Normal equations of the terms that are in use, by elimination with pivots; the others are 0. A
// term that another one implies has no pivot, and stays 0.
Numbers solved(const std::vector<Numbers>& products, const Numbers& sums,
               const std::vector<bool>& is_used) {
  const std::size_t n = sums.size();
  std::vector<Numbers> rows;
  std::vector<std::size_t> used;
  for (std::size_t j = 0; j < n; ++j)
    if (is_used[j]) used.push_back(j);
  for (const std::size_t i : used) {
    Numbers row;
    for (const std::size_t j : used) row.push_back(products[i][j]);
    row.push_back(sums[i]);
    rows.push_back(row);
  }
  const std::size_t m = used.size();
  Numbers result(n, 0);
  std::vector<std::size_t> row_of(m, m);
  std::size_t done = 0;
  for (std::size_t column = 0; column < m; ++column) {
    std::size_t best = done;
    for (std::size_t i = done; i < m; ++i)
      if (std::abs(rows[i][column]) > std::abs(rows[best][column])) best = i;
    if (done == m || std::abs(rows[best][column]) < 1e-9) continue;
    std::swap(rows[best], rows[done]);
    for (std::size_t i = 0; i < m; ++i) {
      if (i == done) continue;
      const double times = rows[i][column] / rows[done][column];
      for (std::size_t j = column; j <= m; ++j) rows[i][j] -= times * rows[done][j];
    }
    row_of[column] = done++;
  }
  for (std::size_t column = 0; column < m; ++column)
    if (row_of[column] < m)
      result[used[column]] = rows[row_of[column]][m] / rows[row_of[column]][column];
  return result;
}

// Terms may be seconds and bytes: in units of their own largest value they are alike.
Numbers largest_of(const std::vector<Numbers>& terms) {
  Numbers largest(terms.front().size(), 0);
  for (const Numbers& row : terms)
    for (std::size_t j = 0; j < row.size(); ++j)
      largest[j] = std::max(largest[j], std::abs(row[j]));
  for (double& one : largest)
    if (!(one > 0)) one = 1;
  return largest;
}

struct Sample {
  StudyRow* row = nullptr;
  double measured = 0;
  Numbers terms;
};

std::optional<Sample> sample_of(const StudyFile& study, const FitSpec& spec, StudyRow& row) {
  if (!row.failure.empty() || !fits(spec.only, row.settings)) return {};
  if (std::find(spec.parts.begin(), spec.parts.end(), row.part) == spec.parts.end()) return {};
  const auto value_of = [&](const std::string& name) { return value_in(study, row, name); };
  const auto measured = value_of(spec.measure);
  if (!measured || !(*measured > 0)) return {};
  Sample sample{&row, *measured, {}};
  for (const std::string& term : spec.terms) {
    const auto value = evaluate(term, value_of);
    if (!value) return {};
    sample.terms.push_back(*value);
  }
  return sample;
}

// FNV-1a, and its bits stirred: names that differ in one letter lie anywhere.
std::uint64_t place_of(const StudyRow& row) {
  std::uint64_t hash = 14695981039346656037ull;
  const auto add = [&](const std::string& text) {
    for (const char c : text + "\n")
      hash = (hash ^ static_cast<unsigned char>(c)) * 1099511628211ull;
  };
  add(row.part);
  for (const auto& [axis, setting] : row.settings) add(axis + "=" + setting);
  hash = (hash ^ (hash >> 29)) * 0xbf58476d1ce4e5b9ull;
  return hash ^ (hash >> 32);
}

// Half of the settings, whatever rounds they have.
std::set<std::uint64_t> first_half(const std::vector<Sample>& samples) {
  std::set<std::uint64_t> all;
  for (const Sample& sample : samples) all.insert(place_of(*sample.row));
  return {all.begin(), std::next(all.begin(), static_cast<std::ptrdiff_t>((all.size() + 1) / 2))};
}

double told_by(const Numbers& coefficients, const Sample& sample) {
  double told = 0;
  for (std::size_t j = 0; j < coefficients.size(); ++j) told += coefficients[j] * sample.terms[j];
  return told;
}

Numbers coefficients_of(const std::vector<Sample>& samples) {
  std::vector<Numbers> terms;
  Numbers measured;
  for (const Sample& sample : samples) {
    terms.push_back(sample.terms);
    measured.push_back(sample.measured);
  }
  return fitted_coefficients(terms, measured);
}

void add_told(const FitSpec& spec, const Numbers& coefficients, const std::vector<Sample>& others,
              double share, FittedModel& model) {
  for (const Sample& sample : others) {
    const double told = told_by(coefficients, sample);
    const double error = std::abs(told / sample.measured - 1);
    sample.row->measures[spec.name] = told;
    sample.row->measures[spec.name + ".error"] = error;
    model.mean_error += share * error;
    model.most_error = std::max(model.most_error, error);
  }
}

FittedModel fitted_model(const FitSpec& spec, const std::vector<Sample>& samples) {
  FittedModel model{.trials = samples.size()};
  const std::set<std::uint64_t> half = first_half(samples);
  std::vector<Sample> first, second;
  std::set<std::uint64_t> others;
  for (const Sample& sample : samples) {
    const bool is_first = half.contains(place_of(*sample.row));
    (is_first ? first : second).push_back(sample);
    if (!is_first) others.insert(place_of(*sample.row));
  }
  if (std::min(half.size(), others.size()) < spec.terms.size()) return model;
  model.coefficients = coefficients_of(first);
  const double share = 1.0 / static_cast<double>(samples.size());
  add_told(spec, model.coefficients, second, share, model);
  add_told(spec, coefficients_of(second), first, share, model);
  return model;
}

std::string terms_text(const FitSpec& spec, const FittedModel& model) {
  if (model.coefficients.empty()) return "too few trials";
  std::string text;
  for (std::size_t j = 0; j < spec.terms.size(); ++j)
    text += fmt::format("{}{:.4g} ({})", text.empty() ? "" : " + ", model.coefficients[j],
                        spec.terms[j]);
  return text;
}

}  // namespace

std::vector<double> fitted_coefficients(const std::vector<std::vector<double>>& terms,
                                        const std::vector<double>& measured) {
  if (terms.empty()) return {};
  const Numbers largest = largest_of(terms);
  const std::size_t n = largest.size();
  std::vector<Numbers> products(n, Numbers(n, 0));
  Numbers sums(n, 0);
  for (std::size_t i = 0; i < terms.size(); ++i)
    for (std::size_t j = 0; j < n; ++j) {
      const double left = terms[i][j] / largest[j] / measured[i];
      sums[j] += left;
      for (std::size_t k = 0; k < n; ++k)
        products[j][k] += left * terms[i][k] / largest[k] / measured[i];
    }
  std::vector<bool> is_used(n, true);
  Numbers coefficients = solved(products, sums, is_used);
  // What would be below 0 is 0, the most negative one first, and all others are fitted anew.
  for (std::size_t round = 0; round < n; ++round) {
    const auto least = std::min_element(coefficients.begin(), coefficients.end());
    if (*least >= 0) break;
    is_used[static_cast<std::size_t>(least - coefficients.begin())] = false;
    coefficients = solved(products, sums, is_used);
  }
  for (std::size_t j = 0; j < n; ++j) coefficients[j] /= largest[j];
  return coefficients;
}

std::vector<FittedModel> fit(const StudyFile& study, const FitSpec& spec,
                             std::vector<StudyRow>& rows) {
  std::vector<std::pair<std::string, std::vector<Sample>>> groups;
  for (StudyRow& row : rows) {
    std::optional<Sample> sample = sample_of(study, spec, row);
    if (!sample) continue;
    const auto setting = row.settings.find(spec.by);
    const std::string of = setting == row.settings.end() ? "" : setting->second;
    auto group =
        std::find_if(groups.begin(), groups.end(), [&](const auto& g) { return g.first == of; });
    if (group == groups.end()) group = groups.insert(groups.end(), {of, {}});
    group->second.push_back(std::move(*sample));
  }
  std::vector<FittedModel> models;
  for (const auto& [of, samples] : groups) {
    models.push_back(fitted_model(spec, samples));
    models.back().of = of;
  }
  return models;
}

std::string fits_section(const StudyFile& study, const std::vector<StudyRow>& rows,
                         const std::string& page) {
  std::vector<std::vector<std::string>> lines;
  std::vector<StudyRow> copy = rows;
  for (const FitSpec& spec : study.fits) {
    if (spec.page != page) continue;
    for (const FittedModel& model : fit(study, spec, copy))
      lines.push_back(
          {spec.title + (model.of.empty() ? "" : ", " + model.of), terms_text(spec, model),
           std::to_string(model.trials),
           model.coefficients.empty() ? "–" : fmt::format("{:.1f} %", 100 * model.mean_error),
           model.coefficients.empty() ? "–" : fmt::format("{:.1f} %", 100 * model.most_error)});
  }
  if (lines.empty()) return "";
  return "## Fitted models\n\nEach half of the settings is told by what is fitted on the other "
         "one. Coefficients are those of "
         "the first half.\n\n" +
         markdown_table({{"model", Align::left},
                         {"fitted", Align::left},
                         {"trials"},
                         {"mean error"},
                         {"largest"}},
                        lines);
}

}  // namespace laconic
