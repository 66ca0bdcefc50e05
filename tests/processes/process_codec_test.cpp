// `laconic codec ...` as a user types it: no worker, no libtorch.
#include <fmt/format.h>

#include <filesystem>
#include <nlohmann/json.hpp>

#include "laconic/file/safetensors.hpp"
#include "laconic/file/safetensors_writer.hpp"
#include "tests/processes/workplace.hpp"

namespace laconic {
namespace {

namespace fs = std::filesystem;

// A folder with x.safetensors: a matrix, a vector, token ids, an empty tensor.
class CodecCommand : public Workplace {
 protected:
  CodecCommand() {
    SafetensorsWriter writer(folder_ / "x.safetensors", {{"block.weight", Dtype::f32, {16, 24}},
                                                         {"block.bias", Dtype::bf16, {7}},
                                                         {"ids", Dtype::i64, {3}},
                                                         {"nothing", Dtype::f32, {0, 4}}});
    std::vector<float> weight(16 * 24);
    for (std::size_t i = 0; i < weight.size(); ++i)
      weight[i] = static_cast<float>(static_cast<int>(i * 7919 % 2001) - 1000) / 512;
    const std::vector<std::uint16_t> bias = {0x3F80, 0xBF80, 0, 0x4000, 0x3E00, 0xC000, 0x3F00};
    const std::vector<std::int64_t> ids = {1, -2, 50256};
    writer.write(std::as_bytes(std::span(weight)));
    writer.write(std::as_bytes(std::span(bias)));
    writer.write(std::as_bytes(std::span(ids)));
    writer.write({});
    writer.commit();
  }

  nlohmann::json json_of(const std::string& name) const {
    return nlohmann::json::parse(text(name));
  }
};

TEST_F(CodecCommand, EveryVerbHasHelp) {
  EXPECT_TRUE(contains(expect_exit(0, {"codec", "--help"}).out, "inspect"));
  for (const char* verb : {"list", "show", "encode", "inspect", "decode"})
    EXPECT_TRUE(contains(expect_exit(0, {"codec", verb, "--help"}).out, "--help")) << verb;
}

TEST_F(CodecCommand, ListNamesEveryCodecAndOption) {
  const std::string list = expect_exit(0, {"codec", "list"}).out;
  for (const char* word : {"raw", "half", "quantise", "sign", "top_k", "random_k", "low_rank",
                           "auto_encoder", "rounding", "unbiased", "artefact"})
    EXPECT_TRUE(contains(list, word)) << word;
}

TEST_F(CodecCommand, ShowTellsWhatACodecCosts) {
  const std::string shown = expect_exit(0, {"codec", "show", "quantise:block=64, bits=4", "--shape",
                                            "8,128,384", "--json", "show.json"})
                                .out;
  for (const char* part : {"quantise:bits=4,block=64", "393,216 elements", "221,184 bytes",
                           "7.111x", "78 bytes more", "summable"})
    EXPECT_TRUE(contains(shown, part)) << part << " is not in\n" << shown;
  EXPECT_EQ(json_of("show.json")["payload_bytes"], 221184);
  EXPECT_EQ(json_of("show.json")["bits_per_element"], 4.5);
  EXPECT_TRUE(contains(expect_exit(0, {"codec", "show", "top_k"}).out, "at most "));
}

TEST_F(CodecCommand, RawBringsEveryTensorBack) {
  expect_exit(0, {"codec", "encode", "raw", "x.safetensors", "-o", "x.frames"});
  const std::string decoded = expect_exit(0, {"codec", "decode", "x.frames", "-o", "y.safetensors",
                                              "--compare", "x.safetensors", "--json", "y.json"})
                                  .out;
  EXPECT_TRUE(contains(decoded, "block.weight")) << decoded;
  const SafetensorsFile x(folder_ / "x.safetensors"), y(folder_ / "y.safetensors");
  EXPECT_EQ(x.entries().size(), y.entries().size());
  for (const SafetensorsEntry& entry : x.entries())
    EXPECT_TRUE(std::ranges::equal(x.bytes(entry), y.bytes(entry.name))) << entry.name;
  const nlohmann::json compared = json_of("y.json");
  ASSERT_EQ(compared["tensors"].size(), x.entries().size());
  for (const auto& row : compared["tensors"]) {
    EXPECT_EQ(row["max_error"], 0) << row;
    EXPECT_EQ(row["cosine"], 1) << row;
  }
}

TEST_F(CodecCommand, LossyCodecsSayHowFarOffTheyAre) {
  const struct {
    const char* codec;
    double most;
  } cases[] = {{"half", 4e-3},
               {"huffman", 4e-3},
               {"quantise", 1e-2},
               {"quantise:bits=4,block=64", 0.1},
               {"quantise:bits=4,block=64,rotate=true", 0.1},
               {"sign", 0.6},
               {"top_k:keep=0.5", 0.5},
               {"top_k:keep=0.5+quantise:bits=4", 0.5},
               {"random_k:keep=0.5", 0.9},
               {"low_rank:rank=4", 0.99}};
  for (const auto& c : cases) {
    SCOPED_TRACE(c.codec);
    const Words encode = {"codec",       "encode",       c.codec,    "x.safetensors",
                          "--tensor",    "block.weight", "--tensor", "block.bias",
                          "--overwrite", "-o",           "x.frames"};
    expect_exit(0, encode);
    const std::string first = text("x.frames");
    expect_exit(0, encode);
    EXPECT_EQ(text("x.frames"), first) << "equal input, equal bytes";
    expect_exit(0, {"codec", "inspect", "x.frames"});
    expect_exit(0, {"codec", "decode", "x.frames", "-o", "y.safetensors", "--overwrite",
                    "--compare", "x.safetensors", "--json", "y.json"});
    const nlohmann::json weight = json_of("y.json")["tensors"][0];
    EXPECT_EQ(weight["name"], "block.weight");
    EXPECT_GT(weight["relative_error"], 0);
    EXPECT_LT(weight["relative_error"], c.most);
    EXPECT_GT(weight["cosine"], 1 - 1.1 * c.most * c.most);
  }
}

TEST_F(CodecCommand, InspectExplainsEveryByte) {
  expect_exit(0, {"codec", "encode", "raw", "x.safetensors", "-o", "x.frames"});
  const std::string rows = expect_exit(0, {"codec", "inspect", "x.frames", "--json", "i.json"}).out;
  for (const char* part : {"frame 3", "4c 43 4e 46", "[16, 24], 384 elements", "CRC-32C"})
    EXPECT_TRUE(contains(rows, part)) << part;
  const nlohmann::json json = json_of("i.json");
  EXPECT_EQ(json["frames"], 4);
  std::uint64_t at = 0;
  for (const auto& field : json["fields"]) {
    EXPECT_EQ(field["offset"], at) << field;
    at += field["bytes"].get<std::uint64_t>();
  }
  EXPECT_EQ(at, fs::file_size(folder_ / "x.frames"));
  EXPECT_TRUE(
      contains(expect_exit(0, {"codec", "inspect", "x.frames", "--brief"}).out, "[16, 24]"));
}

TEST_F(CodecCommand, FramesAloneGiveTensorsWithoutNames) {
  expect_exit(0, {"codec", "encode", "raw", "x.safetensors", "-o", "x.frames", "--tensor", "ids"});
  expect_exit(0, {"codec", "decode", "x.frames", "-o", "y.safetensors"});
  EXPECT_NE(SafetensorsFile(folder_ / "y.safetensors").find("tensor-0"), nullptr);
}

TEST_F(CodecCommand, AWrongRequestIsRefusedWithEveryReason) {
  expect_exit(0, {"codec", "encode", "raw", "x.safetensors", "-o", "x.frames"});
  const auto refused = [&](const Words& words, const std::vector<const char*>& reasons) {
    const ProcessResult outcome = expect_exit(2, words);
    for (const char* reason : reasons)
      EXPECT_TRUE(contains(outcome.err, reason)) << reason << " is not in\n" << outcome.err;
  };
  refused({"codec"}, {"Usage: laconic codec"});
  refused({"codec", "lst"}, {"no verb 'lst'; did you mean 'list'?"});
  refused({"codec", "show", "quantize"}, {"did you mean quantise?"});
  refused({"codec", "show", "quantise:bits=9", "--shape", "-1"}, {"9 is not in 1 ... 8", "[-1]"});
  refused({"codec", "show", "quantise:bits=9,bolck=8"},
          {"9 is not in 1 ... 8", "did you mean block?"});
  refused({"codec", "bench", "quantize", "half:kind=f31", "auto_encoder"},
          {"did you mean quantise?", "'f31' is not f16 or bf16", "learned"});
  refused({"codec", "show", "raw", "--dtype", "f31"}, {"--dtype"});
  refused({"codec", "encode", "half", "x.safetensors", "-o", "no/where", "--tensor", "block.wieght",
           "--tensor", "ids"},
          {"did you mean 'block.weight'?", "ids: i64 is not a float", "does not exist"});
  refused({"codec", "encode", "raw", "x.safetensors", "-o", "x.frames"},
          {"x.frames exists; --overwrite replaces it"});
  refused({"codec", "encode", "raw", "x.safetensors", "-o", "./x.safetensors", "--overwrite"},
          {"x.safetensors is what is read"});
  refused({"codec", "decode", "x.frames", "--compare", "x.safetensors", "-o", "x.safetensors",
           "--overwrite"},
          {"x.safetensors is what is read"});
  refused({"codec", "encode", "auto_encoder", "x.safetensors", "-o", "y"}, {"learned"});
  refused({"codec", "encode", "raw", "none.safetensors", "-o", "y"}, {"none.safetensors"});
  refused({"codec", "inspect", "text.txt"}, {"magic at byte 0"});
  refused({"codec", "decode", "text.txt", "-o", "y"}, {"frame 0", "magic at byte 0"});
}

TEST_F(CodecCommand, DamagedFramesAreExplainedUpToTheFault) {
  expect_exit(0, {"codec", "encode", "raw", "x.safetensors", "-o", "x.frames"});
  flip_bit(folder_ / "x.frames", 100);
  const ProcessResult inspected =
      expect_exit(2, {"codec", "inspect", "x.frames", "--json", "i.json"});
  EXPECT_TRUE(contains(inspected.err, "x.frames: frame 0: CRC-32C at byte 1592")) << inspected.err;
  EXPECT_TRUE(contains(inspected.out, "magic"));
  EXPECT_EQ(json_of("i.json")["fault"]["field"], "CRC-32C");
  expect_exit(2, {"codec", "decode", "x.frames", "-o", "y.safetensors"});
  EXPECT_FALSE(fs::exists(folder_ / "y.safetensors"));
  cut_in_half(folder_ / "x.frames");
  EXPECT_TRUE(contains(expect_exit(2, {"codec", "inspect", "x.frames"}).err, "ends after"));
}

}  // namespace
}  // namespace laconic
