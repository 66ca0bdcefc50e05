// file/checksum.hpp — XXH3-64, the check sum of checkpoints and data.
//
// It finds damage, not malice. The value does not depend on how the bytes are
// cut into update() calls, nor on the machine.
#pragma once

#include <cstdint>
#include <memory>
#include <string>

#include "laconic/base/bytes.hpp"

namespace laconic {

class Checksum {
 public:
  Checksum();
  ~Checksum();
  Checksum(Checksum&& other) noexcept;
  Checksum& operator=(Checksum&& other) noexcept;

  void update(ByteView bytes);
  std::uint64_t value() const;  // of everything so far; update() may go on
  std::string hex() const;      // 16 lower-case digits, as `xxhsum -H3` prints them

 private:
  struct State;
  std::unique_ptr<State> state_;
};

// Throws SystemError or FileError when the file cannot be read.
std::string checksum_of_file(const std::string& path);

}  // namespace laconic
