#include "laconic/checkpoint/rank_state.hpp"

#include <fmt/format.h>

#include <filesystem>

#include "laconic/base/clock.hpp"
#include "laconic/base/error.hpp"
#include "laconic/base/text.hpp"
#include "laconic/file/atomic_file.hpp"
#include "laconic/file/mapped_file.hpp"
#include "laconic/file/safetensors_writer.hpp"
#include "laconic/tensor/host.hpp"
#include "laconic/world/control_unit.hpp"

namespace laconic {

namespace {

namespace fs = std::filesystem;

constexpr const char* kToken = "/token";  // shows who sees the folder

std::string file_name(int rank) {
  return fmt::format("rank-{:05}.safetensors", rank);
}

void write_tensors(const std::string& path, const RankTensors& tensors) {
  std::vector<SafetensorsSpec> specs;
  for (const auto& [name, tensor] : tensors)
    specs.push_back({name, dtype_of(tensor.scalar_type()), tensor.sizes().vec()});
  SafetensorsWriter writer(path, std::move(specs));
  for (const auto& [name, tensor] : tensors) writer.write(bytes_of_tensor(tensor.contiguous()));
  writer.commit();
}

RankTensors read_tensors(const std::string& path) {
  const SafetensorsFile file(path);
  RankTensors tensors;
  for (const SafetensorsEntry& entry : file.entries())
    tensors[entry.name] = tensor_from_bytes(file.bytes(entry), entry.dtype, entry.shape);
  return tensors;
}

bool sees(const std::string& folder, const std::string& token) {
  std::error_code ignored;
  return fs::is_regular_file(folder + kToken, ignored) &&
         MappedFile(folder + kToken).text() == token;
}

// Written to a file of its own first: only the writer knows the format.
Bytes file_bytes(const RankTensors& tensors, Rank rank) {
  const fs::path path = fs::temp_directory_path() / fmt::format("laconic-{}-{}", ::getpid(), rank);
  write_tensors(path.string(), tensors);
  const MappedFile file(path.string());
  const ByteView bytes = file.bytes();
  Bytes copy(bytes.begin(), bytes.end());
  fs::remove(path);
  return copy;
}

}  // namespace

RankFolder find_rank_folder(World& world, const std::string& folder) {
  const std::string token = utc_now() + " " + folder;
  const std::string place = world.decide_on_rank_0([&] {
    write_atomically(folder + kToken, token);
    return fs::absolute(folder).string() + "\n" + token;
  });
  const std::size_t end = place.find('\n');
  RankFolder found{.path = place.substr(0, end), .is_seen_by_all = true, .seen = {}};
  found.is_seen = world.is_first() || sees(found.path, place.substr(end + 1));
  for (const int is_seen : world.gather_values(found.is_seen ? 1 : 0)) {
    found.seen.push_back(is_seen != 0);
    found.is_seen_by_all &= is_seen != 0;
  }
  if (world.is_first()) fs::remove(found.path + kToken);
  return found;
}

void add_rank_files(World& world, const RankFolder& folder, const RankTensors& mine) {
  if (folder.is_seen) write_tensors(folder.path + "/" + file_name(world.rank()), mine);
  world.gather({});  // the files of those who see it are there
  const Tag tag = make_tag({.traffic = Traffic::control, .unit = kRankStateUnit});
  if (!folder.is_seen) {
    const auto bytes = std::make_shared<const Bytes>(file_bytes(mine, world.rank()));
    world.engine().send({.to = 0, .tag = tag, .raw_bytes = bytes->size(), .message = bytes});
  }
  if (!world.is_first()) return;
  for (Rank r = 1; r < world.size(); ++r) {
    if (folder.seen[static_cast<std::size_t>(r)]) continue;
    const Bytes bytes = world.engine().recv(r, tag);
    write_atomically(folder.path + "/" + file_name(r),
                     {reinterpret_cast<const char*>(bytes.data()), bytes.size()});
    read_tensors(folder.path + "/" + file_name(r));  // throws when it was damaged on the way
  }
}

std::vector<RankTensors> read_rank_states(const std::string& checkpoint) {
  std::vector<RankTensors> states;
  for (int rank = 0;; ++rank) {
    const std::string path = checkpoint + "/" + file_name(rank);
    if (!fs::exists(path)) return states;
    states.push_back(read_tensors(path));
  }
}

}  // namespace laconic
