#include "laconic/file/test_file_calls.hpp"

#include <fcntl.h>
#include <fmt/format.h>
#include <sys/syscall.h>
#include <unistd.h>

#include <cerrno>
#include <climits>
#include <cstdio>
#include <map>
#include <mutex>
#include <utility>

namespace laconic {

namespace {

struct Book {
  std::mutex mutex;
  bool is_open = false;
  std::vector<FileCall> calls;
  std::map<std::string, int> failing;
};

Book& book() {
  static Book only;
  return only;
}

std::string path_of(int descriptor) {
  char path[PATH_MAX];
  const ssize_t size =
      ::readlink(fmt::format("/proc/self/fd/{}", descriptor).c_str(), path, sizeof path);
  return size < 0 ? "" : std::string(path, static_cast<std::size_t>(size));
}

void note(FileCall call) {
  const std::lock_guard lock(book().mutex);
  if (book().is_open) book().calls.push_back(std::move(call));
}

// The error that fsync() of the path must fail with; 0: none.
int planned_failure(const std::string& path) {
  const std::lock_guard lock(book().mutex);
  const auto found = book().failing.find(path);
  return found == book().failing.end() ? 0 : found->second;
}

bool is_watched() {
  const std::lock_guard lock(book().mutex);
  return book().is_open;
}

int sync_noted(int descriptor) {
  const std::string path = is_watched() ? path_of(descriptor) : "";
  if (const int error = planned_failure(path); error != 0) {
    errno = error;
    return -1;
  }
  const auto result = static_cast<int>(::syscall(SYS_fsync, descriptor));
  if (result == 0) note({FileCall::Kind::sync, path, ""});
  return result;
}

ssize_t write_noted(int descriptor, const void* bytes, std::size_t size) {
  const ssize_t result = ::syscall(SYS_write, descriptor, bytes, size);
  const int error_number = errno;
  if (result > 0 && is_watched()) note({FileCall::Kind::write, path_of(descriptor), ""});
  errno = error_number;
  return result;
}

int rename_noted(const char* from, const char* to) {
  const int result = ::renameat(AT_FDCWD, from, AT_FDCWD, to);
  if (result == 0) note({FileCall::Kind::rename, from, to});
  return result;
}

}  // namespace

FileCalls::FileCalls() {
  const std::lock_guard lock(book().mutex);
  book().calls.clear();
  book().failing.clear();
  book().is_open = true;
}

FileCalls::~FileCalls() {
  const std::lock_guard lock(book().mutex);
  book().is_open = false;
  book().failing.clear();
}

void FileCalls::fail_sync(const std::string& path, int error_number) {
  const std::lock_guard lock(book().mutex);
  book().failing[path] = error_number;
}

std::vector<FileCall> FileCalls::made() const {
  const std::lock_guard lock(book().mutex);
  return book().calls;
}

std::optional<std::size_t> FileCalls::first(FileCall::Kind kind, const std::string& path) const {
  const std::vector<FileCall> calls = made();
  for (std::size_t i = 0; i < calls.size(); ++i)
    if (calls[i].kind == kind && calls[i].path == path) return i;
  return std::nullopt;
}

std::optional<std::size_t> FileCalls::last(FileCall::Kind kind, const std::string& path) const {
  const std::vector<FileCall> calls = made();
  for (std::size_t i = calls.size(); i-- > 0;)
    if (calls[i].kind == kind && calls[i].path == path) return i;
  return std::nullopt;
}

}  // namespace laconic

extern "C" {

int fsync(int descriptor) {
  return laconic::sync_noted(descriptor);
}

ssize_t write(int descriptor, const void* bytes, size_t size) {
  return laconic::write_noted(descriptor, bytes, size);
}

int rename(const char* from, const char* to) noexcept {
  return laconic::rename_noted(from, to);
}
}
