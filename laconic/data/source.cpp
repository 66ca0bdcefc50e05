#include "laconic/data/source.hpp"

#include <fmt/format.h>

#include <algorithm>
#include <filesystem>
#include <nlohmann/json.hpp>
#include <optional>

#include "laconic/base/error.hpp"
#include "laconic/base/text.hpp"
#include "laconic/data/tokeniser.hpp"
#include "laconic/file/json.hpp"
#include "laconic/file/mapped_file.hpp"

namespace laconic {

namespace fs = std::filesystem;

namespace {

bool is_unknown_archive(const fs::path& path) {
  constexpr std::string_view kEndings[] = {".bz2", ".zip", ".7z", ".rar", ".tgz"};
  const std::string ending = path.extension().string();
  return std::ranges::find(kEndings, ending) != std::end(kEndings) ||
         (has_compressed_name(path) && path.stem().extension() == ".tar");
}

// The path without an ending that says how the file is compressed.
fs::path plain_name(const fs::path& path) {
  return has_compressed_name(path) ? path.parent_path() / path.stem() : path;
}

// Finished, or left behind by a prepare that was killed.
bool is_tokeniser(fs::path path) {
  for (const char* ending : {".tmp", ".old"})
    if (path.extension() == ending) path.replace_extension();
  return path.extension() == kTokeniserEnding;
}

std::vector<std::string> files_below(const std::string& folder) {
  std::vector<std::string> found;
  for (fs::recursive_directory_iterator at(folder), end; at != end; ++at) {
    if (at->is_directory() && is_tokeniser(at->path())) at.disable_recursion_pending();
    const std::string ending = plain_name(at->path()).extension().string();
    if (at->is_regular_file() && (ending == ".txt" || ending == ".jsonl"))
      found.push_back(at->path().string());
  }
  std::ranges::sort(found);
  return found;
}

// Takes the next line off `text`, without its line break.
std::string_view take_line(std::string_view& text) {
  const std::size_t end = std::min(text.find('\n'), text.size());
  std::string_view line = text.substr(0, end);
  text.remove_prefix(std::min(end + 1, text.size()));
  if (line.ends_with('\r')) line.remove_suffix(1);
  return line;
}

// Takes the next run of lines that are not blank off `text`; empty when there is none.
std::string_view take_paragraph(std::string_view& text) {
  const char* first = nullptr;
  const char* last = nullptr;
  while (!text.empty()) {
    const std::string_view line = take_line(text);
    if (!trim(line).empty()) {
      if (!first) first = line.data();
      last = line.data() + line.size();
    } else if (first) {
      break;
    }
  }
  return {first, static_cast<std::size_t>(last - first)};
}

constexpr const char* kJsonLines = "a .jsonl file has one object per line, in UTF-8";

// A line of a .jsonl file.
struct JsonText {
  std::string text;
  std::size_t prompt_bytes = 0;
};

// What is under "prompt" and "completion". Throws when one is there without the other.
std::optional<JsonText> pair_of_json(const nlohmann::json& json, const std::string& where) {
  if (!json.contains("prompt") && !json.contains("completion")) return std::nullopt;
  for (const char* key : {"prompt", "completion"})
    if (!json.contains(key) || !json[key].is_string())
      throw FileError(where, key, "missing, or not a text",
                      "a record has both, \"prompt\" and \"completion\"");
  const auto& prompt = json["prompt"].get_ref<const std::string&>();
  const auto& completion = json["completion"].get_ref<const std::string&>();
  if (completion.empty())
    throw FileError(where, "completion", "is empty: there is nothing to learn from",
                    "remove the record");
  return JsonText{prompt + completion, prompt.size()};
}

JsonText text_of_json(std::string_view line, const std::string& key, const std::string& where) {
  nlohmann::json json = parse_json(line, where, kJsonLines);
  if (!json.is_object()) throw FileError(where, "", "not a JSON object", kJsonLines);
  const auto found = json.find(key);
  if (found == json.end())
    if (std::optional<JsonText> pair = pair_of_json(json, where)) return std::move(*pair);
  if (found == json.end() || !found->is_string())
    throw FileError(where, key, "missing, or not a text",
                    "name the key that holds the text, or write \"prompt\" and \"completion\"");
  return {std::move(found->get_ref<std::string&>()), 0};
}

using Visit = std::function<void(const Document&)>;

void visit_json(const SourceText& source, const std::string& key, const Visit& visit) {
  std::string_view rest = source.text;
  for (int number = 1; !rest.empty(); ++number) {
    const std::string_view line = take_line(rest);
    if (trim(line).empty()) continue;
    const auto found = std::make_shared<const JsonText>(
        text_of_json(line, key, fmt::format("{}:{}", source.name, number)));
    if (!found->text.empty()) visit({found->text, found, found->prompt_bytes});
  }
}

// A record as a document, which keeps it.
void visit_record(Record&& record, const Visit& visit) {
  const auto kept = std::make_shared<const Record>(std::move(record));
  visit({.text = kept->parts.front(), .owner = kept, .record = kept.get()});
}

}  // namespace

std::string_view to_text(DocumentSplit split) {
  constexpr std::string_view kNames[] = {"file", "line", "paragraph"};
  return kNames[static_cast<std::size_t>(split)];
}

std::optional<DocumentSplit> parse_document_split(std::string_view text) {
  for (const auto split : {DocumentSplit::file, DocumentSplit::line, DocumentSplit::paragraph})
    if (text == to_text(split)) return split;
  return {};
}

std::vector<std::string> find_sources(const std::vector<std::string>& inputs, Problems& problems) {
  std::vector<std::string> sources;
  if (inputs.empty()) problems.push_back({"INPUT", "none given: name text files or folders"});
  for (const std::string& input : inputs) {
    if (input == "-") {
      if (std::ranges::count(sources, input) > 0)
        problems.push_back({"-", "standard input is named twice, and can be read once"});
      sources.push_back(input);
    } else if (fs::is_directory(input)) {
      const std::vector<std::string> found = files_below(input);
      if (found.empty()) problems.push_back({input, "no *.txt or *.jsonl in this folder"});
      sources.insert(sources.end(), found.begin(), found.end());
    } else if (fs::is_fifo(input)) {
      sources.push_back(input);
    } else if (!fs::is_regular_file(input)) {
      problems.push_back({input, "no such file or folder"});
    } else if (is_unknown_archive(input)) {
      problems.push_back({input, "only .gz, .zst and .xz are read here: extract it first"});
    } else {
      sources.push_back(input);
    }
  }
  return sources;
}

bool has_compressed_name(const std::string& path) {
  return path.ends_with(".gz") || path.ends_with(".zst") || path.ends_with(".xz");
}

bool is_json_lines(const std::string& path, const SourceOptions& options) {
  if (options.format != SourceFormat::by_name) return options.format == SourceFormat::json_lines;
  return plain_name(path).extension() == ".jsonl";
}

RecordFormat record_format(const std::string& path, const SourceOptions& options) {
  switch (options.format) {
    case SourceFormat::by_name: break;
    case SourceFormat::text: return RecordFormat::text;
    case SourceFormat::json_lines: return RecordFormat::json_lines;
    case SourceFormat::tsv: return RecordFormat::tsv;
    case SourceFormat::csv: return RecordFormat::csv;
  }
  return record_format_of(plain_name(path), options.records.value_or(RecordOptions()));
}

void for_each_line_pair(const SourceText& source, const SourceText& target, const Visit& visit) {
  for_each_line_pair(source.text, source.name, target.text, target.name,
                     [&](Record&& record) { visit_record(std::move(record), visit); });
}

void for_each_document(const SourceText& source, const SourceOptions& options, const Visit& visit) {
  if (options.records)
    return for_each_record(source.text, source.name, source.record_format, *options.records,
                           [&](Record&& record) { visit_record(std::move(record), visit); });
  if (source.is_json_lines) return visit_json(source, options.json_key, visit);
  std::string_view rest = source.text;
  switch (options.documents) {
    case DocumentSplit::file:
      if (!rest.empty()) visit({rest, source.owner});
      break;
    case DocumentSplit::line:
      while (!rest.empty())
        if (const auto line = take_line(rest); !line.empty()) visit({line, source.owner});
      break;
    case DocumentSplit::paragraph:
      while (!rest.empty())
        if (const auto text = take_paragraph(rest); !text.empty()) visit({text, source.owner});
      break;
  }
}

void for_each_document(const std::string& path, const SourceOptions& options, const Visit& visit) {
  const auto file = std::make_shared<const MappedFile>(path);
  for_each_document({.name = path,
                     .text = file->text(),
                     .owner = file,
                     .is_json_lines = is_json_lines(path, options),
                     .record_format = record_format(path, options)},
                    options, visit);
}

}  // namespace laconic
