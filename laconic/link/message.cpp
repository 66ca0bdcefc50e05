#include "laconic/link/message.hpp"

#include <fmt/format.h>

#include <variant>

#include "laconic/base/error.hpp"

namespace laconic {

bool goes_by_sample(const LinkSpec& link, const MessageSpec& message) {
  return message.use == Use::train && std::holds_alternative<Delta>(link.memory);
}

const CodecSpec& codec_of(const LinkSpec& link, const MessageSpec& message) {
  static const CodecSpec kRaw = Raw{};
  if (message.use == Use::bypass || message.use == Use::evaluation) return kRaw;
  const auto* delta = std::get_if<Delta>(&link.memory);
  const bool is_first = message.use == Use::encoded_evaluation && delta != nullptr;
  return is_first ? delta->first : link.codec;
}

std::uint64_t sequence_of(const LinkSpec& link, std::uint64_t step, const MessageSpec& message) {
  const auto [turns, samples] = link.numbering;
  const bool is_of_step = !is_evaluation(message.use);
  LACONIC_ASSERT(
      message.number >= 0 && message.turn < (is_of_step ? turns : 1),
      fmt::format("{}: message {}, turn {} of {}", link.name, message.number, message.turn, turns));
  LACONIC_ASSERT(!goes_by_sample(link, message) || message.samples.size() <= samples,
                 fmt::format("{}: {} samples in message {}, numbers for {}", link.name,
                             message.samples.size(), message.number, samples));
  const auto number = static_cast<std::uint64_t>(message.number);
  const std::uint64_t frame = is_of_step ? (number * turns + message.turn) * samples : number;
  LACONIC_ASSERT(frame < kFramesPerStep,
                 fmt::format("{}: message {} of a step with numbers for {}", link.name,
                             message.number, kFramesPerStep / (turns * samples)));
  // What an evaluation draws is the same whenever it is made.
  return make_sequence(message.use == Use::encoded_evaluation ? 0 : step,
                       static_cast<std::uint32_t>(frame));
}

FrameHeader frame_header(const LinkSpec& link, std::uint64_t step, const MessageSpec& message,
                         const TensorSpec& tensor) {
  return {.codec = codec_of(link, message),
          .tensor = tensor,
          .sequence = sequence_of(link, step, message)};
}

FrameHeader frame_header(const LinkSpec& link, std::uint64_t step, const MessageSpec& message,
                         const TensorSpec& sample, const SampleVisit& visit) {
  const bool is_difference = visit.visit == Visit::difference;
  return {.codec = is_difference ? link.codec : std::get<Delta>(link.memory).first,
          .tensor = sample,
          .visit = visit.visit,
          .visits = is_difference ? visit.visits : 0,
          .sequence = sequence_of(link, step, message) + visit.index,
          .key = visit.visit == Visit::alone ? 0 : message.samples[visit.index]};
}

}  // namespace laconic
