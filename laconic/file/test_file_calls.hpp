// file/test_file_calls.hpp — for tests: which calls reached the file system in which order, and
// calls that fail.
//
// A program that links the test support `file_calls` has write(), fsync() and rename() of its own,
// in front of those of the C library; std::filesystem::rename() comes through them, too. They do
// what they always do, and write it down while a FileCalls is alive.
#pragma once

#include <cstddef>
#include <optional>
#include <string>
#include <vector>

namespace laconic {

struct FileCall {
  enum class Kind { write, sync, rename };
  Kind kind = Kind::write;
  std::string path;  // of a rename, what was renamed
  std::string to;    // of a rename
  bool operator==(const FileCall&) const = default;
};

// At most one at a time.
class FileCalls {
 public:
  FileCalls();
  ~FileCalls();
  FileCalls(const FileCalls&) = delete;
  FileCalls& operator=(const FileCalls&) = delete;

  // From now on fsync() of this path fails with this error and does nothing.
  void fail_sync(const std::string& path, int error_number);

  // What has succeeded so far.
  std::vector<FileCall> made() const;
  // Where the first, or last, such call is in made().
  std::optional<std::size_t> first(FileCall::Kind kind, const std::string& path) const;
  std::optional<std::size_t> last(FileCall::Kind kind, const std::string& path) const;
};

}  // namespace laconic
