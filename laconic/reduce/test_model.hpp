// reduce/test_model.hpp — for tests: what a gradient sum loses, in one process and without a
// network.
//
// All ranks' contributions go in, the sum that each of them must end with comes
// out, bit for bit, and so do the states that they must save. It is the plainest
// program that loses the same information: no plan, no messages, no order but
// that of the members. For policies whose sums go directly.
#pragma once

#include <algorithm>
#include <numeric>
#include <vector>

#include "laconic/base/denormals.hpp"
#include "laconic/codec/codec.hpp"
#include "laconic/collective/plan.hpp"
#include "laconic/link/sample.hpp"
#include "laconic/reduce/gradient_sum.hpp"
#include "laconic/reduce/method.hpp"
#include "laconic/reduce/shared_low_rank.hpp"
#include "laconic/wire/frame.hpp"

namespace laconic::test {

template <class T>
inline constexpr Dtype kDtypeOf = sizeof(T) == 4 ? Dtype::f32 : Dtype::f64;

template <class T>
TensorSpec flat(std::size_t elements) {
  return {kDtypeOf<T>, {static_cast<std::int64_t>(elements)}};
}

template <class T>
std::vector<T> rank_ordered_sum(const std::vector<std::vector<T>>& parts) {
  std::vector<T> sum = parts[0];
  for (std::size_t w = 1; w < parts.size(); ++w)
    for (std::size_t i = 0; i < sum.size(); ++i) sum[i] += parts[w][i];
  return sum;
}

// `x` as it is sent after what was lost before. `residual`, if there is one, becomes what is lost
// now, unless that is not finite.
template <class T>
Bytes payload_of(const CodecSpec& codec, const std::vector<T>& x, std::uint64_t seed,
                 std::vector<float>* residual) {
  const TensorSpec tensor = flat<T>(x.size());
  const CodecInput input{.seed = seed};
  Bytes payload(max_payload_bytes(codec, tensor));
  if (residual == nullptr) {
    payload.resize(encode(codec, {tensor, x.data()}, input, payload));
    return payload;
  }
  std::vector<float> after(x.size());
  payload.resize(encode_with_feedback(codec, {tensor, x.data()}, residual->data(), after.data(),
                                      input, payload));
  if (is_finite(after.data(), after.size())) *residual = after;
  return payload;
}

template <class T>
std::vector<T> decoded(const CodecSpec& codec, const Bytes& payload, std::size_t elements) {
  std::vector<T> out(elements);
  const TensorSpec tensor = flat<T>(elements);
  decode(codec, payload, {}, {tensor, out.data()});
  return out;
}

template <class T>
class SumModel {
 public:
  using Buffers = std::vector<std::vector<T>>;  // by block

  SumModel(const GradientPolicy& policy, const std::vector<BlockLayout>& blocks, int members)
      : configured_(policy),
        policy_(policy),
        blocks_(blocks),
        members_(static_cast<std::size_t>(members)) {
    if (policy.method == ReduceMethod::power_sgd) make_workers();
    for (const BlockLayout& block : blocks_) {
      Memory memory;
      memory.up.assign(members_, std::vector<float>(elements_of(block)));
      memory.down.assign(elements_of(block), 0);
      committed_.push_back(memory);
    }
  }

  // Contributions by rank, then by block.
  Buffers sum(std::uint64_t step, const std::vector<Buffers>& contributions) {
    const ScopedDenormals flush(true);  // as collectives do
    step_ = step;
    open_ = committed_;
    is_exact_ =
        members_ == 1 || is_bypassed_ || step < static_cast<std::uint64_t>(policy_.warm_up_steps);
    if (!is_exact_ && policy_.method == ReduceMethod::power_sgd)
      return sum_of_factors(contributions);
    Buffers sums;
    for (std::size_t b = 0; b < blocks_.size(); ++b) {
      Buffers parts;
      for (std::size_t w = 0; w < members_; ++w) {
        parts.push_back(contributions[w][b]);
        if (is_bypassed_) add_owed(w, b, parts.back());
      }
      sums.push_back(is_exact_ ? rank_ordered_sum(parts) : sum_of_block(b, parts));
    }
    return sums;
  }

  void commit() {
    if (is_bypassed_) pay();
    if (is_exact_) return;
    committed_ = open_;
    is_begun_ = true;
    for (SharedLowRank& worker : workers_) worker.commit();
  }
  void abandon() {
    for (SharedLowRank& worker : workers_) worker.abandon();
  }

  void override_codec(const CodecOverride& codec_override) {
    policy_ = !codec_override.is_bypassed && codec_override.codec
                  ? with_codec(configured_, *codec_override.codec)
                  : configured_;
    is_bypassed_ = codec_override.is_bypassed && members_ > 1;
  }

  // What the member must save.
  NamedFloats state(int member) const {
    const auto w = static_cast<std::size_t>(member);
    NamedFloats state;
    if (!workers_.empty()) {
      state = workers_[w].save();
    } else if (is_begun_) {  // never with one member
      for (std::size_t b = 0; b < blocks_.size(); ++b) add_block_state(b, w, state);
    }
    return state;
  }

 private:
  // What a rank owes to a block is part of what it contributes when that travels raw.
  void add_owed(std::size_t member, std::size_t block, std::vector<T>& values) const {
    if (workers_.empty()) {
      const auto offsets = offsets_of(configured_, values.size(), static_cast<int>(members_));
      for (std::size_t i = 0; i < values.size(); ++i) {
        values[i] += static_cast<T>(committed_[block].up[member][i]);
        if (i >= offsets[member] && i < offsets[member + 1])
          values[i] += static_cast<T>(committed_[block].down[i]);
      }
      return;
    }
    std::size_t tensor = 0, at = 0;
    for (std::size_t b = 0; b < block; ++b) tensor += blocks_[b].tensors.size();
    for (const NamedTensor& t : blocks_[block].tensors) {
      const float* residual = workers_[member].residual(tensor++);
      for (std::uint64_t i = 0; i < elements_of(t.tensor); ++i, ++at)
        if (residual != nullptr) values[at] += static_cast<T>(residual[i]);
    }
  }

  void pay() {
    for (Memory& memory : committed_) {
      for (auto& up : memory.up) std::ranges::fill(up, 0.0F);
      std::ranges::fill(memory.down, 0.0F);
    }
    is_begun_ = false;
    for (SharedLowRank& worker : workers_) {
      NamedFloats state = worker.save();
      std::erase_if(state, [](const auto& item) { return item.first.ends_with(".residual"); });
      worker.load(state);
    }
  }

  // What a block leaves; `up` is zero where a rank encodes nothing, `down` all owners' together.
  struct Memory {
    std::vector<std::vector<float>> up;  // by rank
    std::vector<float> down;
  };

  // How the block travels; only seeds and slices are taken from it.
  CollectiveSpec spec_of(std::size_t block) const {
    Group group(members_);
    std::iota(group.begin(), group.end(), 0);
    CollectiveSpec spec =
        collective_of(group, policy_, Traffic::dp_gradient, static_cast<std::uint32_t>(block),
                      elements_of(blocks_[block]), kDtypeOf<T>);
    spec.offsets = offsets_of(configured_, elements_of(blocks_[block]), static_cast<int>(members_));
    return spec;
  }

  std::vector<T> sum_of_block(std::size_t block, const Buffers& parts) {
    const CollectiveSpec spec = spec_of(block);
    std::vector<T> sum(elements_of(blocks_[block]));
    const auto lanes = lanes_of(spec);
    for (std::size_t lane = 0; lane < lanes.size(); ++lane)
      for (std::size_t chunk = 0; chunk < members_; ++chunk) {
        const Slice& slice = lanes[lane][chunk];
        if (slice.elements == 0) continue;
        const Way way{spec, block, static_cast<int>(lane), static_cast<int>(chunk), slice};
        const std::vector<T> values =
            passes_sums_on(policy_) ? sum_of_payloads(way, parts) : sum_at_owner(way, parts);
        std::ranges::copy(values, sum.begin() + static_cast<std::ptrdiff_t>(slice.offset));
      }
    return sum;
  }

  // Which part of which block, and by whom it is summed.
  struct Way {
    const CollectiveSpec& spec;
    std::size_t block;
    int lane, chunk;
    Slice slice;
  };
  template <class U>
  static std::vector<U> part_of(const std::vector<U>& all, const Slice& slice) {
    const auto from = all.begin() + static_cast<std::ptrdiff_t>(slice.offset);
    return {from, from + static_cast<std::ptrdiff_t>(slice.elements)};
  }

  // `send` gets the residual of the slice, to change it, or null.
  template <class Send>
  static auto with_residual(std::vector<float>& all, const Slice& slice, bool feedback,
                            const Send& send) {
    std::vector<float> residual = part_of(all, slice);
    const auto result = send(feedback ? &residual : nullptr);
    std::ranges::copy(residual, all.begin() + static_cast<std::ptrdiff_t>(slice.offset));
    return result;
  }

  std::uint64_t seed_of(const LinkSpec& link) const {
    return message_seed(link.seed, make_sequence(step_, 0));
  }

  Bytes contribution(const Way& way, std::size_t member, const std::vector<T>& whole) {
    const LinkSpec link = up_link(way.spec, static_cast<int>(member), way.lane, way.chunk);
    return with_residual(open_[way.block].up[member], way.slice, has_up_residual(policy_),
                         [&](std::vector<float>* residual) {
                           return payload_of(policy_.up, part_of(whole, way.slice), seed_of(link),
                                             residual);
                         });
  }

  // Every contribution but the owner's is encoded, and so is their sum.
  std::vector<T> sum_at_owner(const Way& way, const Buffers& parts) {
    const std::size_t elements = way.slice.elements;
    Buffers came;
    for (std::size_t w = 0; w < members_; ++w) {
      const bool is_exact = static_cast<int>(w) == way.chunk || !is_lossy(policy_.up);
      came.push_back(is_exact ? part_of(parts[w], way.slice)
                              : decoded<T>(policy_.up, contribution(way, w, parts[w]), elements));
    }
    const std::vector<T> sum = rank_ordered_sum(came);
    if (!is_lossy(policy_.down)) return sum;
    const LinkSpec link = down_link(way.spec, way.lane, way.chunk);
    return with_residual(open_[way.block].down, way.slice, has_down_residual(policy_),
                         [&](std::vector<float>* residual) {
                           const Bytes sealed =
                               payload_of(policy_.down, sum, seed_of(link), residual);
                           return decoded<T>(policy_.down, sealed, elements);
                         });
  }

  // Every contribution is encoded, and the sum of payloads is the payload of the sum.
  std::vector<T> sum_of_payloads(const Way& way, const Buffers& parts) {
    Bytes sum = contribution(way, 0, parts[0]);
    for (std::size_t w = 1; w < members_; ++w)
      add_payload(policy_.up, flat<T>(way.slice.elements), sum, contribution(way, w, parts[w]));
    return decoded<T>(policy_.up, sum, way.slice.elements);
  }

  void add_block_state(std::size_t block, std::size_t member, NamedFloats& state) const {
    const BlockLayout& layout = blocks_[block];
    const int members = static_cast<int>(members_);
    const StateSizes sizes = state_sizes(configured_, {layout}, members, static_cast<int>(member));
    const Memory& memory = committed_[block];
    if (sizes.contains(up_name(layout))) state[up_name(layout)] = memory.up[member];
    if (!sizes.contains(down_name(layout))) return;
    const std::uint64_t from = offsets_of(configured_, elements_of(layout), members)[member];
    state[down_name(layout)] = part_of(memory.down, {from, sizes.at(down_name(layout))});
  }

  // --- power_sgd

  void make_workers() {
    std::vector<NamedTensor> tensors;
    for (const BlockLayout& block : blocks_)
      tensors.insert(tensors.end(), block.tensors.begin(), block.tensors.end());
    workers_.assign(members_, SharedLowRank({.rank = policy_.rank,
                                             .min_ratio = policy_.min_ratio,
                                             .feedback = policy_.up_feedback,
                                             .seed = policy_.seed},
                                            tensors, static_cast<int>(members_)));
  }

  // A factor: encoded like a block of its own, without feedback.
  std::vector<float> sum_of_flat(const std::vector<std::vector<float>>& parts) const {
    if (parts[0].empty()) return {};
    GradientPolicy policy = policy_;
    policy.method = ReduceMethod::codec;
    policy.up_feedback = policy.down_feedback = false;
    SumModel<float> flat_model(policy, {{"factor", {{"factor", flat<float>(parts[0].size())}}}},
                               static_cast<int>(members_));
    std::vector<std::vector<std::vector<float>>> contributions;
    for (const std::vector<float>& part : parts) contributions.push_back({part});
    return flat_model.sum(step_, contributions)[0];
  }

  Buffers sum_of_factors(const std::vector<Buffers>& contributions) {
    std::vector<std::vector<float>> whole(members_), left(members_), right(members_);
    std::vector<std::vector<std::vector<float>>> values(members_);
    std::vector<std::vector<float*>> places(members_);
    for (std::size_t w = 0; w < members_; ++w) {
      for (const auto& block : contributions[w]) values[w].emplace_back(block.begin(), block.end());
      places[w] = places_in(values[w]);
      const std::vector<const float*> inputs(places[w].begin(), places[w].end());
      workers_[w].begin(inputs, whole[w], left[w]);
    }
    const std::vector<float> left_sum = sum_of_flat(left), whole_sum = rank_ordered_sum(whole);
    for (std::size_t w = 0; w < members_; ++w) workers_[w].project(left_sum, right[w]);
    const std::vector<float> right_sum = sum_of_flat(right);
    for (std::size_t w = 0; w < members_; ++w) workers_[w].finish(whole_sum, right_sum, places[w]);
    std::size_t tensor = 0, from = 0;
    for (const BlockLayout& block : blocks_)
      for (const NamedTensor& t : block.tensors) {
        float* out = places[0][tensor];
        const std::uint64_t elements = elements_of(t.tensor);
        const bool encoded = workers_[0].is_encoded(tensor++);
        for (std::uint64_t i = 0; i < elements; ++i)
          out[i] = encoded ? out[i] * static_cast<float>(members_) : whole_sum[from++];
      }
    Buffers sums;
    for (const auto& block : values[0]) sums.emplace_back(block.begin(), block.end());
    return sums;
  }

  std::vector<float*> places_in(std::vector<std::vector<float>>& values) const {
    std::vector<float*> places;
    for (std::size_t b = 0; b < blocks_.size(); ++b) {
      float* at = values[b].data();
      for (const NamedTensor& tensor : blocks_[b].tensors) {
        places.push_back(at);
        at += elements_of(tensor.tensor);
      }
    }
    return places;
  }

  const GradientPolicy configured_;
  GradientPolicy policy_;  // with its override
  bool is_bypassed_ = false;
  const std::vector<BlockLayout> blocks_;
  const std::size_t members_;
  std::vector<Memory> committed_, open_;  // by block
  std::vector<SharedLowRank> workers_;    // power_sgd only
  std::uint64_t step_ = 0;
  bool is_exact_ = false;
  bool is_begun_ = false;  // an encoded step has been committed
};

}  // namespace laconic::test
