// schedule/check.hpp — proves that a schedule can be run.
#pragma once

#include <string>

#include "laconic/schedule/schedule.hpp"

namespace laconic {

// Every way in which a schedule is not executable: an action missing, repeated, on the wrong rank
// or before its input, both B and its halves, a message that no stage waits for, messages of an
// edge that are taken in another order than they are sent, a cycle of waits. Sends never block; the
// walk is what the runtime does.
//
// A schedule without any messages is judged as with_communication() would complete it, with the
// faults at the actions that are there. A rank has at most one P; lowered() adds them only where
// there are none at all.
//
// Where: "rank 1, action 3 (<a1)", counted from 0.
Problems check(const Schedule& schedule);

// The whole schedule, one line per rank, and under it a mark at each action that check() complains
// of, with the complaint: for a deadlock, at the action where each rank waits for ever.
//
//     rank 0:  F0 >a0 <g0 B0 F1 >a1 <g1 B1
//     rank 1:  <a0 F0 <a1 F1 B0 >g0 B1 >g1
//                     ^^^ waits for rank 0, action 5 (>a1); that rank waits at action 2 (<g0)
std::string picture_of_fault(const Schedule& schedule);

}  // namespace laconic
