// cli/lock_owner.hpp — this process as the owner of a run's folder, as its launcher calls the run.
#pragma once

#include <optional>

#include "laconic/launch/place.hpp"
#include "laconic/run/run_lock.hpp"

namespace laconic {

inline LockOwner lock_owner(const std::optional<Place>& place) {
  LockOwner me = this_process();
  if (place) me.run_id = place->run_id;
  if (place) me.attempt = place->attempt;
  return me;
}

}  // namespace laconic
