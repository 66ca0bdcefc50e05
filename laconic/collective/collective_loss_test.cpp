// What a collective loses is what its links lose, and nothing else: every result is compared, bit
// by bit, with a model that runs the same links in one place, one after the other.

#include <fmt/format.h>
#include <gtest/gtest.h>

#include <algorithm>
#include <cmath>
#include <limits>
#include <mutex>

#include "laconic/base/error.hpp"
#include "laconic/base/index.hpp"
#include "laconic/collective/test_collective.hpp"
#include "laconic/link/link.hpp"

namespace laconic {

namespace {

// --- the model

class Model {
 public:
  explicit Model(const CollectiveSpec& spec)
      : spec_(spec),
        members_(static_cast<int>(spec.group.size())),
        chunks_(static_cast<int>(spec.offsets.size()) - 1),
        lanes_(lanes_of(spec)) {
    for (int lane = 0; lane < lanes(); ++lane)
      for (int chunk = 0; chunk < chunks_; ++chunk) {
        for (int m = 0; m < members_; ++m) up_.emplace_back(up_link(spec, m, lane, chunk));
        down_.emplace_back(down_link(spec, lane, chunk));
      }
  }

  void begin(std::uint64_t step) {
    for (Sender& sender : up_) sender.begin(step);
    for (Sender& sender : down_) sender.begin(step);
    number_ = 0;
  }
  void commit() {
    for (Sender& sender : up_) sender.commit();
    for (Sender& sender : down_) sender.commit();
  }
  void abandon() {
    for (Sender& sender : up_) sender.abandon();
    for (Sender& sender : down_) sender.abandon();
  }

  void measure_fidelity(Fidelity* seen) {
    for (Sender& sender : up_) sender.measure_fidelity(seen);
    for (Sender& sender : down_) sender.measure_fidelity(seen);
  }

  // The sum that all members get.
  std::vector<float> all_reduce(const Buffers<float>& in) {
    std::vector<float> out(spec_.offsets.back());
    for (int lane = 0; lane < lanes(); ++lane)
      for (int chunk = 0; chunk < chunks_; ++chunk) {
        const Slice slice = lanes_[index(lane)][index(chunk)];
        const auto sum = adds_payloads(spec_) ? sum_of_payloads(in, lane, chunk, slice)
                                              : sum_of_values(in, lane, chunk, slice);
        std::ranges::copy(sum, out.begin() + static_cast<std::ptrdiff_t>(slice.offset));
      }
    ++number_;
    return out;
  }

  // Over all members: of contributions and of sums.
  std::vector<double> outstanding() const {
    std::vector<double> all(spec_.offsets.back(), 0.0);
    for (int lane = 0; lane < lanes(); ++lane)
      for (int chunk = 0; chunk < chunks_; ++chunk) {
        const Slice slice = lanes_[index(lane)][index(chunk)];
        const auto add = [&](const Sender& sender) {
          const auto residual = sender.residual();
          for (std::size_t i = 0; i < residual.size(); ++i)
            all[slice.offset + i] += double{residual[i]};
        };
        for (int m = 0; m < members_; ++m)
          add(up_[place(lane, chunk) * index(members_) + index(m)]);
        add(down_[place(lane, chunk)]);
      }
    return all;
  }

 private:
  int lanes() const { return static_cast<int>(lanes_.size()); }
  std::size_t place(int lane, int chunk) const { return index(lane * chunks_ + chunk); }
  bool is_gathered() const { return spec_.algorithm == Algorithm::gathered; }
  Sender& up(int member, int lane, int chunk) {
    return up_[place(lane, chunk) * index(members_) + index(member)];
  }

  Bytes pack(Sender& sender, const float* values, const Slice& slice) {
    const TensorSpec tensor = tensor_of(slice);
    return sender.pack({tensor, values}, {.number = number_});
  }
  static TensorSpec tensor_of(const Slice& slice) {
    return {Dtype::f32, {static_cast<std::int64_t>(slice.elements)}};
  }
  static std::vector<float> unpack(ByteView message, const Slice& slice) {
    const Frame frame = read_frame(message);
    std::vector<float> values(slice.elements);
    decode(frame.header.codec, frame.payload, {}, {tensor_of(slice), values.data()});
    return values;
  }

  // A contribution crosses no link where its maker adds it, unless it goes to all alike.
  std::vector<float> sum_of_values(const Buffers<float>& in, int lane, int chunk,
                                   const Slice& slice) {
    std::vector<float> sum;
    for (int m = 0; m < members_; ++m) {
      const float* own = in[index(m)].data() + slice.offset;
      const std::vector<float> addend = m == chunk && !is_gathered()
                                            ? std::vector<float>(own, own + slice.elements)
                                            : unpack(pack(up(m, lane, chunk), own, slice), slice);
      if (m == 0) sum = addend;
      for (std::size_t i = 0; m > 0 && i < sum.size(); ++i) sum[i] += addend[i];
    }
    if (is_gathered()) return sum;
    return unpack(pack(down_[place(lane, chunk)], sum.data(), slice), slice);
  }

  std::vector<float> sum_of_payloads(const Buffers<float>& in, int lane, int chunk,
                                     const Slice& slice) {
    Bytes sum;
    for (int i = 0; i < members_; ++i) {
      const int m = spec_.algorithm == Algorithm::ring ? (chunk + 1 + i) % members_ : i;
      const Bytes message = pack(up(m, lane, chunk), in[index(m)].data() + slice.offset, slice);
      const ByteView payload = read_frame(message).payload;
      if (i == 0)
        sum.assign(payload.begin(), payload.end());
      else
        add_payload(spec_.up, tensor_of(slice), sum, payload);
    }
    std::vector<float> values(slice.elements);
    decode(spec_.up, sum, {}, {tensor_of(slice), values.data()});
    return values;
  }

  CollectiveSpec spec_;
  int members_, chunks_;
  std::vector<std::vector<Slice>> lanes_;
  std::vector<Sender> up_;    // [lane, chunk, member]
  std::vector<Sender> down_;  // [lane, chunk]
  int number_ = 0;
};

struct Loss {
  std::string up, down;
  bool feedback = false;
};

const Loss kLosses[] = {
    {"quantise:bits=4", "quantise:bits=4", true},
    {"quantise:bits=4", "quantise:bits=4", false},
    {"quantise:bits=2,block=64", "quantise:bits=8", true},
    {"quantise:bits=8,rounding=stochastic,grid=ends", "quantise:bits=4,rotate=true", true},
    {"half", "half", false},
    {"half:kind=f16", "raw", true},
    {"raw", "quantise:bits=4", true},
    {"sign", "sign", true},
    {"top_k:keep=0.1", "top_k:keep=0.2", true},
    {"top_k:keep=0.1+quantise:bits=4", "raw", false},
    {"random_k:keep=0.2", "raw", true},
    {"random_k:keep=0.2", "raw", false},
    {"random_k:keep=0.2+half", "half", true},
};

CollectiveSpec lossy_spec(const Loss& loss, int members, std::uint64_t elements,
                          Algorithm algorithm = Algorithm::direct) {
  CollectiveSpec spec = spec_of(CollectiveKind::all_reduce, algorithm, members, elements);
  spec.up = parse_codec(loss.up);
  spec.down = parse_codec(loss.down);
  spec.up_feedback = spec.down_feedback = loss.feedback;
  spec.seed = 17;
  return spec;
}

// By all algorithms that such a loss can go by, and whose sums are in member order.
std::vector<CollectiveSpec> specs_of(const Loss& loss, int members, std::uint64_t elements) {
  std::vector<CollectiveSpec> specs = {lossy_spec(loss, members, elements)};
  const CollectiveSpec gathered = lossy_spec(loss, members, elements, Algorithm::gathered);
  if (check(gathered).empty()) specs.push_back(gathered);
  return specs;
}

bool same_bits(const std::vector<float>& a, const std::vector<float>& b) {
  return a.size() == b.size() && same_elements(a, b, 0, a.size());
}

Buffers<float> inputs(int members, std::uint64_t elements, std::uint64_t step) {
  return random_buffers<float>(members, elements, static_cast<unsigned>(31 * step + elements));
}

// Five steps, of which the third is abandoned, with two operations in every step.
void expect_model(const CollectiveSpec& spec) {
  const int members = static_cast<int>(spec.group.size());
  const std::uint64_t elements = spec.offsets.back();
  Model model(spec);
  Buffers<float> wanted;
  for (std::uint64_t step = 0; step < 5; ++step) {
    model.begin(step);
    for (const std::uint64_t half : {0, 100})
      wanted.push_back(model.all_reduce(inputs(members, elements, step + half)));
    step == 2 ? model.abandon() : model.commit();
  }
  run_members(members, [&](Engine& engine) {
    Collective collective(engine, spec);
    std::size_t at = 0;
    for (std::uint64_t step = 0; step < 5; ++step) {
      collective.begin(step);
      for (const std::uint64_t half : {0, 100}) {
        auto buffer = inputs(members, elements, step + half)[index(engine.rank())];
        run(engine, *collective.operation(bytes_in(buffer), 0));
        EXPECT_TRUE(same_bits(buffer, wanted[at++]))
            << name_of(spec.algorithm) << ", " << to_text(spec.up) << " up, " << to_text(spec.down)
            << " down, " << members << " members, " << elements << " elements, step " << step
            << ", rank " << engine.rank();
      }
      step == 2 ? collective.abandon() : collective.commit();
    }
  });
}

// The same numbers in another order: doubles round.
void expect_same_sums(const Fidelity& expected, const Fidelity& actual, const std::string& where) {
  EXPECT_EQ(actual.messages, expected.messages) << where;
  EXPECT_NEAR(actual.truth, expected.truth, 1e-9 * expected.truth) << where;
  EXPECT_NEAR(actual.decoded, expected.decoded, 1e-9 * expected.truth) << where;
  EXPECT_NEAR(actual.product, expected.product, 1e-9 * expected.truth) << where;
  EXPECT_NEAR(actual.error, expected.error, 1e-9 * expected.truth) << where;
  EXPECT_NEAR(actual.residual, expected.residual, 1e-9 * expected.truth) << where;
}

// Three steps, of which the second is exact; the third is looked at, and before it the first was.
TEST(LossyCollective, MembersSeeWhatTheirLinksLose) {
  for (const Loss& loss : kLosses)
    for (const int members : {2, 3})
      for (const CollectiveSpec& spec : specs_of(loss, members, 3000)) {
        const std::string where = fmt::format("{}, {} up, {} down, {}", name_of(spec.algorithm),
                                              loss.up, loss.down, members);
        Model model(spec);
        Fidelity expected, before;
        for (const std::uint64_t step : {0, 2}) {
          model.measure_fidelity(step == 2 ? &expected : &before);
          model.begin(step);
          model.all_reduce(inputs(members, 3000, step));
          model.commit();
        }
        std::mutex mutex;
        Fidelity seen;
        run_members(members, [&](Engine& engine) {
          Collective collective(engine, spec);
          for (std::uint64_t step = 0; step < 3; ++step) {
            collective.measure_fidelity(true);
            auto buffer = inputs(members, 3000, step)[index(engine.rank())];
            step_once(engine, collective, step, bytes_in(buffer), step == 1);
            EXPECT_EQ(collective.fidelity() == Fidelity(), step == 1) << where;
          }
          const Fidelity mine = collective.fidelity();
          collective.measure_fidelity(false);
          auto buffer = inputs(members, 3000, 3)[index(engine.rank())];
          step_once(engine, collective, 3, bytes_in(buffer));
          EXPECT_EQ(collective.fidelity(), mine) << where;
          const std::lock_guard lock(mutex);
          seen += mine;
        });
        EXPECT_GT(seen.messages, 0U) << where;
        expect_same_sums(expected, seen, where);
      }
}

TEST(LossyCollective, LosesWhatItsLinksLoseAndNothingElse) {
  for (const Loss& loss : kLosses)
    for (const int members : {2, 3, 4})
      for (const std::uint64_t elements : {1u, 7u, 1000u})
        for (const CollectiveSpec& spec : specs_of(loss, members, elements)) expect_model(spec);
}

TEST(LossyCollective, LosesTheSameInLanes) {
  for (const Loss& loss : kLosses)
    for (CollectiveSpec spec : specs_of(loss, 3, 20'000)) {
      spec.lane_elements = 4000;
      expect_model(spec);
    }
}

// What a member has, rounded once, and no rounding of sums: whole numbers below 256 are those of
// bfloat16, too, and their sums, odd ones above 256, are not.
TEST(LossyCollective, GatheredSumsAreNotRounded) {
  constexpr std::uint64_t kElements = 1000;
  for (const Algorithm algorithm : {Algorithm::direct, Algorithm::gathered}) {
    const CollectiveSpec spec = lossy_spec({"half", "half"}, 3, kElements, algorithm);
    run_members(3, [&](Engine& engine) {
      Collective collective(engine, spec);
      std::vector<float> buffer(kElements);
      for (std::uint64_t i = 0; i < kElements; ++i)
        buffer[i] = static_cast<float>(i % 86 + 3 * static_cast<std::uint64_t>(engine.rank()));
      step_once(engine, collective, 0, bytes_in(buffer));
      int rounded = 0;
      for (std::uint64_t i = 0; i < kElements; ++i)
        rounded += buffer[i] == static_cast<float>(3 * (i % 86) + 9) ? 0 : 1;
      EXPECT_EQ(rounded > 0, algorithm == Algorithm::direct) << rounded;
    });
  }
}

TEST(LossyCollective, AddsSummablePayloadsOnTheWayRound) {
  for (const bool feedback : {false, true})
    for (const int members : {2, 3, 5}) {
      CollectiveSpec spec =
          lossy_spec({"random_k:keep=0.25", "raw", feedback}, members, 20'000, Algorithm::ring);
      spec.lane_elements = 7000;
      expect_model(spec);
    }
}

TEST(LossyCollective, AddsSummablePayloadsByDoublingToo) {
  for (const int members : {2, 3, 4, 6}) {
    CollectiveSpec spec = lossy_spec({"random_k:keep=0.5", "raw", true}, members, 999);
    spec.algorithm = Algorithm::doubling;
    spec.offsets = {0, 999};
    Buffers<float> out(index(members));
    run_members(members, [&](Engine& engine) {
      Collective collective(engine, spec);
      out[index(engine.rank())] = inputs(members, 999, 0)[index(engine.rank())];
      step_once(engine, collective, 0, bytes_in(out[index(engine.rank())]));
    });
    const Buffers<float> in = inputs(members, 999, 0);
    int kept = 0;
    for (std::size_t i = 0; i < 999; ++i) {
      double sum = 0;
      for (const auto& buffer : in) sum += double{buffer[i]};
      kept += out[0][i] != 0 ? 1 : 0;
      EXPECT_TRUE(out[0][i] == 0 || std::abs(out[0][i] - sum) < 1e-2) << i;
    }
    EXPECT_EQ(kept, 500);
    for (const auto& other : out) EXPECT_TRUE(same_bits(out[0], other));
  }
}

TEST(LossyCollective, OwesWhatItHasNotGivenYet) {
  constexpr std::uint64_t kElements = 2000, kSteps = 6;
  constexpr int kMembers = 3;
  for (const Loss& loss : kLosses)
    for (const CollectiveSpec& spec : specs_of(loss, kMembers, kElements)) {
      if (!loss.feedback) continue;
      std::vector<double> owed(kElements, 0.0);
      std::mutex mutex;
      run_members(kMembers, [&](Engine& engine) {
        Collective collective(engine, spec);
        std::vector<double> mine(kElements, 0.0);
        for (std::uint64_t step = 0; step < kSteps; ++step) {
          auto buffer = inputs(kMembers, kElements, step)[index(engine.rank())];
          for (std::size_t i = 0; i < kElements; ++i) mine[i] += double{buffer[i]};
          step_once(engine, collective, step, bytes_in(buffer));
          for (std::size_t i = 0; engine.rank() == 0 && i < kElements; ++i)
            mine[i] -= double{buffer[i]};
        }
        const CollectiveState state = collective.save();
        for (std::size_t i = 0; i < state.up.size(); ++i) mine[i] -= double{state.up[i]};
        for (std::size_t i = 0; i < state.down.size(); ++i)
          mine[spec.offsets[index(engine.rank())] + i] -= double{state.down[i]};
        const std::lock_guard lock(mutex);
        for (std::size_t i = 0; i < kElements; ++i) owed[i] += mine[i];
      });
      for (std::size_t i = 0; i < kElements; ++i)
        ASSERT_NEAR(owed[i], 0.0, 0.05) << name_of(spec.algorithm) << ", " << loss.up << " up, "
                                        << loss.down << " down, element " << i;
    }
}

TEST(LossyCollective, GoesOnFromASavedStateWithTheSameBits) {
  for (const Loss& loss : kLosses)
    for (CollectiveSpec spec : specs_of(loss, 3, 5000))
      run_members(3, [&, spec](Engine& engine) mutable {
        spec.lane_elements = 2500;
        Collective first(engine, spec);
        const auto step = [&](Collective& collective, std::uint64_t number) {
          auto buffer = inputs(3, 5000, number)[index(engine.rank())];
          step_once(engine, collective, number, bytes_in(buffer));
          return buffer;
        };
        for (std::uint64_t number = 0; number < 3; ++number) step(first, number);
        const CollectiveState saved = first.save();
        spec.unit = 1;
        Collective second(engine, spec);
        second.load(saved);
        EXPECT_EQ(second.save(), saved);
        for (std::uint64_t number = 3; number < 5; ++number)
          EXPECT_TRUE(same_bits(step(first, number), step(second, number))) << loss.up;
        EXPECT_EQ(first.save(), second.save());
      });
}

TEST(LossyCollective, SavesNothingWhereNothingIsRemembered) {
  run_members(2, [](Engine& engine) {
    Collective exact(engine, spec_of(CollectiveKind::all_reduce, Algorithm::direct, 2, 100));
    std::vector<float> buffer(100, 1.0F);
    step_once(engine, exact, 0, bytes_in(buffer));
    EXPECT_EQ(exact.save(), CollectiveState{});
  });
}

TEST(LossyCollective, RefusesAStateOfAnotherSize) {
  run_members(1, [](Engine& engine) {
    Collective sum(engine, lossy_spec(kLosses[0], 1, 100));
    EXPECT_THROW(sum.load({.up = std::vector<float>(99), .down = {}}), ConfigError);
    EXPECT_THROW(sum.load({.up = {}, .down = std::vector<float>(1)}), ConfigError);
  });
}

TEST(LossyCollective, LosesNothingWithOneMember) {
  run_members(1, [](Engine& engine) {
    Collective sum(engine, lossy_spec(kLosses[0], 1, 100));
    auto buffer = inputs(1, 100, 0)[0];
    step_once(engine, sum, 0, bytes_in(buffer));
    EXPECT_TRUE(same_bits(buffer, inputs(1, 100, 0)[0]));
  });
}

TEST(LossyCollective, IsExactWhenAskedAndThenRemembersNothing) {
  for (const Loss& loss : kLosses)
    for (const CollectiveSpec& spec : specs_of(loss, 3, 1000))
      run_members(3, [&](Engine& engine) {
        Collective collective(engine, spec);
        auto warm = inputs(3, 1000, 7)[index(engine.rank())];
        step_once(engine, collective, 7, bytes_in(warm));
        const CollectiveState before = collective.save();
        auto buffer = inputs(3, 1000, 8)[index(engine.rank())];
        step_once(engine, collective, 8, bytes_in(buffer), true);
        const Buffers<float> in = inputs(3, 1000, 8);
        for (std::size_t i = 0; i < buffer.size(); ++i)
          ASSERT_EQ(buffer[i], (in[0][i] + in[1][i]) + in[2][i]);
        EXPECT_EQ(collective.save(), before);
      });
}

TEST(LossyCollective, TellsEveryMemberThatANumberWasNotFinite) {
  for (const Loss& loss : kLosses)
    for (const float odd :
         {std::numeric_limits<float>::quiet_NaN(), std::numeric_limits<float>::infinity()})
      for (const std::size_t where : {std::size_t{1}, std::size_t{777}}) {
        if (loss.up.starts_with("random_k")) continue;  // may not choose the element
        for (const CollectiveSpec& spec : specs_of(loss, 3, 1000))
          run_members(3, [&](Engine& engine) {
            Collective collective(engine, spec);
            auto buffer = inputs(3, 1000, 1)[index(engine.rank())];
            if (engine.rank() == 1) buffer[where] = odd;
            step_once(engine, collective, 0, bytes_in(buffer));
            EXPECT_FALSE(std::isfinite(buffer[where])) << loss.up << " up, " << loss.down;
            const CollectiveState state = collective.save();
            for (const float value : state.up) ASSERT_TRUE(std::isfinite(value));
            for (const float value : state.down) ASSERT_TRUE(std::isfinite(value));
          });
      }
}

TEST(LossyCollective, EncodesWhatItGathersOnceForAll) {
  for (const CollectiveKind kind : {CollectiveKind::all_gather, CollectiveKind::broadcast})
    for (const Algorithm algorithm : algorithms_of(kind)) {
      Buffers<float> out(4);
      run_members(4, [&](Engine& engine) {
        CollectiveSpec spec = spec_of(kind, algorithm, 4, 3000);
        spec.down = parse_codec("quantise:bits=4");
        spec.down_feedback = true;
        Collective collective(engine, spec);
        auto& buffer = out[index(engine.rank())];
        buffer = inputs(4, 3000, 2)[index(engine.rank())];
        step_once(engine, collective, 0, bytes_in(buffer));
        const bool encodes_result = kind == CollectiveKind::all_gather || engine.rank() == 0;
        EXPECT_EQ(collective.save().down.size(),
                  encodes_result
                      ? spec.offsets[index(engine.rank()) + 1] - spec.offsets[index(engine.rank())]
                      : 0);
      });
      EXPECT_FALSE(same_bits(out[0], inputs(4, 3000, 2)[0]));
      for (const auto& other : out) EXPECT_TRUE(same_bits(out[0], other));
    }
}

}  // namespace

}  // namespace laconic
