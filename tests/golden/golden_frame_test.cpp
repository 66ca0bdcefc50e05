// Bytes that must never change: frames, frames that must be refused, sizes.
#include <fmt/format.h>
#include <gtest/gtest.h>

#include <cmath>
#include <cstdlib>
#include <filesystem>
#include <fstream>
#include <set>
#include <sstream>

#include "laconic/base/error.hpp"
#include "laconic/base/text.hpp"
#include "laconic/file/mapped_file.hpp"
#include "laconic/wire/explain.hpp"
#include "tests/golden/golden_frame.hpp"

namespace laconic {
namespace {

namespace fs = std::filesystem;

fs::path source_folder() {
  const char* source = std::getenv("LACONIC_SOURCE");
  return source == nullptr ? fs::current_path() : fs::path(source);
}

fs::path golden_folder() {
  return source_folder() / "tests/golden";
}

// Leaves what we would have expected where LACONIC_REGENERATE points, never in the tree.
void leave(const std::string& name, std::string_view content) {
  const char* wanted = std::getenv("LACONIC_REGENERATE");
  if (wanted == nullptr) return;
  const fs::path folder = fs::weakly_canonical(wanted), source = fs::canonical(source_folder());
  const auto [in_source, rest] =
      std::mismatch(source.begin(), source.end(), folder.begin(), folder.end());
  ASSERT_NE(in_source, source.end()) << folder << " is in the tree: choose a temporary folder";
  fs::create_directories((folder / name).parent_path());
  std::ofstream(folder / name, std::ios::binary) << content;
}

void leave(const std::string& name, ByteView bytes) {
  leave(name, std::string_view(reinterpret_cast<const char*>(bytes.data()), bytes.size()));
}

std::string text_of(const fs::path& path) {
  std::ostringstream out;
  out << std::ifstream(path, std::ios::binary).rdbuf();
  return out.str();
}

std::string hex_of_file(const fs::path& path) {
  if (!fs::exists(path)) return "no file " + path.string();
  const std::string text = text_of(path);
  return hex_of(std::as_bytes(std::span(text.data(), text.size())));
}

std::set<std::string> names_in(const fs::path& folder) {
  std::set<std::string> names;
  for (const auto& entry : fs::directory_iterator(folder))
    if (entry.path().extension() == ".bin") names.insert(entry.path().stem());
  return names;
}

TEST(Golden, FramesAreTheBytesOfTheSpecification) {
  std::set<std::string> names;
  for (const GoldenFrame& golden : golden_frames()) {
    SCOPED_TRACE(golden.name);
    names.insert(golden.name);
    const Bytes frame = make_frame(golden);
    leave(fmt::format("wire/{}.bin", golden.name), frame);
    EXPECT_EQ(hex_of(frame), hex_of(bytes_of_hex(golden.hex)));
    EXPECT_EQ(hex_of_file(golden_folder() / "wire" / (std::string(golden.name) + ".bin")),
              hex_of(frame));
    EXPECT_EQ(hex_of(make_frame(golden)), hex_of(frame)) << "a second time";
  }
  EXPECT_EQ(names, names_in(golden_folder() / "wire"));
}

TEST(Golden, FramesDecodeToTheStatedNumbers) {
  for (const GoldenFrame& golden : golden_frames()) {
    SCOPED_TRACE(golden.name);
    const Bytes bytes = bytes_of_hex(golden.hex);
    const Frame frame = read_frame(bytes);
    EXPECT_EQ(frame.size, bytes.size());
    EXPECT_EQ(frame.header.tensor, golden.tensor);
    EXPECT_EQ(to_text(frame.header.codec), golden.codec);
    const std::vector<float> decoded = decode_frame(frame);
    const std::vector<float>& expected = golden.decoded.empty() ? golden.data : golden.decoded;
    ASSERT_EQ(decoded.size(), expected.size());
    for (std::size_t i = 0; i < decoded.size(); ++i)
      if (std::isnan(expected[i]))
        EXPECT_TRUE(std::isnan(decoded[i])) << i << ": " << decoded[i];
      else
        EXPECT_EQ(decoded[i], expected[i]) << i << fmt::format(": {}", fmt::join(decoded, ", "));
  }
}

// wire/decoded.txt has the numbers once more, for tests/golden/check_wire.py, which reads the
// frames with no code of ours.
TEST(Golden, DecodedNumbersAreThoseOfTheText) {
  std::string text;
  for (const GoldenFrame& golden : golden_frames()) {
    const Bytes bytes = make_frame(golden);
    text += fmt::format("{}: {}\n", golden.name, fmt::join(decode_frame(read_frame(bytes)), " "));
  }
  leave("wire/decoded.txt", text);
  EXPECT_EQ(text, text_of(golden_folder() / "wire/decoded.txt"));
}

TEST(Golden, EveryByteOfAFrameIsExplained) {
  for (const GoldenFrame& golden : golden_frames()) {
    SCOPED_TRACE(golden.name);
    const Bytes bytes = bytes_of_hex(golden.hex);
    const Explanation e = explain(bytes);
    EXPECT_FALSE(e.fault) << e.fault->what;
    std::uint64_t at = 0;
    for (const ExplainedField& row : e.rows) {
      EXPECT_EQ(row.offset, at) << row.field;
      at += row.bytes;
    }
    EXPECT_EQ(at, bytes.size());
  }
}

// invalid/expected.txt: name, offset and field of each file that must be refused.
TEST(Golden, InvalidFramesAreRefusedForTheStatedReason) {
  std::string refusals;
  std::set<std::string> names;
  for (const InvalidFrame& invalid : invalid_frames()) {
    SCOPED_TRACE(invalid.name);
    names.insert(invalid.name);
    const Bytes frame = make_frame(invalid);
    leave(fmt::format("invalid/{}.bin", invalid.name), frame);
    EXPECT_EQ(hex_of_file(golden_folder() / "invalid" / (std::string(invalid.name) + ".bin")),
              hex_of(frame));
    const Explanation e = explain(frame);
    if (e.fault)
      refusals += fmt::format("{:<32} {:>3}  {}\n", invalid.name, e.fault->offset, e.fault->field);
    EXPECT_THROW((void)decode_frame(read_frame(frame)), WireError);
  }
  leave("invalid/expected.txt", refusals);
  EXPECT_EQ(refusals, text_of(golden_folder() / "invalid/expected.txt"));
  EXPECT_EQ(names, names_in(golden_folder() / "invalid"));
}

// --- sizes

const char* const kCodecs[] = {"raw",
                               "half",
                               "quantise",
                               "quantise:bits=4",
                               "quantise:bits=4,block=64",
                               "quantise:bits=4,block=32,scale=pow2",
                               "quantise:bits=3,group=row,scale=f16",
                               "quantise:bits=2,group=channel,scale=f16,grid=artefact",
                               "quantise:bits=1,grid=ends",
                               "quantise:bits=4,rotate=true",
                               "sign",
                               "sign:block=1024",
                               "top_k",
                               "top_k:keep=0.001",
                               "top_k:keep=0.5",
                               "top_k:keep=1",
                               "top_k:count=5",
                               "top_k:keep=0.05+half",
                               "top_k:keep=0.05+quantise:bits=4",
                               "random_k:keep=0.05",
                               "random_k:keep=0.05+quantise:bits=4",
                               "low_rank",
                               "low_rank:rank=4,factors=f16",
                               "auto_encoder",
                               "auto_encoder:code=100,values=f16",
                               "huffman",
                               "huffman:kind=f32",
                               "transform",
                               "transform:bits=4,scale=f16"};

TEST(Golden, SizesAreWhatTheyWere) {
  const TensorSpec tensors[] = {{Dtype::f32, {}},
                                {Dtype::f32, {0, 4}},
                                {Dtype::f32, {1}},
                                {Dtype::f32, {7}},
                                {Dtype::f32, {257}},
                                {Dtype::f64, {3, 5}},
                                {Dtype::bf16, {3, 5}},
                                {Dtype::f32, {8, 128, 384}},
                                {Dtype::bf16, {4096, 4096}},
                                {Dtype::f32, {1, 1024, 1600}}};
  std::string csv = "codec,dtype,shape,payload_bytes,is_fixed\n";
  for (const char* codec : kCodecs)
    for (const TensorSpec& t : tensors) {
      const CodecSpec spec = parse_codec(codec);
      csv += fmt::format("\"{}\",{},{},{},{}\n", codec, name_of(t.dtype),
                         t.shape.empty() ? "scalar" : fmt::format("{}", fmt::join(t.shape, "x")),
                         max_payload_bytes(spec, t), has_fixed_size(spec) ? "yes" : "at most");
    }
  leave("codec/sizes.csv", csv);
  EXPECT_EQ(csv, text_of(golden_folder() / "codec/sizes.csv"));
}

}  // namespace
}  // namespace laconic
