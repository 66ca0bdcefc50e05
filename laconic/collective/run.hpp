// collective/run.hpp — plans walked over links: the collectives of one group.
//
// A Collective is made once for a buffer that travels again and again (the
// gradient of a block, say): it holds the plan, the codecs, the residuals of this
// member and the count of operations. operation() makes one exchange of it, for a
// progress thread to carry in the background or for run() to walk at once.
//
//   Collective sum(engine, spec);
//   sum.begin(step);
//   progress_thread.start(sum.operation(buffer, key));   ...   progress_thread.wait_all();
//   sum.commit();                                // or abandon(): as if the step had not been
//
// Which way a message takes: on the way up (`encode`) each contribution is
// encoded once, with the member's residual; on the way down (`encode_result`) the
// owner encodes the sum once, with its own residual. A contribution that does not
// cross a link, the owner's own, is not encoded. Codecs that are summable are
// added without decoding, and the sum is passed on without encoding it again
// (then the owner's contribution is encoded too, and has a residual).
// With algorithms where partial sums travel (ring, doubling) a codec must be raw
// or summable: anything else would be encoded at every hop; check() says so.
// Gathered there is no way down: each contribution is encoded once, its maker's own
// too, and everybody adds what it decodes; so nothing is rounded twice.
//
// A large buffer goes in lanes: lane l has the l-th slice of every chunk and a
// walk of its own through the plan, so that one lane is added while the next
// is on its way. A codec sees one slice of one chunk at a time.
//
// All members end with the same bits. Sums of raw values flush denormals, in
// every thread alike.
#pragma once

#include <cstdint>
#include <functional>
#include <map>
#include <memory>
#include <optional>
#include <string>
#include <vector>

#include "laconic/codec/codec.hpp"
#include "laconic/codec/device_memory.hpp"
#include "laconic/collective/plan.hpp"
#include "laconic/engine/progress_thread.hpp"
#include "laconic/link/fidelity.hpp"
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
  // The buffer is a matrix of so many columns, and chunks are rows of it: codecs see matrices. 0:
  // it is none.
  std::uint64_t columns = 0;
  CodecSpec up = Raw{};
  CodecSpec down = Raw{};      // not used where the sum of payloads is passed on, or by gathered
  bool up_feedback = false;    // residuals of contributions (worker error)
  bool down_feedback = false;  // residual of the owner's sum (server error)
  bool has_warm_start = true;  // of low_rank, see link/link_spec.hpp
  std::uint64_t seed = 0;
  std::uint64_t lane_elements = 0;  // at most so many in a lane, roughly; 0: choose
  // The buffer is in the memory of a GPU, which encodes, decodes and adds. When an operation has
  // ended, some of it may still be queued on the codec stream, behind which the caller gets the
  // result.
  bool is_on_device = false;
  // For the meter: how many raw bytes a byte of the buffer stands for, where the buffer is itself
  // an encoding of something longer (factors of matrices), or would go another way if it were raw.
  double raw_per_byte = 1;
};
// Every reason why such a collective cannot work.
Problems check(const CollectiveSpec& spec);

// The slice of each chunk in each lane: lanes_of(spec)[lane][chunk]. All members cut alike; an
// all_to_all, whose offsets may differ by member (chunks that a member neither brings nor gets need
// no room), has one lane.
struct Slice {
  std::uint64_t offset = 0;  // in the buffer
  std::uint64_t elements = 0;
  bool operator==(const Slice&) const = default;
};
std::vector<std::vector<Slice>> lanes_of(const CollectiveSpec& spec);

// The links that the slice of a chunk takes from `member`: as a contribution, and as the encoded
// result. What a sender with such a spec loses is exactly what the collective loses.
LinkSpec up_link(const CollectiveSpec& spec, int member, int lane, int chunk);
LinkSpec down_link(const CollectiveSpec& spec, int lane, int chunk);
// Whether payloads are added as they are: a summable codec that is not raw, in a sum.
bool adds_payloads(const CollectiveSpec& spec);

// What one member remembers, element by element of the buffer. Empty: nothing yet.
struct CollectiveState {
  std::vector<float> up;          // whole buffer; zero where this member encodes nothing
  std::vector<float> down;        // the chunk whose result this member encodes
  std::vector<float> basis = {};  // low_rank's warm starts of contributions, one behind the other
  bool operator==(const CollectiveState&) const = default;
};

// Is told of each payload that stands between what this member brought and what members get: its
// contributions as they leave, and results, its own and those that came. Where payloads are added
// results are the sum of contributions, and nobody is told of them. Called by the thread that
// walks.
using PayloadObserver = std::function<void(const CodecSpec& codec, const TensorSpec& tensor,
                                           const Slice& slice, ByteView payload)>;

class Collective {
 public:
  // Requires: check(spec) is empty, engine.rank() is in the group.
  Collective(Engine& engine, const CollectiveSpec& spec);
  ~Collective();

  const CollectiveSpec& spec() const;

  void begin(std::uint64_t step);
  // `buffer` holds the elements and receives the result; nobody else may touch it until the
  // operation is done. `exact`: raw this time, memories untouched (warm-up, evaluation); the same
  // on all members. Several operations may be made in a step, but only one be under way. `ready`:
  // the operation begins when that is done, and meanwhile holds up nobody. `number` is that of its
  // tag, for collectives that share a unit; without it they are counted here. Requires: the engine
  // outlives it.
  std::shared_ptr<Operation> operation(std::byte* buffer, DeadlineKey key, bool exact = false,
                                       Ready ready = {}, std::optional<std::uint64_t> number = {});
  void commit();
  void abandon();

  // For the operations to come, of a buffer in host memory; empty: nobody.
  void observe(PayloadObserver observer);

  // Starts or ends measuring what this member sends, contributions and results alike; starting also
  // forgets what was measured before. Requires, for both: no operation is under way.
  void measure_fidelity(bool is_on);
  Fidelity fidelity() const;

  // Other codecs from the next operation on, on all members; residuals and the cut stay. Throws
  // ConfigError with every reason, and nothing has changed. Requires: no step is open; payloads are
  // added as before or not at all as before (adds_payloads()); a codec that is raw stays raw.
  void set_codec(const CodecSpec& up, const CodecSpec& down);

  // Requires: no step is open. load() throws ConfigError when sizes are not those of the spec; but
  // warm starts of another rank begin anew.
  CollectiveState save() const;
  void load(const CollectiveState& state);

 private:
  struct Body;
  std::shared_ptr<Body> body_;  // shared with operations under way
};

// --- small things, at once and in the calling thread. `number` tells calls apart: the same on all
// members, different from call to call. They return when what they wait for has come; what others
// still need from here may be queued, so flush() before the engine goes.

// What every member brought, by member.
std::vector<Bytes> gather_all(Engine& engine, const Group& group, Traffic traffic,
                              std::uint32_t unit, std::uint64_t number, ByteView mine);
// What member 0 brought.
Bytes broadcast(Engine& engine, const Group& group, Traffic traffic, std::uint32_t unit,
                std::uint64_t number, ByteView mine);
void barrier(Engine& engine, const Group& group, Traffic traffic, std::uint32_t unit,
             std::uint64_t number);

}  // namespace laconic
