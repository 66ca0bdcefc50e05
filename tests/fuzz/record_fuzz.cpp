// Records of any text are read or refused with its line; rows of a table come back when they are
// written as CSV, each field in quotes. The second byte says which of the two is asked of an input,
// or whether its lines are paired with themselves.
#include <cstdint>

#include "laconic/base/error.hpp"
#include "laconic/data/record_source.hpp"
#include "laconic/data/table.hpp"

using namespace laconic;

namespace {

std::string quoted(const std::vector<std::string>& row) {
  std::string line;
  for (const std::string& field : row) {
    line += line.empty() ? "\"" : ",\"";
    for (const char c : field) line += c == '"' ? "\"\"" : std::string(1, c);
    line += '"';
  }
  return line + "\n";
}

using Table = std::vector<std::vector<std::string>>;

Table rows_of(std::string_view text, TableFormat format) {
  TableReader reader(text, "fuzz", format);
  Table rows;
  for (std::vector<std::string> fields; reader.next(fields);) rows.push_back(fields);
  return rows;
}

void check_tables(std::string_view text, TableFormat format) {
  const Table rows = rows_of(text, format);
  std::string written;
  for (const std::vector<std::string>& row : rows) written += quoted(row);
  if (rows_of(written, TableFormat::csv) != rows) __builtin_trap();
}

void check_records(std::string_view text, RecordFormat format, const RecordOptions& options) {
  for_each_record(text, "fuzz", format, options, [&](TextRecord&& record) {
    if (record.parts.empty() || record.where.rfind("fuzz:", 0) != 0) __builtin_trap();
    for (const std::string& part : record.parts)
      if (part.empty()) __builtin_trap();
    if (options.task == TaskKind::regress) (void)score_of(record);
    if (record.answer &&
        (record.answer->begin >= record.answer->end || record.answer->end > record.parts[1].size()))
      __builtin_trap();
  });
}

}  // namespace

extern "C" int LLVMFuzzerTestOneInput(const std::uint8_t* data, std::size_t size) {
  if (size < 2) return 0;
  const std::string_view text(reinterpret_cast<const char*>(data) + 2, size - 2);
  constexpr TaskKind kTasks[] = {TaskKind::masked, TaskKind::classify, TaskKind::regress,
                                 TaskKind::span, TaskKind::translate};
  const auto format = static_cast<RecordFormat>(data[0] % 4);
  RecordOptions options{.task = kTasks[data[1] % 5]};
  static const std::vector<std::string> layouts = layout_names();
  if (data[0] / 4 > 0) options.layout = layouts[data[0] / 4 % layouts.size()];
  options.has_header = data[1] / 5 % 2 == 0;
  if (data[1] / 10 % 2 == 1) options.labels = {"0", "1"};
  try {
    switch (data[1] / 20 % 4) {
      case 2: check_tables(text, data[1] % 2 == 0 ? TableFormat::csv : TableFormat::tsv); break;
      case 3: for_each_line_pair(text, "fuzz", text, "fuzz", [](TextRecord&&) {}); break;
      default:
        if (check(options).empty()) check_records(text, format, resolved(options));
    }
  } catch (const FileError&) {
  }
  return 0;
}
