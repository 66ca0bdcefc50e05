// train/steering.hpp — what a run has changed about its messages since it began.
//
// Whoever decides (train/bypass.hpp, for one) asks for a CodecOverride of a traffic
// class; Steering brings it to the links and sums of this rank, remembers it for
// the checkpoint, and applies it again when a run goes on. What one could get wrong:
// all ranks must treat the same class in the same way between the same two steps,
// and nothing in a message says that they do not: sums would wait for each other until
// the deadline. So decisions come from World::first_decides(), never from what one
// rank has measured.
#pragma once

#include <map>
#include <string>
#include <string_view>
#include <vector>

#include "laconic/config/run_config.hpp"
#include "laconic/link/codec_override.hpp"
#include "laconic/runtime/pipeline.hpp"
#include "laconic/train/guard.hpp"
#include "laconic/train/update_rule.hpp"

namespace laconic {

// Of classes that are not treated as the configuration says.
using CodecOverrides = std::map<Traffic, CodecOverride>;

// The classes that have a policy, and so can be treated.
inline constexpr Traffic kTreatable[] = {Traffic::pp_activation, Traffic::pp_gradient,
                                         Traffic::dp_gradient, Traffic::embedding_tied};

// Every reason why a class cannot be treated so, by key of the configuration.
Problems check(Traffic traffic, const CodecOverride& treatment, const RunConfig& config);

// What a checkpoint holds of it.
struct SteeringState {
  CodecOverrides treatments;
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
  // Applies what the state says. Requires: all of these outlive it; links have not been loaded yet
  // (Pipeline::treat).
  Steering(Pipeline& pipeline, UpdateRule& rule, SteeringState state);

  // Instead of how the class was treated; `CodecOverride{}` is as configured. The same on all
  // ranks, between the same steps. Throws ConfigError. Requires: no step is open.
  void treat(Traffic traffic, const CodecOverride& treatment);

  CodecOverride treatment_of(Traffic traffic) const;
  const SteeringState& state() const { return state_; }
  void set_bypass_decided() { state_.is_bypass_decided = true; }
  void set_guard(const GuardState& guard) { state_.guard = guard; }

 private:
  Pipeline& pipeline_;
  UpdateRule& rule_;
  SteeringState state_;
};

}  // namespace laconic
