// schedule/check.hpp — proves that a schedule can be run.
#pragma once

#include <string>

#include "laconic/schedule/schedule.hpp"

namespace laconic {

// Every way in which a lowered schedule is not executable: an action missing, repeated, on the
// wrong rank or before its input, both B and its halves, a send without a receive, messages of an
// edge that are taken in another order than they are sent, a cycle of waits. With sends that never
// block; the walk is what the runtime does.
Problems check(const Schedule& schedule);

// The whole schedule, one line per rank, with a mark under each action that cannot be reached and
// what it waits for: for a deadlock the first such action of every rank.
std::string picture_of_fault(const Schedule& schedule);

}  // namespace laconic
