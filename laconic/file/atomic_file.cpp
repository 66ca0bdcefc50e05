#include "laconic/file/atomic_file.hpp"

#include <fcntl.h>
#include <unistd.h>

#include <cerrno>
#include <cstdio>
#include <filesystem>
#include <utility>

#include "laconic/base/error.hpp"

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
  if (descriptor_ < 0) return;
  ::close(descriptor_);
  ::unlink(temporary_.c_str());
}

void AtomicFile::write(ByteView bytes) {
  size_ += bytes.size();
  if (buffer_.size() + bytes.size() > kBufferBytes) flush();
  buffer_.insert(buffer_.end(), bytes.begin(), bytes.end());
  if (buffer_.size() > kBufferBytes) flush();
}

void AtomicFile::flush() {
  std::size_t done = 0;
  while (done < buffer_.size()) {
    const ssize_t n = ::write(descriptor_, buffer_.data() + done, buffer_.size() - done);
    if (n < 0 && errno == EINTR) continue;
    if (n < 0) throw SystemError(temporary_, "write", errno);
    done += static_cast<std::size_t>(n);
  }
  buffer_.clear();
}

void AtomicFile::commit() {
  flush();
  if (::fsync(descriptor_) != 0) throw SystemError(temporary_, "fsync", errno);
  const bool is_closed = ::close(std::exchange(descriptor_, -1)) == 0;
  if (!is_closed || ::rename(temporary_.c_str(), path_.c_str()) != 0) {
    const int error_number = errno;
    ::unlink(temporary_.c_str());  // the destructor no longer does
    throw SystemError(path_, is_closed ? "rename to" : "close", error_number);
  }
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
