#include "laconic/run/run_folder.hpp"

#include <fmt/format.h>

#include <algorithm>
#include <charconv>
#include <filesystem>
#include <string_view>

#include "laconic/base/text.hpp"

namespace laconic {

namespace {

namespace fs = std::filesystem;

constexpr std::string_view kStepPrefix = "step-";

bool is_same(const fs::path& a, const fs::path& b) {
  std::error_code ignored;
  return fs::weakly_canonical(a, ignored) == fs::weakly_canonical(b, ignored);
}

// Without the slash that completion of a shell leaves at the end.
fs::path without_slash(const std::string& path) {
  const fs::path given(path);
  return given.has_filename() || !given.has_relative_path() ? given : given.parent_path();
}

}  // namespace

std::string checkpoints_of(const std::string& run_folder) {
  return run_folder + "/checkpoints";
}

std::string step_folder_name(std::int64_t step) {
  return fmt::format("{}{:08}", kStepPrefix, step);
}

std::optional<std::int64_t> step_of_folder(const std::string& path) {
  const std::string name = without_slash(path).filename().string();
  if (!name.starts_with(kStepPrefix)) return std::nullopt;
  std::int64_t step = 0;
  const char* begin = name.data() + kStepPrefix.size();
  const char* end = name.data() + name.size();
  const auto [stop, error] = std::from_chars(begin, end, step);
  return error == std::errc() && stop == end ? std::optional(step) : std::nullopt;
}

std::vector<std::string> step_folders(const std::string& folder) {
  std::vector<std::string> found;
  std::error_code ignored;  // no folder, no checkpoints
  for (const auto& entry : fs::directory_iterator(folder, ignored))
    if (entry.is_directory() && step_of_folder(entry.path().string()))
      found.push_back(entry.path().string());
  std::ranges::sort(found, [](const std::string& a, const std::string& b) {
    return *step_of_folder(a) > *step_of_folder(b);
  });
  return found;
}

std::optional<std::string> checkpoints_meant(const std::string& path) {
  if (fs::exists(path + "/state.json")) return std::nullopt;  // a checkpoint itself
  const std::string inside = checkpoints_of(without_slash(path).string());
  if (fs::is_directory(inside)) return inside;
  if (!step_folders(path).empty()) return path;
  return std::nullopt;
}

Problems check_resume(const std::string& resume, bool overwrite) {
  if (resume == kResumeAuto && overwrite)
    return {{"--overwrite",
             "throws away what --resume auto would go on from: leave one of the two out"}};
  for (const char* word : {kResumeNone, kResumeAuto, kResumeBest})
    if (resume == word) return {};
  if (fs::exists(resume)) return {};
  const std::string likely = nearest(resume, {kResumeNone, kResumeAuto, kResumeBest});
  return {{"--resume",
           fmt::format("'{}' is not none, auto or best, and no checkpoint or run folder "
                       "of that name exists{}",
                       resume, likely.empty() ? "" : fmt::format("; did you mean '{}'?", likely))}};
}

std::vector<std::string> checkpoints_in_the_way(const std::string& run_folder,
                                                const std::string& resume) {
  const std::string mine = checkpoints_of(run_folder);
  std::vector<std::string> found = step_folders(mine);
  if (resume == kResumeAuto) return {};
  if (resume == kResumeNone) return found;
  if (resume == kResumeBest) {
    std::error_code missing;  // who looks for the checkpoint will tell
    const fs::path target = fs::read_symlink(fs::path(mine) / kResumeBest, missing);
    if (missing) return {};
    return checkpoints_in_the_way(run_folder, (fs::path(mine) / target).string());
  }
  if (const std::optional<std::string> meant = checkpoints_meant(resume))
    return is_same(*meant, mine) ? std::vector<std::string>() : found;
  const fs::path given = without_slash(resume);
  const fs::path home = given.has_parent_path() ? given.parent_path() : fs::path(".");
  const std::optional<std::int64_t> kept = step_of_folder(resume);
  if (kept && is_same(home, mine))
    std::erase_if(found, [&](const std::string& path) { return *step_of_folder(path) <= *kept; });
  return found;
}

Problems check_vacant(const std::string& run_folder, const std::string& resume, bool overwrite) {
  const std::vector<std::string> old = checkpoints_in_the_way(run_folder, resume);
  if (old.empty() || overwrite) return {};
  return {{"", fmt::format("{} already holds {}: add --resume auto to continue from there, "
                           "--overwrite to throw it away, or choose another run.folder",
                           run_folder, fs::path(old.front()).filename().string())}};
}

}  // namespace laconic
