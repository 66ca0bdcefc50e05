// file/test_folder.hpp — for tests only: a folder that is gone when the object is.
#pragma once

#include <cerrno>
#include <cstdlib>
#include <filesystem>
#include <string>
#include <system_error>

#include "laconic/base/error.hpp"

namespace laconic {

class TemporaryFolder {
 public:
  // Under $TMPDIR or /tmp. Throws SystemError.
  TemporaryFolder() : path_((std::filesystem::temp_directory_path() / "laconic-XXXXXX").string()) {
    if (::mkdtemp(path_.data()) == nullptr) throw SystemError(path_, "create", errno);
  }
  ~TemporaryFolder() {
    std::error_code ignored;
    std::filesystem::remove_all(path_, ignored);
  }
  TemporaryFolder(const TemporaryFolder&) = delete;
  TemporaryFolder& operator=(const TemporaryFolder&) = delete;

  const std::string& path() const { return path_; }
  std::string operator/(const std::string& name) const { return path_ + "/" + name; }

 private:
  std::string path_;
};

}  // namespace laconic
