#include "laconic/link/verdict.hpp"

#include <utility>

namespace laconic {

void Verdicts::settle(std::uint64_t key, DeltaStore& store) {
  const auto verdict = open_.extract(key);
  if (!verdict.empty() && !verdict.mapped()()) store.stage_forget(key);
}

void Verdicts::settle_for(std::uint64_t key, DeltaStore& store) {
  if (store.admits(key)) return;
  for (auto verdict = open_.begin(); verdict != open_.end();)
    if (const std::uint64_t other = (verdict++)->first; !store.is_stored(other))
      settle(other, store);
}

void Verdicts::settle_all(DeltaStore& store) {
  for (const auto& [key, is_sound] : std::exchange(open_, {}))
    if (!is_sound()) store.stage_forget(key);
}

}  // namespace laconic
