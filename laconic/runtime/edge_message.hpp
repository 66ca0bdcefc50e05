// runtime/edge_message.hpp — what both ends of an edge say of a message alike; only they include
// this.
//
// Pure.
#pragma once

#include <cstddef>
#include <optional>
#include <span>
#include <vector>

#include "laconic/base/bytes.hpp"
#include "laconic/runtime/edge.hpp"

namespace laconic {

// Returns the spec with the numbering of its link. Throws ConfigError with every reason why it
// cannot work among so many ranks.
EdgeSpec checked(EdgeSpec spec, int ranks);

bool has_delta(const EdgeSpec& spec);

// Asserts what edge.hpp requires; throws ConfigError when there are more samples than numbers.
void require_sound(const EdgeSpec& spec, const MessageSpec& message);

// Turns [samples * tokens, width] into [samples, tokens, width]. Throws ConfigError.
TensorSpec by_sample(const EdgeSpec& spec, const TensorSpec& rows, std::size_t samples);

std::vector<std::uint64_t> samples_at(std::span<const std::uint64_t> samples,
                                      const std::vector<std::size_t>& indices);

Bytes write_request(const std::vector<std::size_t>& indices);
// Returns nothing when it is not a request for some of so many samples.
std::optional<std::vector<std::size_t>> read_request(ByteView request, std::size_t samples);

}  // namespace laconic
