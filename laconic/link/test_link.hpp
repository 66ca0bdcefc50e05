// link/test_link.hpp — for tests: a link with both ends in one place, and tensors by a few words.
#pragma once

#include <gtest/gtest.h>
#include <hwy/highway.h>

#include <cmath>
#include <cstdint>
#include <vector>

#include "laconic/base/philox.hpp"
#include "laconic/link/link.hpp"

namespace laconic {

using Floats = std::vector<float>;
using Keys = std::vector<std::uint64_t>;

inline Floats normal(std::size_t count, std::uint64_t seed, double deviation = 1.0) {
  Floats values(count);
  fill_normal(key_of(seed), 0, 0.0, deviation, std::span<float>(values));
  return values;
}

inline Floats operator+(Floats a, const Floats& b) {
  for (std::size_t i = 0; i < a.size(); ++i) a[i] += b[i];
  return a;
}

inline Floats operator-(Floats a, const Floats& b) {
  for (std::size_t i = 0; i < a.size(); ++i) a[i] -= b[i];
  return a;
}

inline double norm(const Floats& values) {
  double sum = 0;
  for (const float v : values) sum += double{v} * v;
  return std::sqrt(sum);
}

inline double relative_error(const Floats& got, const Floats& wanted) {
  return norm(got - wanted) / norm(wanted);
}

inline bool same_bits(const Floats& a, const Floats& b) {
  return a.size() == b.size() && std::memcmp(a.data(), b.data(), a.size() * 4) == 0;
}

// Runs `act` with only one of Highway's targets; -1 is the plainest that this processor has, 0 all.
template <class Act>
auto on_target(std::int64_t target, const Act& act) {
  hwy::SetSupportedTargetsForTest(0);
  std::int64_t chosen = target;
  if (target == -1) {  // plainer targets have higher bits
    const std::int64_t all = hwy::SupportedTargets();
    chosen = std::int64_t{1} << (63 - __builtin_clzll(static_cast<std::uint64_t>(all)));
  }
  hwy::SetSupportedTargetsForTest(chosen);
  auto result = act();
  hwy::SetSupportedTargetsForTest(0);
  return result;
}

constexpr std::size_t kRows = 24, kColumns = 40, kElements = kRows * kColumns;
inline const TensorSpec kMatrix{Dtype::f32, {kRows, kColumns}};

struct LinkPair {
  Sender sender;
  Receiver receiver;
  TensorSpec tensor;
  std::uint64_t steps = 0;
  std::size_t last_bytes = 0;
  Bytes last;

  LinkPair(const LinkSpec& spec, TensorSpec shape)
      : sender(numbered(spec)), receiver(numbered(spec)), tensor(std::move(shape)) {}

  static LinkSpec numbered(LinkSpec spec) {
    spec.numbering = {.turns = 2, .samples = 1024};
    return spec;
  }

  void begin() {
    sender.begin(steps);
    receiver.begin(steps);
    ++steps;
  }
  void commit() {
    sender.commit();
    receiver.commit();
  }
  void abandon() {
    sender.abandon();
    receiver.abandon();
  }
  Bytes pack(const Floats& x, const MessageSpec& message = {}) {
    last = sender.pack({tensor, x.data()}, message);
    last_bytes = last.size();
    return last;
  }
  Floats unpack(ByteView bytes, const MessageSpec& message = {}, Unpacked* result = nullptr) {
    Floats out(elements_of(tensor));
    Unpacked unpacked = receiver.unpack(bytes, {tensor, out.data()}, message);
    if (result != nullptr)
      *result = std::move(unpacked);
    else
      EXPECT_TRUE(unpacked.refused.empty()) << unpacked.refused[0].why;
    return out;
  }
  // Sends it there and back.
  Floats send(const Floats& x, const MessageSpec& message = {}) {
    return unpack(pack(x, message), message);
  }
  // A whole step with one message.
  Floats step(const Floats& x, const MessageSpec& message = {}) {
    begin();
    Floats out = send(x, message);
    commit();
    return out;
  }
};

inline Floats floats_of(std::span<const float> values) {
  return {values.begin(), values.end()};
}

// The residual of a kMatrix; zeros before anything was sent.
inline Floats residual_of(const LinkPair& link) {
  const auto residual = link.sender.residual();
  return residual.empty() ? Floats(kElements) : Floats(residual.begin(), residual.end());
}

// The record of a sample; empty when there is none.
inline Bytes record(DeltaStore* store, std::uint64_t key) {
  const auto found = store->find(key);
  return found ? Bytes(found->bytes.begin(), found->bytes.end()) : Bytes();
}

}  // namespace laconic
