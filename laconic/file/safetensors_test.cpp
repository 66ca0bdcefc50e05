#include "laconic/file/safetensors.hpp"

#include <gtest/gtest.h>

#include "laconic/base/error.hpp"
#include "laconic/file/safetensors_writer.hpp"
#include "laconic/file/test_folder.hpp"
#include "laconic/file/test_view.hpp"

namespace laconic {
namespace {

std::string from_hex(std::string_view hex) {
  std::string bytes;
  for (std::size_t i = 0; i + 1 < hex.size(); i += 2)
    bytes += static_cast<char>(std::stoi(std::string(hex.substr(i, 2)), nullptr, 16));
  return bytes;
}

// {"a":{"dtype":"I16","shape":[2],"data_offsets":[0,4]}} and two spaces, then 1 and -2.
const std::string kGolden = from_hex(
    "3800000000000000"
    "7b2261223a7b226474797065223a22493136222c227368617065223a5b325d2c"
    "22646174615f6f666673657473223a5b302c345d7d7d2020"
    "0100feff");

TEST(Safetensors, GoldenBytesRead) {
  const SafetensorsHeader header = parse_safetensors(view(kGolden), "golden");
  ASSERT_EQ(header.entries.size(), 1u);
  const SafetensorsEntry expected{"a", Dtype::i16, {2}, 64, 68};
  EXPECT_EQ(header.entries[0], expected);
  EXPECT_TRUE(header.metadata.empty());
}

TEST(Safetensors, GoldenBytesWritten) {
  const TemporaryFolder folder;
  SafetensorsWriter writer(folder / "a.safetensors", {{"a", Dtype::i16, {2}}});
  writer.write(view(kGolden).subspan(64));
  writer.commit();
  EXPECT_TRUE(MappedFile(folder / "a.safetensors").text() == kGolden);
  EXPECT_EQ(writer.checksum(), checksum_of_file(folder / "a.safetensors"));
  EXPECT_EQ(writer.size(), 68u);
}

const std::vector<Dtype> kAllDtypes = {Dtype::f64, Dtype::f32,    Dtype::f16, Dtype::bf16,
                                       Dtype::i64, Dtype::i32,    Dtype::i16, Dtype::i8,
                                       Dtype::u8,  Dtype::boolean};

TEST(Safetensors, DtypesAndTheirTextsArePairs) {
  for (const Dtype dtype : kAllDtypes) EXPECT_EQ(parse_dtype(to_text(dtype)), dtype);
  EXPECT_EQ(parse_dtype("f32"), std::nullopt);
  EXPECT_EQ(parse_dtype(""), std::nullopt);
}

TEST(Safetensors, BytesOfAShapeNeverWrapAround) {
  constexpr std::int64_t kHuge = std::int64_t{1} << 62;
  EXPECT_EQ(bytes_of(Dtype::f32, {}), 4u);
  EXPECT_EQ(bytes_of(Dtype::f32, {2, 3}), 24u);
  EXPECT_EQ(bytes_of(Dtype::f32, {0, kHuge}), 0u);
  EXPECT_EQ(bytes_of(Dtype::u8, {kHuge}), std::uint64_t{1} << 62);
  EXPECT_EQ(bytes_of(Dtype::f32, {kHuge}), std::nullopt);
  EXPECT_EQ(bytes_of(Dtype::u8, {kHuge, 4}), std::nullopt);
  EXPECT_EQ(bytes_of(Dtype::u8, {-1}), std::nullopt);
}

TEST(Safetensors, WhatIsWrittenIsRead) {
  const TemporaryFolder folder;
  const std::string path = folder / "a.safetensors";
  const SafetensorsMetadata metadata = {{"format", "pt"}, {"quote \" and \n", "\xc3\xa9"}};
  std::vector<SafetensorsSpec> specs;
  for (const Dtype dtype : kAllDtypes) {
    for (const std::vector<std::int64_t>& shape :
         std::vector<std::vector<std::int64_t>>{{}, {0}, {3}, {2, 0, 5}, {2, 3}}) {
      specs.push_back({"t." + std::to_string(specs.size()) + "\"\\\t", dtype, shape});
    }
  }
  SafetensorsWriter writer(path, specs, metadata);
  for (std::size_t i = 0; i < specs.size(); ++i)
    writer.write(Bytes(*bytes_of(specs[i].dtype, specs[i].shape), std::byte(i)));
  writer.commit();

  const SafetensorsFile file(path);
  EXPECT_EQ(file.metadata(), metadata);
  ASSERT_EQ(file.entries().size(), specs.size());
  EXPECT_EQ(file.entries()[0].begin % 8, 0u);
  for (std::size_t i = 0; i < specs.size(); ++i) {
    const SafetensorsEntry& entry = file.at(specs[i].name);
    EXPECT_EQ(entry.dtype, specs[i].dtype);
    EXPECT_EQ(entry.shape, specs[i].shape);
    for (const std::byte b : file.bytes(entry)) EXPECT_EQ(b, std::byte(i));
  }
}

TEST(Safetensors, WrittenInPiecesIsTheSameFile) {
  const TemporaryFolder folder;
  const std::vector<SafetensorsSpec> specs = {{"a", Dtype::u8, {5}}, {"empty", Dtype::u8, {0}}};
  SafetensorsWriter whole(folder / "whole", specs);
  whole.write(view("abcde"));
  whole.write({});
  whole.commit();
  SafetensorsWriter pieces(folder / "pieces", specs);
  for (const char* piece : {"ab", "", "c"}) pieces.write_piece(view(piece));
  EXPECT_THROW(pieces.write(view("abcde")), std::logic_error);      // the tensor has begun
  EXPECT_THROW(pieces.write_piece(view("def")), std::logic_error);  // and ends before
  EXPECT_THROW(pieces.commit(), std::logic_error);
  pieces.write_piece(view("de"));
  pieces.write_piece({});
  pieces.commit();
  EXPECT_EQ(MappedFile(folder / "pieces").text(), MappedFile(folder / "whole").text());
  EXPECT_EQ(pieces.checksum(), whole.checksum());
}

TEST(Safetensors, NoTensorsAtAllIsAFile) {
  const TemporaryFolder folder;
  SafetensorsWriter(folder / "a", {}).commit();
  EXPECT_TRUE(SafetensorsFile(folder / "a").entries().empty());
}

TEST(Safetensors, MissingTensorSuggestsTheNearest) {
  const TemporaryFolder folder;
  SafetensorsWriter writer(folder / "a", {{"wte.weight", Dtype::u8, {0}}});
  writer.write({});
  writer.commit();
  const SafetensorsFile file(folder / "a");
  EXPECT_EQ(file.find("wte.wieght"), nullptr);
  try {
    file.at("wte.wieght");
    FAIL();
  } catch (const FileError& error) {
    EXPECT_EQ(std::string(error.what()),
              folder / "a" + std::string(": wte.wieght: no such tensor among 1; the "
                                         "nearest name is 'wte.weight'"));
  }
}

TEST(Safetensors, WriterRefusesWhatTheHeaderDoesNotSay) {
  const TemporaryFolder folder;
  const std::string path = folder / "a";
  EXPECT_THROW(SafetensorsWriter(path, {{"a"}, {"a"}}), std::logic_error);
  EXPECT_THROW(SafetensorsWriter(path, {{"__metadata__"}}), std::logic_error);
  EXPECT_THROW(SafetensorsWriter(path, {{"a", Dtype::u8, {-1}}}), std::logic_error);
  SafetensorsWriter writer(path, {{"a", Dtype::u8, {2}}});
  EXPECT_THROW(writer.commit(), std::logic_error);
  EXPECT_THROW(writer.write(view("abc")), std::logic_error);
  EXPECT_FALSE(std::filesystem::exists(path));
}

}  // namespace
}  // namespace laconic
