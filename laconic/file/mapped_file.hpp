// file/mapped_file.hpp — a whole file as read-only memory.
//
// Pages are read when touched, so opening a 100 GB dataset costs nothing. The
// bytes stay valid as long as the object; a file that somebody truncates
// meanwhile ends the process (SIGBUS), as with every mapping.
#pragma once

#include <string>
#include <string_view>

#include "laconic/base/bytes.hpp"

namespace laconic {

class MappedFile {
 public:
  MappedFile() = default;
  // Throws FileError when there is no such regular file, SystemError when it cannot be opened.
  explicit MappedFile(const std::string& path);
  // Maps an open file, which may be closed then; the path is for messages alone.
  MappedFile(std::string path, int descriptor);
  ~MappedFile();
  MappedFile(MappedFile&& other) noexcept;
  MappedFile& operator=(MappedFile&& other) noexcept;

  ByteView bytes() const { return bytes_; }
  std::string_view text() const {
    return {reinterpret_cast<const char*>(bytes_.data()), bytes_.size()};
  }
  const std::string& path() const { return path_; }

 private:
  void map(int descriptor);

  std::string path_;
  ByteView bytes_;
};

}  // namespace laconic
