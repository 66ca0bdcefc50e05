#include "laconic/file/descriptor.hpp"

#include <unistd.h>

#include <cerrno>

#include "laconic/base/error.hpp"

namespace laconic {

void write_all(int descriptor, ByteView bytes, const std::string& path) {
  while (!bytes.empty()) {
    const ssize_t n = ::write(descriptor, bytes.data(), bytes.size());
    if (n < 0 && errno == EINTR) continue;
    if (n < 0) throw SystemError(path, "write", errno);
    bytes = bytes.subspan(static_cast<std::size_t>(n));
  }
}

}  // namespace laconic
