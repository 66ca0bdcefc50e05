// file/atomic_file.hpp — a file that appears whole or not at all.
//
// Bytes go to "PATH.tmp" (buffered); commit() flushes, fsyncs and renames it
// over PATH, then fsyncs the folder. A crash, a full disk or a destructor
// without commit() leaves the old PATH as it was. Files that belong together
// are all sync()ed before the first commit(): what wants space is done then.
#pragma once

#include <cstddef>
#include <cstdint>
#include <span>
#include <string>
#include <string_view>
#include <vector>

#include "laconic/base/bytes.hpp"

namespace laconic {

class AtomicFile {
 public:
  // Throws SystemError, here and below, with the system's reason ("No space left on device").
  explicit AtomicFile(const std::string& path);
  ~AtomicFile();
  AtomicFile(const AtomicFile&) = delete;
  AtomicFile& operator=(const AtomicFile&) = delete;

  void write(ByteView bytes);
  void write(std::string_view text) {
    write(std::as_bytes(std::span<const char>(text.data(), text.size())));
  }
  std::uint64_t size() const { return size_; }  // written so far
  // Flushes and fsyncs PATH.tmp, and PATH is as it was. Nothing may be written afterwards.
  void sync();
  void commit();  // sync()s if nobody has

 private:
  void flush();

  std::string path_;
  std::string temporary_;
  int descriptor_ = -1;
  bool is_committed_ = false;
  std::uint64_t size_ = 0;
  std::vector<std::byte> buffer_;
};

void write_atomically(const std::string& path, std::string_view text);

// Makes a rename or a new entry in `folder` durable.
void sync_folder(const std::string& folder);

}  // namespace laconic
