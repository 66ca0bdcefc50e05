#include "laconic/file/append_file.hpp"

#include <fcntl.h>
#include <unistd.h>

#include <cerrno>

#include "laconic/base/error.hpp"
#include "laconic/file/descriptor.hpp"

namespace laconic {

AppendFile::AppendFile(const std::string& path) : path_(path) {
  descriptor_ = ::open(path.c_str(), O_WRONLY | O_CREAT | O_APPEND | O_CLOEXEC, 0644);
  if (descriptor_ < 0) throw SystemError(path, "open", errno);
}

AppendFile::~AppendFile() {
  ::close(descriptor_);
}

void AppendFile::write(ByteView bytes) {
  write_all(descriptor_, bytes, path_);
}

}  // namespace laconic
