// A boundary when all goes well: T10 to T13, T15 and T16 of the method, and links without a delta
// memory. What goes wrong is in edge_fault_test.cpp.
#include "laconic/runtime/edge.hpp"

#include <c10/core/ScalarType.h>

#include <algorithm>
#include <chrono>
#include <cstdlib>
#include <cstring>
#include <filesystem>
#include <numeric>
#include <set>
#include <thread>

#include "laconic/base/error.hpp"
#include "laconic/runtime/test_edge.hpp"

namespace laconic {
namespace {

// `samples` samples in an order of its own for every epoch. `dropped` of them are missing in the
// first, so that cold and warm ones meet in the second.
std::vector<std::vector<Keys>> shuffled_epochs(int epochs, std::uint64_t samples,
                                               std::size_t per_microbatch, std::size_t microbatches,
                                               std::uint64_t dropped = 0) {
  std::vector<std::vector<Keys>> steps;
  for (int epoch = 0; epoch < epochs; ++epoch) {
    Keys order(epoch == 0 ? samples - dropped : samples);
    std::iota(order.begin(), order.end(), std::uint64_t{0});
    const auto word = [&](std::uint64_t key) {
      return derive(key_of(static_cast<std::uint64_t>(epoch)), key).lo;
    };
    std::ranges::sort(order, {}, word);
    auto next = order.begin();
    while (next != order.end()) {
      auto& step = steps.emplace_back(microbatches);
      for (Keys& keys : step) {
        keys.assign(next, next + static_cast<std::ptrdiff_t>(per_microbatch));
        next += static_cast<std::ptrdiff_t>(per_microbatch);
      }
    }
  }
  return steps;
}

std::set<std::uint64_t> touched(const std::vector<Keys>& step) {
  std::set<std::uint64_t> all;
  for (const Keys& keys : step) all.insert(keys.begin(), keys.end());
  return all;
}

Floats reference_floats(const StoredReference& reference) {
  Floats values(reference.bytes.size() / 4);
  std::memcpy(values.data(), reference.bytes.data(), reference.bytes.size());
  return values;
}

TEST(Edge, BothEndsRememberTheSameAfterEveryStep) {  // T10, T11, T13
  for (const std::size_t per_microbatch : {1, 8})
    for (const int ahead : {0, 1, 2}) {
      SCOPED_TRACE(testing::Message() << per_microbatch << " samples, " << ahead << " ahead");
      const std::size_t microbatches = 16 / per_microbatch;
      Course course{.keys = shuffled_epochs(5, 48, per_microbatch, microbatches, 16)};
      course.ahead = std::min(ahead, static_cast<int>(microbatches));
      const Logs logs = run_course(course);
      expect_equal_references(logs);
      std::map<std::uint64_t, std::uint32_t> visits;
      for (std::size_t step = 0; step < course.keys.size(); ++step) {
        const References& references = logs[0].references[step];
        for (const std::uint64_t key : touched(course.keys[step]))
          EXPECT_EQ(references.at(key).visits, ++visits[key]) << "one visit an epoch";
        // The stage behind computes with the reference itself, bit by bit.
        for (std::size_t i = 0; i < microbatches; ++i) {
          Floats expected;
          for (const std::uint64_t key : course.keys[step][i]) {
            const Floats one = reference_floats(references.at(key));
            expected.insert(expected.end(), one.begin(), one.end());
          }
          EXPECT_EQ(logs[1].received[step][i], expected);
        }
      }
      EXPECT_EQ(logs[1].refused + logs[0].resent, 0u);
      EXPECT_EQ(logs[0].kept_most, std::min<std::size_t>(microbatches, course.ahead + 1))
          << "what was released is not kept";
    }
}

// The formula of the method: codes of `bits` and a scale of 2 bytes for each channel.
std::uint64_t quantised_bytes(std::int64_t tokens, std::uint64_t bits) {
  return (static_cast<std::uint64_t>(tokens * kWidth) * bits + 7) / 8 + 2 * kWidth;
}
// docs/wire-format.md: header, parameters, two dims, check sum.
std::uint64_t frame_bytes(std::uint64_t parameters, std::uint64_t payload) {
  return 40 + parameters + 2 * 8 + payload + 4;
}
std::uint64_t in_segments(std::uint64_t message, std::uint64_t segment) {
  return message + 16 * ((message + segment - 1) / segment);
}

TEST(Edge, TheMeterCountsWhatTheFormulaSays) {  // T12, T16
  for (const std::uint64_t bits : {2, 3, 4, 6, 8})
    for (const std::size_t per_microbatch : {1, 8}) {
      const auto codec = [](std::uint64_t b) {
        return parse_codec("quantise:bits=" + std::to_string(b) + ",group=channel,scale=f16");
      };
      Course course{
          .activation = {"pp.activation.0-1", codec(bits), Delta{.first = Raw{}, .hash_every = 1}},
          .gradient = {"pp.gradient.1-0", codec(8), NoMemory{}},
          .keys = shuffled_epochs(3, 32, per_microbatch, 2),
          .ahead = 1,
          .segment_bytes = 1000};
      const std::size_t steps_per_epoch = course.keys.size() / 3;
      const std::uint64_t first = frame_bytes(0, kTokens * kWidth * 4);
      const std::uint64_t difference = frame_bytes(10, quantised_bytes(kTokens, bits)) + 8;  // hash
      const std::uint64_t gradient =
          frame_bytes(10, quantised_bytes(kTokens * static_cast<std::int64_t>(per_microbatch), 8));
      const std::uint64_t raw = 2 * per_microbatch * kTokens * kWidth * 4;
      const Logs logs = run_course(course);
      for (std::size_t step = 0; step < course.keys.size(); ++step) {
        const std::uint64_t sample = step < steps_per_epoch ? first : difference;
        const Count there{2, raw, 2 * in_segments(per_microbatch * sample, 1000)};
        const Count back{2, raw, 2 * in_segments(gradient, 1000)};
        EXPECT_EQ(logs[0].meter[step].sent,
                  (std::map{std::pair{std::pair{Traffic::pp_activation, 1}, there}}));
        EXPECT_EQ(logs[1].meter[step].sent,
                  (std::map{std::pair{std::pair{Traffic::pp_gradient, 0}, back}}));
        EXPECT_EQ(logs[1].meter[step].received.at({Traffic::pp_activation, 0}).wire_bytes,
                  there.wire_bytes);
      }
    }
}

TEST(Edge, AFirstVisitIsDenseAndASampleThatWasDroppedIsLater) {  // T12
  // Samples 0 and 1 in the first step, 1 and 2 in the second, 2 and 0 in the third.
  Course course{.activation = delta_link({.first = Raw{}, .hash_every = 1'000'000}),
                .keys = {{{0}, {1}}, {{1}, {2}}, {{2}, {0}}}};
  const Logs logs = run_course(course);
  const auto is_exact = [&](std::size_t step, std::size_t microbatch) {
    return logs[1].received[step][microbatch] ==
           floats_of(activations(course.keys[step][microbatch], step));
  };
  EXPECT_TRUE(is_exact(0, 0) && is_exact(0, 1));
  EXPECT_TRUE(!is_exact(1, 0) && is_exact(1, 1));
  EXPECT_TRUE(!is_exact(2, 0) && !is_exact(2, 1));
  const auto wire = [&](std::size_t step) {
    return sent(logs[0].meter[step], Traffic::pp_activation).wire_bytes;
  };
  EXPECT_GT(wire(0), wire(1));
  EXPECT_GT(wire(1), wire(2));
}

// One evaluation, forward only, over more microbatches than a step has.
void evaluate_on(Ends& ends) {
  for (int i = 0; i < 7; ++i) {
    const Keys keys{static_cast<std::uint64_t>(i), 3};
    const MessageSpec message{.number = i, .use = Use::evaluation, .samples = keys};
    const at::Tensor x = activations(keys, 900);
    if (ends.engine.rank() == 0) {
      ends.sender.send(x, message, 0);
      continue;
    }
    const Floats got = floats_of(ends.receiver.recv(rows_of(2), at::kCPU, message, [] {}));
    EXPECT_EQ(got, floats_of(x));
  }
}

TEST(Edge, EvaluationAndAbandonedStepsLeaveNoTrace) {  // T13
  Course plain{.keys = shuffled_epochs(3, 24, 2, 4, 8), .ahead = 2};
  const Logs expected = run_course(plain);
  Course course = plain;
  course.keys.clear();
  for (const auto& step : plain.keys) course.keys.insert(course.keys.end(), 2, step);
  course.is_abandoned = [](std::uint64_t step) { return step % 2 == 0; };
  course.before_step = [](Ends& ends, std::uint64_t) {
    const References before = references_of(ends.references());
    evaluate_on(ends);
    EXPECT_EQ(references_of(ends.references()), before);
  };
  const Logs logs = run_course(course);
  expect_equal_references(logs);
  for (std::size_t step = 0; step < plain.keys.size(); ++step) {
    for (const auto& [key, reference] : expected[0].references[step])
      EXPECT_EQ(logs[0].references[2 * step + 1].at(key).visits, reference.visits);
    EXPECT_EQ(logs[0].references[2 * step],
              step == 0 ? References{} : logs[0].references[2 * step - 1]);
  }
}

TEST(Edge, EvaluationNeedsNoStep) {
  const Course course{.keys = {{{0}}}};
  run_ranks(2, [&](Transport& transport) {
    Ends ends(course, transport);
    evaluate_on(ends);
    EXPECT_EQ(ends.references(), nullptr);
    ends.engine.flush();
  });
}

struct ScratchFolder {
  std::string path = testing::TempDir() + "laconic-edge-XXXXXX";
  ScratchFolder() { EXPECT_NE(mkdtemp(path.data()), nullptr); }
  ~ScratchFolder() { std::filesystem::remove_all(path); }
};

TEST(Edge, ASlowDiskChangesNothing) {  // T15
  const ScratchFolder folder;
  Course memory{.activation = delta_link({.first = Half{}, .reference = Reference::bf16}),
                .ahead = 1};
  for (std::uint64_t step = 0; step < 1000; ++step)
    memory.keys.push_back({{step * 7 % 20, (step * 7 + 3) % 20}, {(step * 7 + 11) % 20}});
  Course disk = memory;
  disk.activation.memory = Delta{.first = Half{},
                                 .reference = Reference::bf16,
                                 .folder = folder.path,
                                 .budget_bytes = 1 << 20,
                                 .hash_every = 16};
  disk.before_step = [&](Ends& ends, std::uint64_t step) {
    if (step == 1)
      ends.references()->set_before_io([count = std::uint64_t{0}]() mutable {
        const std::uint32_t word = derive(key_of(5), ++count).lo;
        if (word % 8 == 0) std::this_thread::sleep_for(std::chrono::microseconds(word % 400));
      });
    for (const Keys& keys : disk.keys[step])
      ends.engine.rank() == 0 ? ends.sender.link().prefetch(keys)
                              : ends.receiver.link().prefetch(keys);
  };
  const Logs expected = run_course(memory), logs = run_course(disk);
  expect_equal_references(logs);
  EXPECT_EQ(logs[1].received, expected[1].received);
  EXPECT_EQ(logs[1].refused, 0u);
}

TEST(Edge, BeyondTheBudgetSamplesStandAloneAtBothEnds) {
  Course course{.activation = delta_link({.first = Half{}, .budget_bytes = 5 * 4096}),
                .keys = shuffled_epochs(4, 12, 3, 2),
                .ahead = 1};
  const Logs logs = run_course(course);
  expect_equal_references(logs);
  EXPECT_EQ(logs[0].references.back().size(), 5u);
  for (const auto& [key, reference] : logs[0].references.back()) EXPECT_EQ(reference.visits, 4u);
  EXPECT_EQ(logs[1].refused, 0u);
  for (std::size_t step = 0; step < course.keys.size(); ++step)
    for (std::size_t i = 0; i < 2; ++i) {
      const Floats wanted = floats_of(activations(course.keys[step][i], step));
      for (std::size_t j = 0; j < wanted.size(); ++j)
        EXPECT_NEAR(logs[1].received[step][i][j], wanted[j], 0.05);
    }
}

// Lazy error propagation: the same as the link by itself, and raw messages leave the residual
// alone.
TEST(Edge, AnErrorFeedbackLinkIsTheLinkItself) {
  const LinkSpec low_rank{"pp.gradient.1-0", parse_codec("low_rank:rank=2"), ErrorFeedback{}};
  const Course course{.activation = low_rank, .keys = {std::vector<Keys>(4, Keys{1, 2})}};
  Sender sender(low_rank);
  Receiver receiver(low_rank);
  std::vector<Floats> expected;
  const auto is_bypassed = [](std::uint64_t step, int microbatch) {
    return (step + static_cast<std::uint64_t>(microbatch)) % 3 == 2;
  };
  std::vector<Floats> residuals;
  for (std::uint64_t step = 0; step < 3; ++step) {
    sender.begin(step);
    receiver.begin(step);
    for (int i = 0; i < 4; ++i) {
      const MessageSpec message{.number = i,
                                .use = is_bypassed(step, i) ? Use::bypass : Use::train};
      const at::Tensor x = activations({static_cast<std::uint64_t>(i), 9}, step);
      const SharedBytes bytes = pack(sender, x, message);
      expected.push_back(floats_of(unpack(receiver, bytes, rows_of(2), at::kCPU, message).tensor));
      residuals.push_back(Floats(sender.residual().begin(), sender.residual().end()));
    }
    sender.commit();
  }
  std::size_t next = 0;
  run_ranks(2, [&](Transport& transport) {
    Ends ends(course, transport);
    for (std::uint64_t step = 0; step < 3; ++step) {
      ends.sender.begin(step);
      ends.receiver.begin(step);
      for (int i = 0; i < 4; ++i) {
        const MessageSpec message{.number = i,
                                  .use = is_bypassed(step, i) ? Use::bypass : Use::train};
        const at::Tensor x = activations({static_cast<std::uint64_t>(i), 9}, step);
        const std::size_t at = 4 * step + static_cast<std::size_t>(i);
        if (ends.engine.rank() == 0) {
          ends.sender.send(x, message, 0);
          EXPECT_TRUE(std::ranges::equal(ends.sender.link().residual(), residuals[at]));
          EXPECT_EQ(ends.sender.kept(), 0u) << "nobody can ask for it";
          continue;
        }
        const Floats got = floats_of(ends.receiver.recv(rows_of(2), at::kCPU, message, [] {}));
        EXPECT_EQ(got, expected[at]);
        EXPECT_EQ(got == floats_of(x), is_bypassed(step, i));
        ++next;
      }
      ends.sender.commit();
      ends.receiver.commit();
    }
    ends.engine.flush();
  });
  EXPECT_EQ(next, 12u);
}

TEST(Edge, DoublesTravelRawWithEveryBitAndAnyLayout) {
  const Course course{.activation = {"pp.activation.0-1", Raw{}, NoMemory{}}, .keys = {{{0}}}};
  const at::Tensor x = activations({1, 2}, 0).to(at::kDouble).div(3);
  const std::vector<at::Tensor> tensors = {x, x.t(), x.requires_grad_(true).mul(2)};
  run_ranks(2, [&](Transport& transport) {
    Ends ends(course, transport);
    for (std::uint64_t step = 0; step < tensors.size(); ++step) {
      ends.sender.begin(step);
      ends.receiver.begin(step);
      if (ends.engine.rank() == 0) {
        ends.sender.send(tensors[step], {}, 0);
        continue;
      }
      const TensorSpec expected{Dtype::f64, tensors[step].sizes().vec()};
      const at::Tensor got = ends.receiver.recv(expected, at::kCPU, {}, [] {});
      EXPECT_TRUE(got.equal(tensors[step].detach()));
      EXPECT_FALSE(got.requires_grad());
    }
    ends.engine.flush();
  });
}

TEST(Edge, WhatCannotBeIsRefusedWithAllReasons) {
  const auto transports = make_in_process(2);
  Engine engine(*transports[0]);
  const EdgeSpec bad{.link = {"pp.x", parse_codec("sign:block=64"), Delta{.hash_every = 0}},
                     .edge = 0x8000,
                     .peer = 2,
                     .microbatches = 0};
  for (const bool is_sender : {true, false}) {
    try {
      if (is_sender)
        EdgeSender(engine, bad);
      else
        EdgeReceiver(engine, bad);
      ADD_FAILURE();
    } catch (const ConfigError& error) {
      EXPECT_EQ(error.problems().size(), 4u) << error.what();
      EXPECT_NE(std::string(error.what()).find("pp.x"), std::string::npos);
    }
  }
  const EdgeSpec good{.link = delta_link(), .edge = kEdge, .peer = 1, .microbatches = 1 << 20};
  EXPECT_EQ(edge_numbering(good.microbatches).samples, 4u);
  EdgeSender sender(engine, good);
  sender.begin(0);
  const Keys two{1, 2}, five{1, 2, 3, 4, 5}, none;
  EXPECT_THROW(sender.send(activations({1}, 0).narrow(0, 0, 5), {.samples = two}, 0), ConfigError);
  EXPECT_THROW(sender.send(activations(five, 0), {.samples = five}, 0), ConfigError);
  EXPECT_THROW(sender.send(activations(two, 0), {.samples = none}, 0), ConfigError);
  EXPECT_THROW(sender.send(activations(two, 0), {.number = 1 << 20, .samples = two}, 0),
               std::logic_error);
}

// No two messages of a run share a tag, nor two frames of a step a number.
TEST(Edge, TagsAndFrameNumbersAreDistinct) {
  EdgeSpec spec{.link = delta_link(), .edge = kEdge, .peer = 1, .microbatches = 5};
  spec.link.numbering = edge_numbering(spec.microbatches);
  std::set<Tag> tags;
  std::set<std::uint32_t> numbers;
  const std::uint32_t most = spec.link.numbering.samples;
  for (int microbatch = 0; microbatch < 5; ++microbatch)
    for (std::uint32_t turn = 0; turn <= kEdgeTurns; ++turn) {
      const MessageSpec message{.number = microbatch, .turn = turn};
      numbers.insert(number_of(sequence_of(spec.link, 2, message)));
      for (std::uint64_t step = 0; step < 3; ++step) {
        EXPECT_TRUE(tags.insert(message_tag(spec, step, message)).second);
        if (turn == 0) continue;
        EXPECT_TRUE(tags.insert(request_tag(spec, step, message)).second);
      }
    }
  for (int microbatch = 0; microbatch < 20; ++microbatch)
    EXPECT_TRUE(
        tags.insert(message_tag(spec, 1, {.number = microbatch, .use = Use::evaluation})).second);
  ASSERT_EQ(numbers.size(), 20u);
  for (auto at = numbers.begin(); at != numbers.end(); ++at)
    EXPECT_LE(*at + most, std::next(at) == numbers.end() ? kFramesPerStep : *std::next(at));
  EXPECT_EQ(to_text(message_tag(spec, 3, {.number = 2, .turn = 1})), "pp.activation 3 #17.2");
}

}  // namespace
}  // namespace laconic
