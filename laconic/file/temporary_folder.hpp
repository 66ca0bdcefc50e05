// file/temporary_folder.hpp — a folder that is gone when the object is. For tests and scratch.
#pragma once

#include <filesystem>
#include <string>

namespace laconic {

class TemporaryFolder {
 public:
  TemporaryFolder();  // under $TMPDIR or /tmp. Throws SystemError.
  ~TemporaryFolder();
  TemporaryFolder(const TemporaryFolder&) = delete;
  TemporaryFolder& operator=(const TemporaryFolder&) = delete;

  const std::string& path() const { return path_; }
  std::string operator/(const std::string& name) const { return path_ + "/" + name; }

 private:
  std::string path_;
};

}  // namespace laconic
