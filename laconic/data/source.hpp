// data/source.hpp — text files as documents.
//
// *.jsonl holds one JSON object per line with the text under a key, or without that
// key with a "prompt" and its "completion"; any other file is text, and is one document, or one per
// line, or one per paragraph (blank lines separate). An ending that says how a file is compressed
// (.gz, .zst, .xz) is passed over: a.jsonl.gz is JSON lines. Empty documents are skipped. Bytes are
// passed on as they are, except that a line or paragraph loses its final line break.
#pragma once

#include <functional>
#include <memory>
#include <optional>
#include <string>
#include <string_view>
#include <vector>

#include "laconic/base/problem.hpp"
#include "laconic/data/record_source.hpp"

namespace laconic {

enum class DocumentSplit { file, line, paragraph };
std::string_view to_text(DocumentSplit split);
std::optional<DocumentSplit> parse_document_split(std::string_view text);

enum class SourceFormat { by_name, text, json_lines, tsv, csv };

struct SourceOptions {
  DocumentSplit documents = DocumentSplit::file;
  SourceFormat format = SourceFormat::by_name;
  std::string json_key = "text";
  std::optional<RecordOptions> records = {};  // documents are records of a task; resolved
  bool is_side_by_side = false;  // records: each two files belong together line by line
};

struct Document {
  std::string_view text;
  std::shared_ptr<const void> owner;  // keeps the text in memory
  std::size_t prompt_bytes = 0;       // of the text: a prompt, which the rest completes
  const Record* record = nullptr;     // kept by the owner; its first part is the text
};

// The files behind the inputs, in order, "-" being standard input; pipes are fine too. A folder
// stands for the *.txt and
// *.jsonl in it and below, compressed or not, sorted by path; folders named *.tokeniser (or
// *.tokeniser.tmp, which a killed prepare leaves) are left out, they hold a merges.txt.
std::vector<std::string> find_sources(const std::vector<std::string>& inputs, Problems& problems);

// Whether the name says that the file is compressed: .gz, .zst or .xz.
bool has_compressed_name(const std::string& path);
bool is_json_lines(const std::string& path, const SourceOptions& options);
RecordFormat record_format(const std::string& path, const SourceOptions& options);

// A text in memory; `owner` keeps it there.
struct SourceText {
  std::string name;  // for messages
  std::string_view text;
  std::shared_ptr<const void> owner;
  bool is_json_lines = false;
  RecordFormat record_format = RecordFormat::text;  // where documents are records
};

// Calls `visit` for every document of the text, in order. Throws as below.
void for_each_document(const SourceText& source, const SourceOptions& options,
                       const std::function<void(const Document&)>& visit);

// Calls `visit` for every pair of lines as a record of two parts.
void for_each_line_pair(const SourceText& source, const SourceText& target,
                        const std::function<void(const Document&)>& visit);

// Calls `visit` for every document of the file, in order. Throws SystemError, and FileError as
// "path:line" for a line that parse_json refuses or that is without the text.
void for_each_document(const std::string& path, const SourceOptions& options,
                       const std::function<void(const Document&)>& visit);

}  // namespace laconic
