#include "laconic/file/decompress.hpp"

#include <fcntl.h>
#include <gtest/gtest.h>
#include <unistd.h>

#include <fstream>

#include "laconic/base/error.hpp"
#include "laconic/base/philox.hpp"
#include "laconic/file/test_compress.hpp"
#include "laconic/file/test_folder.hpp"

namespace laconic {
namespace {

// Half of it can be compressed well, half not at all; longer than any buffer.
std::string some_text(std::size_t bytes) {
  std::string text(bytes, 'x');
  for (std::size_t i = 0; i < bytes; ++i)
    if (i / 5000 % 2 == 0) text[i] = static_cast<char>(word_at(key_of(3), i));
  return text;
}

std::string decompressed(const std::string& compressed) {
  const TemporaryFolder folder;
  std::ofstream(folder / "file", std::ios::binary) << compressed;
  const int descriptor = ::open((folder / "file").c_str(), O_RDONLY);
  std::string out;
  try {
    decompress(descriptor, "some.file", [&](ByteView bytes) {
      out.append(reinterpret_cast<const char*>(bytes.data()), bytes.size());
    });
  } catch (...) {
    ::close(descriptor);
    throw;
  }
  ::close(descriptor);
  return out;
}

// The message of the refusal; "" when there is none.
std::string refusal_of(const std::string& compressed) {
  try {
    decompressed(compressed);
  } catch (const FileError& error) {
    return error.what();
  }
  return "";
}

const struct {
  const char* name;
  std::string (*compress)(const std::string&);
} kCompressors[] = {{"gzip", compress_gzip}, {"zstd", compress_zstd}, {"xz", compress_xz}};

TEST(Decompress, GivesBackWhatWasPackedAndPlainBytesAsTheyAre) {
  for (const std::size_t size : {0u, 1u, 100u, 300000u, 2000000u}) {
    const std::string text = some_text(size);
    EXPECT_EQ(decompressed(text), text) << size;
    for (const auto& compressor : kCompressors)
      EXPECT_EQ(decompressed(compressor.compress(text)), text) << compressor.name << " of " << size;
  }
}

TEST(Decompress, PackedFilesMayFollowOneAnother) {
  const std::string a = some_text(700000), b = "second", empty;
  for (const auto& compressor : kCompressors)
    EXPECT_EQ(
        decompressed(compressor.compress(a) + compressor.compress(empty) + compressor.compress(b)),
        a + b)
        << compressor.name;
}

TEST(Decompress, ATruncatedFileIsRefusedWithItsEnd) {
  const std::string text = some_text(400000);
  for (const auto& compressor : kCompressors) {
    const std::string compressed = compressor.compress(text);
    for (const std::size_t kept : {std::size_t{12}, compressed.size() / 2, compressed.size() - 1}) {
      const std::string refusal = refusal_of(compressed.substr(0, kept));
      const std::string expected =
          "some.file: byte " + std::to_string(kept) + ": " + compressor.name + " data is truncated";
      EXPECT_NE(refusal.find(expected), std::string::npos) << expected << "; it says: " << refusal;
    }
  }
}

TEST(Decompress, AFlippedBitIsRefusedWithAnOffsetNearIt) {
  const std::string text = some_text(400000);
  for (const auto& compressor : kCompressors) {
    const std::string compressed = compressor.compress(text);
    for (const std::size_t place :
         {compressed.size() / 3, compressed.size() / 2, compressed.size() - 6}) {
      std::string damaged = compressed;
      damaged[place] = static_cast<char>(damaged[place] ^ 0x10);
      const std::string refusal = refusal_of(damaged);
      ASSERT_TRUE(refusal.starts_with("some.file: byte ")) << compressor.name << ": " << refusal;
      EXPECT_NE(refusal.find(compressor.name), std::string::npos) << refusal;
      EXPECT_LE(std::stoul(refusal.substr(16)), compressed.size()) << refusal;
    }
  }
}

TEST(Decompress, WhatFollowsThatIsNotPackedIsRefused) {
  for (const auto& compressor : kCompressors) {
    const std::string compressed = compressor.compress("hello");
    const std::string refusal = refusal_of(compressed + "garbage");
    EXPECT_TRUE(refusal.starts_with("some.file: byte ")) << compressor.name << ": " << refusal;
  }
  const std::string compressed = compress_gzip("hello");
  EXPECT_NE(refusal_of(compressed + "garbage")
                .find("byte " + std::to_string(compressed.size()) + ": gzip data ends here"),
            std::string::npos);
}

TEST(Decompress, TheFirstBytesSayHowItIsPacked) {
  for (const auto& compressor : kCompressors) {
    const std::string compressed = compressor.compress("x");
    EXPECT_EQ(to_text(compression_of(as_bytes(std::span<const char>(compressed)))),
              compressor.name);
  }
  const std::string plain = "7zXZ";
  EXPECT_EQ(compression_of(as_bytes(std::span<const char>(plain))), Compression::none);
  EXPECT_EQ(compression_of({}), Compression::none);
}

}  // namespace
}  // namespace laconic
