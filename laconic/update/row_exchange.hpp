// update/row_exchange.hpp — rows of a table on their way from every rank to every rank, once.
//
// Both ends know how many rows each of them sends, so a message holds nothing but
// numbers. What a rank has for itself goes through no message.
//
//   RowExchange exchange(world, spec);   ... fill to(i) ...   post(key)   ... wait() ... read
//   from(i)
#pragma once

#include <cstddef>
#include <cstdint>
#include <memory>
#include <vector>

#include "laconic/base/dtype.hpp"
#include "laconic/collective/run.hpp"
#include "laconic/world/world.hpp"

namespace laconic {

struct RowExchangeSpec {
  std::uint32_t unit = 0;    // of the tag
  std::uint64_t number = 0;  // of the tag: every exchange of a unit has another
  Dtype dtype = Dtype::f32;
  std::vector<std::uint64_t> sent, received;  // elements, by member of the dp group
  CodecSpec codec = Raw{};
  std::uint64_t columns = 0;  // of the matrices that codecs see; 0: they differ, or do not matter
  std::uint64_t seed = 0;
};

class RowExchange {
 public:
  // Requires: the world outlives it; all members agree on what they send.
  RowExchange(World& world, RowExchangeSpec spec);
  ~RowExchange();
  RowExchange(const RowExchange&) = delete;
  RowExchange& operator=(const RowExchange&) = delete;

  // Where what goes to a member is put before post().
  std::byte* to(int member) { return buffer_.get() + to_[static_cast<std::size_t>(member)]; }
  void post(std::uint64_t step, DeadlineKey key);
  // Throws PeerLost, Timeout, WireError.
  void wait();
  // Whether it would not have to wait.
  bool has_arrived() const;
  // What came from a member. Requires: wait() has returned.
  const std::byte* from(int member) const {
    return buffer_.get() + from_[static_cast<std::size_t>(member)];
  }

 private:
  World& world_;
  const RowExchangeSpec spec_;
  std::vector<std::size_t> to_, from_;  // bytes in the buffer; of this member they are the same
  std::unique_ptr<std::byte[]> buffer_;
  std::unique_ptr<Collective> collective_;  // none: nothing leaves
  std::shared_ptr<Operation> operation_;    // under way
};

}  // namespace laconic
