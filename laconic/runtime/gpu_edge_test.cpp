// A boundary whose tensors are on a GPU: one rank encodes there and the other decodes there, or on
// the host, and what arrives is the same.
#include <ATen/ops/empty.h>
#include <gtest/gtest.h>

#include <mutex>
#include <vector>

#include "laconic/base/philox.hpp"
#include "laconic/runtime/edge.hpp"
#include "laconic/tensor/host.hpp"
#include "laconic/tensor/test_gpu.hpp"
#include "laconic/transport/in_process.hpp"

namespace laconic {
namespace {

constexpr int kSteps = 3, kMicrobatches = 4;

struct Ends {
  at::Device sender, receiver;
};

// What the receiver gets, by step and microbatch, on the host.
std::vector<at::Tensor> received(const char* codec, const MemorySpec& memory, at::ScalarType type,
                                 Ends ends) {
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
        for (const Ends ends : {Ends{gpu, gpu}, Ends{gpu, host}, Ends{host, gpu}}) {
          const auto found = received(codec, memory, type, ends);
          ASSERT_EQ(found.size(), expected.size());
          for (std::size_t i = 0; i < found.size(); ++i)
            EXPECT_TRUE(found[i].equal(expected[i])) << i;
        }
      }
    }
}

}  // namespace
}  // namespace laconic
