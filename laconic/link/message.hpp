// link/message.hpp — one message of a link, as both ends know it before it travels.
//
// Sender and receiver are given equal MessageSpecs, from the same plan. What else
// there is to say of a message follows from it, by the pure functions below: the
// numbers of its frames, and the headers that one end writes and the other
// compares with those that came (require_header, wire/frame.hpp). Who sends
// messages through a network adds a tag and nothing more.
#pragma once

#include <cstddef>
#include <cstdint>
#include <span>

#include "laconic/codec/codec.hpp"
#include "laconic/link/link_spec.hpp"
#include "laconic/wire/frame.hpp"

namespace laconic {

enum class Use : std::uint8_t {
  train,       // as the link's spec says; memory advances
  bypass,      // raw, memory untouched: the policy does not encode this message
  evaluation,  // the same outside of steps
  // Outside of steps, encoded: as the next message of training would be, but that samples count as
  // ones nobody has met, and that nothing is remembered of it.
  encoded_evaluation,
};
constexpr bool is_evaluation(Use use) {
  return use == Use::evaluation || use == Use::encoded_evaluation;
}

struct MessageSpec {
  // Which message of the step: at a boundary of stages the microbatch. Messages may be unpacked in
  // another order than they were packed.
  int number = 0;
  Use use = Use::train;
  // Sample ids in the order of dim 0. A Delta link needs them with Use::train, one for each index
  // of dim 0; other messages ignore them.
  std::span<const std::uint64_t> samples = {};
  // How often the receiver has asked for it again. From 1 on `samples` are those that were refused,
  // and a Delta link takes them though it refused them before (Unpacked::refused).
  std::uint32_t turn = 0;
  LinearMaps maps = {};  // auto_encoder
};

// True if the message has a frame for each sample, false if it is one frame.
bool goes_by_sample(const LinkSpec& link, const MessageSpec& message);

// The codec of a message of one frame.
const CodecSpec& codec_of(const LinkSpec& link, const MessageSpec& message);

// The sequence number of the first frame; frames of further samples count on from it.
// Requires: the link's numbering has room for the turn and the samples.
std::uint64_t sequence_of(const LinkSpec& link, std::uint64_t step, const MessageSpec& message);

// The header of a message of one frame. Requires: not goes_by_sample().
FrameHeader frame_header(const LinkSpec& link, std::uint64_t step, const MessageSpec& message,
                         const TensorSpec& tensor);

// The header of the frame of samples[index], without a hash. `visits` counts those before this one,
// for Visit::difference. Requires: goes_by_sample().
struct SampleVisit {
  std::size_t index = 0;
  Visit visit = Visit::alone;
  std::uint32_t visits = 0;
};
FrameHeader frame_header(const LinkSpec& link, std::uint64_t step, const MessageSpec& message,
                         const TensorSpec& sample, const SampleVisit& visit);

}  // namespace laconic
