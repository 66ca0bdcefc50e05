#include "laconic/report/tensorboard.hpp"

#include <fmt/format.h>
#include <gtest/gtest.h>
#include <unistd.h>

#include <cmath>
#include <cstdlib>
#include <filesystem>

#include "laconic/base/clock.hpp"
#include "laconic/base/text.hpp"
#include "laconic/file/mapped_file.hpp"
#include "laconic/file/test_folder.hpp"

namespace laconic {
namespace {

std::string hex(ByteView bytes) {
  std::string text;
  for (const std::byte b : bytes) text += fmt::format("{:02x}", std::to_integer<int>(b));
  return text;
}

// Made by tools/check_tensorboard.py's own check sums, not by this code.
TEST(Tensorboard, GoldenRecords) {
  EXPECT_EQ(hex(tensorboard_record(version_event(1.5))),
            "1800000000000000a37f4b22"
            "09000000000000f83f"              // wall_time = 1.5
            "1a0d627261696e2e4576656e743a32"  // file_version = "brain.Event:2"
            "2a28646c");
  const Scalar loss[] = {{"loss", 2.5}};
  EXPECT_EQ(hex(tensorboard_record(scalars_event(1.5, 300, loss))),
            "1b000000000000001a0d9e13"
            "09000000000000f83f"
            "10ac02"                          // step = 300
            "2a0d0a0b0a046c6f73731500002040"  // summary {value {tag, simple_value}}
            "68997c51");
  EXPECT_EQ(hex(tensorboard_record(restart_event(1.5, 300))),
            "100000000000000095fbfe18"
            "09000000000000f83f10ac02"
            "3a020801"  // session_log {status = START}
            "713b788a");
}

TEST(Tensorboard, StepZeroIsLeftOutAsProtobufDoes) {
  EXPECT_EQ(hex(scalars_event(1.5, 0, {})), "09000000000000f83f2a00");
}

TEST(Tensorboard, AStepTakesSevenBitsToAByte) {
  EXPECT_EQ(hex(scalars_event(1.5, 127, {})), "09000000000000f83f107f2a00");
  EXPECT_EQ(hex(scalars_event(1.5, 128, {})), "09000000000000f83f1080012a00");
}

TEST(Tensorboard, TheFileIsNamedAsTensorBoardExpects) {
  const TemporaryFolder folder;
  const TensorboardWriter writer(folder / "logs/run");
  const auto parts = split(std::filesystem::path(writer.path()).filename().string(), '.');
  ASSERT_GE(parts.size(), 6u) << writer.path();  // a host name may have dots of its own
  EXPECT_EQ(join({parts[0], parts[1], parts[2]}, "."), "events.out.tfevents");
  EXPECT_NEAR(std::stod(parts[3]), unix_seconds(), 60);
  EXPECT_EQ(parts.back(), std::to_string(::getpid()));
}

TEST(Tensorboard, EachStepIsInTheFileAtOnce) {
  const TemporaryFolder folder;
  TensorboardWriter writer(folder.path(), 100);
  const auto size = [&] { return MappedFile(writer.path()).bytes().size(); };
  EXPECT_EQ(size(), 40u + 31u);  // version, restart at a step of one byte
  writer.write(101, {{"loss", 1}, {"lr", 3e-4}});
  const std::size_t expected = 16 + 9 + 2 + 2 + (2 + 6 + 5) + (2 + 4 + 5);
  EXPECT_EQ(size(), 40u + 31u + expected);
}

// For tools/check_tensorboard.py, which ctest runs on it.
TEST(Tensorboard, SampleForTheChecker) {
  const char* folder = std::getenv("LACONIC_TENSORBOARD_SAMPLE");
  if (folder == nullptr) GTEST_SKIP() << "LACONIC_TENSORBOARD_SAMPLE is not set";
  std::filesystem::remove_all(folder);
  TensorboardWriter writer(folder, 40);
  for (int step = 40; step < 300; ++step)
    writer.write(step, {{"loss", 10.0 / (step + 1)},
                        {"validation_metrics/bits_per_byte", step == 41 ? std::nan("") : -1.5},
                        {"throughput(tps)", 12345.0 * step}});
}

}  // namespace
}  // namespace laconic
