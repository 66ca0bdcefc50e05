// That what carries its final name has reached the disk: the order of calls, seen at the C library.
#include <fcntl.h>
#include <gtest/gtest.h>
#include <unistd.h>

#include <cerrno>
#include <filesystem>
#include <fstream>

#include "laconic/base/error.hpp"
#include "laconic/file/atomic_file.hpp"
#include "laconic/file/safetensors_writer.hpp"
#include "laconic/file/test_file_calls.hpp"
#include "laconic/file/test_folder.hpp"

namespace laconic {
namespace {

using enum FileCall::Kind;

std::string content(const std::string& path) {
  std::ifstream in(path, std::ios::binary);
  return {std::istreambuf_iterator<char>(in), {}};
}

TEST(FileCalls, SeesWhatTheProgramDoes) {
  const TemporaryFolder folder;
  const std::string a = folder / "a", b = folder / "b";
  const FileCalls calls;
  const int descriptor = ::open(a.c_str(), O_WRONLY | O_CREAT, 0600);
  ASSERT_EQ(::write(descriptor, "x", 1), 1);
  ASSERT_EQ(::fsync(descriptor), 0);
  ::close(descriptor);
  std::filesystem::rename(a, b);
  EXPECT_EQ(calls.made(), (std::vector<FileCall>{{write, a, ""}, {sync, a, ""}, {rename, a, b}}));
}

// All bytes are on the disk before the file has its name, and its name is before anybody is told.
TEST(Durability, AnAtomicFileIsWrittenSyncedRenamedAndItsFolderSynced) {
  const TemporaryFolder folder;
  const std::string path = folder / "a", temporary = path + ".tmp";
  for (const std::size_t size : {std::size_t{3}, std::size_t{3} << 20}) {
    const FileCalls calls;
    AtomicFile file(path);
    file.write(std::string(size, 'x'));
    file.write(std::string("end"));
    file.commit();
    const auto written = calls.last(write, temporary), synced = calls.first(sync, temporary),
               renamed = calls.first(rename, temporary), told = calls.last(sync, folder.path());
    ASSERT_TRUE(written && synced && renamed && told) << size;
    EXPECT_LT(*written, *synced);
    EXPECT_LT(*synced, *renamed);
    EXPECT_LT(*renamed, *told);
    EXPECT_EQ(calls.made()[*renamed].to, path);
  }
}

TEST(Durability, AFileThatCannotBeSyncedDoesNotReplaceTheOldOne) {
  const TemporaryFolder folder;
  const std::string path = folder / "a";
  write_atomically(path, "old");
  FileCalls calls;
  calls.fail_sync(path + ".tmp", EIO);
  try {
    write_atomically(path, "new");
    FAIL() << "a failing disk was not noticed";
  } catch (const SystemError& error) {
    EXPECT_EQ(std::string(error.what()), path + ".tmp: cannot fsync: Input/output error");
  }
  EXPECT_EQ(content(path), "old");
  EXPECT_FALSE(calls.first(rename, path + ".tmp"));
  EXPECT_EQ(std::distance(std::filesystem::directory_iterator(folder.path()), {}), 1);
}

// Some file systems cannot sync folders and say so (EINVAL); any other failure is one.
TEST(Durability, AFolderThatCannotBeSyncedIsAnErrorUnlessItsFileSystemNeverCan) {
  const TemporaryFolder folder;
  FileCalls calls;
  calls.fail_sync(folder.path(), EIO);
  EXPECT_THROW(write_atomically(folder / "a", "x"), SystemError);
  calls.fail_sync(folder.path(), EINVAL);
  EXPECT_NO_THROW(write_atomically(folder / "a", "y"));
  EXPECT_EQ(content(folder / "a"), "y");
}

TEST(Durability, TensorsAreOnTheDiskBeforeTheirFileHasItsName) {
  const TemporaryFolder folder;
  const std::string path = folder / "t.safetensors", temporary = path + ".tmp";
  const FileCalls calls;
  SafetensorsWriter writer(path, {{"x", Dtype::f32, {2}}});
  const float values[] = {1, 2};
  writer.write(as_bytes(std::span<const float>(values)));
  writer.commit();
  const auto written = calls.last(write, temporary), synced = calls.first(sync, temporary),
             renamed = calls.first(rename, temporary);
  ASSERT_TRUE(written && synced && renamed);
  EXPECT_LT(*written, *synced);
  EXPECT_LT(*synced, *renamed);
}

}  // namespace
}  // namespace laconic
