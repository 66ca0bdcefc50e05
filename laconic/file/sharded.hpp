// file/sharded.hpp — the tensors of a Hugging Face model folder, however many files hold them.
//
// Either one model.safetensors, or model.safetensors.index.json and the shards
// it names. Both at once are refused: nobody can say which one is meant.
#pragma once

#include <functional>
#include <map>
#include <string>
#include <string_view>
#include <vector>

#include "laconic/file/safetensors.hpp"

namespace laconic {

// Tensor name -> file name.
using WeightMap = std::map<std::string, std::string, std::less<>>;

// The text of model.safetensors.index.json. File names are plain names: an index cannot reach
// outside its folder. Throws FileError.
WeightMap parse_weight_map(std::string_view text, const std::string& path);

struct TensorView {
  const SafetensorsEntry* entry = nullptr;
  ByteView bytes;  // valid as long as the ShardedTensors
};

class ShardedTensors {
 public:
  // Opens every shard and checks that each tensor is where the index says. Tensors that a shard
  // has and the index does not name are left out. Throws FileError or SystemError.
  explicit ShardedTensors(const std::string& folder);

  std::vector<std::string> names() const;  // sorted
  bool contains(std::string_view name) const { return place_.contains(name); }
  // Throws FileError that suggests the nearest name.
  TensorView at(std::string_view name) const;
  const std::vector<SafetensorsFile>& shards() const { return shards_; }

 private:
  void open_index(const std::string& path);

  std::string folder_;
  std::vector<SafetensorsFile> shards_;
  std::map<std::string, std::size_t, std::less<>> place_;  // name -> shard
};

}  // namespace laconic
