// runtime/test_edge.hpp — for tests: two stages that only pass numbers on, and all that can be seen
// of their boundary.
#pragma once

#include <ATen/core/Tensor.h>
#include <ATen/ops/empty.h>
#include <gtest/gtest.h>

#include <algorithm>
#include <chrono>
#include <cstdint>
#include <functional>
#include <map>
#include <memory>
#include <string>
#include <vector>

#include "laconic/base/philox.hpp"
#include "laconic/runtime/edge.hpp"
#include "laconic/transport/faulty.hpp"
#include "laconic/transport/in_process.hpp"

namespace laconic {

using Floats = std::vector<float>;
using Keys = std::vector<std::uint64_t>;

inline constexpr std::int64_t kTokens = 6;
inline constexpr std::int64_t kWidth = 16;
inline constexpr std::uint32_t kEdge = 3;

inline LinkSpec delta_link(Delta delta = {.first = Half{}, .hash_every = 1}) {
  return {"pp.activation.0-1", parse_codec("quantise:bits=4,block=32"), delta};
}
inline LinkSpec direct_link() {
  return {"pp.gradient.1-0", parse_codec("quantise:bits=8,block=32"), NoMemory{}};
}

inline TensorSpec rows_of(std::size_t samples, Dtype dtype = Dtype::f32) {
  return {dtype, {static_cast<std::int64_t>(samples) * kTokens, kWidth}};
}

// [samples * tokens, width]: near to what the sample was in other steps.
inline at::Tensor activations(const Keys& keys, std::uint64_t step) {
  at::Tensor x = at::empty(rows_of(keys.size()).shape, at::kFloat);
  constexpr std::size_t kCount = kTokens * kWidth;
  Floats drift(kCount);
  for (std::size_t i = 0; i < keys.size(); ++i) {
    const std::span<float> sample(x.data_ptr<float>() + i * kCount, kCount);
    fill_normal(key_of(1000 + keys[i]), 0, 0.0, 1.0, sample);
    fill_normal(key_of(50 + 977 * step + keys[i]), 0, 0.0, 0.05, std::span<float>(drift));
    for (std::size_t j = 0; j < kCount; ++j) sample[j] += drift[j];
  }
  return x;
}

inline Floats floats_of(const at::Tensor& x) {
  const at::Tensor host = x.to(at::kCPU);
  return {host.data_ptr<float>(), host.data_ptr<float>() + host.numel()};
}

struct StoredReference {
  Bytes bytes;
  std::uint32_t visits = 0;
  bool operator==(const StoredReference&) const = default;
};
using References = std::map<std::uint64_t, StoredReference>;

inline References references_of(DeltaStore* store) {
  References all;
  if (store == nullptr) return all;
  for (const auto& [key, visits] : store->stored_keys()) {
    StoredReference& reference = all[key];
    reference.visits = visits;
    reference.bytes.resize(store->record_bytes());
    store->read_stored(key, reference.bytes);
  }
  return all;
}

struct Ends;

struct Course {
  LinkSpec activation = delta_link();
  LinkSpec gradient = direct_link();
  std::vector<std::vector<std::vector<std::uint64_t>>> keys;  // [step][microbatch][sample]
  int ahead = 0;                                              // microbatches of the sender
  std::string faults;
  std::chrono::milliseconds deadline{20'000};
  std::size_t segment_bytes = std::size_t{256} << 10;
  at::Device devices[2] = {at::kCPU, at::kCPU};  // of the tensors, by rank
  // On each rank, before a step, when no step is open.
  std::function<void(Ends& ends, std::uint64_t step)> before_step = {};
  std::function<bool(std::uint64_t step)> is_abandoned = {};
};

// What one rank saw.
struct Log {
  std::vector<std::vector<Floats>> received;  // [step][microbatch]
  std::vector<References> references;         // after each step
  std::vector<MeterReading> meter;            // of each step
  std::uint64_t resent = 0;
  std::uint64_t refused = 0;
  std::size_t kept_most = 0;
};

// One rank's ends: rank 0 sends activations, rank 1 gradients.
struct Ends {
  Engine engine;
  EdgeSender sender;
  EdgeReceiver receiver;

  Ends(const Course& course, Transport& transport)
      : engine(transport, {.segment_bytes = course.segment_bytes, .deadline = course.deadline}),
        sender(engine, spec_of_edge(course, transport.rank(), transport.rank() == 0)),
        receiver(engine, spec_of_edge(course, transport.rank(), transport.rank() == 1)) {}

  static EdgeSpec spec_of_edge(const Course& course, Rank rank, bool is_activation) {
    const auto microbatches = static_cast<int>(course.keys.empty() ? 1 : course.keys[0].size());
    return {is_activation ? course.activation : course.gradient,
            is_activation ? Traffic::pp_activation : Traffic::pp_gradient, kEdge, 1 - rank,
            microbatches};
  }
  // The link of the activations.
  DeltaStore* references() {
    return engine.rank() == 0 ? sender.link().references() : receiver.link().references();
  }
};

// The first stage: `ahead` microbatches further than the gradients that come back.
inline void first_stage_step(Ends& ends, const Course& course, std::uint64_t step, Log& log) {
  const auto& keys = course.keys[step];
  const auto serve = [&] { ends.sender.serve(); };
  for (std::size_t i = 0; i < keys.size() + course.ahead; ++i) {
    if (i < keys.size()) {
      const MessageSpec message{.number = static_cast<int>(i), .samples = keys[i]};
      ends.sender.send(activations(keys[i], step).to(course.devices[0]), message, i);
    }
    log.kept_most = std::max(log.kept_most, ends.sender.kept());
    if (i < static_cast<std::size_t>(course.ahead)) continue;
    const auto back = static_cast<int>(i) - course.ahead;
    const Keys& samples = keys[static_cast<std::size_t>(back)];
    const at::Tensor gradient = ends.receiver.recv(rows_of(samples.size()), course.devices[0],
                                                   {.number = back, .samples = samples}, serve);
    ends.sender.release(back);
    log.received[step].push_back(floats_of(gradient));
  }
}

// The second: what it sends back is what it got.
inline void second_stage_step(Ends& ends, const Course& course, std::uint64_t step, Log& log) {
  const auto serve = [&] { ends.sender.serve(); };
  for (std::size_t i = 0; i < course.keys[step].size(); ++i)
    ends.receiver.post(static_cast<int>(i));
  for (std::size_t i = 0; i < course.keys[step].size(); ++i) {
    const Keys& samples = course.keys[step][i];
    const MessageSpec message{.number = static_cast<int>(i), .samples = samples};
    const at::Tensor x =
        ends.receiver.recv(rows_of(samples.size()), course.devices[1], message, serve);
    log.received[step].push_back(floats_of(x));
    ends.sender.send(x, message, i);
  }
}

inline void run_step(Ends& ends, const Course& course, std::uint64_t step, Log& log) {
  if (course.before_step) course.before_step(ends, step);
  ends.engine.flush();
  const MeterReading before = ends.engine.meter().read();
  log.received.emplace_back();
  ends.sender.begin(step);
  ends.receiver.begin(step);
  ends.engine.rank() == 0 ? first_stage_step(ends, course, step, log)
                          : second_stage_step(ends, course, step, log);
  const bool is_abandoned = course.is_abandoned && course.is_abandoned(step);
  is_abandoned ? ends.sender.abandon() : ends.sender.commit();
  is_abandoned ? ends.receiver.abandon() : ends.receiver.commit();
  ends.engine.flush();
  log.meter.push_back(ends.engine.meter().read() - before);
  log.references.push_back(references_of(ends.references()));
}

using Logs = std::vector<Log>;  // by rank

inline Logs run_course(const Course& course) {
  auto transports = make_in_process(2);
  if (!course.faults.empty())
    for (auto& transport : transports)
      transport = make_faulty(std::move(transport), parse_faults(course.faults));
  Logs logs(2);
  run_ranks(transports, [&](Transport& transport) {
    Log& log = logs[static_cast<std::size_t>(transport.rank())];
    Ends ends(course, transport);
    for (std::uint64_t step = 0; step < course.keys.size(); ++step)
      run_step(ends, course, step, log);
    log.resent = ends.sender.resent();
    log.refused = ends.receiver.refused();
  });
  return logs;
}

inline void expect_equal_references(const Logs& logs) {
  ASSERT_EQ(logs[0].references.size(), logs[1].references.size());
  for (std::size_t step = 0; step < logs[0].references.size(); ++step)
    EXPECT_EQ(logs[0].references[step], logs[1].references[step]) << "after step " << step;
}

}  // namespace laconic
