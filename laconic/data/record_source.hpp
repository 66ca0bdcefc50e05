// data/record_source.hpp — files as records of a task (data/record.hpp).
//
// TSV, CSV and JSON lines give a record for each row; columns, or keys, are named by options or by
// one of GLUE's layouts. Plain text has records in two cases: sentences, one a line, with blank
// lines between documents (masked); and two files side by side, whose lines belong together
// (translate).
#pragma once

#include <cstdint>
#include <functional>
#include <optional>
#include <string>
#include <string_view>
#include <vector>

#include "laconic/base/problem.hpp"
#include "laconic/base/task_kind.hpp"

namespace laconic {

enum class RecordFormat : std::uint8_t { text, json_lines, tsv, csv };

struct RecordOptions {
  TaskKind task = TaskKind::classify;  // not causal
  std::string layout = {};             // of GLUE, as kLayoutNames lists them; empty: none
  // Columns by name, or by number from 1; keys in JSON lines. Empty: the task's own (see below).
  std::string text = {};
  std::string pair = {};
  std::string label = {};
  bool has_header = true;                // false: columns have numbers only
  std::vector<std::string> labels = {};  // names of classes; empty: as they are found
  bool operator==(const RecordOptions&) const = default;
};

// A record as a file spells it.
struct Record {
  std::vector<std::string> parts;  // none is empty
  std::string label = {};          // classify, regress
  struct Answer {                  // span: bytes of the second part
    std::size_t begin = 0;
    std::size_t end = 0;
    bool operator==(const Answer&) const = default;
  };
  std::optional<Answer> answer = {};
  std::string where = {};  // "file:line"
  bool operator==(const Record&) const = default;
};

std::vector<std::string> layout_names();  // "cola", ...

// The options with the layout's columns and labels filled in, and the task's own for what is still
// empty: text and label; source and target; question and context. Requires: check() finds nothing.
RecordOptions resolved(RecordOptions options);

// Everything wrong with the options.
Problems check(const RecordOptions& options);

// What the name says the file holds, .gz and the like passed over. A layout knows better: its files
// are TSV whatever they are called.
RecordFormat record_format_of(const std::string& plain_name, const RecordOptions& options);

// Calls `visit` for every record, in order. Throws FileError as "name:line" for a line that is no
// row or object, a column or key that is missing, a text that is empty, a score that is no finite
// number, and a label that is not among those given. Requires: options are resolved.
void for_each_record(std::string_view text, const std::string& name, RecordFormat format,
                     const RecordOptions& options, const std::function<void(Record&&)>& visit);

// The same for two texts, line by line. Lines that are empty in both are passed over; one that is
// empty in one of them, and texts of different lengths, are refused.
void for_each_line_pair(std::string_view source, const std::string& source_name,
                        std::string_view target, const std::string& target_name,
                        const std::function<void(Record&&)>& visit);

// The number of a record's score. Requires: for_each_record() has let it pass.
double score_of(const Record& record);

}  // namespace laconic
