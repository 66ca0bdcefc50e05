#include "laconic/checkpoint/link_state.hpp"

#include <fmt/format.h>

#include <filesystem>
#include <stdexcept>
#include <string_view>

namespace laconic {

namespace {

// Where the ends of a rank's links are in a checkpoint.
std::string link_files_of(const std::string& folder, Rank rank) {
  return fmt::format("{}/rank-{:05}.", folder, rank);
}

bool has_link_files(const std::string& folder, Rank rank) {
  const std::string prefix = fmt::format("rank-{:05}.pp.", rank);
  for (const auto& entry : std::filesystem::directory_iterator(folder))
    if (entry.path().filename().string().starts_with(prefix)) return true;
  return false;
}

// Returns why it could not; empty: it could.
std::string save_links(const LinkRegistry& links, const std::string& prefix) {
  try {
    links.save(prefix);
  } catch (const std::exception& error) {
    return error.what();
  }
  return "";
}

}  // namespace

void add_link_files(World& world, const RankFolder& folder, const LinkRegistry& links) {
  std::string failure;
  if (folder.is_seen_by_all) failure = save_links(links, link_files_of(folder.path, world.rank()));
  // All files are there, or the first rank says why not. It takes the folder away then, and must
  // not while others still write: they would tell of a missing folder instead of a full disk.
  const std::vector<Bytes> failures =
      world.gather(as_bytes(std::span(failure.data(), failure.size())));
  if (!world.is_first()) return;
  for (std::size_t r = 0; r < failures.size(); ++r)
    if (!failures[r].empty())
      throw std::runtime_error(fmt::format(
          "rank {} cannot save what its links remember: {}", r,
          std::string_view(reinterpret_cast<const char*>(failures[r].data()), failures[r].size())));
}

std::string load_link_files(World& world, const std::string& checkpoint,
                            const LinkRegistry& links) {
  const bool is_there = !checkpoint.empty() && has_link_files(checkpoint, world.rank());
  for (const int there : world.gather_values(is_there ? 1 : 0))
    if (there == 0) return "the checkpoint has nothing that these links remember: they begin anew";
  links.load(link_files_of(checkpoint, world.rank()));
  return "";
}

}  // namespace laconic
