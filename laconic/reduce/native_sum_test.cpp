#include <fmt/format.h>
#include <gtest/gtest.h>

#include <cstring>

#include "laconic/base/error.hpp"
#include "laconic/reduce/test_sums.hpp"

namespace laconic {
namespace {

using namespace test;

// A transport with a sum of its own, in rank order. Like a real one it takes the k-th call of every
// rank for the same sum, and fails when their sizes differ.
class Summing final : public Transport {
 public:
  explicit Summing(Transport& inner) : inner_(inner) {}

  Rank rank() const override { return inner_.rank(); }
  int size() const override { return inner_.size(); }
  std::string_view name() const override { return "summing"; }
  void send(Rank to, Tag tag, ByteView message, Deadline deadline) override {
    inner_.send(to, tag, message, deadline);
  }
  Bytes recv(Rank from, Tag tag, Deadline deadline) override {
    return inner_.recv(from, tag, deadline);
  }
  std::optional<Bytes> try_recv(Rank from, Tag tag) override { return inner_.try_recv(from, tag); }
  void on_arrival(std::function<void()> wake) override { inner_.on_arrival(std::move(wake)); }
  bool has_sum() const override { return true; }
  void close() override { inner_.close(); }

  void sum(std::span<float> values, Deadline deadline) override {
    const Tag tag = make_tag({.traffic = Traffic::control, .number = calls_++});
    for (Rank to = 0; to < size(); ++to)
      inner_.send(to, tag, as_bytes(std::span<const float>(values)), deadline);
    for (Rank from = 0; from < size(); ++from) {
      const Bytes part = inner_.recv(from, tag, deadline);
      if (part.size() != values.size_bytes()) throw std::runtime_error("sums of different sizes");
      for (std::size_t i = 0; i < values.size(); ++i) {
        float x;
        std::memcpy(&x, part.data() + i * sizeof(float), sizeof(float));
        values[i] = from == 0 ? x : values[i] + x;
      }
    }
  }

 private:
  Transport& inner_;
  std::uint64_t calls_ = 0;
};

TEST(NativeSum, TakesTheSameSequenceOnAllRanksWhateverTheOrderOfPosting) {
  for (const int members : kMembers)
    run_ranks(members, [&](Transport& transport) {
      Summing summing(transport);
      Member member(summing, {.algorithm = SumAlgorithm::native}, kBlocks);
      for (std::uint64_t step = 0; step < 4; ++step) {
        auto values = gradients<float>(kBlocks, transport.rank(), step);
        member.exchange(step, values);
        step == 1 ? member.sum->abandon() : member.sum->commit();
        expect_same(SumModel<float>({}, kBlocks, members)
                        .sum(step, all_gradients<float>(kBlocks, members, step)),
                    values, fmt::format("{} members", members));
      }
      EXPECT_TRUE(member.sum->save().empty());
    });
}

TEST(NativeSum, CountsWhatAnySumMustSendAndSaysThatItIsComputed) {
  run_ranks(4, [&](Transport& transport) {
    Summing summing(transport);
    Member member(summing, {.algorithm = SumAlgorithm::native}, kBlocks);
    auto values = gradients<float>(kBlocks, transport.rank(), 0);
    member.exchange(0, values);
    Count expected;
    for (const BlockLayout& block : kBlocks) {
      const std::uint64_t bytes = 2 * 3 * elements_of(block) * 4 / 4;
      expected += {1, bytes, bytes, bytes};
    }
    const MeterReading reading = member.engine.meter().read();
    EXPECT_EQ(sent(reading, Traffic::dp_gradient), expected);
    EXPECT_GT(reading.times.at(Traffic::dp_gradient).active, 0);
  });
}

TEST(NativeSum, ARankThatGoesAwayIsNamed) {
  run_ranks(2, [&](Transport& transport) {
    if (transport.rank() == 1) return transport.close();
    Summing summing(transport);
    Member member(summing, {.algorithm = SumAlgorithm::native}, kBlocks);
    auto values = gradients<float>(kBlocks, transport.rank(), 0);
    try {
      member.exchange(0, values);
      FAIL();
    } catch (const PeerLost& lost) {
      EXPECT_EQ(lost.peer(), 1);
    }
  });
}

TEST(NativeSum, HasNothingToLoad) {
  run_ranks(2, [&](Transport& transport) {
    Summing summing(transport);
    Member member(summing, {.algorithm = SumAlgorithm::native}, kBlocks);
    EXPECT_NO_THROW(member.sum->load({}));
    EXPECT_THROW(member.sum->load({{"layer.up", {1}}}), ConfigError);
  });
}

TEST(NativeSum, NeedsATransportThatSumsOverTheGroup) {
  run_ranks(3, [&](Transport& transport) {
    Summing summing(transport);
    Engine engine(summing);
    ProgressThread progress_thread(engine);
    const auto make = [&] {
      return make_gradient_sum(progress_thread, {0, 1}, {.algorithm = SumAlgorithm::native},
                               Traffic::dp_gradient, kBlocks, Dtype::f32);
    };
    EXPECT_THROW(make(), ConfigError);
  });
}

}  // namespace
}  // namespace laconic
