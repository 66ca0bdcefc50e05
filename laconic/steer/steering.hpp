// steer/steering.hpp — what a run has changed about its messages since it began.
//
// Whoever decides (steer/bypass.hpp, for one) asks for a CodecOverride of a traffic
// class; Steering brings it to the links and sums of this rank, remembers it for
// the checkpoint, and applies it again when a run goes on. What one could get wrong:
// all ranks must override the same class in the same way between the same two steps,
// and nothing in a message says that they do not: sums would wait for each other until
// the deadline. So decisions come from World::decide_on_rank_0(), never from what one
// rank has measured.
#pragma once

#include <map>
#include <string>
#include <string_view>
#include <vector>

#include "laconic/config/run_config.hpp"
#include "laconic/link/codec_override.hpp"
#include "laconic/runtime/link_registry.hpp"
#include "laconic/steer/guard.hpp"

namespace laconic {

// Classes whose messages do not go as the configuration says.
using CodecOverrides = std::map<Traffic, CodecOverride>;

// What a checkpoint holds of it.
struct SteeringState {
  CodecOverrides overrides;
  bool is_bypass_decided = false;  // and will not be again (steering.bypass)
  GuardState guard;                // what it has seen so far (steering.guard)
  bool operator==(const SteeringState&) const = default;
};
std::string to_json(const SteeringState& state);
SteeringState parse_steering(std::string_view json);  // throws ConfigError; "" is that of a new run

// What of a checkpoint's state is still good. `changes` are the keys that the configuration has
// changed since ("dp.gradient.codec: ..."): a class whose policy or mesh they touch goes by its
// new policy, and so does everything when nobody steers any more. Whoever drops something, or does
// not ask for a bypass, has it decided anew when he asks again. Tells what was dropped.
SteeringState still_good(const SteeringState& before, const std::vector<std::string>& changes,
                         const RunConfig& config, std::vector<std::string>& notes);

class Steering {
 public:
  // Applies what the state says. Requires: the registry outlives it; links have not been loaded
  // yet.
  Steering(const LinkRegistry& links, SteeringState state);

  // Replaces the class's override; `CodecOverride{}` is as configured. The same on all
  // ranks, between the same steps. Throws ConfigError. Requires: no step is open.
  void override_codec(Traffic traffic, const CodecOverride& codec_override);

  CodecOverride override_of(Traffic traffic) const;
  const SteeringState& state() const { return state_; }
  void set_bypass_decided() { state_.is_bypass_decided = true; }
  void set_guard(const GuardState& guard) { state_.guard = guard; }

 private:
  const LinkRegistry& links_;
  SteeringState state_;
};

}  // namespace laconic
