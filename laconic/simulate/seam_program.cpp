#include "laconic/simulate/seam_program.hpp"

#include "laconic/base/index.hpp"
#include "laconic/engine/engine.hpp"
#include "laconic/layout/layout.hpp"
#include "laconic/link/message.hpp"
#include "laconic/policy/class_policy.hpp"
#include "laconic/wire/frame.hpp"

namespace laconic {

namespace {

// Samples of a microbatch that a rank of the grid has.
std::int64_t samples_at(const SimulationRequest& r, Rank rank) {
  const Mesh& mesh = r.mesh;
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
  const std::int64_t width = tensor.per_sample.back() / extent(r.mesh, stream_of(r.grid).features);
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
  const LinkSpec link =
      link_at(r.config, is_activation ? Traffic::pp_activation : Traffic::pp_gradient, edge);
  const BlockRange below = ranges_of_split(r.decisions.split)[index(edge)];
  std::vector<SeamMessage> messages;
  for (const SeamTensor& tensor : r.spec.blocks[static_cast<std::size_t>(below.end - 1)].out)
    messages.push_back(message_of(r, link, tensor, samples_at(r, rank), is_raw));
  return messages;
}

SeamProgram::SeamProgram(ProgramBuilder& builder, const SimulationRequest& request,
                         const Schedule& schedule)
    : builder_(builder), r_(request), schedule_(schedule) {}

void SeamProgram::begin(std::uint64_t step) {
  step_ = step;
  messages_.clear();
}

// The class at another place of the same pipeline.
int SeamProgram::neighbour_class(int rank, int stage) const {
  Coord other = coord_of(r_.mesh, builder_.classes().first[index(rank)]);
  other.pp = rank_of_stage(schedule_, stage);
  return builder_.class_of(rank_of(r_.mesh, other));
}

SeamProgram::Crossing SeamProgram::crossing(const Edge& edge, int to, int microbatch) {
  const GradientSends& encoded = r_.decisions.encoded;
  const bool is_raw =
      !edge.is_activation && !encoded.empty() && !encoded[index(edge.edge)][index(microbatch)];
  const auto [costs, is_new_edge] = costs_.try_emplace({edge, is_raw});
  if (is_new_edge)
    costs->second = seam_messages(r_, builder_.classes().first[index(edge.from)], edge.edge,
                                  edge.is_activation, is_raw);
  const auto [messages, is_new] = messages_.try_emplace({edge, microbatch});
  if (is_new)
    for (const SeamMessage& message : costs->second)
      messages->second.push_back(builder_.add_message(
          edge.from, to,
          {.traffic = edge.is_activation ? Traffic::pp_activation : Traffic::pp_gradient,
           .key = deadline_key(step_, 0, 0),
           .message_bytes = message.bytes,
           .edge = edge.edge,
           .microbatch = microbatch}));
  return {costs->second, messages->second};
}

void SeamProgram::send(int rank, int strand, const Action& a) {
  const bool is_activation = a.op == Op::send_activation;
  const int to = neighbour_class(rank, is_activation ? a.stage + 1 : a.stage - 1);
  const Crossing all =
      crossing({rank, is_activation ? a.stage : a.stage - 1, is_activation}, to, a.microbatch);
  for (std::size_t i = 0; i < all.messages.size(); ++i) {
    builder_.compute(strand, WorkKind::codec,
                     builder_.encode_seconds(rank, all.costs[i].codec, all.costs[i].elements));
    builder_.send(strand, all.messages[i]);
  }
}

void SeamProgram::receive(int rank, int strand, const Action& a) {
  const bool is_activation = a.op == Op::recv_activation;
  const int from = neighbour_class(rank, is_activation ? a.stage - 1 : a.stage + 1);
  const Crossing all =
      crossing({from, is_activation ? a.stage - 1 : a.stage, is_activation}, rank, a.microbatch);
  for (std::size_t i = 0; i < all.messages.size(); ++i) {
    builder_.wait(strand, all.messages[i]);
    builder_.compute(strand, WorkKind::codec,
                     builder_.decode_seconds(rank, all.costs[i].codec, all.costs[i].elements));
  }
}

}  // namespace laconic
