// steer/bypass.hpp — whether encoding a class of messages pays, from what was measured. Pure.
//
// Known of a step are, each on the rank that has most of it (an activation is
// packed by one rank and waited for by the next): C, the time spent encoding and
// decoding; R and B, the bytes before and after encoding; E, how long computation
// waited for the class; r, the rate of the link; and W, what packing raw messages
// would take. What the step waits for, with messages encoded and raw, is
// predicted as
//
//   in the computing thread        hidden  = max(0, B/r - E)
//   (messages between stages,      encoded = C + min(B/r, E)
//   activations of a grid)         raw     = W + max(0, R/r - hidden)
//
//   beside it                      hidden  = max(0, C + B/r - E)
//   (sums, weights of a grid)      encoded = min(C + B/r, E)         + s C
//                                  raw     = max(0, W + R/r - hidden) + s W
//
// In words: computation hides as much of the network as it does now, and packing
// between stages is never hidden. s is what codec time costs in the background:
// 0 where cores are free, 1/n where n computing threads have no core to give.
// A class travels raw if that takes less than 0.95 of the time encoded.
//
// At a rate beyond all measure C and W remain, and messages travel raw; on a slow
// link R/r and B/r do, and they stay encoded. Between the two there is one rate
// at which the answer changes, as long as encoding shortens and takes longer than
// copying. E counts all waiting, also for ranks that compute more: so the network
// counts rather too much than too little, in favour of what the user configured.
#pragma once

#include <cstdint>
#include <string>
#include <vector>

#include "laconic/transport/tag.hpp"

namespace laconic {

inline constexpr double kBypassBelow = 0.95;  // of the time encoded

// What one class costs one rank, a step on average.
struct ClassCosts {
  double messages = 0;
  double raw_bytes = 0;
  double wire_bytes = 0;
  double codec_seconds = 0;
  double raw_seconds = 0;      // what packing and unpacking raw messages would take
  double exposed_seconds = 0;  // waited for by computation
  double active_seconds = 0;   // something of the class was under way
  bool operator==(const ClassCosts&) const = default;
};

struct LinkRate {
  double bytes_per_second = 0;  // 0: not known
  bool is_at_least = false;     // nobody measured it; it cannot be less
};
// As it was measured before; otherwise what the class has at least had, being under way.
LinkRate rate_for(double measured, const ClassCosts& costs);

struct BypassQuestion {
  Traffic traffic = Traffic::dp_gradient;
  std::vector<ClassCosts> ranks;
  double bytes_per_second = 0;  // of the slowest link that the class takes; 0: not known
  double background_cost = 0;   // s
};

struct BypassAnswer {
  bool is_bypassed = false;
  double encoded_seconds = 0;  // that a step waits for the class
  double raw_seconds = 0;
  std::string line;  // for people: "bypass: dp.gradient travels raw: ..."
};
// Messages between stages, and activations and their gradients on a tensor grid, are packed in the
// computing thread, sums and weights beside it.
bool is_in_computing_thread(Traffic traffic);
BypassAnswer answer(const BypassQuestion& question);

}  // namespace laconic
