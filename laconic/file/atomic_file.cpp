#include "laconic/file/atomic_file.hpp"

#include <fcntl.h>
#include <unistd.h>

#include <cerrno>
#include <cstdio>
#include <filesystem>
#include <utility>

#include "laconic/base/error.hpp"
#include "laconic/file/descriptor.hpp"

namespace laconic {

namespace {
constexpr std::size_t kBufferBytes = std::size_t{1} << 20;
}

AtomicFile::AtomicFile(const std::string& path) : path_(path), temporary_(path + ".tmp") {
  descriptor_ = ::open(temporary_.c_str(), O_WRONLY | O_CREAT | O_TRUNC | O_CLOEXEC, 0644);
  if (descriptor_ < 0) throw SystemError(temporary_, "create", errno);
  buffer_.reserve(kBufferBytes);
}

AtomicFile::~AtomicFile() {
  if (descriptor_ >= 0) ::close(descriptor_);
  if (!is_committed_) ::unlink(temporary_.c_str());
}

void AtomicFile::write(ByteView bytes) {
  size_ += bytes.size();
  if (buffer_.size() + bytes.size() > kBufferBytes) flush();
  // A tensor may be larger than the memory that is left: it is never copied whole.
  if (bytes.size() >= kBufferBytes) return write_all(descriptor_, bytes, temporary_);
  buffer_.insert(buffer_.end(), bytes.begin(), bytes.end());
}

void AtomicFile::flush() {
  write_all(descriptor_, buffer_, temporary_);
  buffer_.clear();
}

void AtomicFile::sync() {
  flush();
  if (::fsync(descriptor_) != 0) throw SystemError(temporary_, "fsync", errno);
  if (::close(std::exchange(descriptor_, -1)) != 0) throw SystemError(temporary_, "close", errno);
}

void AtomicFile::commit() {
  if (descriptor_ >= 0) sync();
  if (::rename(temporary_.c_str(), path_.c_str()) != 0)
    throw SystemError(path_, "rename to", errno);
  is_committed_ = true;
  sync_folder(std::filesystem::path(path_).parent_path().string());
}

void write_atomically(const std::string& path, std::string_view text) {
  AtomicFile file(path);
  file.write(text);
  file.commit();
}

void sync_folder(const std::string& folder) {
  const std::string path = folder.empty() ? "." : folder;
  const int descriptor = ::open(path.c_str(), O_RDONLY | O_DIRECTORY | O_CLOEXEC);
  if (descriptor < 0) throw SystemError(path, "open", errno);
  const int result = ::fsync(descriptor);
  const int error_number = errno;
  ::close(descriptor);
  // Some file systems cannot sync a folder and say so; that is not a lost write.
  if (result != 0 && error_number != EINVAL) throw SystemError(path, "fsync", error_number);
}

}  // namespace laconic
