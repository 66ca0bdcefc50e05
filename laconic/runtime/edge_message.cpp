#include "laconic/runtime/edge_message.hpp"

#include <fmt/format.h>

#include <utility>
#include <variant>

#include "laconic/base/crc32c.hpp"
#include "laconic/base/error.hpp"

namespace laconic {

namespace {

Problems problems_of(const EdgeSpec& spec, int ranks) {
  Problems problems = check(spec.link);
  const auto add = [&](const char* where, std::string what) {
    problems.push_back({fmt::format("{}: {}", spec.link.name, where), std::move(what)});
  };
  if (spec.edge >= kEvaluationUnit)
    add("edge", fmt::format("{} is not below {}", spec.edge, kEvaluationUnit));
  if (spec.peer < 0 || spec.peer >= ranks)
    add("peer", fmt::format("rank {} of {}", spec.peer, ranks));
  constexpr int kMost = kFramesPerStep / (kEdgeTurns + 1);
  if (spec.microbatches < 1 || spec.microbatches > kMost)
    add("microbatches", fmt::format("{} is not from 1 to {}", spec.microbatches, kMost));
  return problems;
}

Tag tag_of(const EdgeSpec& spec, std::uint64_t step, const MessageSpec& message,
           std::uint32_t part) {
  const bool is_of_step = !is_evaluation(message.use);
  const auto microbatch = static_cast<std::uint64_t>(message.number);
  const auto microbatches = static_cast<std::uint64_t>(spec.microbatches);
  return make_tag({.traffic = spec.traffic,
                   .unit = spec.edge + (is_of_step ? 0 : kEvaluationUnit),
                   .number = is_of_step ? step * microbatches + microbatch : microbatch,
                   .part = part});
}

}  // namespace

Tag message_tag(const EdgeSpec& spec, std::uint64_t step, const MessageSpec& message) {
  return tag_of(spec, step, message, 2 * message.turn);
}

Tag request_tag(const EdgeSpec& spec, std::uint64_t step, const MessageSpec& message) {
  return tag_of(spec, step, message, 2 * message.turn - 1);
}

FrameNumbering edge_numbering(int microbatches) {
  constexpr std::uint32_t kTurns = kEdgeTurns + 1;
  return {.turns = kTurns,
          .samples = kFramesPerStep / (static_cast<std::uint32_t>(microbatches) * kTurns)};
}

EdgeSpec checked(EdgeSpec spec, int ranks) {
  refuse(problems_of(spec, ranks));
  spec.link.numbering = edge_numbering(spec.microbatches);
  return spec;
}

bool has_delta(const EdgeSpec& spec) {
  return std::holds_alternative<Delta>(spec.link.memory);
}

void require_sound(const EdgeSpec& spec, const MessageSpec& message) {
  const int end = is_evaluation(message.use) ? static_cast<int>(kFramesPerStep) : spec.microbatches;
  LACONIC_ASSERT(message.number >= 0 && message.number < end,
                 fmt::format("{}: microbatch {} of {}", spec.link.name, message.number, end));
  const std::uint32_t most = spec.link.numbering.samples;
  if (message.samples.size() > most)
    throw ConfigError(
        fmt::format("{}: {} samples in a microbatch; with {} microbatches a step "
                    "there are numbers for the frames of {}",
                    spec.link.name, message.samples.size(), spec.microbatches, most));
}

TensorSpec by_sample(const EdgeSpec& spec, const TensorSpec& rows, std::size_t samples) {
  const auto count = static_cast<std::int64_t>(samples);
  if (rows.shape.empty() || count == 0 || rows.shape[0] % count != 0)
    throw ConfigError(fmt::format("{}: {} samples cannot share the rows of a tensor [{}]",
                                  spec.link.name, count, fmt::join(rows.shape, ", ")));
  TensorSpec result = rows;
  result.shape[0] /= count;
  result.shape.insert(result.shape.begin(), count);
  return result;
}

std::vector<std::uint64_t> samples_at(std::span<const std::uint64_t> samples,
                                      const std::vector<std::size_t>& indices) {
  std::vector<std::uint64_t> result;
  for (const std::size_t index : indices) result.push_back(samples[index]);
  return result;
}

Bytes write_request(const std::vector<std::size_t>& indices) {
  Bytes request;
  for (const std::size_t index : indices) put(request, static_cast<std::uint32_t>(index));
  put(request, crc32c(request));
  return request;
}

std::optional<std::vector<std::size_t>> read_request(ByteView request, std::size_t samples) {
  if (request.size() < 8 || request.size() % 4 != 0) return std::nullopt;
  const std::size_t end = request.size() - 4;
  if (get<std::uint32_t>(request, end) != crc32c(request.first(end))) return std::nullopt;
  std::vector<std::size_t> indices;
  for (std::size_t at = 0; at < end; at += 4) {
    indices.push_back(get<std::uint32_t>(request, at));
    if (indices.back() >= samples) return std::nullopt;
  }
  return indices;
}

}  // namespace laconic
