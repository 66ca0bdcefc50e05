#include "laconic/file/mapped_file.hpp"

#include <fcntl.h>
#include <sys/mman.h>
#include <sys/stat.h>
#include <unistd.h>

#include <cerrno>
#include <utility>

#include "laconic/base/error.hpp"

namespace laconic {

MappedFile::MappedFile(const std::string& path) : path_(path) {
  const int descriptor = ::open(path.c_str(), O_RDONLY | O_CLOEXEC);
  if (descriptor < 0 && errno == ENOENT) throw FileError(path, "", "does not exist");
  if (descriptor < 0) throw SystemError(path, "open", errno);
  try {
    map(descriptor);
  } catch (...) {
    ::close(descriptor);
    throw;
  }
  ::close(descriptor);
}

MappedFile::MappedFile(std::string path, int descriptor) : path_(std::move(path)) {
  map(descriptor);
}

void MappedFile::map(int descriptor) {
  struct stat status {};
  if (::fstat(descriptor, &status) != 0 || !S_ISREG(status.st_mode))
    throw FileError(path_, "", "not a regular file");
  const auto size = static_cast<std::size_t>(status.st_size);
  if (size == 0) return;  // an empty mapping is an error to the system, not to us
  void* memory = ::mmap(nullptr, size, PROT_READ, MAP_SHARED, descriptor, 0);
  if (memory == MAP_FAILED) throw SystemError(path_, "map", errno);
  bytes_ = {static_cast<const std::byte*>(memory), size};
}

MappedFile::~MappedFile() {
  if (!bytes_.empty()) ::munmap(const_cast<std::byte*>(bytes_.data()), bytes_.size());
}

MappedFile::MappedFile(MappedFile&& other) noexcept
    : path_(std::move(other.path_)), bytes_(std::exchange(other.bytes_, {})) {}

MappedFile& MappedFile::operator=(MappedFile&& other) noexcept {
  std::swap(path_, other.path_);
  std::swap(bytes_, other.bytes_);
  return *this;
}

}  // namespace laconic
