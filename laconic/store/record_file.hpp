// store/record_file.hpp — records of one size in a scratch file, each in a slot of its own.
//
// Scratch: the name is removed as soon as the file is open, so nothing is left
// behind however the process ends, `ls` and `du` do not show it (`df` does), and
// two stores that were given the same path do not meet.
//
// Not a mapping, though it looks like the place for one. Records are copied
// between file and buffer anyway, and with pread() and pwrite() a broken disk is
// an exception; in a mapping it is SIGBUS, which ends the process. (A mapping
// copies faster once its pages are there, 23 against 9 GB/s measured, and slower
// before. Both outrun a disk, on a thread that nobody waits for.) Space is
// allocated before a slot is handed out: a full disk shows in take_slot(), where
// nothing has been promised yet.
//
// Thread safety: slots are taken and given by one thread; read() and write() may
// come from any thread, also meanwhile, if no two of them meet in one slot.
#pragma once

#include <cstddef>
#include <cstdint>
#include <span>
#include <string>
#include <vector>

#include "laconic/base/bytes.hpp"

namespace laconic {

inline constexpr std::uint64_t kSlotAlignment = 4096;

// The bytes that one record takes of a file, and of a budget. A record of no bytes takes none.
constexpr std::uint64_t slot_bytes_of(std::uint64_t record_bytes) {
  return (record_bytes + kSlotAlignment - 1) / kSlotAlignment * kSlotAlignment;
}

class RecordFile {
 public:
  // At most `max_slots` are ever taken at once. Throws SystemError, here and below; here also when
  // the file exists, since it may be somebody's.
  RecordFile(const std::string& path, std::uint64_t record_bytes, std::uint64_t max_slots);
  ~RecordFile();
  RecordFile(const RecordFile&) = delete;
  RecordFile& operator=(const RecordFile&) = delete;

  // Takes a slot that nobody has, with its space on the disk. When it throws, nothing has changed.
  std::uint64_t take_slot();
  void give_slot(std::uint64_t slot) { free_slots_.push_back(slot); }

  // Requires: the slot is taken, and the buffer has the size of a record.
  void read(std::uint64_t slot, std::span<std::byte> record) const;
  void write(std::uint64_t slot, ByteView record);

  const std::string& path() const { return path_; }
  std::uint64_t record_bytes() const { return record_bytes_; }

 private:
  void grow();

  std::string path_;
  std::uint64_t record_bytes_;
  std::uint64_t slot_bytes_;
  std::uint64_t max_slots_;
  int descriptor_ = -1;
  std::uint64_t allocated_ = 0;  // slots that have space
  std::uint64_t begun_ = 0;      // slots that were ever taken
  std::vector<std::uint64_t> free_slots_;
};

}  // namespace laconic
