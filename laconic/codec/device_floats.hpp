// codec/device_floats.hpp — numbers between vectors of the host and memory of a GPU, at once.
//
// These wait until the copy is done, by way of pinned memory: for checkpoints, and for what happens
// seldom. In the order of the codec stream.
#pragma once

#include <cstddef>
#include <span>
#include <vector>

#include "laconic/codec/device_memory.hpp"

namespace laconic {

void upload(std::span<const std::byte> bytes, std::byte* device);
void upload(std::span<const float> values, float* device);
DeviceBuffer uploaded(std::span<const float> values);

void download(const float* device, std::span<float> values);
std::vector<float> downloaded(const DeviceBuffer& buffer);

}  // namespace laconic
