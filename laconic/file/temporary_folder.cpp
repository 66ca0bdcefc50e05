#include "laconic/file/temporary_folder.hpp"

#include <cerrno>
#include <cstdlib>
#include <system_error>

#include "laconic/base/error.hpp"

namespace laconic {

TemporaryFolder::TemporaryFolder() {
  path_ = (std::filesystem::temp_directory_path() / "laconic-XXXXXX").string();
  if (::mkdtemp(path_.data()) == nullptr) throw SystemError(path_, "create", errno);
}

TemporaryFolder::~TemporaryFolder() {
  std::error_code ignored;
  std::filesystem::remove_all(path_, ignored);
}

}  // namespace laconic
