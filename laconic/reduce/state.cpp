#include <fmt/format.h>

#include <cstring>

#include "laconic/base/error.hpp"
#include "laconic/codec/codec.hpp"
#include "laconic/link/device_message.hpp"
#include "laconic/reduce/method.hpp"

namespace laconic {

namespace {

// Adds what number `member` of `members` ranks remembers of each block.
void add_codec_sizes(const GradientPolicy& policy, const std::vector<BlockLayout>& blocks,
                     int members, int member, StateSizes& sizes) {
  const auto own = static_cast<std::size_t>(member);
  for (const BlockLayout& block : blocks) {
    const auto offsets = offsets_of(policy, elements_of(block), members);
    const std::uint64_t elements = offsets.back();
    const std::uint64_t owned = own + 1 < offsets.size() ? offsets[own + 1] - offsets[own] : 0;
    const bool encodes = passes_sums_on(policy) ? elements > 0 : owned < elements;
    if (has_up_residual(policy) && encodes) sizes[up_name(block)] = elements;
    if (has_down_residual(policy) && owned > 0) sizes[down_name(block)] = owned;
  }
}

// By power_sgd; the others travel raw and owe nothing.
bool is_factored(const GradientPolicy& policy, const NamedTensor& tensor) {
  const double ratio = low_rank_ratio(policy.rank, tensor.tensor);
  return ratio != 0 && ratio >= policy.min_ratio;
}

void add_power_sgd_sizes(const GradientPolicy& policy, const std::vector<BlockLayout>& blocks,
                         StateSizes& sizes) {
  for (const BlockLayout& block : blocks)
    for (const NamedTensor& tensor : block.tensors) {
      if (!is_factored(policy, tensor)) continue;
      sizes[basis_name(tensor)] =
          matrix_shape(tensor.tensor).columns * effective_rank({policy.rank}, tensor.tensor);
      if (policy.up_feedback) sizes[residual_name(tensor)] = elements_of(tensor.tensor);
    }
}

}  // namespace

std::string up_name(const BlockLayout& block) {
  return block.name + ".up";
}
std::string down_name(const BlockLayout& block) {
  return block.name + ".down";
}
std::string residual_name(const NamedTensor& tensor) {
  return tensor.name + ".residual";
}
std::string basis_name(const NamedTensor& tensor) {
  return tensor.name + ".basis";
}

std::vector<ResidualSlice> residual_places(const GradientPolicy& policy,
                                           const std::vector<BlockLayout>& blocks) {
  std::vector<ResidualSlice> places;
  for (std::size_t b = 0; b < blocks.size(); ++b) {
    if (policy.method == ReduceMethod::codec) {
      if (has_up_residual(policy) || has_down_residual(policy))
        places.push_back({down_name(blocks[b]), b, 0, elements_of(blocks[b])});
      continue;
    }
    std::uint64_t offset = 0;
    for (const NamedTensor& tensor : blocks[b].tensors) {
      const std::uint64_t elements = elements_of(tensor.tensor);
      if (policy.up_feedback && is_factored(policy, tensor))
        places.push_back({residual_name(tensor), b, offset, elements});
      offset += elements;
    }
  }
  return places;
}

std::vector<ResidualSlice> owed_places(const GradientPolicy& policy,
                                       const std::vector<BlockLayout>& blocks, int members,
                                       int member) {
  if (members == 1 || policy.method == ReduceMethod::power_sgd)
    return residual_places(policy, blocks);
  const auto own = static_cast<std::size_t>(member);
  std::vector<ResidualSlice> places;
  for (std::size_t b = 0; b < blocks.size(); ++b) {
    const auto offsets = offsets_of(policy, elements_of(blocks[b]), members);
    StateSizes sizes;
    add_codec_sizes(policy, {blocks[b]}, members, member, sizes);
    for (const auto& [name, elements] : sizes)
      places.push_back({name, b, name == down_name(blocks[b]) ? offsets[own] : 0, elements});
  }
  return places;
}

namespace {

template <class T>
void add_as(const std::vector<float>& values, std::byte* buffer) {
  T* to = reinterpret_cast<T*>(buffer);
  for (std::size_t i = 0; i < values.size(); ++i) to[i] += static_cast<T>(values[i]);
}

}  // namespace

void add_floats(const std::vector<float>& values, Dtype dtype, std::byte* buffer) {
  if (dtype == Dtype::f64) return add_as<double>(values, buffer);
  add_as<float>(values, buffer);
}

// Once after an override or a resume: waiting for the GPU is no matter.
void add_floats_on_device(const std::vector<float>& values, std::byte* buffer, const Ready& ready) {
  if (ready) ready->wait();
  Uploads uploads;
  const DeviceBuffer device = uploads.upload(as_bytes(std::span<const float>(values)));
  kernel::device_widen(Dtype::f32, device.data(), values.size(),
                       {.kind = Delivery::add, .out = buffer}, codec_stream());
}

StateSizes state_sizes(const GradientPolicy& policy, const std::vector<BlockLayout>& blocks,
                       int members, int member) {
  StateSizes sizes;
  if (members == 1) {
    for (const ResidualSlice& place : residual_places(policy, blocks))
      sizes[place.name] = place.elements;
    return sizes;
  }
  if (policy.method == ReduceMethod::codec)
    add_codec_sizes(policy, blocks, members, member, sizes);
  else
    add_power_sgd_sizes(policy, blocks, sizes);
  return sizes;
}

Problems misfits(const NamedFloats& state, const StateSizes& sizes) {
  Problems problems;
  for (const auto& [name, values] : state) {
    const auto size = sizes.find(name);
    if (size == sizes.end())
      problems.push_back({name, "is nothing that this policy remembers"});
    else if (values.size() != size->second)
      problems.push_back(
          {name, fmt::format("{} numbers instead of {}", values.size(), size->second)});
    else if (!is_finite(values.data(), values.size()))
      problems.push_back({name, "has numbers that are not finite"});
  }
  return problems;
}

void require_fit(const NamedFloats& state, const StateSizes& sizes) {
  refuse(misfits(state, sizes));
}

}  // namespace laconic
