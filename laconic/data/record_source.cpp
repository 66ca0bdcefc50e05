#include "laconic/data/record_source.hpp"

#include <fmt/format.h>

#include <algorithm>
#include <charconv>
#include <cmath>
#include <filesystem>
#include <nlohmann/json.hpp>

#include "laconic/base/error.hpp"
#include "laconic/base/text.hpp"
#include "laconic/data/table.hpp"
#include "laconic/file/json.hpp"

namespace laconic {

namespace {

// A layout of GLUE. Several names of a column, separated by |, are those of different
// distributions.
struct Layout {
  std::string_view name;
  TaskKind task;
  bool has_header;
  std::string_view text, pair, label;
  std::string_view labels;  // separated by commas
};

constexpr std::string_view kBinary = "0,1", kEntailment = "entailment,not_entailment";
constexpr Layout kLayouts[] = {
    {"cola", TaskKind::classify, false, "4", "", "2", kBinary},
    {"sst-2", TaskKind::classify, true, "sentence|content", "", "label", kBinary},
    {"mrpc", TaskKind::classify, true, "#1 String", "#2 String", "Quality", kBinary},
    {"rte", TaskKind::classify, true, "sentence1", "sentence2", "label", kEntailment},
    {"wnli", TaskKind::classify, true, "sentence1", "sentence2", "label", kBinary},
    {"qnli", TaskKind::classify, true, "question", "sentence", "label", kEntailment},
    {"sts-b", TaskKind::regress, false, "6", "7", "5", ""},
};

const Layout* find_layout(std::string_view name) {
  const auto* found = std::ranges::find(kLayouts, name, &Layout::name);
  return found == std::end(kLayouts) ? nullptr : found;
}

bool has_label(TaskKind task) {
  return task == TaskKind::classify || task == TaskKind::regress;
}

// Columns are numbers from 1, or names in the header.
std::optional<std::size_t> number_of(std::string_view column) {
  std::size_t number = 0;
  const char* end = column.data() + column.size();
  const auto [stop, error] = std::from_chars(column.data(), end, number);
  if (error != std::errc() || stop != end || number == 0 || number > 1000000) return {};
  return number;
}

std::optional<double> finite_number(std::string_view text) {
  double number = 0;
  const std::string_view bare = trim(text);
  const char* end = bare.data() + bare.size();
  const auto [stop, error] = std::from_chars(bare.data(), end, number);
  if (error != std::errc() || stop != end || !std::isfinite(number)) return {};
  return number;
}

// Checks what all formats share.
void check_record(const Record& record, const RecordOptions& options) {
  const std::string columns[] = {options.text, options.pair};
  for (std::size_t p = 0; p < record.parts.size(); ++p)
    if (trim(record.parts[p]).empty())
      throw FileError(record.where, options.task == TaskKind::masked ? "sentence" : columns[p],
                      "is empty", "remove the record, or give it a text");
  if (options.task == TaskKind::regress && !finite_number(record.label))
    throw FileError(record.where, options.label,
                    fmt::format("\"{}\" is not a finite number", printable(record.label)),
                    "a score is a number such as 3.8");
  if (options.task != TaskKind::classify) return;
  if (trim(record.label).empty())
    throw FileError(record.where, options.label, "the label is empty",
                    "a test set without labels cannot be prepared");
  if (!options.labels.empty() && std::ranges::count(options.labels, record.label) == 0)
    throw FileError(record.where, options.label,
                    fmt::format("the label \"{}\" is none of {}", printable(record.label),
                                printable(join(options.labels, ", "), 200)),
                    "correct it, or list it in --labels");
}

// Columns of a table, found once.
class RowReader {
 public:
  RowReader(const RecordOptions& options, const std::vector<std::string>& first,
            const std::string& where)
      : options_(options), columns_(first.size()), first_where_(where) {
    // STS-B has a header in GLUE's own distribution alone.
    has_header_ = options.has_header || (options.layout == "sts-b" && first[0] == "index");
    if (has_header_) header_ = first;
    const bool is_glue_sts = has_header_ && options.layout == "sts-b";
    text_ = find(is_glue_sts ? "sentence1" : options.text, "--text-column");
    if (!options.pair.empty())
      pair_ = find(is_glue_sts ? "sentence2" : options.pair, "--pair-column");
    if (has_label(options.task))
      label_ = find(is_glue_sts ? "score" : options.label, "--label-column");
  }

  bool has_header() const { return has_header_; }

  Record read(std::vector<std::string>& fields, std::string where) const {
    // The raw STS-B names its sources behind the texts of some rows.
    const bool may_be_longer = options_.layout == "sts-b" && !has_header_;
    const std::size_t least = may_be_longer ? std::max({text_, pair_, label_}) + 1 : columns_;
    if (fields.size() < least || (fields.size() > columns_ && !may_be_longer))
      throw FileError(
          where, "columns",
          fmt::format("there are {}, but {} has {}", fields.size(), first_where_, columns_),
          "every row has as many; in .tsv files quotes mean nothing");
    Record record{.parts = {}, .where = std::move(where)};
    record.parts.push_back(std::move(fields[text_]));
    if (!options_.pair.empty()) record.parts.push_back(std::move(fields[pair_]));
    if (has_label(options_.task)) record.label = std::move(fields[label_]);
    check_record(record, options_);
    return record;
  }

 private:
  std::size_t find(std::string_view column, const char* option) const {
    for (const std::string& name : split(column, '|')) {
      const auto found = std::ranges::find(header_, name);
      if (found != header_.end()) return static_cast<std::size_t>(found - header_.begin());
    }
    const std::optional<std::size_t> number = number_of(column);
    if (number && *number <= columns_) return *number - 1;
    const std::string names =
        header_.empty() ? fmt::format("it has {} columns, without names", columns_)
                        : fmt::format("there are {}", printable(join(header_, ", "), 200));
    throw FileError(first_where_, printable(column), fmt::format("no such column: {}", names),
                    options_.layout.empty()
                        ? fmt::format("name it with {}", option)
                        : fmt::format("this is not the layout \"{}\"", options_.layout));
  }

  const RecordOptions& options_;
  std::size_t columns_;
  std::string first_where_;
  bool has_header_ = false;
  std::vector<std::string> header_;
  std::size_t text_ = 0, pair_ = 0, label_ = 0;
};

void visit_table(TableReader reader, const RecordOptions& options,
                 const std::function<void(Record&&)>& visit) {
  std::vector<std::string> fields;
  if (!reader.next(fields)) return;
  const RowReader rows(options, fields, reader.where());
  bool has_row = !rows.has_header() || reader.next(fields);
  for (; has_row; has_row = reader.next(fields)) visit(rows.read(fields, reader.where()));
}

constexpr const char* kRecordLines = "a .jsonl file has one object per line, in UTF-8";

const nlohmann::json& member(const nlohmann::json& json, const std::string& key,
                             const std::string& where, const char* kind) {
  const auto found = json.find(key);
  if (found == json.end())
    throw FileError(where, printable(key), "missing", fmt::format("every record has {}", kind));
  return *found;
}

std::string text_member(const nlohmann::json& json, const std::string& key,
                        const std::string& where) {
  const nlohmann::json& value = member(json, key, where, "its texts");
  if (!value.is_string()) throw FileError(where, printable(key), "not a text", kRecordLines);
  return value;
}

// A text as it is; numbers and truth values as JSON writes them.
std::string label_member(const nlohmann::json& json, const std::string& key,
                         const std::string& where) {
  const nlohmann::json& value = member(json, key, where, "its label");
  if (value.is_string()) return value;
  if (value.is_number() || value.is_boolean()) return value.dump();
  throw FileError(where, printable(key), "neither a text nor a number", kRecordLines);
}

// Byte at which a character begins; the size when the text ends there, and more when it is shorter.
std::size_t byte_of_character(std::string_view text, std::uint64_t character) {
  std::size_t byte = 0;
  for (; byte < text.size(); ++byte) {
    if ((static_cast<unsigned char>(text[byte]) & 0xC0) == 0x80) continue;
    if (character-- == 0) return byte;
  }
  return character == 0 ? byte : text.size() + 1;
}

// {"answer": ..., "answer_start": ...}, or SQuAD's {"answers": {"text": [...], "answer_start":
// [...]}}, of which the first counts. An answer that is missing or empty: there is none.
std::optional<Record::Answer> answer_of(const nlohmann::json& json, const Record& record) {
  nlohmann::json text, start;
  if (json.contains("answers")) {
    const nlohmann::json& answers = json["answers"];
    if (!answers.is_object() || !answers.contains("text") || !answers.contains("answer_start") ||
        !answers["text"].is_array() || !answers["answer_start"].is_array() ||
        answers["text"].size() != answers["answer_start"].size())
      throw FileError(record.where, "answers",
                      "not an object with lists \"text\" and \"answer_start\" of one length",
                      kRecordLines);
    if (answers["text"].empty()) return {};
    text = answers["text"][0];
    start = answers["answer_start"][0];
  } else {
    if (!json.contains("answer")) return {};
    text = json["answer"];
    if (text.is_null() || text == "") return {};
    start = member(json, "answer_start", record.where, "the place of its answer");
  }
  if (!text.is_string() || text.get_ref<const std::string&>().empty())
    throw FileError(record.where, "answer", "not a text", kRecordLines);
  if (!start.is_number_unsigned())
    throw FileError(record.where, "answer_start", "not a whole number of characters", kRecordLines);
  const auto& answer = text.get_ref<const std::string&>();
  const std::string& context = record.parts[1];
  const std::size_t begin = byte_of_character(context, start.get<std::uint64_t>());
  if (begin > context.size() || context.compare(begin, answer.size(), answer) != 0)
    throw FileError(record.where, "answer_start",
                    fmt::format("the context does not have \"{}\" at character {}",
                                printable(answer), start.get<std::uint64_t>()),
                    "it counts characters of the context, from 0");
  return Record::Answer{begin, begin + answer.size()};
}

void add_lines(std::vector<std::string>& parts, std::string_view text) {
  for (const std::string& line : split(text, '\n'))
    if (!trim(line).empty()) parts.emplace_back(trim(line));
}

// The sentences of a document: a list of texts, or the lines of one.
std::vector<std::string> sentences_member(const nlohmann::json& json, const std::string& key,
                                          const std::string& where) {
  const nlohmann::json& value = member(json, key, where, "its sentences");
  std::vector<std::string> sentences;
  if (value.is_string()) add_lines(sentences, value.get_ref<const std::string&>());
  if (value.is_array())
    for (const auto& one : value) {
      if (!one.is_string()) throw FileError(where, printable(key), "not all texts", kRecordLines);
      if (!trim(one.get_ref<const std::string&>()).empty()) sentences.push_back(one);
    }
  if (sentences.empty())
    throw FileError(where, printable(key), "neither a text nor a list of texts, or empty",
                    kRecordLines);
  return sentences;
}

Record record_of_json(const nlohmann::json& json, const RecordOptions& options, std::string where) {
  Record record{.parts = {}, .where = std::move(where)};
  if (!json.is_object()) throw FileError(record.where, "", "not a JSON object", kRecordLines);
  if (options.task == TaskKind::masked) {
    record.parts = sentences_member(json, options.text, record.where);
    return record;
  }
  record.parts.push_back(text_member(json, options.text, record.where));
  if (!options.pair.empty()) record.parts.push_back(text_member(json, options.pair, record.where));
  if (has_label(options.task)) record.label = label_member(json, options.label, record.where);
  if (options.task == TaskKind::span) record.answer = answer_of(json, record);
  check_record(record, options);
  return record;
}

// Takes the next line off `text`, without its line break.
std::string_view take_record_line(std::string_view& text) {
  const std::size_t end = std::min(text.find('\n'), text.size());
  std::string_view line = text.substr(0, end);
  text.remove_prefix(std::min(end + 1, text.size()));
  if (line.ends_with('\r')) line.remove_suffix(1);
  return line;
}

void visit_json_records(std::string_view text, const std::string& name,
                        const RecordOptions& options, const std::function<void(Record&&)>& visit) {
  for (std::uint64_t number = 1; !text.empty(); ++number) {
    const std::string_view line = take_record_line(text);
    if (trim(line).empty()) continue;
    std::string where = fmt::format("{}:{}", name, number);
    const nlohmann::json json = parse_json(line, where, kRecordLines);
    visit(record_of_json(json, options, std::move(where)));
  }
}

// Documents of sentences, one a line, with blank lines between.
void visit_sentences(std::string_view text, const std::string& name,
                     const std::function<void(Record&&)>& visit) {
  Record record;
  for (std::uint64_t number = 1; !text.empty(); ++number) {
    const std::string_view line = trim(take_record_line(text));
    if (!line.empty()) {
      if (record.parts.empty()) record.where = fmt::format("{}:{}", name, number);
      record.parts.emplace_back(line);
    } else if (!record.parts.empty()) {
      visit(std::exchange(record, {}));
    }
  }
  if (!record.parts.empty()) visit(std::move(record));
}

}  // namespace

std::vector<std::string> layout_names() {
  std::vector<std::string> names;
  for (const Layout& layout : kLayouts) names.emplace_back(layout.name);
  return names;
}

RecordOptions resolved(RecordOptions options) {
  const auto set = [](std::string& column, std::string_view value) {
    if (column.empty()) column = value;
  };
  if (const Layout* layout = find_layout(options.layout)) {
    set(options.text, layout->text);
    set(options.pair, layout->pair);
    set(options.label, layout->label);
    options.has_header = layout->has_header;
    if (options.labels.empty() && !layout->labels.empty())
      options.labels = split(layout->labels, ',');
    return options;
  }
  switch (options.task) {
    case TaskKind::span:
      set(options.text, "question");
      set(options.pair, "context");
      break;
    case TaskKind::translate:
      set(options.text, "source");
      set(options.pair, "target");
      break;
    case TaskKind::causal:
    case TaskKind::masked:
    case TaskKind::classify:
    case TaskKind::regress: set(options.text, "text"); break;
  }
  if (has_label(options.task)) set(options.label, "label");
  return options;
}

Problems check(const RecordOptions& options) {
  Problems problems;
  const std::string task(name_in(kTaskKindNames, options.task));
  if (!options.layout.empty()) {
    const Layout* layout = find_layout(options.layout);
    if (layout == nullptr)
      problems.push_back({"--layout", fmt::format("\"{}\" is none of {}", printable(options.layout),
                                                  join(layout_names(), ", "))});
    else if (layout->task != options.task)
      problems.push_back({"--layout", fmt::format("{} is for --task {}, not {}", options.layout,
                                                  name_in(kTaskKindNames, layout->task), task)});
  }
  if (!options.label.empty() && !has_label(options.task))
    problems.push_back({"--label-column", fmt::format("--task {} has no labels", task)});
  if (!options.labels.empty() && options.task != TaskKind::classify)
    problems.push_back({"--labels", fmt::format("--task {} has no classes", task)});
  if (!options.pair.empty() && options.task == TaskKind::masked)
    problems.push_back({"--pair-column", "--task masked takes sentences, not pairs"});
  for (std::size_t i = 0; i < options.labels.size(); ++i) {
    if (trim(options.labels[i]).empty()) problems.push_back({"--labels", "a name is empty"});
    if (std::ranges::find(options.labels.begin(), options.labels.begin() + i, options.labels[i]) !=
        options.labels.begin() + i)
      problems.push_back({"--labels", fmt::format("\"{}\" twice", printable(options.labels[i]))});
  }
  return problems;
}

RecordFormat record_format_of(const std::string& plain_name, const RecordOptions& options) {
  if (!options.layout.empty()) return RecordFormat::tsv;
  const std::string ending = std::filesystem::path(plain_name).extension();
  return ending == ".tsv"     ? RecordFormat::tsv
         : ending == ".csv"   ? RecordFormat::csv
         : ending == ".jsonl" ? RecordFormat::json_lines
                              : RecordFormat::text;
}

void for_each_record(std::string_view text, const std::string& name, RecordFormat format,
                     const RecordOptions& options, const std::function<void(Record&&)>& visit) {
  const bool is_table = format == RecordFormat::tsv || format == RecordFormat::csv;
  if (format == RecordFormat::json_lines) return visit_json_records(text, name, options, visit);
  if (options.task == TaskKind::masked && !is_table) return visit_sentences(text, name, visit);
  const std::string task(name_in(kTaskKindNames, options.task));
  if (!is_table)
    throw FileError(name, "", fmt::format("plain text does not say what --task {} asks for", task),
                    "give .tsv, .csv or .jsonl, or say --format; for translate also --source and "
                    "--target");
  if (options.task == TaskKind::masked || options.task == TaskKind::span)
    throw FileError(name, "", fmt::format("--task {} does not read tables", task),
                    options.task == TaskKind::span ? "give .jsonl" : "give text or .jsonl");
  const TableFormat table = format == RecordFormat::tsv ? TableFormat::tsv : TableFormat::csv;
  visit_table(TableReader(text, name, table), options, visit);
}

void for_each_line_pair(std::string_view source, const std::string& source_name,
                        std::string_view target, const std::string& target_name,
                        const std::function<void(Record&&)>& visit) {
  std::uint64_t number = 1;
  for (; !source.empty() && !target.empty(); ++number) {
    const std::string_view from = trim(take_record_line(source));
    const std::string_view to = trim(take_record_line(target));
    if (from.empty() && to.empty()) continue;
    if (from.empty() || to.empty())
      throw FileError(fmt::format("{}:{}", from.empty() ? source_name : target_name, number), "",
                      "is empty, but its other side is not", "remove both lines");
    visit({.parts = {std::string(from), std::string(to)},
           .where = fmt::format("{}:{}", source_name, number)});
  }
  if (!trim(source).empty() || !trim(target).empty()) {
    const bool is_longer = !source.empty();
    throw FileError(is_longer ? source_name : target_name, "",
                    fmt::format("goes on behind line {}, where {} ends", number - 1,
                                is_longer ? target_name : source_name),
                    "the two files belong together line by line");
  }
}

double score_of(const Record& record) {
  return finite_number(record.label).value();
}

}  // namespace laconic
