// collective/run.hpp — plans walked over links: the collectives of one group.
//
// A Collective is made once for a buffer that travels again and again (the
// gradient of a block, say): it holds the plan, the codecs, the residuals of this
// member and the count of operations. operation() makes one round of it, for a
// courier to carry in the background or for run() to walk at once.
//
//   Collective sum(engine, spec);
//   sum.begin(step);
//   courier.start(sum.operation(buffer, key));   ...   courier.wait_all();
//   sum.commit();                                // or abandon(): as if the step had not been
//
// Which way a message takes: on the way up (`encode`) each contribution is
// encoded once, with the member's residual; on the way down (`seal`) the owner
// encodes the sum once, with its own residual. A contribution that does not
// cross a link, the owner's own, is not encoded. Codecs that are summable are
// added without decoding, and the sum is passed on without encoding it again.
// With algorithms where partial sums travel (ring, doubling) a codec must be raw
// or summable: anything else would be encoded at every hop; check() says so.
//
// All members end with the same bits.
#pragma once

#include <cstdint>
#include <map>
#include <memory>
#include <string>
#include <vector>

#include "laconic/codec/codec.hpp"
#include "laconic/collective/plan.hpp"
#include "laconic/engine/courier.hpp"
#include "laconic/link/link_spec.hpp"
#include "laconic/mesh/mesh.hpp"

namespace laconic {

struct CollectiveSpec {
  Traffic traffic = Traffic::control;
  std::uint32_t unit = 0;  // of the tag
  CollectiveKind kind = CollectiveKind::all_reduce;
  Algorithm algorithm = Algorithm::direct;
  Group group;
  Dtype dtype = Dtype::f32;
  std::vector<std::uint64_t> offsets;  // of the chunks in the buffer, in elements: see cut()
  CodecSpec up = Raw{};
  CodecSpec down = Raw{};      // not used where the sum of payloads is passed on
  bool up_feedback = false;    // residuals of contributions (worker error)
  bool down_feedback = false;  // residual of the owner's sum (server error)
  std::uint64_t seed = 0;
};
// Every reason why such a collective cannot work.
Problems check(const CollectiveSpec& spec);

// What one member remembers, element by element of the buffer. Empty: nothing yet.
struct CollectiveState {
  std::vector<float> up;    // whole buffer; zero where this member is the owner
  std::vector<float> down;  // this member's own chunk
  bool operator==(const CollectiveState&) const = default;
};

class Collective {
 public:
  // Requires: check(spec) is empty, engine.rank() is in the group.
  Collective(Engine& engine, const CollectiveSpec& spec);
  ~Collective();

  const CollectiveSpec& spec() const;

  void begin(std::uint64_t step);
  // `buffer` holds the elements and receives the result; nobody else may touch it until the
  // operation is done. `exact`: raw this time, memories untouched (warm-up, evaluation); the same
  // on all members. Several operations may be made in a step, but only one be under way.
  std::shared_ptr<Operation> operation(std::byte* buffer, DeadlineKey key, bool exact = false);
  void commit();
  void abandon();

  // Requires: no step is open.
  CollectiveState save() const;
  void load(const CollectiveState& state);

 private:
  struct Body;
  std::shared_ptr<Body> body_;  // shared with operations under way
};

// --- small things, at once and in the calling thread. `number` tells calls apart: the same on all
// members, different from call to call.

// What every member brought, by member.
std::vector<Bytes> gather_all(Engine& engine, const Group& group, Traffic traffic,
                              std::uint32_t unit, std::uint64_t number, ByteView mine);
// What member 0 brought.
Bytes broadcast(Engine& engine, const Group& group, Traffic traffic, std::uint32_t unit,
                std::uint64_t number, ByteView mine);
void barrier(Engine& engine, const Group& group, Traffic traffic, std::uint32_t unit,
             std::uint64_t number);

}  // namespace laconic
