#include "laconic/file/descriptor.hpp"

#include <poll.h>
#include <sys/stat.h>
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

bool has_lost_reader(int descriptor) {
  struct stat facts {};
  if (::fstat(descriptor, &facts) != 0) return false;
  if (!S_ISFIFO(facts.st_mode) && !S_ISSOCK(facts.st_mode)) return false;
  pollfd polled{descriptor, 0, 0};  // errors are told without being asked for
  return ::poll(&polled, 1, 0) > 0 && (polled.revents & (POLLERR | POLLHUP)) != 0;
}

}  // namespace laconic
