// What is wrong with a file is said by name, and no damage gets past the parser.
#include <fmt/format.h>
#include <gtest/gtest.h>

#include "laconic/base/error.hpp"
#include "laconic/file/safetensors.hpp"
#include "laconic/file/test_view.hpp"

namespace laconic {
namespace {

std::string file_of(std::string_view json, std::size_t data_bytes) {
  const std::uint64_t length = json.size();
  return std::string(reinterpret_cast<const char*>(&length), 8) + std::string(json) +
         std::string(data_bytes, '\x2a');
}

std::string tensor(std::string_view name, std::string_view dtype, std::string_view shape,
                   std::string_view offsets) {
  return fmt::format(R"("{}":{{"dtype":"{}","shape":[{}],"data_offsets":[{}]}})", name, dtype,
                     shape, offsets);
}

std::string refusal(std::string_view bytes) {
  try {
    parse_safetensors(view(bytes), "x");
  } catch (const FileError& error) {
    return error.what();
  }
  return "accepted";
}

struct Case {
  std::string json;
  std::size_t data_bytes;
  std::string message;  // how it starts
};

std::vector<Case> header_cases() {
  const std::string a = tensor("a", "U8", "2", "0,2");
  return {
      {"", 0, "x: header: does not start with '{'"},
      {" {}", 0, "x: header: does not start with '{'"},
      {"[]", 0, "x: header: does not start with '{'"},
      {"{", 0, "x: header: is not JSON at byte 2"},
      {"{}{", 0, "x: header: is not JSON at byte 3"},
      {"{\"\xff\":{}}", 0, "x: header: is not JSON at byte 3"},
      {"{" + a + "," + a + "}", 2, "x: a: starts at byte 0 of the data, overlapping"},
      {"{" + tensor("a", "U8", "0", "0,0") + "," + tensor("a", "U8", "0", "0,0") + "}", 0,
       "x: a: is named twice in the header"},
      {R"({"a":3})", 0, "x: a: the header holds 3, which"},
      {R"({"a":[]})", 0, "x: a: the header holds an array, which"},
      {R"({"a":{"dtype":"U8","shape":[[1]],"data_offsets":[0,1]}})", 1,
       "x: a: shape holds an array, which"},
      {R"({"a":{"dtype":{},"shape":[],"data_offsets":[0,1]}})", 1,
       "x: a: dtype holds an object, which"},
      {R"({"a":{"dtype":["U8"],"shape":[],"data_offsets":[0,1]}})", 1,
       "x: a: dtype holds an array, which"},
      {R"({"a":{"shape":[],"data_offsets":[0,1]}})", 1, "x: a: has no dtype"},
      {R"({"a":{"dtype":"U8","data_offsets":[0,1]}})", 1, "x: a: has no shape"},
      {R"({"a":{"dtype":"U8","shape":[]}})", 1, "x: a: has no data_offsets"},
      {R"({"a":{"dtype":"U8","shape":[],"shape":[],"data_offsets":[0,1]}})", 1,
       "x: a: key 'shape' is there twice"},
      {R"({"a":{"dtype":"U8","strides":[1]}})", 1, "x: a: unknown key 'strides'"},
      {R"({"__metadata__":{"k":1}})", 0, "x: __metadata__: k holds 1, which"},
      {R"({"__metadata__":{"k":{}}})", 0, "x: __metadata__: k holds an object, which"},
      {R"({"__metadata__":{"k":"1","k":"2"}})", 0, "x: __metadata__: key 'k' is there twice"},
      {R"({"__metadata__":{},"__metadata__":{}})", 0, "x: __metadata__: is there twice"},
  };
}

std::vector<Case> tensor_cases() {
  return {
      {"{" + tensor("a", "F8", "1", "0,1") + "}", 1, "x: a: dtype 'F8' is not known; use F64"},
      {"{" + tensor("a", "U8", "-1", "0,0") + "}", 0, "x: a: shape holds -1, which"},
      {"{" + tensor("a", "U8", "1.0", "0,1") + "}", 1, "x: a: shape holds 1.0, which"},
      {"{" + tensor("a", "U8", "null", "0,1") + "}", 1, "x: a: shape holds null, which"},
      {"{" + tensor("a", "U8", "true", "0,1") + "}", 1, "x: a: shape holds a boolean, which"},
      {"{" + tensor("a", "U8", "9223372036854775808", "0,0") + "}", 0,
       "x: a: shape holds 9223372036854775808, which is too large"},
      {"{" + tensor("a", "U8", "4611686018427387904,4", "0,0") + "}", 0,
       "x: a: shape [4611686018427387904, 4] is too large"},
      {"{" + tensor("a", "F32", "2,3", "0,20") + "}", 20,
       "x: a: shape [2, 3] of F32 needs 24 bytes, data_offsets give 20; the file is damaged"},
      {"{" + tensor("a", "U8", "0", "4,0") + "}", 4, "x: a: data_offsets [4, 0] run backwards"},
      {"{" + tensor("a", "U8", "1", "0") + "}", 1, "x: a: data_offsets has 1 numbers, not 2"},
      {"{" + tensor("a", "U8", "1", "0,1,1") + "}", 1, "x: a: data_offsets has 3 numbers, not 2"},
      {"{" + tensor("a", "U8", "9", "0,9") + "}", 8,
       "x: a: ends at byte 9 of the data, which has 8; the copy is incomplete"},
      {"{" + tensor("a", "U8", "4", "0,4") + "," + tensor("b", "U8", "4", "2,6") + "}", 6,
       "x: b: starts at byte 2 of the data, overlapping what ends at byte 4"},
      {"{" + tensor("a", "U8", "2", "0,2") + "," + tensor("b", "U8", "2", "4,6") + "}", 6,
       "x: b: starts at byte 4 of the data, leaving a hole after byte 2"},
      {"{" + tensor("a", "U8", "2", "1,3") + "}", 3, "x: a: starts at byte 1 of the data, leaving"},
      {"{" + tensor("a", "U8", "2", "0,2") + "}", 3,
       "x: data: 3 bytes, of which the header names 2"},
  };
}

TEST(SafetensorsDamage, EveryRefusalNamesTheTensorAndTheNumbers) {
  std::vector<Case> cases = header_cases();
  for (const Case& c : tensor_cases()) cases.push_back(c);
  for (const Case& c : cases) {
    SCOPED_TRACE(c.json);
    EXPECT_EQ(refusal(file_of(c.json, c.data_bytes)).substr(0, c.message.size()), c.message);
  }
}

TEST(SafetensorsDamage, LengthsThatCannotBeAreRefused) {
  EXPECT_EQ(refusal(""),
            "x: header length: the file has 0 bytes of 8; the copy is incomplete; "
            "fetch it again");
  std::string file = file_of("{}", 0);
  file[0] = 3;
  EXPECT_EQ(refusal(file).substr(0, 63),
            "x: header length: 3 leads past the end of the file (10 bytes); ");
  file[7] = '\xff';
  EXPECT_NE(refusal(file).find("is more than 100000000"), std::string::npos);
}

TEST(SafetensorsDamage, DeepNestingIsRefusedBeforeItCosts) {
  const std::string deep = R"({"a":)" + std::string(50'000'000, '[');
  EXPECT_EQ(refusal(file_of(deep, 0)).substr(0, 27), "x: a: the header holds an a");
}

TEST(SafetensorsDamage, EmptyTensorsMayLieAnywhere) {
  for (const char* at : {"0,0", "3,3", "5,5"}) {
    const std::string json = "{" + tensor("e", "F64", "0,7", at) + "," +
                             tensor("b", "U8", "2", "3,5") + "," + tensor("a", "U8", "3", "0,3") +
                             "}";
    EXPECT_EQ(refusal(file_of(json, 5)), "accepted") << at;
  }
}

const std::string kWhole =
    file_of(R"({"__metadata__":{"format":"pt"},)" + tensor("w", "BF16", "2,3", "0,12") + "," +
                tensor("b", "I64", "", "12,20") + "}",
            20);

TEST(SafetensorsDamage, TruncatedAnywhereIsRefused) {
  ASSERT_EQ(refusal(kWhole), "accepted");
  for (std::size_t size = 0; size < kWhole.size(); ++size)
    // A copy on the heap, of that very size: the address sanitizer sees a read beyond it.
    EXPECT_NE(refusal(std::string(kWhole, 0, size)), "accepted") << size;
}

TEST(SafetensorsDamage, FlippedBitsNeverGetPast) {
  const std::size_t header_bytes = kWhole.size() - 20;
  for (std::size_t bit = 0; bit < header_bytes * 8; ++bit) {
    std::string damaged = kWhole;
    damaged[bit / 8] = static_cast<char>(damaged[bit / 8] ^ (1 << bit % 8));
    try {
      const SafetensorsHeader header = parse_safetensors(view(damaged), "x");
      for (const SafetensorsEntry& entry : header.entries) {
        EXPECT_LE(entry.end, damaged.size());
        EXPECT_EQ(bytes_of(entry.dtype, entry.shape), entry.end - entry.begin);
      }
    } catch (const FileError&) {
    }
  }
}

}  // namespace
}  // namespace laconic
