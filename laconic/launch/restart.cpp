#include "laconic/launch/restart.hpp"

#include <fmt/format.h>
#include <sys/stat.h>

#include <algorithm>
#include <filesystem>

namespace laconic {

namespace fs = std::filesystem;

std::vector<std::string> words_to_resume(const std::vector<std::string>& words) {
  std::vector<std::string> kept;
  for (std::size_t i = 0; i < words.size(); ++i) {
    if (words[i] == "--resume")
      ++i;  // and its value
    else if (!words[i].starts_with("--resume=") && words[i] != "--overwrite")
      kept.push_back(words[i]);
  }
  kept.insert(kept.end(), {"--resume", "auto"});
  return kept;
}

SavedCheckpoints saved_checkpoints(const std::string& folder) {
  SavedCheckpoints saved;
  std::error_code ignored;  // no folder, no checkpoints
  for (const auto& entry : fs::directory_iterator(folder, ignored)) {
    const std::string name = entry.path().filename();
    struct stat facts {};
    if (name.find('.') != std::string::npos || ::stat(entry.path().c_str(), &facts) != 0) continue;
    saved[name] =
        fmt::format("{} {}.{:09}", facts.st_ino, facts.st_mtim.tv_sec, facts.st_mtim.tv_nsec);
  }
  return saved;
}

bool has_new(const SavedCheckpoints& before, const SavedCheckpoints& now) {
  return std::ranges::any_of(now, [&](const auto& one) {
    const auto found = before.find(one.first);
    return found == before.end() || found->second != one.second;
  });
}

}  // namespace laconic
