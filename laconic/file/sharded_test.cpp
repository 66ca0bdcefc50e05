#include "laconic/file/sharded.hpp"

#include <gtest/gtest.h>

#include "laconic/base/error.hpp"
#include "laconic/file/safetensors_writer.hpp"
#include "laconic/file/test_folder.hpp"

namespace laconic {
namespace {

// A file with tensors of one byte each, holding the first letter of the name.
void write_shard(const std::string& path, const std::vector<std::string>& names) {
  std::vector<SafetensorsSpec> specs;
  for (const std::string& name : names) specs.push_back({name, Dtype::u8, {1}});
  SafetensorsWriter writer(path, specs);
  for (const std::string& name : names) writer.write(std::as_bytes(std::span(name)).first(1));
  writer.commit();
}

template <class Act>
std::string refusal(Act act) {
  try {
    act();
  } catch (const FileError& error) {
    return error.what();
  }
  return "accepted";
}

std::string index_refusal(const std::string& text) {
  return refusal([&] { parse_weight_map(text, "x"); });
}

constexpr const char* kIndex = "model.safetensors.index.json";

TEST(Sharded, OneFileIsAModel) {
  const TemporaryFolder folder;
  write_shard(folder / "model.safetensors", {"b", "a"});
  const ShardedTensors tensors(folder.path());
  EXPECT_EQ(tensors.names(), (std::vector<std::string>{"a", "b"}));
  EXPECT_EQ(tensors.at("b").bytes[0], std::byte{'b'});
}

TEST(Sharded, AnIndexJoinsItsShards) {
  const TemporaryFolder folder;
  write_shard(folder / "one", {"a", "extra"});
  write_shard(folder / "two", {"b", "c"});
  write_atomically(folder / kIndex,
                   R"({"metadata":{"total_size":3},"weight_map":{"c":"two","a":"one","b":"two"}})");
  const ShardedTensors tensors(folder.path());
  EXPECT_EQ(tensors.names(), (std::vector<std::string>{"a", "b", "c"}));
  EXPECT_EQ(tensors.shards().size(), 2u);
  for (const char* name : {"a", "b", "c"}) {
    EXPECT_EQ(tensors.at(name).entry->name, name);
    EXPECT_EQ(tensors.at(name).bytes[0], std::byte(name[0]));
  }
  EXPECT_FALSE(tensors.contains("extra"));
}

TEST(Sharded, FoldersThatSayNothingOrTooMuchAreRefused) {
  const TemporaryFolder folder;
  const auto open = [&] { ShardedTensors tensors(folder.path()); };
  EXPECT_NE(refusal(open).find("has neither"), std::string::npos);
  write_shard(folder / "model.safetensors", {"a"});
  write_atomically(folder / kIndex, "{}");
  EXPECT_NE(refusal(open).find("has both"), std::string::npos);
}

TEST(Sharded, ATensorThatIsElsewhereIsRefused) {
  const TemporaryFolder folder;
  write_shard(folder / "one", {"a"});
  write_atomically(folder / kIndex, R"({"weight_map":{"a":"one","b":"one"}})");
  EXPECT_NE(refusal([&] {
              ShardedTensors tensors(folder.path());
            }).find("b: is not in one as the index says"),
            std::string::npos);
}

TEST(Sharded, AMissingShardIsNamed) {
  const TemporaryFolder folder;
  write_atomically(folder / kIndex, R"({"weight_map":{"a":"one"}})");
  EXPECT_THROW(ShardedTensors tensors(folder.path()), FileError);
}

TEST(Sharded, AnUnknownTensorSuggestsTheNearest) {
  const TemporaryFolder folder;
  write_shard(folder / "model.safetensors", {"lm_head.weight"});
  const ShardedTensors tensors(folder.path());
  EXPECT_NE(refusal([&] { tensors.at("lm_head.wieght"); }).find("'lm_head.weight'"),
            std::string::npos);
}

TEST(Sharded, AnIndexCannotReachOutsideItsFolder) {
  for (const char* name : {"", ".", "..", "../a", "/etc/passwd", "a/b", "a\\u0000b"})
    EXPECT_NE(index_refusal(std::string(R"({"weight_map":{"t":")") + name + "\"}}")
                  .find("is not a plain file name"),
              std::string::npos)
        << name;
}

TEST(Sharded, AnIndexThatIsNoneIsRefused) {
  for (const char* text : {"{}", "[]", "3", R"({"weight_map":[]})", R"({"weight_map":null})"})
    EXPECT_EQ(index_refusal(text).substr(0, 43), "x: weight_map: is missing or not an object;")
        << text;
  EXPECT_EQ(index_refusal(R"({"weight_map":{"a":1}})").substr(0, 34),
            "x: a: is not mapped to a file name");
  EXPECT_EQ(index_refusal(R"({"weight_map":{"a":"x","a":"y"}})").substr(0, 29),
            "x: a: the key is there twice;");
}

}  // namespace
}  // namespace laconic
