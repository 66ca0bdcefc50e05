#include "laconic/file/atomic_file.hpp"

#include <fcntl.h>
#include <gtest/gtest.h>
#include <sys/mount.h>
#include <unistd.h>

#include <filesystem>
#include <fstream>
#include <iterator>

#include "laconic/base/error.hpp"
#include "laconic/file/append_file.hpp"
#include "laconic/file/descriptor.hpp"
#include "laconic/file/test_folder.hpp"
#include "laconic/file/test_size_limit.hpp"

namespace laconic {
namespace {

std::string content(const std::string& path) {
  std::ifstream in(path, std::ios::binary);
  return {std::istreambuf_iterator<char>(in), {}};
}

std::size_t files_in(const std::string& folder) {
  return std::distance(std::filesystem::directory_iterator(folder), {});
}

TEST(AtomicFile, AppearsAtCommitAndNotBefore) {
  const TemporaryFolder folder;
  AtomicFile file(folder / "a");
  file.write("new");
  EXPECT_FALSE(std::filesystem::exists(folder / "a"));
  file.commit();
  EXPECT_EQ(content(folder / "a"), "new");
  EXPECT_EQ(files_in(folder.path()), 1u);
}

TEST(AtomicFile, WithoutCommitLeavesTheOldFileAndNothingElse) {
  const TemporaryFolder folder;
  write_atomically(folder / "a", "old");
  {
    AtomicFile file(folder / "a");
    file.write("new");
  }
  EXPECT_EQ(content(folder / "a"), "old");
  EXPECT_EQ(files_in(folder.path()), 1u);
}

TEST(AtomicFile, SyncedIsNotYetInPlaceAndCommitNeedsNoMoreSpace) {
  const TemporaryFolder folder;
  write_atomically(folder / "a", "old");
  AtomicFile file(folder / "a");
  file.write("new");
  file.sync();
  EXPECT_EQ(content(folder / "a"), "old");
  EXPECT_EQ(content(folder / "a.tmp"), "new");
  {
    const SizeLimit limit(0);
    file.commit();
  }
  EXPECT_EQ(content(folder / "a"), "new");
  EXPECT_EQ(files_in(folder.path()), 1u);
}

TEST(AtomicFile, SmallAndLargePiecesKeepTheirOrder) {
  const TemporaryFolder folder;
  std::string expected;
  AtomicFile file(folder / "a");
  for (const std::size_t size : {1u, 3u << 20, 5u, 1u << 20, (1u << 20) - 1, 0u, 2u}) {
    const std::string piece(size, static_cast<char>('a' + expected.size() % 26));
    file.write(piece);
    expected += piece;
  }
  EXPECT_EQ(file.size(), expected.size());
  file.commit();
  EXPECT_TRUE(content(folder / "a") == expected);
}

TEST(AtomicFile, RefusedWriteLeavesTheOldFileAndNothingElse) {
  for (const std::size_t size : {std::size_t{5000}, std::size_t{3} << 20}) {
    const TemporaryFolder folder;
    write_atomically(folder / "a", "old");
    const std::string text(size, 'x');
    {
      const SizeLimit limit(4096);
      EXPECT_THROW(write_atomically(folder / "a", text), SystemError);
    }
    EXPECT_EQ(content(folder / "a"), "old");
    EXPECT_EQ(files_in(folder.path()), 1u);
  }
}

TEST(AtomicFile, FullDiskLeavesTheOldFileAndNothingElse) {
  const TemporaryFolder folder;
  if (::mount("none", folder.path().c_str(), "tmpfs", 0, "size=64k") != 0)
    GTEST_SKIP() << "may not mount a small disk here";
  write_atomically(folder / "a", "old");
  std::string message;
  try {
    write_atomically(folder / "a", std::string(1 << 20, 'x'));
  } catch (const SystemError& error) {
    message = error.what();
  }
  const std::string kept = content(folder / "a");
  const std::size_t files = files_in(folder.path());
  ::umount(folder.path().c_str());
  EXPECT_NE(message.find("No space left on device"), std::string::npos) << message;
  EXPECT_EQ(kept, "old");
  EXPECT_EQ(files, 1u);
}

TEST(AtomicFile, RenameThatFailsLeavesNothing) {
  const TemporaryFolder folder;
  std::filesystem::create_directories(folder / "a/child");  // a file cannot replace it
  EXPECT_THROW(write_atomically(folder / "a", "new"), SystemError);
  EXPECT_EQ(files_in(folder.path()), 1u);
}

TEST(AppendFile, KeepsWhatWasThere) {
  const TemporaryFolder folder;
  { AppendFile(folder / "log").write("one\n"); }
  { AppendFile(folder / "log").write("two\n"); }
  EXPECT_EQ(content(folder / "log"), "one\ntwo\n");
}

TEST(AppendFile, SaysWhichFileIsFull) {
  AppendFile file("/dev/full");
  try {
    file.write("x");
    FAIL();
  } catch (const SystemError& error) {
    EXPECT_STREQ(error.what(), "/dev/full: cannot write: No space left on device");
  }
}

TEST(Descriptor, ItsReaderIsLostWhenAPipeHasNoneAnyMore) {
  int ends[2];
  ASSERT_EQ(::pipe(ends), 0);
  EXPECT_FALSE(has_lost_reader(ends[1]));
  ::close(ends[0]);
  EXPECT_TRUE(has_lost_reader(ends[1]));
  ::close(ends[1]);
  EXPECT_FALSE(has_lost_reader(ends[1]));  // not even open
  const int nowhere = ::open("/dev/null", O_WRONLY);
  EXPECT_FALSE(has_lost_reader(nowhere));
  ::close(nowhere);
}

}  // namespace
}  // namespace laconic
