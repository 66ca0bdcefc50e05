// file/append_file.hpp — a file that only grows.
//
// Each write() goes to the system at once, so what was written survives the
// death of the process (not of the machine: nothing is fsynced). For logs; a
// file that must be whole is an AtomicFile.
#pragma once

#include <span>
#include <string>
#include <string_view>

#include "laconic/base/bytes.hpp"

namespace laconic {

class AppendFile {
 public:
  // Made if missing, kept if there. Throws SystemError, here and in write().
  explicit AppendFile(const std::string& path);
  ~AppendFile();
  AppendFile(const AppendFile&) = delete;
  AppendFile& operator=(const AppendFile&) = delete;

  void write(ByteView bytes);
  void write(std::string_view text) {
    write(std::as_bytes(std::span<const char>(text.data(), text.size())));
  }
  const std::string& path() const { return path_; }

 private:
  std::string path_;
  int descriptor_ = -1;
};

}  // namespace laconic
