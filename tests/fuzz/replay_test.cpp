// Every file of a corpus through its fuzz target, in every build: no clang, no libFuzzer.
// The target traps when a promise is broken, which ends the test.
#include <gtest/gtest.h>

#include <cstdint>
#include <cstdlib>
#include <filesystem>

#include "laconic/file/mapped_file.hpp"

extern "C" int LLVMFuzzerTestOneInput(const std::uint8_t* data, std::size_t size);

TEST(Replay, EveryFileOfTheCorpus) {
  const char* source = std::getenv("LACONIC_SOURCE");
  const char* target = std::getenv("LACONIC_FUZZ_TARGET");
  ASSERT_TRUE(source && target) << "ctest sets LACONIC_SOURCE and LACONIC_FUZZ_TARGET";
  const auto corpus = std::filesystem::path(source) / "tests/fuzz/corpus" / target;
  int files = 0;
  for (const auto& entry : std::filesystem::directory_iterator(corpus)) {
    SCOPED_TRACE(entry.path().string());
    const laconic::MappedFile file(entry.path().string());
    const auto* data = reinterpret_cast<const std::uint8_t*>(file.bytes().data());
    EXPECT_EQ(LLVMFuzzerTestOneInput(data, file.bytes().size()), 0);
    ++files;
  }
  EXPECT_GT(files, 0);
}
