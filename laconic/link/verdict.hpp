// link/verdict.hpp — samples whose new reference a GPU is making, and whether it may be kept.
//
// A reference that is not finite is forgotten. The host learns that at once; of a GPU it
// asks later, when the answer matters: before the sample is looked for again in the
// step, before a new sample is refused for want of room, and before the step is committed.
// So the store gives the same answers as if nothing were late.
//
// Thread safety: that of the store.
#pragma once

#include <cstdint>
#include <functional>
#include <map>

#include "laconic/store/delta_store.hpp"

namespace laconic {

class Verdicts {
 public:
  using IsSound = std::function<bool()>;  // waits for the GPU

  // Requires: the key's newest value was just staged, and all before it are settled.
  void add(std::uint64_t key, IsSound is_sound) { open_[key] = std::move(is_sound); }
  void settle(std::uint64_t key, DeltaStore& store);
  // Those of samples that a verdict may remove altogether, if the key finds no room beside them.
  void settle_for(std::uint64_t key, DeltaStore& store);
  void settle_all(DeltaStore& store);
  void drop(std::uint64_t key) { open_.erase(key); }
  void clear() { open_.clear(); }

 private:
  std::map<std::uint64_t, IsSound> open_;
};

}  // namespace laconic
