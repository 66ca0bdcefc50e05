#include "laconic/data/record.hpp"

#include <gtest/gtest.h>

#include <cmath>
#include <limits>

#include "laconic/base/error.hpp"
#include "laconic/data/answer_tokens.hpp"
#include "laconic/data/dataset.hpp"
#include "laconic/data/indexed_writer.hpp"
#include "laconic/data/prepare.hpp"
#include "laconic/data/table.hpp"
#include "laconic/data/task.hpp"
#include "laconic/data/test_data.hpp"
#include "laconic/data/words.hpp"

namespace laconic {
namespace {

std::vector<std::vector<std::string>> rows_of(const std::string& text, TableFormat format) {
  TableReader reader(text, "t", format);
  std::vector<std::vector<std::string>> rows;
  for (std::vector<std::string> fields; reader.next(fields);) rows.push_back(fields);
  return rows;
}

using Rows = std::vector<std::vector<std::string>>;

TEST(Table, TsvHasTabsAndNoQuotes) {
  EXPECT_EQ(rows_of("\xEF\xBB\xBF"
                    "a\t\"b\r\n\n\tc\n",
                    TableFormat::tsv),
            (Rows{{"a", "\"b"}, {"", "c"}}));
  EXPECT_EQ(rows_of("", TableFormat::tsv), Rows{});
}

TEST(Table, CsvHasQuotes) {
  EXPECT_EQ(rows_of("a,\"b, \"\"c\"\"\nd\",e\r\n\r\n\"\",\n", TableFormat::csv),
            (Rows{{"a", "b, \"c\"\nd", "e"}, {"", ""}}));
  EXPECT_EQ(rows_of("a,b", TableFormat::csv), (Rows{{"a", "b"}}));
  for (const auto& [text, part] : std::vector<std::pair<std::string, std::string>>{
           {"a\nb,\"c\nd", "t:2: column 2: the quote is never closed"},
           {"\"a\"b", "t:1: column 1: there is text behind the closing quote"},
           {"\"a\nb\"\nc\"d\"", "t:3: column 1: a quote inside"}}) {
    const std::string message = message_of<FileError>([&] { rows_of(text, TableFormat::csv); });
    LACONIC_EXPECT_MENTIONS(message, part);
  }
}

std::vector<TextRecord> records_of(const std::string& text, RecordFormat format,
                                   const RecordOptions& options) {
  std::vector<TextRecord> records;
  EXPECT_TRUE(check(options).empty()) << to_text(check(options));
  for_each_record(text, "f", format, resolved(options),
                  [&](TextRecord&& record) { records.push_back(std::move(record)); });
  return records;
}

TEST(RecordSource, ReadsColumnsByNameAndNumber) {
  const std::string tsv = "id\tlabel\ta\tb\n7\tyes\tone\ttwo\n8\tno\tthree\tfour\n";
  const std::vector<TextRecord> expected = {
      {.parts = {"one", "two"}, .label = "yes", .where = "f:2"},
      {.parts = {"three", "four"}, .label = "no", .where = "f:3"}};
  EXPECT_EQ(records_of(tsv, RecordFormat::tsv, {.text = "a", .pair = "b"}), expected);
  EXPECT_EQ(records_of(tsv, RecordFormat::tsv, {.text = "3", .pair = "4", .label = "2"}), expected);
  EXPECT_EQ(records_of("7,yes,one,two\n", RecordFormat::csv,
                       {.text = "3", .pair = "4", .label = "2", .has_header = false})[0],
            (TextRecord{.parts = {"one", "two"}, .label = "yes", .where = "f:1"}));
  EXPECT_EQ(records_of("\n{\"a\": \"one\", \"b\": \"two\", \"label\": 3}\n",
                       RecordFormat::json_lines, {.text = "a", .pair = "b"})[0],
            (TextRecord{.parts = {"one", "two"}, .label = "3", .where = "f:2"}));
}

TEST(RecordSource, RefusesWithFileAndLine) {
  struct Case {
    std::string text;
    RecordFormat format;
    RecordOptions options;
    std::string part;
  };
  const RecordOptions plain, score{.task = TaskKind::regress}, span{.task = TaskKind::span};
  for (const Case& c : std::vector<Case>{
           {"text\tlabel\na\n", RecordFormat::tsv, plain,
            "f:2: columns: there are 1, but f:1 has 2"},
           {"text\tlabel\na\tb\tc\n", RecordFormat::tsv, plain, "f:2: columns: there are 3"},
           {"words\tlabel\na\t1\n", RecordFormat::tsv, plain,
            "f:1: text: no such column: there are words, label; name it with --text-column"},
           {"text\nx\n", RecordFormat::tsv, plain, "f:1: label: no such column"},
           {"text,label\na,\n", RecordFormat::csv, plain, "f:2: label: the label is empty"},
           {"text,label\n ,1\n", RecordFormat::csv, plain, "f:2: text: is empty"},
           {"text,label\na,2\n",
            RecordFormat::csv,
            {.labels = {"0", "1"}},
            "f:2: label: the label \"2\" is none of 0, 1"},
           {"text,label\na,inf\n", RecordFormat::csv, score, "\"inf\" is not a finite number"},
           {"text,label\na,1e999\n", RecordFormat::csv, score, "is not a finite number"},
           {"text,label\na,3x\n", RecordFormat::csv, score, "\"3x\" is not a finite number"},
           {"{\"text\": 3, \"label\": 1}", RecordFormat::json_lines, plain,
            "f:1: text: not a text"},
           {"{\"text\": \"a\"}", RecordFormat::json_lines, plain, "f:1: label: missing"},
           {"{\"text\": \"a\", \"label\": []}", RecordFormat::json_lines, plain,
            "neither a text nor a number"},
           {"[]", RecordFormat::json_lines, plain, "f:1: not a JSON object"},
           {"a b\n", RecordFormat::text, plain, "plain text does not say"},
           {"a,b\n", RecordFormat::csv, span, "--task span does not read tables"},
           {R"({"question": "a", "context": "bcd", "answer": "c", "answer_start": 2})",
            RecordFormat::json_lines, span, "does not have \"c\" at character 2"},
           {R"({"question": "a", "context": "bcd", "answer": "c"})", RecordFormat::json_lines, span,
            "f:1: answer_start: missing"}}) {
    const std::string message =
        message_of<FileError>([&] { records_of(c.text, c.format, c.options); });
    LACONIC_EXPECT_MENTIONS(message, c.part);
  }
  LACONIC_EXPECT_MENTIONS(to_text(check(RecordOptions{.task = TaskKind::regress, .layout = "rte"})),
                          "--layout: rte is for --task classify, not regress");
  LACONIC_EXPECT_MENTIONS(to_text(check(RecordOptions{.labels = {"a", "a"}})), "\"a\" twice");
}

TEST(RecordSource, AnswersAreFoundByCharacters) {
  const std::string line =
      R"({"question": "Wo?", "context": "Grüße aus Köln", "answers": {"text": ["Köln"], "answer_start": [10]}})";
  const auto records = records_of(line, RecordFormat::json_lines, {.task = TaskKind::span});
  ASSERT_TRUE(records.at(0).answer);
  EXPECT_EQ(records[0].parts[1].substr(records[0].answer->begin), "Köln");
  EXPECT_FALSE(
      records_of(
          R"({"question": "a", "context": "b", "answers": {"text": [], "answer_start": []}})",
          RecordFormat::json_lines, {.task = TaskKind::span})[0]
          .answer);
  EXPECT_EQ(span_of(Tokeniser(), "ab cd", {3, 5}), (TokenSpan{3, 4}));
}

TEST(RecordSource, LinesOfTwoFilesBelongTogether) {
  std::vector<TextRecord> records;
  const auto visit = [&](TextRecord&& record) { records.push_back(std::move(record)); };
  for_each_line_pair("one\n\ntwo\r\n", "a", "eins\n\nzwei", "b", visit);
  EXPECT_EQ(records, (std::vector<TextRecord>{{.parts = {"one", "eins"}, .where = "a:1"},
                                              {.parts = {"two", "zwei"}, .where = "a:3"}}));
  LACONIC_EXPECT_MENTIONS(
      message_of<FileError>([&] { for_each_line_pair("x\ny\n", "a", "x\n", "b", visit); }),
      "a: goes on behind line 1, where b ends");
  LACONIC_EXPECT_MENTIONS(
      message_of<FileError>([&] { for_each_line_pair("x\n\nz", "a", "x\ny\nz", "b", visit); }),
      "a:2: is empty");
}

// Bytes that stand in for the special tokens of a real vocabulary.
constexpr SpecialTokens kSpecial{.pad = 0, .eos = 256, .cls = 1, .sep = 2, .mask = 3};

PrepareOptions options_for(const TemporaryFolder& folder, const std::string& input,
                           const RecordOptions& records) {
  return {.inputs = {input},
          .output = folder / "d",
          .source = {.records = resolved(records)},
          .special = kSpecial};
}

TEST(PrepareRecords, WritesPartsAndLabels) {
  const TemporaryFolder folder;
  spill(folder / "train.tsv", "text\tlabel\nabc\tgood\nde\tbad\nf\tgood\n");
  spill(folder / "dev.tsv", "text\tlabel\nxy\tbad\n");
  PrepareOptions options = options_for(folder, folder / "train.tsv", {});
  options.validation_inputs = {folder / "dev.tsv"};
  const PrepareReport report = prepare(options);
  EXPECT_EQ(report.label_names, (std::vector<std::string>{"good", "bad"}));
  EXPECT_EQ(report.train.documents, 3u);
  const SampleKind kind{.task = TaskKind::classify};
  const Dataset train = open_dataset(folder / "d", 8, 257, 0, kind);
  const auto& records = std::get<RecordDataset>(train);
  EXPECT_EQ(records.part(1, 0), (std::vector<std::int64_t>{'d', 'e'}));
  EXPECT_EQ(records.label(1, 0), 1);
  EXPECT_EQ(records.label(2, 0), 0);
  EXPECT_EQ(set_in(train).special, kSpecial);
  const Dataset valid = open_dataset(folder / "d-valid", 8, 257, 0, kind);
  EXPECT_EQ(std::get<RecordDataset>(valid).label(0, 0), 1);
  // Another purpose is refused with both names; so are special tokens that nobody has.
  LACONIC_EXPECT_MENTIONS(
      message_of<ConfigError>([&] { open_dataset(folder / "d", 8, 257); }),
      "task.kind = \"causal\", but " + (folder / "d") + " was prepared for \"classify\"");
  options.special = {};
  options.output = folder / "e";
  LACONIC_EXPECT_MENTIONS(message_of<ConfigError>([&] { prepare(options); }),
                          "--task classify needs the special tokens pad, cls, sep");
  // A label that training does not know.
  spill(folder / "dev.tsv", "text\tlabel\nxy\tugly\n");
  options.special = kSpecial;
  LACONIC_EXPECT_MENTIONS(message_of<FileError>([&] { prepare(options); }),
                          "dev.tsv:2: label: the label \"ugly\" is none of the training set's");
  EXPECT_FALSE(std::filesystem::exists(folder / "e.bin"));
}

TEST(PrepareRecords, NumbersAsLabelsAreSorted) {
  const TemporaryFolder folder;
  spill(folder / "a.csv", "text,label\na,10\nb,2\nc,0\n");
  EXPECT_EQ(prepare(options_for(folder, folder / "a.csv", {})).label_names,
            (std::vector<std::string>{"0", "2", "10"}));
  // Held back by share: whole records.
  PrepareOptions options = options_for(folder, folder / "a.csv", {});
  options.overwrite = true;
  options.validation_share = 0.4;
  const PrepareReport report = prepare(options);
  EXPECT_EQ(report.train.documents, 2u);
  EXPECT_EQ(report.valid.documents, 1u);
  verify_dataset(folder / "d-valid");
}

TEST(PrepareRecords, DamagedLabelsAreRefused) {
  const TemporaryFolder folder;
  spill(folder / "a.csv", "text,label\na,1.5\nb,2\n");
  prepare(options_for(folder, folder / "a.csv", {.task = TaskKind::regress}));
  const SampleKind kind{.task = TaskKind::regress};
  const Dataset good = open_dataset(folder / "d", 8, 257, 0, kind);
  EXPECT_EQ(std::get<RecordDataset>(good).label(0, 0), 1.5);
  std::string labels = slurp(folder / "d.labels");
  ASSERT_EQ(labels.size(), 16u);
  labels[3] ^= 1;
  spill(folder / "d.labels", labels);
  LACONIC_EXPECT_MENTIONS(
      message_of<FileError>([&] { open_dataset(folder / "d", 8, 257, 0, kind); }),
      "d.labels: xxh3");
}

// What only somebody who writes files by hand can do.
TEST(RecordDataset, ChecksLabelsAndParts) {
  struct Case {
    RecordInfo info;
    std::vector<double> labels;
    std::string part;
  };
  const double nan = std::numeric_limits<double>::quiet_NaN();
  for (const Case& c : std::vector<Case>{
           {{TaskKind::classify, 2, 1, {"a"}}, {1}, "1 is none of 1 classes"},
           {{TaskKind::classify, 2, 1, {"a", "b"}}, {0.5}, "0.5 is none of 2 classes"},
           {{TaskKind::classify, 1, 1, {"a"}}, {0}, "record 0 has 2 parts, should have 1"},
           {{TaskKind::regress, 2, 1}, {nan}, "nan is not finite"},
           {{TaskKind::span, 2, 2}, {1, 0}, "tokens 1 to 0 are no answer in a context of 2"},
           {{TaskKind::span, 2, 2}, {0, 2}, "tokens 0 to 2"}}) {
    const TemporaryFolder folder;
    IndexedWriter writer(folder / "d", 300);
    for (int part = 0; part < 2; ++part) {
      writer.add(std::vector<std::int32_t>{10, 11});
      writer.end_part();
    }
    writer.end_record();
    writer.add_labels(c.labels);
    writer.sync("bytes", 0, kSpecial, c.info);
    writer.commit();
    LACONIC_EXPECT_MENTIONS(message_of<FileError>([&] {
                              open_dataset(folder / "d", 8, 300, 0, {.task = c.info.task});
                            }),
                            c.part);
    LACONIC_EXPECT_MENTIONS(
        message_of<FileError>([&] { open_dataset(folder / "d", 8, 11, 0, {.task = c.info.task}); }),
        "the model's vocabulary is 11");
  }
}

TEST(PrepareRecords, SentencesMakePairs) {
  const TemporaryFolder folder;
  spill(folder / "a.txt", "one\ntwo\nthree\n\n\nfour\nfive\n");
  prepare(options_for(folder, folder / "a.txt", {.task = TaskKind::masked}));
  const Dataset data = open_dataset(folder / "d", 16, 257, 0, {TaskKind::masked, true});
  const auto& sentences = std::get<SentenceDataset>(data);
  ASSERT_EQ(sentences.samples(), 2u);
  EXPECT_EQ(sentences.chunk(0), (SentenceDataset::Chunk{0, 0, 3}));
  EXPECT_EQ(sentences.sentence(1, 1), (std::vector<std::int64_t>{'f', 'i', 'v', 'e'}));
  // The same file without pairs is a stream of tokens: 19 of them, in windows of 4.
  EXPECT_EQ(samples_in(open_dataset(folder / "d", 6, 257, 0, {TaskKind::masked, false})), 4u);
  EXPECT_THROW(open_dataset(folder / "d", 5, 257, 0, {TaskKind::masked, true}), ConfigError);
}

TEST(PrepareRecords, ReadsWhatTheLayoutsOfGlueAre) {
  struct Case {
    std::string file, layout;
    std::uint64_t records;
    std::size_t parts;
  };
  for (const Case& c : std::vector<Case>{{"cola/train.tsv", "cola", 8551, 1},
                                         {"cola/dev.tsv", "cola", 1043, 1},
                                         {"sst-2/dev.tsv", "sst-2", 872, 1},
                                         {"mrpc/msr_paraphrase_train.txt", "mrpc", 4076, 2},
                                         {"mrpc/msr_paraphrase_test.txt", "mrpc", 1725, 2},
                                         {"rte/train.tsv", "rte", 2490, 2},
                                         {"rte/dev.tsv", "rte", 277, 2},
                                         {"wnli/train.tsv", "wnli", 635, 2},
                                         {"wnli/dev.tsv", "wnli", 71, 2},
                                         {"sts-b/sts-train.csv", "sts-b", 5749, 2},
                                         {"sts-b/sts-dev.csv", "sts-b", 1500, 2},
                                         {"qnli/dev.tsv", "qnli", 5463, 2}}) {
    const std::string text = real_data(c.file);
    if (text.empty()) GTEST_SKIP() << "no " << c.file << " in $LACONIC_DATA";
    SCOPED_TRACE(c.file);
    RecordOptions options{.layout = c.layout};
    if (c.layout == "sts-b") options.task = TaskKind::regress;
    const auto records = records_of(text, record_format_of(c.file, options), options);
    EXPECT_EQ(records.size(), c.records);
    for (const TextRecord& record : records) ASSERT_EQ(record.parts.size(), c.parts);
  }
  // Test sets have no labels.
  for (const auto& [file, layout, part] : std::vector<std::array<std::string, 3>>{
           {"rte/test.tsv", "rte", "f:1: label: no such column"},
           {"cola/test.tsv", "cola", "f:1: 4: no such column"}})
    LACONIC_EXPECT_MENTIONS(message_of<FileError>([&, file = file, layout = layout] {
                              records_of(real_data(file), RecordFormat::tsv, {.layout = layout});
                            }),
                            part);
}

TEST(Words, ContinueWithTwoHashes) {
  EXPECT_EQ(continuing_lines("[PAD]\nplay\n##ing\n"), (std::vector<bool>{false, false, true}));
  EXPECT_THROW(continuing_tokens("/nowhere"), ConfigError);
  const TemporaryFolder folder;
  spill(folder / "bert/vocab.txt", "[PAD]\n[UNK]\n[CLS]\n[SEP]\n[MASK]\nplay\n##ing\n");
  EXPECT_EQ(continuing_tokens(folder / "bert"),
            (std::vector<bool>{false, false, false, false, false, false, true}));
}

// From the files of GLUE and of BERT to samples.
TEST(PrepareRecords, RteWithTheTokensOfBert) {
  const std::string vocabulary = real_data("bert-vocab/bert-base-uncased-vocab.txt");
  const std::string dev = real_data("rte/dev.tsv");
  if (vocabulary.empty() || dev.empty()) GTEST_SKIP() << "no BERT vocabulary or RTE";
  const TemporaryFolder folder;
  spill(folder / "bert/vocab.txt", vocabulary);
  spill(folder / "dev.tsv", dev);
  PrepareOptions options = options_for(folder, folder / "dev.tsv", {.layout = "rte"});
  options.special = {};
  options.tokeniser = folder / "bert";
  EXPECT_EQ(prepare(options).label_names,
            (std::vector<std::string>{"entailment", "not_entailment"}));
  const Dataset data = open_dataset(folder / "d", 64, 30522, 0, {.task = TaskKind::classify});
  ASSERT_EQ(samples_in(data), 277u);
  std::vector<std::int64_t> ids(64), types(64), length(1), label(1);
  const std::vector<std::span<std::int64_t>> rows = {ids, types, length, label};
  read_sample(Classify{set_in(data).special}, data, {0}, rows);
  // "Dana Reeve, the widow of the actor Christopher Reeve, has died of lung cancer at age 44,
  // according to the Christopher Reeve Foundation." "Christopher Reeve had an accident."
  EXPECT_EQ(ids[0], 101);
  const auto first_end = std::ranges::find(ids, 102) - ids.begin();
  EXPECT_EQ(types[static_cast<std::size_t>(first_end)], 0);
  EXPECT_EQ(types[static_cast<std::size_t>(first_end) + 1], 1);
  EXPECT_EQ(ids[static_cast<std::size_t>(length[0]) - 1], 102);
  const Tokeniser bert = load_tokeniser(folder / "d.tokeniser");
  const std::vector<std::int32_t> second(ids.begin() + first_end + 1, ids.begin() + length[0] - 1);
  EXPECT_EQ(bert.decode(second), "christopher reeve had an accident.");
  EXPECT_EQ(ids[static_cast<std::size_t>(length[0])], 0);
  EXPECT_EQ(label[0], 1);
}

}  // namespace
}  // namespace laconic
