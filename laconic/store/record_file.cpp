#include "laconic/store/record_file.hpp"

#include <fcntl.h>
#include <fmt/format.h>
#include <unistd.h>

#include <algorithm>
#include <cerrno>

#include "laconic/base/error.hpp"

namespace laconic {

namespace {

// The file grows by as many slots as fit, so that the file system can keep them together.
constexpr std::uint64_t kGrowBytes = std::uint64_t{64} << 20;

int allocate(int descriptor, std::uint64_t offset, std::uint64_t bytes) {
  int error_number = EINTR;
  while (error_number == EINTR)
    error_number =
        ::posix_fallocate(descriptor, static_cast<off_t>(offset), static_cast<off_t>(bytes));
  return error_number;
}

}  // namespace

RecordFile::RecordFile(const std::string& path, std::uint64_t record_bytes, std::uint64_t max_slots)
    : path_(path),
      record_bytes_(record_bytes),
      slot_bytes_(slot_bytes_of(record_bytes)),
      max_slots_(max_slots) {
  descriptor_ = ::open(path.c_str(), O_RDWR | O_CREAT | O_EXCL | O_CLOEXEC, 0600);
  if (descriptor_ < 0) throw SystemError(path, "create", errno);
  ::unlink(path.c_str());
}

RecordFile::~RecordFile() {
  ::close(descriptor_);
}

std::uint64_t RecordFile::take_slot() {
  if (!free_slots_.empty()) {
    const std::uint64_t slot = free_slots_.back();
    free_slots_.pop_back();
    return slot;
  }
  LACONIC_ASSERT(begun_ < max_slots_, fmt::format("{} slots of {}", begun_, max_slots_));
  if (begun_ == allocated_) grow();
  return begun_++;
}

void RecordFile::grow() {
  const std::uint64_t wanted =
      slot_bytes_ == 0 ? max_slots_ : std::max<std::uint64_t>(1, kGrowBytes / slot_bytes_);
  const std::uint64_t slots = std::min(wanted, max_slots_ - allocated_);
  const std::uint64_t offset = allocated_ * slot_bytes_;
  const std::uint64_t bytes = slots * slot_bytes_;
  const int error_number = bytes == 0 ? 0 : allocate(descriptor_, offset, bytes);
  if (error_number != 0) {
    // What was allocated before the disk was full is given back; a failure of that changes nothing.
    [[maybe_unused]] const int result = ::ftruncate(descriptor_, static_cast<off_t>(offset));
    throw SystemError(path_, fmt::format("grow by {} bytes to {}", bytes, offset + bytes),
                      error_number);
  }
  allocated_ += slots;
}

void RecordFile::read(std::uint64_t slot, std::span<std::byte> record) const {
  auto offset = static_cast<off_t>(slot * slot_bytes_);
  while (!record.empty()) {
    const ssize_t count = ::pread(descriptor_, record.data(), record.size(), offset);
    if (count < 0 && errno == EINTR) continue;
    if (count <= 0) throw SystemError(path_, "read", count < 0 ? errno : EIO);
    record = record.subspan(static_cast<std::size_t>(count));
    offset += count;
  }
}

void RecordFile::write(std::uint64_t slot, ByteView record) {
  auto offset = static_cast<off_t>(slot * slot_bytes_);
  while (!record.empty()) {
    const ssize_t count = ::pwrite(descriptor_, record.data(), record.size(), offset);
    if (count < 0 && errno == EINTR) continue;
    if (count < 0) throw SystemError(path_, "write", errno);
    record = record.subspan(static_cast<std::size_t>(count));
    offset += count;
  }
}

}  // namespace laconic
