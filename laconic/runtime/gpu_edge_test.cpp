// A boundary whose tensors are on a GPU: one rank encodes there and the other decodes there, or on
// the host, and what arrives is the same.
#include <ATen/ops/empty.h>
#include <gtest/gtest.h>

#include <mutex>
#include <vector>

#include "laconic/base/philox.hpp"
#include "laconic/runtime/edge.hpp"
#include "laconic/runtime/test_edge.hpp"
#include "laconic/tensor/host.hpp"
#include "laconic/tensor/test_gpu.hpp"
#include "laconic/transport/in_process.hpp"

namespace laconic {
namespace {

constexpr int kSteps = 3, kMicrobatches = 4;

struct Devices {
  at::Device sender, receiver;
};

// What the receiver gets, by step and microbatch, on the host.
std::vector<at::Tensor> received(const char* codec, const MemorySpec& memory, at::ScalarType type,
                                 Devices ends) {
  std::vector<at::Tensor> all;
  std::mutex mutex;
  run_ranks(2, [&](Transport& transport) {
    Engine engine(transport);
    EdgeSpec spec{
        .link = {.name = "pp.gradient.0-1", .codec = parse_codec(codec), .memory = memory},
        .traffic = Traffic::pp_gradient,
        .edge = 1,
        .peer = 1 - engine.rank(),
        .microbatches = kMicrobatches};
    spec.link.numbering = edge_numbering(kMicrobatches);
    const TensorSpec expected{dtype_of(type), {24, 96}};
    if (engine.rank() == 0) {
      EdgeSender sender(engine, spec);
      for (int step = 0; step < kSteps; ++step) {
        sender.begin(static_cast<std::uint64_t>(step));
        for (int i = 0; i < kMicrobatches; ++i) {
          const auto first = static_cast<std::uint64_t>(step * kMicrobatches + i);
          // A tensor of its own each time, gone at once: the message must not need it longer.
          at::Tensor x = at::empty({24, 96}, at::TensorOptions(at::kFloat));
          fill_normal(key_of(first), 0, 0.0, 1.0,
                      std::span<float>(x.data_ptr<float>(), static_cast<std::size_t>(x.numel())));
          EXPECT_TRUE(sender.link().packs_on_device(expected, {.number = i}));
          sender.send(x.to(type).to(ends.sender), {.number = i}, 0);
        }
        sender.commit();
      }
      engine.flush();
    } else {
      EdgeReceiver receiver(engine, spec);
      for (int step = 0; step < kSteps; ++step) {
        receiver.begin(static_cast<std::uint64_t>(step));
        for (int i = 0; i < kMicrobatches; ++i) {
          EXPECT_TRUE(receiver.link().unpacks_on_device(expected, {.number = i}));
          const at::Tensor x = receiver.recv(expected, ends.receiver, {.number = i}, [] {});
          EXPECT_EQ(x.device().type(), ends.receiver.type());
          const std::lock_guard lock(mutex);
          all.push_back(x.to(at::kCPU));
        }
        receiver.commit();
      }
    }
  });
  return all;
}

using GpuEdge = GpuTest;

TEST_F(GpuEdge, GivesWhatTheHostGives) {
  const at::Device host(at::kCPU), gpu(at::kCUDA, 0);
  for (const char* codec : {"raw", "quantise:bits=4,block=64", "low_rank:rank=2", "top_k:keep=0.1"})
    for (const bool with_feedback : {false, true}) {
      if (with_feedback && std::string(codec) == "raw") continue;
      const MemorySpec memory = with_feedback ? MemorySpec(ErrorFeedback{}) : NoMemory{};
      for (const at::ScalarType type : {at::kFloat, at::kBFloat16}) {
        SCOPED_TRACE(codec);
        const auto expected = received(codec, memory, type, {host, host});
        for (const Devices ends : {Devices{gpu, gpu}, Devices{gpu, host}, Devices{host, gpu}}) {
          const auto found = received(codec, memory, type, ends);
          ASSERT_EQ(found.size(), expected.size());
          for (std::size_t i = 0; i < found.size(); ++i)
            EXPECT_TRUE(found[i].equal(expected[i])) << i;
        }
      }
    }
}

// Some epochs of samples over a line that damages a frame, with a step that is taken back and one
// whose fidelity is measured, so that the host packs it.
Course course_of(Reference reference, std::uint64_t device_bytes, at::Device first,
                 at::Device second) {
  Course course;
  Delta delta{.first = Half{}, .reference = reference, .hash_every = 3};
  delta.device_bytes = device_bytes;
  course.activation = delta_link(delta);
  course.gradient.memory = delta;
  for (std::uint64_t step = 0; step < 9; ++step) {
    course.keys.emplace_back();
    for (std::uint64_t i = 0; i < 4; ++i)
      course.keys.back().push_back({(step * 4 + i) % 10, (step * 4 + i + 5) % 10, 20 + step + i});
  }
  course.ahead = 2;
  course.faults = "flip:rank=0,traffic=pp.activation,at=5,bit=700";
  course.devices[0] = first;
  course.devices[1] = second;
  course.is_abandoned = [](std::uint64_t step) { return step == 4; };
  course.before_step = [](laconic::Ends& ends, std::uint64_t step) {
    ends.sender.measure_fidelity(step == 6);
  };
  return course;
}

TEST_F(GpuEdge, ReferencesAreThoseOfTheHost) {
  const at::Device host(at::kCPU), gpu(at::kCUDA, 0);
  for (const Reference reference : {Reference::f32, Reference::bf16, Reference::q8}) {
    const Logs expected = run_course(course_of(reference, 0, host, host));
    EXPECT_GT(expected[0].resent, 0u);
    for (const std::uint64_t device_bytes :
         {std::uint64_t{0}, std::uint64_t{3000}, std::uint64_t{1} << 30})
      for (const auto& [first, second] :
           {std::pair{gpu, gpu}, std::pair{gpu, host}, std::pair{host, gpu}}) {
        const Logs found = run_course(course_of(reference, device_bytes, first, second));
        for (std::size_t rank = 0; rank < 2; ++rank) {
          EXPECT_EQ(found[rank].received, expected[rank].received);
          EXPECT_TRUE(found[rank].references == expected[rank].references);
          EXPECT_EQ(found[rank].resent, expected[rank].resent);
          EXPECT_EQ(found[rank].refused, expected[rank].refused);
        }
      }
  }
}

}  // namespace
}  // namespace laconic
