#include "laconic/train/summary.hpp"

#include <gtest/gtest.h>

#include <nlohmann/json.hpp>

#include "laconic/transport/in_process.hpp"
#include "laconic/transport/shaped.hpp"

namespace laconic {
namespace {

TEST(Summary, TotalsHaveWhatIsStillQueued) {
  std::vector<std::unique_ptr<Transport>> transports = make_in_process(2);
  for (std::unique_ptr<Transport>& transport : transports)
    transport = make_shaped(std::move(transport), parse_shape("rate=2mbit"));
  run_ranks(transports, [](Transport& transport) {
    constexpr std::uint64_t kMessages = 3, kBytes = 20'000;
    Engine engine(transport, {.deadline = std::chrono::seconds(20)});
    ProgressThread progress_thread(engine);
    World world({.dp = 2}, progress_thread);
    const Rank other = 1 - transport.rank();
    const auto tag = [](std::uint64_t number) {
      return make_tag({.traffic = Traffic::dp_gradient, .number = number});
    };
    const auto message = std::make_shared<const Bytes>(kBytes);
    for (std::uint64_t m = 0; m < kMessages; ++m)
      engine.send({.to = other,
                   .tag = tag(m),
                   .key = deadline_key(m, 0, 0),
                   .raw_bytes = kBytes,
                   .message = message});
    std::uint64_t counted = 0;
    for (const TrafficTotal& total : total_traffic(world))
      if (total.traffic == Traffic::dp_gradient) counted = total.sent.messages;
    EXPECT_EQ(counted, 2 * kMessages);
    for (std::uint64_t m = 0; m < kMessages; ++m) engine.recv(other, tag(m));
    engine.flush();
    world.gather({});
    engine.flush();
  });
}

TEST(Summary, CountsTokensSinceTheFirstStepAndSinceTheResume) {
  TrainSummary summary{.first_step = 10, .step = 30, .steps = 30, .tokens = 2000};
  summary.all_tokens = 3000;
  const std::string resumed = to_text(summary);
  EXPECT_NE(resumed.find("tokens trained on            3,000\n"), std::string::npos) << resumed;
  EXPECT_NE(resumed.find("of these since step 10       2,000\n"), std::string::npos) << resumed;
  summary.first_step = 0;
  EXPECT_EQ(to_text(summary).find("of these"), std::string::npos) << to_text(summary);
  const std::string json = to_json(summary, {});
  EXPECT_NE(json.find("\"tokens\": 2000"), std::string::npos) << json;
  EXPECT_NE(json.find("\"all_tokens\": 3000"), std::string::npos) << json;
}

TEST(Summary, HasTheWholeEstimate) {
  TrainSummary summary;
  summary.estimate.ranks = {{.parameters = 5, .program = 2}};
  summary.estimate.hosts = {{.name = "a", .ranks = 1, .needed = {.program = 2}, .has = 7}};
  summary.estimate.gpus = {
      {.host = "a", .index = 3, .ranks = 1, .needed = {.parameters = 5}, .has = 80, .whole = 90}};
  const nlohmann::json json = nlohmann::json::parse(to_json(summary, {}))["estimate"];
  EXPECT_EQ(json["ranks"][0]["total"], 7);
  EXPECT_EQ(json["hosts"][0]["needed_bytes"], 2);
  EXPECT_EQ(json["gpus"], nlohmann::json::parse(R"([{"host": "a", "index": 3, "ranks": 1,
      "needed_bytes": 5.0, "free_bytes": 80.0, "total_bytes": 90.0}])"));
}

TEST(Summary, OfARunThatHadNothingToDoSaysSo) {
  TrainSummary summary{.first_step = 30, .step = 30, .steps = 30};
  summary.has_worked = false;
  summary.checkpoint = "runs/a/checkpoints/step-00000030";
  EXPECT_EQ(to_text(summary),
            "nothing to do: runs/a/checkpoints/step-00000030 has done 30 steps, and train.steps "
            "asks for 30; a larger train.steps goes on from there\n");
}

TEST(TrafficTable, HasARowForEachAxisOfAGrid) {
  const std::vector<TrafficTotal> traffic = {
      {Traffic::tp_weight,
       {3, 3'000'000, 1'500'000},
       {.active = 5, .exposed = 2},
       {{"tp0", {2, 2'000'000, 1'000'000}, {.active = 4, .exposed = 1}},
        {"tp0+tp2", {1, 1'000'000, 500'000}, {.active = 1, .exposed = 1}}}}};
  const std::string table = to_text(traffic);
  for (const char* part : {"hidden", "tp.weight", "  along tp0 ", "  along tp0+tp2 "})
    EXPECT_NE(table.find(part), std::string::npos) << part << " in\n" << table;
  TrainSummary summary;
  summary.traffic = traffic;
  const nlohmann::json json = nlohmann::json::parse(to_json(summary, {}))["traffic"][0];
  EXPECT_EQ(json["hidden_seconds"], 3.0);
  EXPECT_EQ(json["along"][0]["axes"], "tp0");
  EXPECT_EQ(json["along"][0]["hidden_seconds"], 3.0);
  EXPECT_EQ(json["along"][1]["hidden_seconds"], 0.0);
  EXPECT_EQ(json["along"][1]["wire_bytes"], 500'000);
}

TEST(TrafficTable, SaysWhichBytesAreComputed) {
  const auto row = [](const Count& sent) {
    return to_text(std::vector<TrafficTotal>{{Traffic::dp_gradient, sent, {}}});
  };
  EXPECT_EQ(row({1, 2'000'000, 1'000'000}).find("computed"), std::string::npos);
  const std::string all = row({1, 2'000'000, 1'000'000, 1'000'000});
  EXPECT_NE(all.find("1.0 MB computed"), std::string::npos) << all;
  const std::string part = row({1, 2'000'000, 1'000'000, 500'000});
  EXPECT_NE(part.find("1.0 MB, 500.0 kB of it computed"), std::string::npos) << part;
}

}  // namespace
}  // namespace laconic
