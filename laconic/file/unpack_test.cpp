#include "laconic/file/unpack.hpp"

#include <fcntl.h>
#include <gtest/gtest.h>
#include <unistd.h>

#include <fstream>

#include "laconic/base/error.hpp"
#include "laconic/base/philox.hpp"
#include "laconic/file/test_folder.hpp"
#include "laconic/file/test_pack.hpp"

namespace laconic {
namespace {

// Half of it can be packed well, half not at all; longer than any buffer.
std::string some_text(std::size_t bytes) {
  std::string text(bytes, 'x');
  for (std::size_t i = 0; i < bytes; ++i)
    if (i / 5000 % 2 == 0) text[i] = static_cast<char>(word_at(key_of(3), i));
  return text;
}

std::string unpacked(const std::string& packed) {
  const TemporaryFolder folder;
  std::ofstream(folder / "file", std::ios::binary) << packed;
  const int descriptor = ::open((folder / "file").c_str(), O_RDONLY);
  std::string out;
  try {
    unpack(descriptor, "some.file", [&](ByteView bytes) {
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
std::string refusal_of(const std::string& packed) {
  try {
    unpacked(packed);
  } catch (const FileError& error) {
    return error.what();
  }
  return "";
}

const struct {
  const char* name;
  std::string (*pack)(const std::string&);
} kPackers[] = {{"gzip", pack_gzip}, {"zstd", pack_zstd}, {"xz", pack_xz}};

TEST(Unpack, GivesBackWhatWasPackedAndPlainBytesAsTheyAre) {
  for (const std::size_t size : {0u, 1u, 100u, 300000u, 2000000u}) {
    const std::string text = some_text(size);
    EXPECT_EQ(unpacked(text), text) << size;
    for (const auto& packer : kPackers)
      EXPECT_EQ(unpacked(packer.pack(text)), text) << packer.name << " of " << size;
  }
}

TEST(Unpack, PackedFilesMayFollowOneAnother) {
  const std::string a = some_text(700000), b = "second", empty;
  for (const auto& packer : kPackers)
    EXPECT_EQ(unpacked(packer.pack(a) + packer.pack(empty) + packer.pack(b)), a + b) << packer.name;
}

TEST(Unpack, ATruncatedFileIsRefusedWithItsEnd) {
  const std::string text = some_text(400000);
  for (const auto& packer : kPackers) {
    const std::string packed = packer.pack(text);
    for (const std::size_t kept : {std::size_t{12}, packed.size() / 2, packed.size() - 1}) {
      const std::string refusal = refusal_of(packed.substr(0, kept));
      const std::string expected =
          "some.file: byte " + std::to_string(kept) + ": " + packer.name + " data is truncated";
      EXPECT_NE(refusal.find(expected), std::string::npos) << expected << "; it says: " << refusal;
    }
  }
}

TEST(Unpack, AFlippedBitIsRefusedWithAnOffsetNearIt) {
  const std::string text = some_text(400000);
  for (const auto& packer : kPackers) {
    const std::string packed = packer.pack(text);
    for (const std::size_t place : {packed.size() / 3, packed.size() / 2, packed.size() - 6}) {
      std::string damaged = packed;
      damaged[place] = static_cast<char>(damaged[place] ^ 0x10);
      const std::string refusal = refusal_of(damaged);
      ASSERT_TRUE(refusal.starts_with("some.file: byte ")) << packer.name << ": " << refusal;
      EXPECT_NE(refusal.find(packer.name), std::string::npos) << refusal;
      EXPECT_LE(std::stoul(refusal.substr(16)), packed.size()) << refusal;
    }
  }
}

TEST(Unpack, WhatFollowsThatIsNotPackedIsRefused) {
  for (const auto& packer : kPackers) {
    const std::string packed = packer.pack("hello");
    const std::string refusal = refusal_of(packed + "garbage");
    EXPECT_TRUE(refusal.starts_with("some.file: byte ")) << packer.name << ": " << refusal;
  }
  const std::string packed = pack_gzip("hello");
  EXPECT_NE(refusal_of(packed + "garbage")
                .find("byte " + std::to_string(packed.size()) + ": gzip data ends here"),
            std::string::npos);
}

TEST(Unpack, TheFirstBytesSayHowItIsPacked) {
  for (const auto& packer : kPackers) {
    const std::string packed = packer.pack("x");
    EXPECT_EQ(to_text(packing_of(as_bytes(std::span<const char>(packed)))), packer.name);
  }
  const std::string plain = "7zXZ";
  EXPECT_EQ(packing_of(as_bytes(std::span<const char>(plain))), Packing::none);
  EXPECT_EQ(packing_of({}), Packing::none);
}

}  // namespace
}  // namespace laconic
