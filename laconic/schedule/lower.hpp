// schedule/lower.hpp — passes from schedule to schedule: what compute implies, made explicit.
#pragma once

#include "laconic/schedule/schedule.hpp"

namespace laconic {

// Adds sends right after what they send and receives right before what needs them. Neighbours on
// the same rank hand over without a message. Leaves schedules that have some alone (a file may
// place them by itself).
Schedule with_communication(Schedule schedule);

// Adds one P per rank, after its last forward and what that sends: what it starts has all of the
// remaining backward to end. It bears the rank's first stage. Leaves schedules that have some
// alone.
Schedule with_prefetch(Schedule schedule);

// Both, in this order: what the runtime walks.
Schedule lowered(Schedule schedule);

// The compute actions alone.
Schedule compute_only(Schedule schedule);

}  // namespace laconic
