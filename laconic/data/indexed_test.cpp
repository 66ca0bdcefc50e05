#include "laconic/data/indexed.hpp"

#include <gtest/gtest.h>

#include "laconic/base/error.hpp"
#include "laconic/base/philox.hpp"
#include "laconic/data/indexed_writer.hpp"
#include "laconic/data/sidecar.hpp"
#include "laconic/data/test_data.hpp"

namespace laconic {
namespace {

using Tokens = std::vector<std::int32_t>;
using Wide = std::vector<std::int64_t>;

void write(const std::string& prefix, const std::vector<Tokens>& documents,
           std::int64_t vocabulary) {
  IndexedWriter writer(prefix, vocabulary);
  for (const Tokens& tokens : documents) {
    writer.add(tokens);
    writer.end_document();
  }
  writer.sync("bytes", 123);
  writer.commit();
}

Wide all_tokens(const IndexedDataset& dataset) {
  Wide tokens(dataset.tokens());
  dataset.read(0, tokens);
  return tokens;
}

Bytes bytes_of(const std::string& text) {
  const auto view = std::as_bytes(std::span(text.data(), text.size()));
  return {view.begin(), view.end()};
}

// An index as Megatron would write it, field by field, so that tests can bend each one.
struct Fields {
  std::string magic = std::string("MMIDIDX\0\0", 9);
  std::uint64_t version = 1;
  std::uint8_t type = 8;
  std::uint64_t sequences = 3, marks = 3;
  std::vector<std::int32_t> lengths = {2, 0, 3};
  std::vector<std::int64_t> pointers = {0, 4, 4};
  std::vector<std::int64_t> mark = {0, 1, 3};
  std::string tail;
  std::uint64_t bin_bytes = 10;
};

Bytes build(const Fields& f) {
  Bytes out = bytes_of(f.magic);
  put(out, f.version), put(out, f.type), put(out, f.sequences), put(out, f.marks);
  for (const auto v : f.lengths) put(out, v);
  for (const auto v : f.pointers) put(out, v);
  for (const auto v : f.mark) put(out, v);
  for (const char c : f.tail) put(out, c);
  return out;
}

Index parse(const Fields& f) {
  static Bytes kept;  // an Index views its bytes
  kept = build(f);
  return parse_index(kept, f.bin_bytes, "x.idx");
}

TEST(Indexed, WhatIsWrittenIsReadBackInBothTypes) {
  for (const std::int64_t vocabulary : {257, 65499, 65500, 100000}) {
    const TemporaryFolder folder;
    const auto top = static_cast<std::int32_t>(vocabulary) - 1;
    write(folder / "d", {{1, 2, 3}, {}, {top}, {0, top}}, vocabulary);
    const IndexedDataset dataset(folder / "d");
    EXPECT_EQ(dataset.index().type(), vocabulary < 65500 ? TokenType::uint16 : TokenType::int32);
    EXPECT_EQ(all_tokens(dataset), (Wide{1, 2, 3, top, 0, top}));
    EXPECT_EQ(dataset.index().documents(), 4u);
    EXPECT_EQ(dataset.index().document(1), (Index::Range{3, 3}));
    EXPECT_EQ(dataset.index().document(3), (Index::Range{4, 6}));
    EXPECT_EQ(dataset.extent().greatest, top);
    verify_dataset(folder / "d");
  }
}

TEST(Indexed, TheBytesAreMegatrons) {
  const TemporaryFolder folder;
  write(folder / "d", {{1, 258}}, 300);
  EXPECT_EQ(slurp(folder / "d.bin"), std::string("\1\0\2\1", 4));
  Fields f;
  f.sequences = 1, f.marks = 2, f.lengths = {2}, f.pointers = {0}, f.mark = {0, 1};
  EXPECT_EQ(bytes_of(slurp(folder / "d.idx")), build(f));
}

TEST(Indexed, AnEmptyDatasetIsADataset) {
  const TemporaryFolder folder;
  write(folder / "d", {}, 300);
  EXPECT_EQ(IndexedDataset(folder / "d").tokens(), 0u);
}

TEST(Indexed, EveryTokenTypeIsRead) {
  struct Case {
    std::uint8_t code;
    std::string bin;
    Wide tokens;
  };
  const Case cases[] = {
      {1, "\x01\xff", {1, 255}},
      {2, "\x01\xff", {1, -1}},
      {3, std::string("\x01\x00\xfe\xff", 4), {1, -2}},
      {4, std::string("\x01\0\0\0\xff\xff\xff\xff", 8), {1, -1}},
      {5, std::string("\x01\0\0\0\0\0\0\0\xff\xff\xff\xff\xff\xff\xff\xff", 16), {1, -1}},
      {8, std::string("\x01\x00\xfe\xff", 4), {1, 65534}},
  };
  for (const Case& c : cases) {
    const TemporaryFolder folder;
    Fields f;
    f.type = c.code;
    f.sequences = 1, f.marks = 2, f.lengths = {2}, f.pointers = {0}, f.mark = {0, 1};
    const Bytes idx = build(f);
    spill(folder / "d.bin", c.bin);
    spill(folder / "d.idx", std::string(reinterpret_cast<const char*>(idx.data()), idx.size()));
    const IndexedDataset dataset(folder / "d");
    EXPECT_EQ(all_tokens(dataset), c.tokens) << int{c.code};
    EXPECT_EQ(dataset.extent().greatest, std::max(c.tokens[0], c.tokens[1]));
    EXPECT_EQ(dataset.extent().least, std::min(c.tokens[0], c.tokens[1]));
  }
}

TEST(Indexed, ExtentSeesEveryTokenOfEveryBlock) {
  for (const std::size_t count : {1, 2, 255, 256, 257, 511, 512, 600}) {
    for (const std::size_t place : {std::size_t{0}, count / 2, count - 1}) {
      const TemporaryFolder folder;
      Tokens tokens(count, 7);
      tokens[place] = 299;
      write(folder / "d", {tokens}, 300);
      const auto extent = IndexedDataset(folder / "d").extent();
      EXPECT_EQ(extent.greatest, 299) << count << ' ' << place;
      EXPECT_EQ(extent.least, count == 1 ? 299 : 7) << count << ' ' << place;
    }
  }
}

TEST(Indexed, ModesAreToleratedAndSkipped) {
  Fields f;
  f.tail = std::string(3, '\1');
  EXPECT_EQ(parse(f).document(1), (Index::Range{2, 5}));
}

TEST(Indexed, EveryBentFieldIsNamed) {
  const std::vector<std::pair<std::string, void (*)(Fields&)>> cases = {
      {"magic", [](Fields& f) { f.magic[0] = 'm'; }},
      {"version", [](Fields& f) { f.version = 2; }},
      {"token type", [](Fields& f) { f.type = 0; }},
      {"token type", [](Fields& f) { f.type = 6; }},
      {"token type", [](Fields& f) { f.type = 7; }},
      {"token type", [](Fields& f) { f.type = 255; }},
      {"lengths", [](Fields& f) { f.sequences = 1000; }},
      {"lengths", [](Fields& f) { f.sequences = ~std::uint64_t{0}; }},
      {"lengths", [](Fields& f) { f.sequences = std::uint64_t{1} << 62; }},
      {"document marks", [](Fields& f) { f.marks = ~std::uint64_t{0}; }},
      {"document marks", [](Fields& f) { f.marks = std::uint64_t{1} << 61; }},
      {"document marks", [](Fields& f) { f.marks = 0, f.mark.clear(); }},
      {"lengths", [](Fields& f) { f.lengths[1] = -1; }},
      {"lengths: sequence 2 ends behind", [](Fields& f) { f.lengths[2] = 0x7fffffff; }},
      {"lengths: they make 10 bytes", [](Fields& f) { f.bin_bytes = 12; }},
      {"lengths: sequence 2 ends behind", [](Fields& f) { f.bin_bytes = 9; }},
      {"pointers", [](Fields& f) { f.pointers[0] = 2; }},
      {"pointers", [](Fields& f) { f.pointers[1] = -4; }},
      {"pointers", [](Fields& f) { f.pointers[2] = 2; }},
      {"document marks",
       [](Fields& f) {
         f.mark = {1, 1, 3};
       }},
      {"document marks",
       [](Fields& f) {
         f.mark = {0, 4, 3};
       }},
      {"document marks",
       [](Fields& f) {
         f.mark = {0, -1, 3};
       }},
      {"document marks",
       [](Fields& f) {
         f.mark = {0, 1, 2};
       }},
      {"document marks",
       [](Fields& f) {
         f.mark = {0, 3, 2};
       }},
      {"end", [](Fields& f) { f.tail = "xx"; }},
  };
  EXPECT_EQ(parse(Fields{}).tokens(), 5u);
  int number = 0;
  for (const auto& [field, bend] : cases) {
    SCOPED_TRACE(number++);
    Fields f;
    bend(f);
    const std::string message = message_of<FileError>([&] { parse(f); });
    LACONIC_EXPECT_MENTIONS(message, "x.idx: " + field);
  }
}

TEST(Indexed, EveryTruncationIsRefused) {
  const Bytes whole = build(Fields{});
  for (std::size_t size = 0; size < whole.size(); ++size)
    EXPECT_THROW(parse_index(ByteView(whole).first(size), 10, "x.idx"), FileError) << size;
}

TEST(Indexed, AFlippedBitNeverLeadsOutsideTheFile) {
  const Bytes whole = build(Fields{});
  for (std::size_t bit = 0; bit < whole.size() * 8; ++bit) {
    Bytes bent = whole;
    bent[bit / 8] ^= std::byte{1} << (bit % 8);
    const auto act = [&] {
      const Index index = parse_index(bent, 10, "x.idx");
      for (std::uint64_t d = 0; d < index.documents(); ++d)
        ASSERT_LE(index.document(d).end, index.tokens());
    };
    message_of<FileError>(act);  // either is fine; a crash, a sanitizer or another type is not
  }
}

TEST(Indexed, WithoutCommitNothingIsLeft) {
  const TemporaryFolder folder;
  {
    IndexedWriter writer(folder / "d", 300);
    writer.add(Tokens{1, 2, 3});
  }
  EXPECT_TRUE(std::filesystem::is_empty(folder.path()));
}

TEST(Sidecar, TextIsReadBackAndDefectsAreNamed) {
  const Sidecar sidecar{"bpe", 50257, 10, 1000, 4321, "00000000deadbeef"};
  const std::string text = to_text(sidecar);
  EXPECT_EQ(parse_sidecar(text, "d.json"), sidecar);
  for (const char* field :
       {"format", "tokeniser", "vocabulary", "documents", "tokens", "bytes", "bin_xxh3"}) {
    std::string bent = text;
    bent.replace(bent.find(std::string("\"") + field) + 1, 1, "?");
    const auto act = [&] { parse_sidecar(bent, "d.json"); };
    LACONIC_EXPECT_MENTIONS(message_of<FileError>(act), std::string("d.json: ") + field);
  }
  EXPECT_THROW(parse_sidecar(text.substr(0, 30), "d.json"), FileError);
  EXPECT_FALSE(read_sidecar("/nowhere/at/all").has_value());
}

TEST(Sidecar, NumbersOutOfRangeAreRefused) {
  const Sidecar sidecar{"bpe", 50257, 10, 1000, 4321, "00000000deadbeef"};
  const auto with = [&](const std::string& field, const std::string& number) {
    std::string text = to_text(sidecar);
    const std::size_t at = text.find("\"" + field + "\": ") + field.size() + 4;
    text.replace(at, text.find(',', at) - at, number);
    return message_of<FileError>([&] { parse_sidecar(text, "d.json"); });
  };
  for (const char* number : {"1", "16777216"}) EXPECT_EQ(with("vocabulary", number), "");
  for (const char* number : {"0", "-1", "16777217", "4294967297", "18446744073709551615", "2.0"})
    LACONIC_EXPECT_MENTIONS(with("vocabulary", number), "d.json: vocabulary: ");
  for (const std::string field : {"documents", "tokens", "bytes"}) {
    for (const char* number : {"0", "9223372036854775807"}) EXPECT_EQ(with(field, number), "");
    for (const char* number : {"-1", "1.5", "9223372036854775808", "99999999999999999999", "\"1\""})
      LACONIC_EXPECT_MENTIONS(with(field, number), "d.json: " + field + ": ");
  }
  LACONIC_EXPECT_MENTIONS(with("tokens", "5, \"tokens\": 6"),
                          "d.json: tokens: the key is there twice");
}

TEST(Sidecar, VerifyNoticesOneFlippedBit) {
  const TemporaryFolder folder;
  write(folder / "d", {{1, 2, 3, 4}}, 300);
  verify_dataset(folder / "d");
  std::string bin = slurp(folder / "d.bin");
  bin[2] ^= 1;
  spill(folder / "d.bin", bin);
  const auto act = [&] { verify_dataset(folder / "d"); };
  LACONIC_EXPECT_MENTIONS(message_of<FileError>(act), "d.bin: xxh3");
  std::filesystem::remove(folder / "d.json");
  LACONIC_EXPECT_MENTIONS(message_of<FileError>(act), "d.json: missing");
}

}  // namespace
}  // namespace laconic
