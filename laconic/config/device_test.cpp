#include "laconic/config/device.hpp"

#include <gtest/gtest.h>

#include "laconic/config/read.hpp"

namespace laconic {
namespace {

TEST(Device, IsReadAndWrittenTheSame) {
  for (const char* text : {"cpu", "cuda", "cuda:0", "cuda:7", "cuda:63"}) {
    const std::optional<Device> device = parse_device(text);
    ASSERT_TRUE(device) << text;
    EXPECT_EQ(to_text(*device), text);
  }
  EXPECT_EQ(parse_device("cuda")->index, Device::kByLocalRank);
  for (const std::string& word : device_words()) EXPECT_TRUE(parse_device(word)) << word;
}

TEST(Device, WhatIsNoneIsNone) {
  for (const char* text : {"", "cud", "cuda:", "cuda:-1", "cuda:+1", "cuda:01", "cuda:1x", "cuda:x",
                           "cuda:64", "cuda:99999999999", "cuda 1", "CUDA", "cpu:0", "gpu"})
    EXPECT_FALSE(parse_device(text)) << text;
}

TEST(Device, RanksOfAMachineTakeItsGpusInTurn) {
  const Device by_rank{DeviceKind::cuda};
  for (const auto& [gpus, local_rank, chosen] :
       {std::tuple{1, 0, 0}, {1, 3, 0}, {2, 0, 0}, {2, 1, 1}, {2, 2, 0}, {8, 5, 5}, {3, 7, 1}})
    EXPECT_EQ(choose_gpu(by_rank, gpus, local_rank), chosen) << gpus << ", " << local_rank;
  for (const int local_rank : {0, 1, 5})
    EXPECT_EQ(choose_gpu({DeviceKind::cuda, 1}, 4, local_rank), 1);
}

TEST(Device, OneThatIsNotThereIsRefusedWithWhatThereIs) {
  EXPECT_TRUE(check_device({}, 0, "").empty());
  EXPECT_TRUE(check_device({DeviceKind::cuda}, 1, "").empty());
  EXPECT_TRUE(check_device({DeviceKind::cuda, 1}, 2, "").empty());
  EXPECT_EQ(to_text(check_device({DeviceKind::cuda}, 0, "it is dark")),
            "run.device: device = \"cuda\", and there is no GPU to use: it is dark");
  EXPECT_EQ(to_text(check_device({DeviceKind::cuda, 1}, 1, "")),
            "run.device: device = \"cuda:1\", and there is one GPU, cuda:0 (CUDA_VISIBLE_DEVICES "
            "may hide others)");
  EXPECT_NE(to_text(check_device({DeviceKind::cuda, 5}, 2, "")).find("2 GPUs, cuda:0 to cuda:1"),
            std::string::npos);
}

TEST(Device, IsAKeyOfTheConfiguration) {
  RunConfig config;
  EXPECT_EQ(to_text(apply_set("run.device=cuda:3", config)), "");
  EXPECT_EQ(config.run.device, (Device{DeviceKind::cuda, 3}));
  EXPECT_EQ(differences({}, config), std::vector<std::string>{"run.device: \"cpu\" -> \"cuda:3\""});
  RunConfig back;
  EXPECT_EQ(to_text(apply_toml(to_toml(config, true), "printed", back)), "");
  EXPECT_EQ(back.run.device, config.run.device);
  EXPECT_NE(to_text(apply_set("run.device=3", config)), "");
}

// A rank on a GPU and one on the CPU may train together; in another precision they may not.
TEST(Device, IsEachRanksOwnAffair) {
  RunConfig config, other;
  for (const char* set : {"run.device=cuda:3", "run.threads=7", "run.memory=99",
                          "run.folder=elsewhere", "network.interface=eth9"})
    EXPECT_EQ(to_text(apply_set(set, other)), "");
  EXPECT_EQ(differences(config, other).size(), 5u);
  EXPECT_EQ(differences(common_part(config), common_part(other)), std::vector<std::string>());
  for (const char* set :
       {"run.precision=tf32", "run.seed=2", "run.deterministic=false", "mesh.dp=2"})
    EXPECT_EQ(to_text(apply_set(set, other)), "");
  EXPECT_EQ(differences(common_part(config), common_part(other)).size(), 4u);
}

}  // namespace
}  // namespace laconic
