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
  struct stat status {};
  const bool is_known = ::fstat(descriptor, &status) == 0;
  if (!is_known || !S_ISREG(status.st_mode)) {
    ::close(descriptor);
    throw FileError(path, "", "not a regular file");
  }
  const auto size = static_cast<std::size_t>(status.st_size);
  if (size > 0) {  // an empty mapping is an error to the system, not to us
    void* memory = ::mmap(nullptr, size, PROT_READ, MAP_SHARED, descriptor, 0);
    const int error_number = errno;
    if (memory == MAP_FAILED) {
      ::close(descriptor);
      throw SystemError(path, "map", error_number);
    }
    bytes_ = {static_cast<const std::byte*>(memory), size};
  }
  ::close(descriptor);
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
