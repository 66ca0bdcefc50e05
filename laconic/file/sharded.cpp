#include "laconic/file/sharded.hpp"

#include <fmt/format.h>

#include <filesystem>
#include <nlohmann/json.hpp>

#include "laconic/base/error.hpp"
#include "laconic/base/text.hpp"
#include "laconic/file/json.hpp"

namespace laconic {

namespace {

bool is_plain_name(std::string_view name) {
  return !name.empty() && name != "." && name != ".." && name.find('/') == std::string_view::npos &&
         name.find('\0') == std::string_view::npos;
}

void check_folder(const std::string& folder, bool has_one, bool has_index) {
  if (has_one && has_index)
    throw FileError(folder, "", "has both model.safetensors and model.safetensors.index.json",
                    "move the one that is not meant away");
  if (!has_one && !has_index)
    throw FileError(folder, "", "has neither model.safetensors nor model.safetensors.index.json",
                    "give the folder of a model in safetensors form");
}

}  // namespace

WeightMap parse_weight_map(std::string_view text, const std::string& path) {
  const nlohmann::json index = parse_json(text, path);
  if (!index.is_object() || !index.contains("weight_map") || !index["weight_map"].is_object())
    throw FileError(path, "weight_map", "is missing or not an object",
                    "this is not the index of a sharded model");
  WeightMap map;
  for (const auto& [name, file] : index["weight_map"].items()) {
    if (!file.is_string())
      throw FileError(path, printable(name), "is not mapped to a file name",
                      "the index is damaged");
    const auto file_name = file.get<std::string>();
    if (!is_plain_name(file_name))
      throw FileError(path, printable(name),
                      fmt::format("'{}' is not a plain file name", printable(file_name)),
                      "shards lie beside the index; do not trust this one");
    map.emplace(name, file_name);
  }
  return map;
}

ShardedTensors::ShardedTensors(const std::string& folder) : folder_(folder) {
  const std::filesystem::path base(folder);
  const std::string one = (base / "model.safetensors").string();
  const std::string index = (base / "model.safetensors.index.json").string();
  check_folder(folder, std::filesystem::exists(one), std::filesystem::exists(index));
  if (std::filesystem::exists(index)) {
    open_index(index);
  } else {
    shards_.emplace_back(one);
    for (const SafetensorsEntry& entry : shards_[0].entries()) place_.emplace(entry.name, 0);
  }
}

void ShardedTensors::open_index(const std::string& path) {
  const MappedFile text(path);
  std::map<std::string, std::size_t> opened;
  for (const auto& [name, file] : parse_weight_map(text.text(), path)) {
    const auto [shard, is_new] = opened.emplace(file, shards_.size());
    if (is_new) shards_.emplace_back((std::filesystem::path(folder_) / file).string());
    if (shards_[shard->second].find(name) == nullptr)
      throw FileError(path, printable(name), fmt::format("is not in {} as the index says", file),
                      "fetch the index and the shards again, from one place");
    place_.emplace(name, shard->second);
  }
}

std::vector<std::string> ShardedTensors::names() const {
  std::vector<std::string> names;
  for (const auto& [name, shard] : place_) names.push_back(name);
  return names;
}

TensorView ShardedTensors::at(std::string_view name) const {
  const auto place = place_.find(name);
  if (place != place_.end()) {
    const SafetensorsFile& shard = shards_[place->second];
    const SafetensorsEntry& entry = shard.at(name);
    return {&entry, shard.bytes(entry)};
  }
  const std::string near = nearest(name, names());
  throw FileError(folder_, std::string(name), fmt::format("no such tensor among {}", place_.size()),
                  near.empty() ? "" : fmt::format("the nearest name is '{}'", printable(near)));
}

}  // namespace laconic
