#include "laconic/data/prepare.hpp"

#include <fmt/format.h>
#include <gtest/gtest.h>
#include <sys/stat.h>

#include <algorithm>
#include <map>
#include <stdexcept>
#include <thread>

#include "laconic/base/error.hpp"
#include "laconic/base/philox.hpp"
#include "laconic/data/indexed.hpp"
#include "laconic/data/piece.hpp"
#include "laconic/data/sentencepiece.hpp"
#include "laconic/data/sidecar.hpp"
#include "laconic/data/test_data.hpp"
#include "laconic/data/tokeniser.hpp"
#include "laconic/data/validation.hpp"
#include "laconic/file/test_compress.hpp"
#include "laconic/file/test_size_limit.hpp"

namespace laconic {
namespace {

using Texts = std::vector<std::string>;

Texts documents_of(const std::string& path, DocumentSplit split = DocumentSplit::file) {
  Texts texts;
  for_each_document(path, {.documents = split},
                    [&](const Document& d) { texts.emplace_back(d.text); });
  return texts;
}

// The documents of a dataset as text, without the end of document.
Texts decoded(const std::string& prefix, const std::string& tokeniser_folder) {
  const IndexedDataset dataset(prefix);
  const Tokeniser tokeniser = load_tokeniser(tokeniser_folder);
  Texts texts;
  for (std::uint64_t d = 0; d < dataset.index().documents(); ++d) {
    const auto [begin, end] = dataset.index().document(d);
    std::vector<std::int64_t> wide(end - begin);
    dataset.read(begin, wide);
    std::vector<std::int32_t> tokens(wide.begin(), wide.end());
    if (!tokens.empty() && tokens.back() == tokeniser.end_of_document()) tokens.pop_back();
    texts.push_back(tokeniser.decode(tokens));
  }
  return texts;
}

std::string words(std::uint64_t seed, std::size_t count) {
  const char* const kWords[] = {"the", "cat", "sat", "on", "a", "mat", "naïve", "中文", "42"};
  std::string text;
  for (std::size_t i = 0; i < count; ++i) {
    const std::uint32_t draw = word_at(key_of(seed), i);
    text += kWords[draw % std::size(kWords)];
    text += draw >> 28 == 0 ? "\n" : " ";
  }
  return text;
}

TEST(Source, RecordsMayBePromptsAndCompletions) {
  const TemporaryFolder folder;
  const std::string path = folder / "a.jsonl";
  spill(path,
        "{\"prompt\": \"2 + 2 = \", \"completion\": \"4\"}\n{\"text\": \"plain\"}\n"
        "{\"prompt\": \"\", \"completion\": \"free\"}\n");
  EXPECT_EQ(documents_of(path), (Texts{"2 + 2 = 4", "plain", "free"}));
  std::vector<std::size_t> prompts;
  for_each_document(path, {}, [&](const Document& d) { prompts.push_back(d.prompt_bytes); });
  EXPECT_EQ(prompts, (std::vector<std::size_t>{8, 0, 0}));
  for (const auto& [line, field] : {std::pair{"{\"prompt\": \"a\"}", "completion"},
                                    {"{\"completion\": \"a\", \"prompt\": 3}", "prompt"},
                                    {"{\"prompt\": \"a\", \"completion\": \"\"}", "is empty"}}) {
    spill(path, line);
    try {
      documents_of(path);
      ADD_FAILURE() << line;
    } catch (const FileError& error) {
      EXPECT_NE(std::string(error.what()).find(field), std::string::npos) << error.what();
      EXPECT_NE(std::string(error.what()).find("a.jsonl:1"), std::string::npos) << error.what();
    }
  }
}

TEST(Prepare, TakesTokenisersOfOtherKindsAndKeepsThemBesideTheData) {
  const TemporaryFolder folder;
  spill(folder / "bert/vocab.txt", "[UNK]\n[SEP]\nthe\ncat\nsat\n##s\n4\n##2\n中\n文\n");
  std::vector<std::string> tokenisers = {folder / "bert", folder / "bert/vocab.txt"};
  if (has_sentencepiece())
    tokenisers.push_back(source_root() + "/tests/golden/tokeniser/sentencepiece-bpe.model");
  const std::string text = words(7, 200000);  // several parts
  spill(folder / "a.txt", text);
  for (std::size_t i = 0; i < tokenisers.size(); ++i) {
    const Tokeniser tokeniser = load_tokeniser(tokenisers[i]);
    std::vector<std::int32_t> tokens = tokeniser.encode(text);
    tokens.push_back(tokeniser.end_of_document());
    for (const int threads : {1, 3}) {
      const std::string prefix = folder / fmt::format("d{}-{}", i, threads);
      const PrepareReport report = prepare({.inputs = {folder / "a.txt"},
                                            .output = prefix,
                                            .tokeniser = tokenisers[i],
                                            .threads = threads});
      EXPECT_EQ(report.vocabulary, tokeniser.vocabulary_size());
      const IndexedDataset dataset(prefix);
      const auto [begin, end] = dataset.index().document(0);
      std::vector<std::int64_t> wide(end - begin);
      dataset.read(begin, wide);
      EXPECT_EQ(std::vector<std::int32_t>(wide.begin(), wide.end()), tokens) << tokenisers[i];
      const Tokeniser saved = load_tokeniser(report.tokeniser_folder);
      EXPECT_EQ(saved.kind(), tokeniser.kind());
      EXPECT_EQ(saved.special(), tokeniser.special());
      EXPECT_EQ(saved.encode(text), tokeniser.encode(text));
    }
  }
}

// The boundary is one of tokens, too, though BPE would merge across it; and pairs stay together.
TEST(Prepare, APromptAndItsCompletionAreTwoSequencesOfADocument) {
  const TemporaryFolder folder;
  std::string lines;
  for (int i = 0; i < 40; ++i)
    lines += "{\"prompt\": \"the cat s\", \"completion\": \"at on the mat\"}\n";
  spill(folder / "a.jsonl", lines);
  for (const double share : {0.1, 0.01}) {  // the latter would cut documents, if they were texts
    const std::string prefix = folder / ("d" + std::to_string(share));
    PrepareOptions options{.inputs = {folder / "a.jsonl"}, .output = prefix};
    options.train_vocabulary = 280;
    options.validation_share = share;
    if (share == 0.01) {
      EXPECT_THROW(prepare(options), ConfigError) << "nothing is left for validation";
      continue;
    }
    const PrepareReport report = prepare(options);
    EXPECT_EQ(report.train.prompts, 36u);
    EXPECT_EQ(report.valid.prompts, 4u);
    const IndexedDataset dataset(prefix);
    const Tokeniser tokeniser = load_tokeniser(report.tokeniser_folder);
    for (std::uint64_t d = 0; d < dataset.index().documents(); ++d) {
      const auto text_of = [&](std::uint64_t sequence) {
        const auto [begin, end] = dataset.index().sequence(sequence);
        std::vector<std::int64_t> wide(end - begin);
        dataset.read(begin, wide);
        std::vector<std::int32_t> tokens(wide.begin(), wide.end());
        if (tokens.back() == tokeniser.end_of_document()) tokens.pop_back();
        return tokeniser.decode(tokens);
      };
      EXPECT_EQ(text_of(2 * d), "the cat s");
      EXPECT_EQ(text_of(2 * d + 1), "at on the mat");
    }
  }
}

TEST(Source, TextSplitsIntoFilesLinesAndParagraphs) {
  const TemporaryFolder folder;
  const std::string path = folder / "a.txt";
  spill(path, "one\ntwo\r\n\n  \n\nthree\n");
  EXPECT_EQ(documents_of(path), (Texts{"one\ntwo\r\n\n  \n\nthree\n"}));
  EXPECT_EQ(documents_of(path, DocumentSplit::line), (Texts{"one", "two", "  ", "three"}));
  EXPECT_EQ(documents_of(path, DocumentSplit::paragraph), (Texts{"one\ntwo", "three"}));
  spill(path, "");
  EXPECT_TRUE(documents_of(path).empty());
  for (const char* name : {"file", "line", "paragraph"})
    EXPECT_EQ(to_text(*parse_document_split(name)), name);
  EXPECT_FALSE(parse_document_split("page").has_value());
}

TEST(Source, JsonLinesGiveTheirTextAndErrorsTheirLine) {
  const TemporaryFolder folder;
  const std::string path = folder / "a.jsonl";
  spill(path, "{\"text\": \"a\\nb\", \"id\": 1}\n\n{\"text\": \"\"}\n{\"text\":\"\\u00e9\"}");
  EXPECT_EQ(documents_of(path), (Texts{"a\nb", "é"}));
  const std::pair<const char*, const char*> bad[] = {
      {"{\"text\": \"a\"}\n{\"text\": ", "a.jsonl:2: is not JSON at byte"},
      {"[1]", "a.jsonl:1: not a JSON object"},
      {"\n\n{\"content\": \"a\"}", "a.jsonl:3: text: missing"},
      {"{\"text\": 5}", "a.jsonl:1: text: missing, or not a text"},
      {"{\"text\": \"\xff\"}", "a.jsonl:1: is not JSON at byte"},
      {"{\"text\": \"a\", \"text\": \"b\"}", "a.jsonl:1: text: the key is there twice"},
  };
  for (const auto& [text, expected] : bad) {
    spill(path, text);
    LACONIC_EXPECT_MENTIONS(message_of<FileError>([&] { documents_of(path); }), expected);
  }
}

TEST(Source, FoldersAreReadInOrderAndTokenisersLeftOut) {
  const TemporaryFolder folder;
  for (const char* name : {"b.txt", "a/z.txt", "c.jsonl", "x.md", "old.tokeniser/merges.txt",
                           "d.tokeniser.tmp/merges.txt", "d.tokeniser.old.tmp/merges.txt"})
    spill(folder / name, "x");
  Problems problems;
  EXPECT_EQ(find_sources({folder.path(), folder / "x.md"}, problems),
            (Texts{folder / "a/z.txt", folder / "b.txt", folder / "c.jsonl", folder / "x.md"}));
  EXPECT_TRUE(problems.empty());
  for (const char* name : {"t.txt.bz2", "t.tar.gz", "d/e.txt.gz", "d/f.jsonl.xz", "d/g.md.zst"})
    spill(folder / name, "x");
  EXPECT_EQ(find_sources({folder / "d"}, problems),
            (Texts{folder / "d/e.txt.gz", folder / "d/f.jsonl.xz"}));
  EXPECT_TRUE(problems.empty());
  find_sources({folder / "none", folder / "t.txt.bz2", folder / "t.tar.gz", "-", "-"}, problems);
  EXPECT_EQ(problems.size(), 4u);
}

// What laconic prepare makes of the inputs, with the tokeniser of bytes.
Texts prepared(const TemporaryFolder& folder, const Texts& inputs, SourceOptions source = {}) {
  prepare({.inputs = inputs,
           .output = folder / "new/folder/out",
           .source = std::move(source),
           .overwrite = true});
  return decoded(folder / "new/folder/out", folder / "new/folder/out.tokeniser");
}

TEST(Inputs, PackedFilesAndPipesArePreparedAsWhatIsInThem) {
  const TemporaryFolder folder;
  const std::string text = words(3, 90000);
  spill(folder / "a.txt.gz", compress_gzip(text));
  spill(folder / "b.txt", text);
  spill(folder / "no-ending", compress_gzip("{\"text\": \"x\"}\n"));
  spill(folder / "c.jsonl.gz", compress_gzip("{\"text\": \"one\"}\n{\"text\": \"two\"}\n"));
  EXPECT_EQ(prepared(folder, {folder / "a.txt.gz", folder / "c.jsonl.gz", folder / "b.txt"}),
            (Texts{text, "one", "two", text}));
  EXPECT_EQ(prepared(folder, {folder / "no-ending"}), (Texts{"{\"text\": \"x\"}\n"}));
  EXPECT_EQ(prepared(folder, {folder / "no-ending"}, {.format = SourceFormat::json_lines}),
            (Texts{"x"}));
  ASSERT_EQ(::mkfifo((folder / "pipe").c_str(), 0600), 0);
  std::thread writer(
      [&] { std::ofstream(folder / "pipe", std::ios::binary) << compress_gzip(text); });
  EXPECT_EQ(prepared(folder, {folder / "pipe"}), (Texts{text}));
  writer.join();
}

TEST(Inputs, DamageIsToldWithFileAndOffsetAndLeavesNothing) {
  const TemporaryFolder folder;
  const std::string compressed = compress_gzip(words(3, 5000));
  const auto refusal = [&](const std::string& name, const std::string& bytes) {
    spill(folder / name, bytes);
    return message_of<FileError>([&] { prepared(folder, {folder / name}); });
  };
  LACONIC_EXPECT_MENTIONS(
      refusal("cut.gz", compressed.substr(0, compressed.size() / 2)),
      "cut.gz: byte " + std::to_string(compressed.size() / 2) + ": gzip data is truncated");
  LACONIC_EXPECT_MENTIONS(refusal("no.gz", "plain"), "no.gz: byte 0: begins neither as gzip");
  LACONIC_EXPECT_MENTIONS(refusal("empty.xz", ""), "empty.xz: byte 0");
  spill(folder / "bad.jsonl.gz", compress_gzip("{\"text\": \"one\"}\n{\n"));
  LACONIC_EXPECT_MENTIONS(
      message_of<FileError>([&] { prepared(folder, {folder / "bad.jsonl.gz"}); }),
      "bad.jsonl.gz:2: is not JSON");
  EXPECT_FALSE(std::filesystem::exists(folder / "new"));
}

TEST(Validation, HoldsBackTheShareAndLosesNothing) {
  for (const double share : {0.01, 0.05, 0.1, 0.25, 0.5, 0.9}) {
    for (std::uint64_t documents = 1; documents < 130; ++documents) {
      std::uint64_t held_back = 0;
      for (std::uint64_t d = 0; d < documents; ++d) {
        const SplitText parts =
            split_document({share, documents}, d, "one two\nthree four five\nsix");
        ASSERT_EQ(std::string(parts.train) + std::string(parts.valid),
                  "one two\nthree four five\nsix");
        held_back += parts.train.empty();
      }
      ASSERT_EQ(held_back, static_cast<std::uint64_t>(static_cast<double>(documents) * share));
    }
  }
}

TEST(Validation, AFewDocumentsGiveTheirTailsFromALineBreak) {
  std::string text;
  for (int line = 0; line < 100; ++line) text += "ten bytes\n";
  const SplitText parts = split_document({0.1, 2}, 0, text);
  EXPECT_EQ(parts.valid.size(), 90u);
  EXPECT_TRUE(parts.train.ends_with('\n'));
  const SplitText no_lines = split_document({0.1, 2}, 0, "a b c d e f g h i j k l m n o p q r s t");
  EXPECT_EQ(no_lines.valid, " s t");
}

Texts names_in(const std::string& folder) {
  Texts names;
  for (const auto& entry : std::filesystem::directory_iterator(folder))
    names.push_back(entry.path().filename().string());
  std::ranges::sort(names);
  return names;
}

using Contents = std::map<std::string, std::string>;

Contents contents_of(const std::string& folder) {
  Contents contents;
  for (const auto& entry : std::filesystem::recursive_directory_iterator(folder))
    contents[entry.path().string()] = entry.is_regular_file() ? slurp(entry.path().string()) : "/";
  return contents;
}

std::string lines(int count) {
  std::string text;
  for (int i = 0; i < count; ++i) text += "a\n";
  return text;
}

// The message of the failure, empty when no file was larger than `limit`.
std::string prepare_within(rlim_t limit, const PrepareOptions& options) {
  const SizeLimit size_limit(limit);
  return message_of<SystemError>([&] { prepare(options); });
}

struct PrepareTest : testing::Test {
  TemporaryFolder folder;
  PrepareOptions options_for(const Texts& inputs, const std::string& output) const {
    PrepareOptions options;
    options.inputs = inputs;
    options.output = folder / output;
    return options;
  }
};

TEST_F(PrepareTest, BytesGoInAndComeOut) {
  spill(folder / "a.txt", "Hello\n");
  spill(folder / "b.txt", "world");
  const PrepareReport report =
      prepare(options_for({folder / "a.txt", folder / "b.txt"}, "out/deep/d"));
  EXPECT_EQ(report.train.documents, 2u);
  EXPECT_EQ(report.train.tokens, 13u);
  EXPECT_EQ(report.bytes(), 11u);
  EXPECT_EQ(report.vocabulary, 257);
  EXPECT_EQ(decoded(folder / "out/deep/d", report.tokeniser_folder), (Texts{"Hello\n", "world"}));
  EXPECT_EQ(read_sidecar(folder / "out/deep/d")->bytes, 11u);
  EXPECT_EQ(read_sidecar(folder / "out/deep/d")->tokeniser, "bytes");
  verify_dataset(folder / "out/deep/d");
  EXPECT_FALSE(std::filesystem::exists(folder / "out/deep/d-valid.idx"));
}

TEST_F(PrepareTest, ThreadsAndCutsChangeNoByte) {
  spill(folder / "big.txt", words(1, 400'000));
  spill(folder / "small.txt", words(2, 100));
  Texts bins;
  for (const int threads : {1, 3}) {
    PrepareOptions options =
        options_for({folder / "big.txt", folder / "small.txt"}, "d" + std::to_string(threads));
    options.train_vocabulary = 400;
    options.validation_share = 0.1;
    options.threads = threads;
    const PrepareReport report = prepare(options);
    EXPECT_EQ(report.bytes(),
              slurp(folder / "big.txt").size() + slurp(folder / "small.txt").size());
    bins.push_back(slurp(options.output + ".bin") + slurp(options.output + "-valid.bin"));
    const Texts train = decoded(options.output, report.tokeniser_folder);
    const Texts valid = decoded(options.output + "-valid", report.tokeniser_folder);
    ASSERT_EQ(train.size(), 2u);
    EXPECT_EQ(train[0] + valid[0], slurp(folder / "big.txt"));
  }
  EXPECT_EQ(bins[0], bins[1]);
  const Tokeniser tokeniser = load_tokeniser(folder / "d1.tokeniser");
  const Texts train = decoded(folder / "d1", folder / "d1.tokeniser");
  EXPECT_EQ(IndexedDataset(folder / "d1").index().document(0).end,
            tokeniser.encode(train[0]).size() + 1);  // as if it had never been cut
}

TEST_F(PrepareTest, EndOfDocumentIsOptional) {
  spill(folder / "a.txt", "ab\ncd\n");
  PrepareOptions options = options_for({folder / "a.txt"}, "d");
  options.source.documents = DocumentSplit::line;
  options.append_end_of_document = false;
  EXPECT_EQ(prepare(options).tokens(), 4u);
}

TEST_F(PrepareTest, AllProblemsAreToldAtOnce) {
  spill(folder / "d.idx", "");
  PrepareOptions options = options_for({folder / "none"}, "d");
  options.validation_share = 1.5;
  options.train_vocabulary = 5;
  options.threads = -1;
  options.source.json_key = "";
  EXPECT_EQ(check(options).size(), 6u) << to_text(check(options));
  const std::string message = message_of<ConfigError>([&] { prepare(options); });
  for (const char* part :
       {"none: no such file", "d.idx: exists already", "5 is not within 257", "1.5 is not within",
        "-1 is not within", "--text-key: ", "--valid: ", "--train-bpe: ", "--threads: "})
    LACONIC_EXPECT_MENTIONS(message, part);
}

TEST_F(PrepareTest, RefusesToOverwriteUnlessAllowedAndThenReplacesAll) {
  spill(folder / "a.txt", words(1, 1000));
  PrepareOptions options = options_for({folder / "a.txt"}, "d");
  options.validation_share = 0.2;
  prepare(options);
  EXPECT_THROW(prepare(options), ConfigError);
  options.overwrite = true;
  options.validation_share = 0;
  options.train_vocabulary = 300;
  const PrepareReport report = prepare(options);
  EXPECT_EQ(decoded(folder / "d", report.tokeniser_folder), (Texts{slurp(folder / "a.txt")}));
  EXPECT_FALSE(std::filesystem::exists(folder / "d-valid.bin"));
}

TEST_F(PrepareTest, AFailureLeavesNothingBehind) {
  spill(folder / "in/a.txt", "fine");
  spill(folder / "in/b.jsonl", "{\"text\": \"fine\"}\n{broken");
  const PrepareOptions broken = options_for({folder / "in"}, "d");
  EXPECT_THROW(prepare(broken), FileError);
  PrepareOptions empty_part = options_for({folder / "in/a.txt"}, "d");
  empty_part.validation_share = 0.01;
  LACONIC_EXPECT_MENTIONS(message_of<ConfigError>([&] { prepare(empty_part); }),
                          "leaves the validation part empty");
  std::filesystem::remove_all(folder / "in/b.jsonl");
  spill(folder / "blocked", "");  // a file where a folder should be made
  EXPECT_ANY_THROW(prepare(options_for({folder / "in/a.txt"}, "blocked/d")));
  EXPECT_EQ(names_in(folder.path()), (Texts{"blocked", "in"}));
}

TEST_F(PrepareTest, AFailureInTheMiddleOrWhileCommittingLeavesNothingBehind) {
  spill(folder / "in/a.txt", words(1, 1000));
  PrepareOptions options = options_for({folder / "in"}, "d");
  options.validation_share = 0.2;
  options.progress = [](const PrepareProgress& progress) {
    if (progress.phase == "encode") throw std::runtime_error("stop");
  };
  EXPECT_THROW(prepare(options), std::runtime_error);
  EXPECT_EQ(names_in(folder.path()), (Texts{"in"}));
  // A folder in the way of d.bin: the tokeniser and d-valid are in place when that shows. It is not
  // ours, and stays.
  options.progress = [&](const PrepareProgress& progress) {
    if (progress.phase == "encode") spill(folder / "d.bin/x", "");
  };
  EXPECT_THROW(prepare(options), SystemError);
  EXPECT_EQ(names_in(folder.path()), (Texts{"d.bin", "in"}));
}

TEST_F(PrepareTest, AFullDiskLeavesAnOldDatasetAsItWas) {
  for (const DocumentSplit split : {DocumentSplit::file, DocumentSplit::line}) {
    spill(folder / "in/a.txt", split == DocumentSplit::file ? words(1, 300) : lines(600));
    PrepareOptions options = options_for({folder / "in"}, std::string(to_text(split)));
    options.source.documents = split;
    options.validation_share = 0.2;
    prepare(options);
    options.overwrite = true;
    options.train_vocabulary = 300;
    const Contents before = contents_of(folder.path());
    std::string refused;
    for (rlim_t limit = 8;; limit *= 2) {
      ASSERT_LT(limit, rlim_t{1} << 20);
      const std::string message = prepare_within(limit, options);
      if (message.empty()) break;
      EXPECT_TRUE(contents_of(folder.path()) == before) << limit << ": " << message;
      refused += message + "\n";
    }
    // The small ones meet the limit at .bin; the last one where the most is written.
    LACONIC_EXPECT_MENTIONS(refused, ".bin.tmp: cannot write");
    LACONIC_EXPECT_MENTIONS(refused, split == DocumentSplit::file ? "tokeniser.tmp/" : ".idx.tmp");
    EXPECT_FALSE(contents_of(folder.path()) == before);
    verify_dataset(options.output);
  }
}

TEST_F(PrepareTest, AFailureWhileRenamingPutsAnOldDatasetBack) {
  spill(folder / "in/a.txt", words(1, 1000));
  PrepareOptions options = options_for({folder / "in"}, "d");
  options.validation_share = 0.2;
  prepare(options);
  const Contents before = contents_of(folder.path());
  options.overwrite = true;
  options.train_vocabulary = 300;
  options.progress = [&](const PrepareProgress& progress) {
    if (progress.phase == "encode") std::filesystem::remove(folder / "d.bin.tmp");
  };
  EXPECT_THROW(prepare(options), SystemError);
  EXPECT_TRUE(contents_of(folder.path()) == before);
}

TEST_F(PrepareTest, WhatAKilledOneLeftIsRemoved) {
  spill(folder / "in/a.txt", words(1, 1000));
  for (const char* left : {"d.bin.tmp", "d-valid.idx.tmp", "d.tokeniser.tmp/vocab.json",
                           "d-valid.json.old.tmp", "d.tokeniser.old.tmp/merges.txt"})
    spill(folder / left, "left");
  prepare(options_for({folder / "in"}, "d"));
  EXPECT_EQ(names_in(folder.path()), (Texts{"d.bin", "d.idx", "d.json", "d.tokeniser", "in"}));
  EXPECT_EQ(names_in(folder / "d.tokeniser"), (Texts{"laconic_tokeniser.json"}));
}

TEST_F(PrepareTest, ProgressReachesTheEnd) {
  spill(folder / "a.txt", words(1, 5000));
  PrepareOptions options = options_for({folder / "a.txt"}, "d");
  options.train_vocabulary = 300;
  PrepareProgress last;
  Texts phases;
  options.progress = [&](const PrepareProgress& progress) {
    if (phases.empty() || phases.back() != progress.phase) phases.emplace_back(progress.phase);
    last = progress;
  };
  const PrepareReport report = prepare(options);
  EXPECT_EQ(phases, (Texts{"read", "train", "encode"}));
  EXPECT_EQ(last.bytes_done, last.bytes_total);
  EXPECT_EQ(last.tokens, report.tokens());
  EXPECT_GT(report.megabytes_per_second(), 0);
  EXPECT_LT(report.tokens_per_byte(), 1);
}

}  // namespace
}  // namespace laconic
