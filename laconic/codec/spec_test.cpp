#include "laconic/codec/spec.hpp"

#include <gtest/gtest.h>

#include "laconic/base/error.hpp"

namespace laconic {
namespace {

TEST(CodecSpec, TextsAndSpecsArePairs) {
  for (const char* text : {"raw",
                           "half",
                           "half:kind=f16",
                           "huffman",
                           "huffman:kind=f16",
                           "huffman:kind=f32",
                           "transform",
                           "transform:bits=4,span=32,refresh=2,scale=f16",
                           "quantise",
                           "quantise:bits=4,block=64",
                           "quantise:bits=3,group=row,scale=f16",
                           "quantise:bits=2,group=channel,scale=f16,grid=artefact",
                           "quantise:bits=1,grid=ends",
                           "quantise:bits=4,block=64,grid=powers",
                           "quantise:bits=4,rounding=stochastic,grid=ends,rotate=true",
                           "sign",
                           "sign:block=1024",
                           "top_k",
                           "top_k:keep=0.05",
                           "top_k:count=40000",
                           "top_k:keep=0.02+quantise:bits=4",
                           "top_k+half",
                           "random_k:keep=0.1,unbiased=true+half:kind=f16",
                           "low_rank",
                           "low_rank:rank=4,factors=bf16",
                           "auto_encoder:code=100,values=f16"}) {
    SCOPED_TRACE(text);
    EXPECT_EQ(to_text(parse_codec(text)), text);
  }
  EXPECT_EQ(to_text(parse_codec(" quantise : bits = 8 , group=block ")), "quantise");
}

std::string reason_against(std::string_view text) {
  try {
    parse_codec(text);
  } catch (const ConfigError& error) {
    return error.what();
  }
  return "accepted";
}

TEST(CodecSpec, BadTextsAreRefusedWithEveryReason) {
  EXPECT_EQ(reason_against("quantize"), "codec: no codec 'quantize'; did you mean quantise?");
  EXPECT_EQ(reason_against("quantise:bits=nine,blok=3,block=4,block=5"),
            "quantise: block is given twice\n"
            "quantise.bits: 'nine' is not a whole number\n"
            "quantise: no option 'blok'; did you mean block?");
  EXPECT_EQ(reason_against("quantise:bits=9,block=0"),
            "quantise.bits: 9 is not in 1 ... 8\n"
            "quantise.block: 0 is not in 1 ... 2147483648");
  EXPECT_EQ(reason_against("quantise:bits=1"),
            "quantise.grid: one bit needs grid=ends: with a level at zero there would be no "
            "positive one");
  EXPECT_NE(reason_against("quantise:rounding=stochastic").find("grid=ends"), std::string::npos);
  EXPECT_EQ(
      reason_against("quantise:bits=6,grid=powers"),
      "quantise.grid: grid=powers has 2 to 5 bits, not 6: the least of more levels would be no "
      "normal float");
  EXPECT_NE(reason_against("quantise:block=96,rotate=true").find("96 is not a power of two"),
            std::string::npos);
  EXPECT_NE(reason_against("raw+half").find("raw keeps all values"), std::string::npos);
  EXPECT_NE(reason_against("top_k+sign").find("not sign"), std::string::npos);
  EXPECT_NE(reason_against("top_k:keep=nan").find("keep = nan"), std::string::npos);
  EXPECT_NE(reason_against("top_k:keep=0"), "accepted");
  EXPECT_NE(reason_against("quantise:bits=9,bolck=8").find("9 is not in 1 ... 8"),
            std::string::npos);
  EXPECT_NE(reason_against("half:kind=8").find("'8' is not f16 or bf16"), std::string::npos);
  EXPECT_NE(reason_against(""), "accepted");
  EXPECT_NE(reason_against("raw:bits=1").find("it has none"), std::string::npos);
}

TEST(CodecSpec, IntegersTravelRawOnly) {
  const TensorSpec ids{Dtype::i64, {4, 8}};
  EXPECT_TRUE(check(Raw{}, ids).empty());
  for (const CodecHelp& help : codec_help()) {
    if (help.name == "raw") continue;
    EXPECT_EQ(check(parse_codec(help.name), ids).size(), 1u) << help.name;
  }
  EXPECT_FALSE(check(Raw{}, {Dtype::f32, {1 << 30, 1 << 30}}).empty());
  EXPECT_FALSE(check(Raw{}, {Dtype::f32, {-1}}).empty());
  EXPECT_FALSE(check(Raw{}, {Dtype::f32, std::vector<std::int64_t>(9, 1)}).empty());
}

TEST(CodecSpec, AShareIsRoundedUpAndACountIsNot) {
  const Kept tenth{.fraction = 0.1};
  const std::pair<std::uint64_t, std::uint64_t> rows[] = {{0, 0},  {1, 1},  {9, 1},   {10, 1},
                                                          {11, 2}, {15, 2}, {101, 11}};
  for (const auto& [elements, kept] : rows)
    EXPECT_EQ(kept_count(tenth, elements), kept) << elements;
  EXPECT_EQ(kept_count({.fraction = 1}, 7), 7u);
  EXPECT_EQ(kept_count({.count = 3}, 7), 3u);
  EXPECT_EQ(kept_count({.count = 30}, 7), 7u);
}

TEST(CodecSpec, SizesAreThoseOfThePapers) {
  // papers' table: one microbatch of GPT2-XL, 1 x 1024 x 1600, one f16 scale per channel.
  const TensorSpec xl{Dtype::f32, {1, 1024, 1600}};
  const auto artefact = [](int bits) {
    return Quantise{bits,           ScaleGroup::channel, 0,
                    ScaleType::f16, Rounding::nearest,   Grid::artefact};
  };
  EXPECT_EQ(max_payload_bytes(Raw{}, xl), 6'553'600u);
  EXPECT_EQ(max_payload_bytes(Half{}, xl), 3'276'800u);
  EXPECT_EQ(max_payload_bytes(artefact(8), xl), 1'641'600u);
  EXPECT_EQ(max_payload_bytes(artefact(6), xl), 1'232'000u);
  EXPECT_EQ(max_payload_bytes(artefact(4), xl), 822'400u);
  EXPECT_EQ(max_payload_bytes(artefact(3), xl), 617'600u);
  EXPECT_EQ(max_payload_bytes(artefact(2), xl), 412'800u);
  EXPECT_EQ(max_payload_bytes(LowRank{16}, {Dtype::f32, {1024, 1920}}), (1024u + 1920u) * 16 * 4);
  EXPECT_EQ(max_payload_bytes(AutoEncoder{50, Dtype::f16}, {Dtype::f32, {128, 32, 1024}}),
            128u * 32 * 50 * 2);
}

}  // namespace
}  // namespace laconic
