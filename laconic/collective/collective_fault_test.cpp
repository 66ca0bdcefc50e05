// Bad networks and bad ranks: who failed is always named.

#include <fmt/format.h>
#include <gtest/gtest.h>

#include <atomic>
#include <thread>

#include "laconic/base/error.hpp"
#include "laconic/collective/test_collective.hpp"
#include "laconic/transport/faulty.hpp"

namespace laconic {

namespace {

// Runs `body` for every rank, each behind the same faults, and gives what each of them died of.
std::vector<std::string> deaths_of(int ranks, const std::string& faults,
                                   const std::function<void(Engine&)>& body) {
  std::vector<std::string> deaths(static_cast<std::size_t>(ranks));
  std::vector<std::thread> threads;
  std::atomic<int> running = ranks;
  for (auto& transport : make_in_process(ranks))
    threads.emplace_back([&, below = std::move(transport)]() mutable {
      const auto rank = static_cast<std::size_t>(below->rank());
      const auto faulty = make_faulty(std::move(below), parse_faults(faults));
      try {
        Engine engine(*faulty, {.deadline = std::chrono::milliseconds(5000)});
        body(engine);
        engine.flush();
      } catch (const std::exception& error) {
        deaths[rank] = error.what();
        faulty->close();
      }
      // Who is well stays until all are done, so that nobody dies of another's happy end.
      --running;
      while (running > 0) std::this_thread::sleep_for(std::chrono::milliseconds(1));
    });
  for (std::thread& thread : threads) thread.join();
  return deaths;
}

CollectiveSpec gradient_spec(Algorithm algorithm, int members) {
  CollectiveSpec spec = spec_of(CollectiveKind::all_reduce, algorithm, members, 6000);
  spec.unit = 2;
  spec.lane_elements = 3000;
  return spec;
}

void sum_thrice(Engine& engine, const CollectiveSpec& spec) {
  ProgressThread progress_thread(engine);
  Collective collective(engine, spec);
  std::vector<float> buffer(spec.offsets.back(), 1.0F);
  for (std::uint64_t step = 0; step < 3; ++step) {
    collective.begin(step);
    const auto operation = collective.operation(bytes_in(buffer), 0);
    progress_thread.start(operation);
    progress_thread.wait(operation);
    collective.commit();
  }
}

TEST(CollectiveFault, NamesTheSenderOfADamagedFrame) {
  for (const std::string codec : {"raw", "quantise:bits=4"})
    for (const int bit : {4000, 200, 33}) {
      const auto deaths =
          deaths_of(3, fmt::format("flip:rank=2,to=0,at=5,bit={}", bit), [&](Engine& engine) {
            CollectiveSpec spec = gradient_spec(Algorithm::direct, 3);
            spec.up = spec.down = parse_codec(codec);
            sum_thrice(engine, spec);
          });
      EXPECT_TRUE(deaths[0].starts_with("dp.gradient 2 #1")) << deaths[0];
      EXPECT_NE(deaths[0].find(" from rank 2: "), std::string::npos) << deaths[0];
    }
}

TEST(CollectiveFault, TellsEverybodyWhoIsGone) {
  for (const Algorithm algorithm : algorithms_of(CollectiveKind::all_reduce)) {
    CollectiveSpec spec = gradient_spec(algorithm, 4);
    std::atomic<int> told = 0;
    deaths_of(4, "", [&](Engine& engine) {
      Collective collective(engine, spec);
      std::vector<float> buffer(spec.offsets.back(), 1.0F);
      step_once(engine, collective, 0, bytes_in(buffer));
      engine.flush();
      if (engine.rank() == 3) {
        engine.transport().close();
        return;
      }
      try {
        collective.begin(1);
        run(engine, *collective.operation(bytes_in(buffer), 0));
      } catch (const PeerLost& lost) {
        // Everybody has business with the lost one itself, or waits for somebody who gives up.
        const bool is_direct = algorithm == Algorithm::direct;
        EXPECT_TRUE(lost.peer() == 3 || !is_direct) << lost.what();
        ++told;
        while (is_direct && told < 3) std::this_thread::sleep_for(std::chrono::milliseconds(1));
        throw;
      }
    });
    EXPECT_EQ(told, 3) << name_of(algorithm);
  }
}

TEST(CollectiveFault, SaysWhatItWaitedForWhenNothingComes) {
  const auto transports = make_in_process(2);
  Engine engine(*transports[0], {.deadline = std::chrono::milliseconds(50)});
  Collective collective(engine, gradient_spec(Algorithm::direct, 2));
  std::vector<float> buffer(6000, 1.0F);
  collective.begin(4);
  const auto operation = collective.operation(bytes_in(buffer), 0);
  try {
    run(engine, *operation);
    FAIL() << "nobody answers";
  } catch (const Timeout& timeout) {
    EXPECT_NE(std::string(timeout.what())
                  .find("all_reduce of dp.gradient 2 #0, waiting for rank 1 in lane 0 of 2"),
              std::string::npos)
        << timeout.what();
  }
}

TEST(CollectiveFault, RefusesAFrameOfAnotherStepOrSpec) {
  // What ranks say when rank 1 means something else; who comes first is a matter of luck.
  const auto death = [](const std::function<void(CollectiveSpec&, std::uint64_t & step)>& change) {
    const auto deaths = deaths_of(2, "", [&](Engine& engine) {
      CollectiveSpec spec = gradient_spec(Algorithm::direct, 2);
      std::uint64_t step = 5;
      if (engine.rank() == 1) change(spec, step);
      Collective collective(engine, spec);
      std::vector<float> buffer(6000, 1.0F);
      collective.begin(step);
      run(engine, *collective.operation(bytes_in(buffer), 0));
    });
    return deaths[0] + "\n" + deaths[1];
  };
  const auto says = [](const std::string& text, const char* one, const char* other) {
    EXPECT_TRUE(text.find(one) != std::string::npos || text.find(other) != std::string::npos)
        << text;
  };
  says(death([](CollectiveSpec&, std::uint64_t& step) { step = 6; }),
       "from rank 1: sequence at byte 16: frame 0 of step 6, expected frame 0 of step 5",
       "from rank 0: sequence at byte 16: frame 0 of step 5, expected frame 0 of step 6");
  says(death([](CollectiveSpec& spec, std::uint64_t&) { spec.up = Half{}; }),
       "from rank 1: codec at byte 5: half, expected raw",
       "from rank 0: codec at byte 5: raw, expected half");
  says(death([](CollectiveSpec& spec, std::uint64_t&) { spec.offsets[1] += 5; }),
       "from rank 1: shape at byte 40", "from rank 0: shape at byte 40");
}

TEST(CollectiveFault, CanBeAbandonedAfterAFailure) {
  const auto transports = make_in_process(2);
  Engine engine(*transports[0], {.deadline = std::chrono::milliseconds(20)});
  CollectiveSpec spec = gradient_spec(Algorithm::direct, 2);
  spec.up = parse_codec("quantise:bits=2");
  spec.up_feedback = true;
  Collective collective(engine, spec);
  std::vector<float> buffer(6000, 1.25F);
  buffer[3] = 0.1F;
  collective.begin(0);
  EXPECT_THROW(run(engine, *collective.operation(bytes_in(buffer), 0)), Timeout);
  collective.abandon();
  EXPECT_EQ(collective.save(), CollectiveState{});
}

TEST(CollectiveFault, NamesTheSenderOfADamagedSmallMessage) {
  const auto deaths = deaths_of(2, "flip:rank=1,at=0,bit=90", [](Engine& engine) {
    gather_all(engine, {0, 1}, Traffic::control, 7, 3, as_bytes(std::span<const char>("word", 4)));
  });
  EXPECT_TRUE(deaths[0].starts_with("control 7 #3 from rank 1: ")) << deaths[0];
}

TEST(CollectiveFault, AfterAFailureAbandonedStepsCanBeTakenAgain) {
  std::atomic<int> failures = 0;
  const auto deaths = deaths_of(2, "flip:rank=1,at=0,bit=4000", [&](Engine& engine) {
    Collective collective(engine, gradient_spec(Algorithm::direct, 2));
    std::vector<float> buffer(6000, 1.0F);
    if (engine.rank() == 1) {
      collective.begin(0);
      const auto operation = collective.operation(bytes_in(buffer), 0);
      operation->advance(engine);  // sends what it has
      collective.abandon();
    } else {
      collective.begin(0);
      const auto operation = collective.operation(bytes_in(buffer), 0);
      try {
        run(engine, *operation);
      } catch (const WireError&) {
        ++failures;
      }
      collective.abandon();
    }
    buffer.assign(6000, 1.0F);
    step_once(engine, collective, 1, bytes_in(buffer));
    EXPECT_EQ(buffer, std::vector<float>(6000, 2.0F));
  });
  EXPECT_EQ(failures, 1);
  EXPECT_EQ(deaths, std::vector<std::string>(2));
}

}  // namespace

}  // namespace laconic
