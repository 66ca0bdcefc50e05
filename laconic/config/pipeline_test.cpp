#include <fmt/format.h>
#include <gtest/gtest.h>

#include "laconic/config/read.hpp"

namespace laconic {
namespace {

// Defaults with 6 layers and a batch of 8, and these keys.
RunConfig with(const std::vector<std::string>& sets) {
  RunConfig config;
  config.data.train = "data";
  for (const std::string& set : sets) EXPECT_EQ(to_text(apply_set(set, config)), "");
  return config;
}

struct SettingCase {
  std::vector<std::string> sets;
  std::string problems;
};

void expect_all(const std::vector<SettingCase>& cases) {
  for (const SettingCase& one : cases)
    EXPECT_EQ(to_text(check(with(one.sets))), one.problems)
        << fmt::format("{}", fmt::join(one.sets, " "));
}

TEST(PipelineConfig, SchedulesHaveTheChunksTheyNeed) {
  for (const char* schedule : {"gpipe", "1f1b", "zero_bubble"})
    expect_all({{{fmt::format("pipeline.schedule={}", schedule), "mesh.pp=2"}, ""},
                {{fmt::format("pipeline.schedule={}", schedule), "pipeline.chunks=2"},
                 fmt::format("pipeline.chunks: chunks = 2: {} has 1 stage on each rank, only "
                             "interleaved and zb_v have more",
                             schedule)}});
  expect_all({
      {{"pipeline.schedule=interleaved", "pipeline.chunks=2", "mesh.pp=2"}, ""},
      {{"pipeline.schedule=interleaved", "mesh.pp=2"},
       "pipeline.chunks: chunks = 1: interleaved needs at least 2"},
      {{"pipeline.schedule=zb_v", "pipeline.chunks=2", "mesh.pp=2"}, ""},
      {{"pipeline.schedule=zb_v", "mesh.pp=2"},
       "pipeline.chunks: chunks = 1: zb_v needs exactly 2"},
      {{"pipeline.schedule=zb_v", "pipeline.chunks=3", "mesh.pp=2"},
       "pipeline.chunks: chunks = 3: zb_v needs exactly 2"},
      {{"pipeline.schedule=zb_v", "pipeline.chunks=0"}, "pipeline.chunks: chunks = 0 is below 1"},
      {{"pipeline.schedule=file:mine.txt", "mesh.pp=2", "pipeline.chunks=3"}, ""},
      {{"pipeline.schedule=file:"}, "pipeline.schedule: file: has no path behind it"},
      {{"pipeline.chunks=0"}, "pipeline.chunks: chunks = 0 is below 1"},
  });
}

TEST(PipelineConfig, AnUnknownScheduleIsToldTheOnesThereAre) {
  const std::string text = to_text(check(with({"pipeline.schedule=1f2b"})));
  for (const char* part : {"pipeline.schedule: ", "'1f2b'",
                           "gpipe, 1f1b, interleaved, zero_bubble, zb_v", "file:PATH"})
    EXPECT_NE(text.find(part), std::string::npos) << part << " in\n" << text;
}

TEST(PipelineConfig, EveryStageNeedsABlock) {
  expect_all({
      {{"mesh.pp=8"}, ""},
      {{"mesh.pp=9"},
       "mesh.pp: pp = 9 with pipeline.chunks = 1 makes 9 stages of at least one block, and the "
       "model has 8: 6 layers, an embedding and a head"},
      {{"mesh.pp=3", "pipeline.chunks=3", "pipeline.schedule=interleaved", "train.batch=6"},
       "mesh.pp: pp = 3 with pipeline.chunks = 3 makes 9 stages of at least one block, and the "
       "model has 8: 6 layers, an embedding and a head"},
      {{"mesh.pp=0"}, "mesh.pp: pp = 0 is below 1"},
      {{"mesh.pp=5000"}, "mesh.pp: pp = 5000 is above 4096"},
  });
}

TEST(PipelineConfig, LayersOfAFolderAreNotThoseOfTheKeys) {
  const RunConfig config =
      with({"mesh.pp=9", "pipeline.split=1,1,1,1,1,1,1,1,1", "model.start=gpt2"});
  EXPECT_EQ(to_text(check(config)), "");
  EXPECT_EQ(to_text(check_stages(config, 9)), "");
  EXPECT_EQ(check_stages(config, 6).size(), 2U);  // too many stages, and another sum
}

TEST(PipelineConfig, InterleavedTakesMicrobatchesInRounds) {
  const std::vector<std::string> base{"mesh.pp=2", "pipeline.schedule=interleaved",
                                      "pipeline.chunks=2"};
  for (std::int64_t batch = 1; batch <= 24; ++batch)
    for (std::int64_t micro = 0; micro <= 6; ++micro)
      for (std::int64_t dp = 1; dp <= 3; ++dp) {
        const std::int64_t size = micro == 0 ? 1 : micro;
        if (batch % (dp * size) != 0) continue;
        RunConfig config = with(base);
        config.train.batch = batch;
        config.train.microbatch = micro;
        config.mesh.dp = dp;
        EXPECT_EQ(config.microbatches(), batch / dp / size);
        EXPECT_EQ(check(config).empty(), batch / dp / size % 2 == 0)
            << batch << " " << micro << " " << dp << "\n"
            << to_text(check(config));
      }
  RunConfig config = with(base);
  config.train.microbatch = 8;
  EXPECT_EQ(to_text(check(config)),
            "pipeline.schedule: interleaved needs a number of microbatches that mesh.pp = 2 "
            "divides, and the 8 samples of a rank in microbatches of 8 make 1");
}

TEST(PipelineConfig, AMicrobatchIsOneSampleUnlessToldOtherwise) {
  EXPECT_EQ(with({}).microbatch_size(), 8);
  EXPECT_EQ(with({"mesh.dp=2"}).microbatch_size(), 4);
  EXPECT_EQ(with({"mesh.dp=2", "mesh.pp=2"}).microbatch_size(), 1);
  EXPECT_EQ(with({"mesh.dp=2", "mesh.pp=2"}).microbatches(), 4);
  EXPECT_EQ(with({"mesh.pp=2", "train.microbatch=4"}).microbatches(), 2);
}

TEST(PipelineConfig, ASplitHasANumberForEveryStage) {
  for (const char* split : {"auto", "measured", "3,3", "0,6", "6,0", "[1, 5]"})
    EXPECT_EQ(to_text(check(with({"mesh.pp=2", fmt::format("pipeline.split={}", split)}))), "")
        << split;
  EXPECT_EQ(to_text(check(with({"mesh.pp=3", "pipeline.split=0,6,0"}))), "");
  for (const char* split : {"3,4", "6", "2,2,2", "-1,7", "three", "", "3,", "3;3", "7,-1"}) {
    const Problems problems =
        check(with({"mesh.pp=2", fmt::format("pipeline.split=\"{}\"", split)}));
    ASSERT_FALSE(problems.empty()) << split;
    for (const Problem& p : problems) EXPECT_EQ(p.where, "pipeline.split") << p.what;
  }
  const Problems hole = check(with({"mesh.pp=3", "pipeline.split=3,0,3"}));
  EXPECT_EQ(hole.size(), 1U) << to_text(hole);
  EXPECT_EQ(to_text(check(with({"mesh.pp=2", "pipeline.split=3,4"}))),
            "pipeline.split: 3 + 4 is no split of 6 layers");
}

TEST(PipelineConfig, BoundariesAreCheckedTogether) {
  expect_all({
      {{"pp.activation.budget=-1", "pp.activation.device_memory=-2", "pp.activation.hash_every=0",
        "pp.gradient.store=\"\"", "dp.gradient.stages=\"\""},
       "pp.activation.budget: budget = -1 is below 0\n"
       "pp.activation.device_memory: device_memory = -2 is below 0\n"
       "pp.activation.hash_every: hash_every = 0 is below 1\n"
       "pp.gradient.store: store is empty: write ram, or a folder\n"
       "dp.gradient.stages: stages = \"\" is none of all, auto, a number of ranks (\"3\"), a "
       "fraction (\"0.75\")"},
      {{"pp.gradient.memory=delta", "pp.gradient.store=/scratch"},
       "pp.gradient.budget: budget = 0: references in the folder /scratch need a limit in bytes"},
      {{"pp.gradient.memory=delta", "pp.gradient.store=/scratch", "pp.gradient.budget=1000"}, ""},
      {{"pp.gradient.memory=feedback", "pp.gradient.codec=raw"}, ""},
      {{"embedding.tied.codec=low_rank"},
       "embedding.tied.codec: low_rank encodes matrices, and sums are made of flat pieces: use "
       "quantise, or embedding.tied.method = \"power_sgd\""},
      {{"embedding.tied.method=power_sgd", "embedding.tied.rank=0"},
       "embedding.tied.rank: rank = 0 is below 1"},
      {{"embedding.tied.codec=quantise:group=row"},
       "embedding.tied.codec: group=row needs rows and columns, and sums are made of flat pieces: "
       "use group=block"},
  });
}

TEST(PipelineConfig, EveryCodecIsReadAndLearnedOnesAreForActivationsAlone) {
  for (const char* key : {"pp.activation.codec", "pp.activation.first", "pp.gradient.codec",
                          "pp.gradient.first", "embedding.tied.codec"}) {
    EXPECT_EQ(to_text(check(with({fmt::format("{}=quantise:bits=4", key)}))), "") << key;
    for (const char* codec : {"quantise:bits=9", "zip", "auto_encoder"}) {
      const Problems problems = check(with({fmt::format("{}={}", key, codec)}));
      if (std::string(codec) == "auto_encoder" && std::string(key) == "pp.activation.codec") {
        EXPECT_EQ(to_text(problems), "");
        continue;
      }
      ASSERT_EQ(problems.size(), 1U) << key << " " << codec;
      EXPECT_EQ(problems.front().where, key);
    }
  }
}

TEST(PipelineConfig, ShardsGoIntoTheBatchAndRanksIntoTheShards) {
  expect_all({
      {{"data.shards=4", "mesh.dp=2"}, ""},
      {{"data.shards=-1"}, "data.shards: shards = -1 is below 0"},
      {{"data.shards=3"}, "data.shards: shards = 3 does not divide train.batch = 8"},
      {{"data.shards=2", "mesh.dp=4"}, ""},  // nobody remembers
      {{"data.shards=2", "mesh.dp=4", "pp.activation.memory=delta"},
       "data.shards: shards = 2 is not a multiple of mesh.dp = 4: samples that links remember "
       "would come to other ranks"},
      {{"data.shards=8", "mesh.dp=4", "pp.activation.memory=delta"}, ""},
  });
}

TEST(PipelineConfig, ShardsFollowFromWhatIsRemembered) {
  for (const char* section : {"pp.activation", "pp.gradient"}) {
    const std::string delta = fmt::format("{}.memory=delta", section);
    EXPECT_EQ(with({delta, "mesh.dp=4"}).shards(), 4);
    EXPECT_EQ(with({delta}).shards(), 1);
    EXPECT_EQ(with({delta, "mesh.dp=4", "data.shards=8"}).shards(), 8);
  }
  EXPECT_EQ(with({"mesh.dp=4"}).shards(), 1);
  EXPECT_EQ(with({"mesh.dp=4", "pp.gradient.memory=feedback"}).shards(), 1);
}

}  // namespace
}  // namespace laconic
