// data/checksum.hpp — XXH3 (64 bits) over a stream of bytes, against accidents, not attacks.
#pragma once

#include <memory>
#include <string>

#include "laconic/base/bytes.hpp"

namespace laconic {

class Checksum {
 public:
  Checksum();
  ~Checksum();
  Checksum(Checksum&&) noexcept;
  Checksum& operator=(Checksum&&) noexcept;

  void add(ByteView bytes);
  std::string hex() const;  // of everything so far: 16 digits

 private:
  struct State;
  std::unique_ptr<State> state_;
};

std::string checksum_of(ByteView bytes);

}  // namespace laconic
