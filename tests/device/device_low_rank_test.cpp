// PowerSGD on gradients in device memory, beside the same in host memory: equal bits in every
// phase, of every sum and of all that is remembered.
#include <fmt/format.h>
#include <gtest/gtest.h>

#include <cmath>
#include <limits>
#include <optional>

#include "laconic/base/denormals.hpp"
#include "laconic/base/test_effort.hpp"
#include "laconic/codec/kernel/device_kernel.hpp"
#include "laconic/codec/subspace.hpp"
#include "laconic/reduce/device_low_rank.hpp"
#include "laconic/reduce/test_sums.hpp"
#include "tests/device/test_device.hpp"

namespace laconic {
namespace {

using namespace test;

constexpr float kNan = std::numeric_limits<float>::quiet_NaN();
constexpr float kInfinite = std::numeric_limits<float>::infinity();

class DeviceLowRankTest : public test::DeviceTest {};

using Floats = std::vector<float>;

// Floats in device memory.
class DeviceFloats {
 public:
  explicit DeviceFloats(const Floats& values) : count_(values.size()), buffer_(bytes()) {
    put(values);
  }
  void put(const Floats& values) { to_device(buffer_.as(), values.data(), bytes()); }
  Floats get() const {
    Floats values(count_);
    from_device(values.data(), buffer_.as(), bytes());
    return values;
  }
  float* data() const { return buffer_.as<float>(); }

 private:
  std::size_t bytes() const { return count_ * sizeof(float); }
  std::size_t count_;
  TestBuffer buffer_;
};

// --- the phases, worker by worker

// One worker on the host and on the device.
struct Worker {
  Worker(const SharedLowRankSpec& spec, const std::vector<NamedTensor>& tensors, int workers)
      : host(spec, tensors, workers),
        raw(Floats(host.counts().raw)),
        left(Floats(host.counts().left)),
        right(Floats(host.counts().right)) {
    device.emplace(spec, tensors, workers);
    for (const NamedTensor& tensor : tensors)
      gradients.push_back(std::make_unique<DeviceFloats>(Floats(elements_of(tensor.tensor))));
  }

  SharedLowRank host;
  std::optional<DeviceLowRank> device;
  std::vector<std::unique_ptr<DeviceFloats>> gradients;
  Blocks<float> host_gradients;
  DeviceFloats raw, left, right;
  Floats host_raw, host_left, host_right;
};

class Workers {
 public:
  Workers(const SharedLowRankSpec& spec, const std::vector<NamedTensor>& tensors, int count)
      : spec_(spec), tensors_(tensors) {
    for (int w = 0; w < count; ++w)
      workers_.push_back(std::make_unique<Worker>(spec, tensors, count));
  }

  void step(const std::vector<Blocks<float>>& gradients, bool is_committed,
            const std::string& where) {
    for (std::size_t w = 0; w < workers_.size(); ++w) begin(*workers_[w], gradients[w], where);
    const Floats raw = sum(&Worker::host_raw), left = sum(&Worker::host_left);
    for (auto& worker : workers_) project(*worker, left, where);
    const Floats right = sum(&Worker::host_right);
    for (auto& worker : workers_) finish(*worker, raw, right, where);
    for (auto& worker : workers_) {
      is_committed ? worker->host.commit() : worker->host.abandon();
      is_committed ? worker->device->commit() : worker->device->abandon();
      expect_same_state(worker->host.save(), worker->device->save(), where);
    }
  }

  // A program that begins anew, with what a checkpoint of the host holds.
  void restart() {
    for (auto& worker : workers_) {
      worker->device.emplace(spec_, tensors_, static_cast<int>(workers_.size()));
      worker->device->load(worker->host.save());
    }
  }

  NamedFloats state(std::size_t w) const { return workers_[w]->device->save(); }

 private:
  static std::vector<float*> places_of(Blocks<float>& values) {
    std::vector<float*> places;
    for (Floats& block : values) places.push_back(block.data());
    return places;
  }

  void begin(Worker& worker, const Blocks<float>& gradients, const std::string& where) {
    std::vector<float*> places;
    for (std::size_t t = 0; t < tensors_.size(); ++t) {
      worker.gradients[t]->put(gradients[t]);
      places.push_back(worker.gradients[t]->data());
    }
    worker.device->begin(places, worker.raw.data(), worker.left.data());
    worker.host_gradients = gradients;
    const auto host_places = places_of(worker.host_gradients);
    const std::vector<const float*> inputs(host_places.begin(), host_places.end());
    worker.host.begin(inputs, worker.host_raw, worker.host_left);
    expect_same<float>({worker.host_raw}, {worker.raw.get()}, where + ", raw");
    expect_alike(worker.host_left, worker.left.get(), where + ", left");
  }

  void project(Worker& worker, const Floats& left, const std::string& where) {
    worker.left.put(left);
    worker.device->project(worker.left.data(), worker.right.data());
    worker.host.project(left, worker.host_right);
    expect_same<float>({worker.host_right}, {worker.right.get()}, where + ", right");
  }

  void finish(Worker& worker, const Floats& raw, const Floats& right, const std::string& where) {
    worker.raw.put(raw);
    worker.right.put(right);
    worker.device->finish(worker.raw.data(), worker.right.data());
    worker.host.finish(raw, right, places_of(worker.host_gradients));
    const ScopedDenormals flush(true);
    const float* from = raw.data();
    for (std::size_t t = 0; t < tensors_.size(); ++t) {
      Floats& expected = worker.host_gradients[t];
      for (float& x : expected)
        x = worker.host.is_encoded(t) ? x * static_cast<float>(workers_.size()) : *from++;
      expect_same<float>({expected}, {worker.gradients[t]->get()}, where + ", " + tensors_[t].name);
    }
  }

  // What is not finite may be so in different ways: only whether it is counts.
  static void expect_alike(const Floats& expected, const Floats& actual, const std::string& where) {
    Floats one = expected, other = actual;
    for (Floats* floats : {&one, &other})
      for (float& x : *floats) x = std::isfinite(x) ? x : kNan;
    expect_same<float>({one}, {other}, where);
  }

  Floats sum(Floats Worker::*part) const {
    const ScopedDenormals flush(true);
    Floats total = (*workers_[0]).*part;
    for (std::size_t w = 1; w < workers_.size(); ++w)
      for (std::size_t i = 0; i < total.size(); ++i) total[i] += ((*workers_[w]).*part)[i];
    return total;
  }

  SharedLowRankSpec spec_;
  std::vector<NamedTensor> tensors_;
  std::vector<std::unique_ptr<Worker>> workers_;
};

const std::vector<NamedTensor> kTensors = {
    {"bias", {Dtype::f32, {13}}},        {"tall", {Dtype::f32, {530, 23}}},
    {"nothing", {Dtype::f32, {0, 7}}},   {"wide", {Dtype::f32, {9, 301}}},
    {"scalar", {Dtype::f32, {}}},        {"square", {Dtype::f32, {72, 80}}},
    {"three", {Dtype::f32, {5, 6, 20}}}, {"gain", {Dtype::f32, {2100}}}};

std::vector<Blocks<float>> gradients_of(int workers, std::uint64_t step) {
  std::vector<BlockLayout> blocks;
  for (const NamedTensor& tensor : kTensors) blocks.push_back({tensor.name, {tensor}});
  std::vector<Blocks<float>> all = all_gradients<float>(blocks, workers, step);
  for (Blocks<float>& gradients : all)
    for (Floats& values : gradients)
      if (values.size() > 20) {
        values[3] = -0.0F;
        values[4] = 1e-40F;  // denormal
        for (std::size_t i = 5; i < 20; ++i) values[i] *= 1e-30F;
      }
  return all;
}

TEST_F(DeviceLowRankTest, EveryPhaseIsThatOfTheHost) {
  struct Case {
    std::int64_t rank;
    double min_ratio;
    bool feedback;
    int workers;
  };
  for (const Case& c : {Case{1, 0, true, 1}, Case{4, 1.5, true, 2}, Case{4, 0, false, 3},
                        Case{16, 0, true, 2}, Case{20, 0, true, 1}, Case{40, 0, true, 2}}) {
    const SharedLowRankSpec spec{
        .rank = c.rank, .min_ratio = c.min_ratio, .feedback = c.feedback, .seed = 5};
    Workers workers(spec, kTensors, c.workers);
    const std::uint64_t steps = is_thorough() ? 4 : 2;
    for (std::uint64_t step = 0; step < steps; ++step) {
      if (step == 2) workers.restart();
      workers.step(gradients_of(c.workers, step), step != 1,
                   fmt::format("rank {}, {} workers, feedback {}, step {}", c.rank, c.workers,
                               c.feedback, step));
      if (HasFatalFailure()) return;
    }
  }
}

// Committed, too, as no training would: the residual stays, the basis goes.
TEST_F(DeviceLowRankTest, WhatIsNotFiniteLeavesTheTraceOfTheHost) {
  for (const bool feedback : {true, false})
    for (const float bad : {kNan, kInfinite, 3e38F}) {
      Workers workers({.rank = 4, .min_ratio = 0, .feedback = feedback}, kTensors, 2);
      for (std::uint64_t step = 0; step < 5; ++step) {
        auto gradients = gradients_of(2, step);
        const bool is_bad = step != 2 && step != 4;
        // 3e38 overflows in the sums of a row, or only in the product at the end.
        if (is_bad) std::fill_n(gradients[1][1].begin() + 40, bad == 3e38F ? 60 : 1, bad);
        if (is_bad) gradients[0][0][5] = bad;
        workers.step(gradients, step != 1, fmt::format("{}, step {}", bad, step));
        if (HasFatalFailure()) return;
        EXPECT_EQ(workers.state(0).contains("tall.basis"), step >= 2 && step != 3) << step;
        EXPECT_EQ(workers.state(1).contains("tall.residual"), feedback && step >= 2) << step;
        EXPECT_TRUE(workers.state(0).contains("wide.basis"));
      }
    }
}

// A matrix of low rank has dependent columns, which the host drops or draws anew.
// Columns of every kind, alone: those made orthonormal together, those that must be settled one
// after the other, by the first products or by the second, and zero ones.
TEST_F(DeviceLowRankTest, ColumnsOfEveryKindAreThoseOfTheHost) {
  const ScopedDenormals flush(true);
  constexpr std::size_t kRows = 700;
  for (const std::size_t r : {1, 2, 5, 17, 40}) {
    Floats noise(kRows * r);
    draw_start(noise.data(), kRows, r, key_of(7));
    const auto made = [&](auto&& element) {
      Floats x(kRows * r);
      for (std::size_t i = 0; i < kRows; ++i)
        for (std::size_t c = 0; c < r; ++c) x[i * r + c] = element(i, c);
      return x;
    };
    const auto at = [&](std::size_t i, std::size_t c) { return noise[i * r + c]; };
    const std::pair<const char*, Floats> kinds[] = {
        {"apart", noise},
        {"of all lengths",
         made([&](auto i, auto c) { return std::ldexp(at(i, c), int(c) * 5 - 60); })},
        {"near each other",
         made([&](auto i, auto c) { return at(i, 0) + (c > 0 ? 1e-2F : 0) * at(i, c); })},
        {"a chain",
         made([&](auto i, auto c) { return at(i, c > 0 ? c - 1 : 0) + 5e-3F * at(i, c); })},
        {"too near",
         made([&](auto i, auto c) { return at(i, 0) + (c > 0 ? 1e-4F : 0) * at(i, c); })},
        {"equal", made([&](auto i, auto) { return at(i, 0); })},
        {"with zeros", made([&](auto i, auto c) { return c % 2 == 0 ? 0.0F : at(i, c); })},
        {"nothing", Floats(kRows * r)},
        {"denormal", Floats(kRows * r, 1e-40F)}};
    for (const auto& [kind, x] : kinds) {
      SCOPED_TRACE(fmt::format("{} columns, {}", r, kind));
      const TestBuffer scratch(kernel::subspace_scratch_bytes(kRows, r)), has_start(4);
      for (const bool is_start : {false, true}) {
        Floats expected = x;
        const DeviceFloats found(x);
        const std::uint32_t yes = 1;
        to_device(has_start.as(), &yes, 4);
        if (is_start) {
          orthonormalise_start(expected.data(), kRows, r, key_of(5));
          kernel::device_orthonormalise_start(found.data(), kRows, r, key_of(5),
                                              has_start.as<std::uint32_t>(),
                                              scratch.as<std::byte>(), codec_stream());
        } else {
          orthonormalise(expected.data(), kRows, r);
          kernel::device_orthonormalise(found.data(), kRows, r, scratch.as<std::byte>(),
                                        codec_stream());
        }
        expect_same<float>({expected}, {found.get()}, is_start ? "a start" : "a factor");
      }
    }
  }
}

TEST_F(DeviceLowRankTest, DependentColumnsAreThoseOfTheHost) {
  Workers workers({.rank = 8, .min_ratio = 0, .feedback = false}, kTensors, 1);
  for (std::uint64_t step = 0; step < 3; ++step) {
    auto gradients = gradients_of(1, 0);
    Floats& tall = gradients[0][1];
    for (std::size_t i = 0; i < 530; ++i)
      for (std::size_t j = 0; j < 23; ++j)
        tall[i * 23 + j] = step == 2 ? 0 : static_cast<float>(i % 7) * static_cast<float>(j % 3);
    workers.step(gradients, true, fmt::format("step {}", step));
    if (HasFatalFailure()) return;
  }
}

// --- whole sums, rank by rank

// One rank's end of a sum whose blocks are on the host or on the device.
struct DeviceMember {
  DeviceMember(Transport& transport, const GradientPolicy& policy, bool is_device)
      : engine(transport), progress_thread(engine), is_on_device(is_device) {
    Group group;
    for (Rank rank = 0; rank < transport.size(); ++rank) group.push_back(rank);
    EXPECT_TRUE(sums_on_device(policy, Dtype::f32, transport.size()));
    sum = make_gradient_sum(progress_thread, group, policy, Traffic::dp_gradient, kBlocks,
                            Dtype::f32, is_device);
  }

  void exchange(std::uint64_t step, Blocks<float>& values, bool is_shadow = false) {
    std::vector<std::unique_ptr<DeviceFloats>> blocks;
    is_shadow ? sum->begin_shadow(step) : sum->begin(step);
    for (std::size_t b = values.size(); b-- > 0;) {
      blocks.insert(blocks.begin(), std::make_unique<DeviceFloats>(values[b]));
      sum->post(b,
                reinterpret_cast<std::byte*>(is_on_device ? blocks[0]->data() : values[b].data()));
    }
    sum->wait();
    engine.flush();
    for (std::size_t b = 0; is_on_device && b < values.size(); ++b) values[b] = blocks[b]->get();
  }

  Engine engine;
  ProgressThread progress_thread;
  bool is_on_device;
  std::unique_ptr<GradientSum> sum;
};

// What one rank sees of a script.
struct Story {
  std::vector<Blocks<float>> sums;
  std::vector<NamedFloats> states;
  std::vector<Fidelity> fidelities;
};

// Warm-up, plain steps, one that is taken back, one that is not finite and committed all the same,
// a measured one, another codec, a shadow, a bypass, and back; a new object in the middle.
void tell_story(Transport& transport, const GradientPolicy& policy, bool is_on_device,
                Story& story) {
  std::optional<DeviceMember> member;
  member.emplace(transport, policy, is_on_device);
  for (std::uint64_t step = 0; step < 10; ++step) {
    if (step == 4) member->sum->measure_fidelity(true);
    if (step == 5) member->sum->measure_fidelity(false);
    if (step == 5) member->sum->load(member->sum->save());
    if (step == 6 && is_lossy(policy.up))
      member->sum->override_codec({.codec = parse_codec("quantise:bits=6")});
    if (step == 8) member->sum->override_codec({.is_bypassed = true});
    if (step == 9) member->sum->override_codec({});
    auto values = gradients<float>(kBlocks, transport.rank(), step);
    if (step == 3 && transport.rank() == 1) values[0][7] = values[2][3] = kNan;
    if (step == 7) {
      auto shadow = values;
      member->exchange(step, shadow, true);
      member->sum->abandon();
      story.sums.push_back(shadow);
    }
    member->exchange(step, values);
    story.fidelities.push_back(member->sum->fidelity());
    step == 2 ? member->sum->abandon() : member->sum->commit();
    story.sums.push_back(std::move(values));
    story.states.push_back(member->sum->save());
  }
}

void expect_stories(const GradientPolicy& policy, int members) {
  std::vector<Story> host(static_cast<std::size_t>(members)), device = host;
  for (const bool is_on_device : {false, true})
    run_ranks(members, [&](Transport& transport) {
      auto& stories = is_on_device ? device : host;
      tell_story(transport, policy, is_on_device,
                 stories[static_cast<std::size_t>(transport.rank())]);
    });
  for (std::size_t rank = 0; rank < host.size(); ++rank) {
    const std::string where = fmt::format("{} of {} members, {}, by block {}", rank, members,
                                          to_text(policy.up), policy.by_block);
    ASSERT_EQ(host[rank].sums.size(), device[rank].sums.size());
    for (std::size_t i = 0; i < host[rank].sums.size(); ++i)
      expect_same(host[rank].sums[i], device[rank].sums[i], fmt::format("{}, sum {}", where, i));
    for (std::size_t i = 0; i < host[rank].states.size(); ++i)
      expect_same_state(host[rank].states[i], device[rank].states[i],
                        fmt::format("{}, state {}", where, i));
    EXPECT_EQ(host[rank].fidelities, device[rank].fidelities) << where;
    EXPECT_GT(device[rank].fidelities[4].messages, 0u);
    EXPECT_TRUE(device[rank].states[6].contains("weight.residual"));
  }
}

TEST_F(DeviceLowRankTest, SumsAndMemoriesAreThoseOfTheHost) {
  for (const int members : {2, 3, 4})
    for (const bool by_block : {false, true}) {
      if (members == 4 && by_block) continue;  // costs time and shows nothing new
      GradientPolicy policy{.method = ReduceMethod::power_sgd, .warm_up_steps = 1, .rank = 4};
      policy.by_block = by_block;
      expect_stories(policy, members);
      if (members != 3) continue;
      policy.up = policy.down = parse_codec("quantise:bits=4");
      expect_stories(policy, members);
    }
}

}  // namespace
}  // namespace laconic
