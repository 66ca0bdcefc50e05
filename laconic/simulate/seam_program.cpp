#include "laconic/simulate/seam_program.hpp"

#include "laconic/base/index.hpp"
#include "laconic/layout/layout.hpp"
#include "laconic/link/message.hpp"
#include "laconic/policy/class_policy.hpp"
#include "laconic/wire/frame.hpp"

namespace laconic {

namespace {

// Samples of a microbatch that a rank of the grid has.
std::int64_t samples_at(const SimulationRequest& r, Rank rank) {
  const Mesh mesh = mesh_of(r.config);
  const Axes rows = stream_of(r.grid).rows;
  return share_of(r.config.microbatch_size(), extent(mesh, rows),
                  index_along(mesh, coord_of(mesh, rank), rows))
      .size();
}

// Of a frame for each sample; without a hash, and with one every so many visits.
double sample_bytes(const LinkSpec& link, const TensorSpec& sample, bool is_first) {
  const auto& delta = std::get<Delta>(link.memory);
  FrameHeader header{.codec = is_first ? delta.first : link.codec,
                     .tensor = sample,
                     .visit = is_first ? Visit::first : Visit::difference,
                     .visits = is_first ? 0U : 1U,
                     .key = 1};
  const auto bytes = static_cast<double>(max_frame_bytes(header));
  if (is_first || delta.hash_every <= 0) return bytes;
  header.hash = 0;
  return bytes + (static_cast<double>(max_frame_bytes(header)) - bytes) / delta.hash_every;
}

SeamMessage message_of(const SimulationRequest& r, const LinkSpec& link, const SeamTensor& tensor,
                       std::int64_t samples, bool is_raw) {
  const Dtype dtype = r.config.run.compute_type();
  const std::int64_t width =
      tensor.per_sample.back() / extent(mesh_of(r.config), stream_of(r.grid).features);
  const std::int64_t rows = elements_of(tensor) / tensor.per_sample.back();
  const auto elements = static_cast<double>(samples * rows * width);
  if (is_raw || !std::holds_alternative<Delta>(link.memory)) {
    const CodecSpec codec = is_raw ? CodecSpec{Raw{}} : link.codec;
    const TensorSpec whole{dtype, {samples * rows, width}};
    return {static_cast<double>(max_frame_bytes({.codec = codec, .tensor = whole})), elements,
            codec};
  }
  const bool is_first = r.is_first_epoch;
  return {static_cast<double>(samples) * sample_bytes(link, {dtype, {rows, width}}, is_first),
          elements, is_first ? std::get<Delta>(link.memory).first : link.codec};
}

}  // namespace

std::vector<SeamMessage> seam_messages(const SimulationRequest& r, Rank rank, int edge,
                                       bool is_activation, bool is_raw) {
  const LinkSpec link = is_activation ? activation_link(r.config) : gradient_link(r.config);
  const BlockRange below = ranges_of_split(r.decisions.split)[index(edge)];
  std::vector<SeamMessage> messages;
  for (const SeamTensor& tensor : r.spec.blocks[static_cast<std::size_t>(below.end - 1)].out)
    messages.push_back(message_of(r, link, tensor, samples_at(r, rank), is_raw));
  return messages;
}

}  // namespace laconic
