// link/link_spec.hpp — what one directed edge does to its messages, as a value.
//
// A link is a codec and a memory. The memory decides what is encoded (the
// tensor, the tensor plus what was lost before, the change since last time);
// the codec decides how.
#pragma once

#include <cstdint>
#include <string>
#include <variant>

#include "laconic/base/named.hpp"
#include "laconic/base/problem.hpp"
#include "laconic/codec/spec.hpp"
#include "laconic/store/reference_record.hpp"

namespace laconic {

// Every message stands alone.
struct NoMemory {
  bool operator==(const NoMemory&) const = default;
};

// The sender adds what the last message lost. Carried from microbatch to microbatch this is
// Optimus-CC's lazy error propagation; `reset` says how long it lasts.
enum class Reset : std::uint8_t {
  never,  // over steps and epochs, as published
  step,   // forgotten at the start of every step
};
struct ErrorFeedback {
  Reset reset = Reset::never;
  bool operator==(const ErrorFeedback&) const = default;
};

// Both ends keep what the receiver saw last, sample by sample; the difference to it travels
// (AC-SGD). Worth it only if samples come again.
struct Delta {
  CodecSpec first = Half{};  // for samples that have no reference yet
  Reference reference = Reference::f32;
  std::string folder;              // where references live on disk; empty: in RAM
  std::uint64_t budget_bytes = 0;  // for one end; 0: no limit
  std::uint64_t device_bytes = 0;  // of these, in the memory of its GPU
  int hash_every = 16;  // visits of a sample between comparisons of both ends' references
  bool operator==(const Delta&) const = default;
};

using MemorySpec = std::variant<NoMemory, ErrorFeedback, Delta>;

// How the frames of a step are numbered: (message * turns + turn) * samples + sample. Room for more
// than one turn or sample is for Delta links.
struct FrameNumbering {
  std::uint32_t turns = 1;  // how often a message may travel: once, and again when it is asked for
  std::uint32_t samples = 1;  // of a message
  bool operator==(const FrameNumbering&) const = default;
};

struct LinkSpec {
  std::string name;  // "pp.activation.0-1": in logs, meters and checkpoints
  CodecSpec codec = Raw{};
  MemorySpec memory = NoMemory{};
  std::uint64_t seed = 0;  // equal on ranks whose random_k messages are to be summed
  FrameNumbering numbering = {};
  // low_rank begins each message where the last one ended; false: from its seed, so that the same
  // message made twice has the same bytes.
  bool has_warm_start = true;
  bool operator==(const LinkSpec&) const = default;
};

// Every reason why such a link cannot work.
Problems check(const LinkSpec& link);

// The same edge, whose messages are raw and of which nothing is remembered.
LinkSpec without_codec(LinkSpec link);

// True if messages may lose something: by the codec, or by a reference that is rounded.
bool is_lossy(const LinkSpec& link);

// True if ends remember something that a checkpoint must hold: residuals, references, or a warm
// start of low_rank, which begins each power step where the last one ended.
bool has_memory(const LinkSpec& link);

std::string to_text(const MemorySpec& memory);  // "delta:first=half,reference=bf16"

}  // namespace laconic
