// study/study_file.hpp — a study as plain data, and the TOML file that it is read from.
//
// A study names *axes*, whose *settings* are what is compared, and *parts*, each of which trains a
// product of axes or a list of settings, in several rounds. docs/study.md has every key. What one
// could get wrong: keys of the configuration are kept as texts, as --set takes them, and are not
// checked here; check_trials() (study/study_trials.hpp) does that for each trial as a whole.
//
// Texts may name places, which differ from machine to machine: $laconic, $python, $source, $work
// and $data (study/work.hpp).
#pragma once

#include <cstdint>
#include <map>
#include <optional>
#include <string>
#include <string_view>
#include <vector>

#include "laconic/base/problem.hpp"
#include "laconic/study/plot.hpp"
#include "laconic/study/trial.hpp"

namespace laconic {

using Keys = std::map<std::string, std::string>;  // "section.key" to what --set would be given

struct Setting {  // of an axis; what is empty is the part's
  std::string name, about;
  Keys set;  // of another program than Laconic: its options without their dashes
  std::string preset, model, rate;
  Keys environment;  // variables
  Program program = Program::laconic;
  std::int64_t warmup = 0;          // at least so many steps, of a part that has a warm-up
  std::vector<CountedSteps> kinds;  // of steps that count: they are as many, whatever the part says
  std::optional<double> value;      // where a figure has it on its x axis
};

struct StudyAxis {
  std::string name, about;
  std::vector<Setting> settings;
};
const Setting* find_setting(const StudyAxis& axis, const std::string& name);

// Trials that have, of each of these axes, one of these settings.
using Choice = std::map<std::string, std::vector<std::string>>;

struct Amendment {  // what else is set for some trials of a part
  Choice of;
  Keys set;
};

// Steps that take longer than `over` seconds, as estimated, are fewer.
struct LongSteps {
  double over = 0;
  std::int64_t warmup = 0, steps = 0;
};

struct StudyPart {
  std::string name, about, model, rate = "none";
  std::vector<std::string> axes;               // trials are their product, the last one fastest
  std::vector<std::vector<std::string>> list;  // instead: a setting of each axis in every row
  std::vector<Choice> only, without;           // of the product; empty: all
  Keys set;                                    // by all; what a setting sets wins
  std::vector<Amendment> amendments;           // win over both
  std::vector<std::int64_t> seeds;             // a round for each; empty: rounds are repetitions
  int rounds = 1;
  std::int64_t warmup = 0, steps = 1;  // `warmup` is for settings that need no more
  std::optional<LongSteps> long_steps;
  int hosts = 0;  // 0: as many as the mesh has ranks
};

struct Preparation {               // of data, as lines for one shell
  std::vector<std::string> makes;  // files: where all are there, nothing is done
  std::vector<std::string> lines;
};

struct StudyModel {  // a model and its data
  std::string name;
  Keys set;
  std::vector<std::string> needs;  // files without which its trials are skipped
  std::vector<Preparation> prepare;
  // For estimates: seconds of a step, of each of its samples, and numbers that replicas sum.
  double step_seconds = 1, sample_seconds = 0, summed = 0;
};

struct MeasureSpec {
  std::string name;  // study/study_measure.hpp has the list
  std::string title, unit;
  std::string is;               // an expression of other measures (study/expression.hpp)
  std::string after;            // instead: of so many seconds of steps, at which the loss is read
  std::vector<Choice> against;  // whose measures are "against.NAME" in it: the first that fits
  double scale = 1;             // of what is shown
  int digits = 4;               // after the point
  int figures = 0;              // instead: so many in all; 0: as digits says
  bool has_range = false;       // shown with the least and the most, not the deviation
};

// "within 0.5 %", "at least 3 % below", "not above up to noise", "at least 3.2 times"; and to a
// number, without another setting: "at least 4.9", "at most 5 %", "within 3 %".
struct Relation {
  enum class Side : std::uint8_t { within, above, below };
  Side side = Side::within;
  double margin = 0;  // a share of the other where is_share, otherwise in its unit
  bool is_share = false;
  bool is_at_most = false;  // at most so much above (or below): "not above" is at most 0 above
  bool has_noise = false;   // two standard errors of the differences are forgiven
  bool is_to_number = false;
};
std::optional<Relation> parse_relation(const std::string& text, bool is_to_number = false);

struct PageSpec {
  std::string name;  // of its file, without ending
  std::string title, about;
};

// Each of `of` against each of `against`, all other settings alike; or, where that is empty,
// against a number.
struct Rule {
  std::string name, about, measure;
  std::vector<std::string> parts;  // empty: all that have the settings
  Choice of, against;
  Choice where;    // of the cases that count; empty: all
  std::string is;  // parse_relation() has read it
  Relation relation;
  std::size_t cases = 0;  // in how many it has to hold; 0: in all
  bool lists = false;     // all cases in which it does not
  std::string page;       // empty: README.md, as below
};

struct TableSpec {  // numbers of a part, by two sets of axes
  std::string title, about, part, page;
  std::vector<std::string> measures, rows, columns;
  Choice only;  // of these settings; empty: all
};

struct FigureSpec {
  std::string name, title, part, page;
  std::string x;               // a measure, or an axis whose settings have values
  std::vector<std::string> y;  // measures; several are stacked, a bar for each setting of x
  std::string curves;  // the axis that tells them apart, of one measure; of a heat map: rows
  FigureKind kind = FigureKind::ranges;  // what the file asks for: of stacked bars y tells
  Choice only;
  bool log_x = false, log_y = false;
};

// A measure as a sum of terms, fitted on half of the trials (study/study_fit.hpp).
struct FitSpec {
  std::string name;  // of the measure that it makes
  std::string title, measure, page;
  std::vector<std::string> parts;
  std::vector<std::string> terms;  // expressions
  std::string by;                  // an axis: each setting has coefficients of its own; or empty
  Choice only;
};

struct StudyFile {
  std::string name;  // of the file, without folder and ending
  std::string title, about;
  std::string config;  // a file that configurations without a preset begin from; empty: defaults
  Keys base;           // of all trials; what models, parts and settings set wins
  std::vector<StudyModel> models;
  std::vector<StudyAxis> axes;
  std::vector<StudyPart> parts;
  std::vector<MeasureSpec> measures;
  std::string baseline;  // the measure that always answering the commonest class would have
  std::vector<PageSpec> pages;
  std::vector<Rule> rules;
  std::vector<TableSpec> tables;
  std::vector<FigureSpec> figures;
  std::vector<FitSpec> fits;
  std::vector<std::string> known_parts;  // those of files that it extends, too
};
const StudyModel* find_model(const std::vector<StudyModel>& models, const std::string& name);
const StudyAxis* find_axis(const StudyFile& study, const std::string& name);

// Everything in it that names a thing which is not there. Pure; `file` stands in messages.
Problems check_study(const StudyFile& study, const std::string& file);

// Pure. `name` stands in messages. Adds to `study` what a text says; names are not looked up.
// Throws ConfigError with every problem, each with line and column.
void apply_study(std::string_view text, const std::string& name, StudyFile& study);

// Reads a file and those it extends, whose parts, rules, tables and figures it replaces where it
// has some of its own. Throws ConfigError.
StudyFile read_study(const std::string& path);

}  // namespace laconic
