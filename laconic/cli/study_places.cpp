#include "laconic/cli/study_places.hpp"

#include <fmt/format.h>
#include <sys/utsname.h>

#include <algorithm>
#include <cstdlib>
#include <filesystem>

#include "laconic/base/error.hpp"
#include "laconic/base/text.hpp"
#include "laconic/cli/arguments.hpp"
#include "laconic/cli/commit.hpp"
#include "laconic/lab/lab.hpp"
#include "laconic/lab/tool.hpp"
#include "laconic/machine/cpu.hpp"
#include "laconic/machine/environment.hpp"
#include "laconic/study/trial_estimate.hpp"

namespace laconic {

namespace {

namespace fs = std::filesystem;

std::string machine_text() {
  const Cpu cpu = detect_cpu();
  utsname system{};
  ::uname(&system);
  return fmt::format("{}, {} cores, {} memory, {} {}", cpu.model, cpu.cores,
                     human_bytes(static_cast<double>(detect_memory().total_bytes)), system.sysname,
                     system.release);
}

// One that has PyTorch. Debian's first: that is the one with the libtorch we were built with.
std::string find_python() {
  for (const std::string& python : {std::string("/usr/bin/python3"), find_tool("python3")})
    if (fs::exists(python) && run_tool({python, "-c", "import numpy, torch"}).exit_code == 0)
      return python;
  return "";
}

std::string find_blas() {
  std::error_code none;
  for (const fs::directory_entry& entry : fs::directory_iterator("/usr/lib", none))
    if (fs::is_directory(entry.path() / "openblas-openmp")) return entry.path() / "openblas-openmp";
  return "";
}

// The folder of public corpora, or nothing.
std::string find_corpora(const std::string& source) {
  const char* set = std::getenv("LACONIC_DATA");
  const fs::path folder = set != nullptr ? fs::path(set) : fs::path(source) / "../shared/data";
  return fs::is_directory(folder) ? as_typed(fs::absolute(folder).string()) : "";
}

void tell_failures(const std::vector<Outcome>& outcomes) {
  for (const Outcome& outcome : outcomes)
    if (!outcome.failure.empty()) fmt::print("  {}: {}\n", id_of(outcome.trial), outcome.failure);
}

bool is_failure(const Outcome& outcome) {
  return !outcome.failure.empty() && !was_skipped(outcome);
}

// Python makes weights, or is the peer.
bool needs_python(const StudyFile& study, const std::vector<Trial>& trials) {
  return std::any_of(trials.begin(), trials.end(), [&](const Trial& trial) {
    return trial.program == Program::ddp || !(without_weights(trial, study.models) == trial);
  });
}

}  // namespace

std::string as_typed(const std::string& path) {
  const fs::path relative = fs::proximate(path);
  return relative.empty() || *relative.begin() == ".." ? path : relative.string();
}

std::string source_folder(const std::string& file) {
  const fs::path folder = fs::absolute(presets_folder()).parent_path();
  if (!fs::exists(folder / file))
    throw ConfigError(
        fmt::format("this study needs {} of the source tree, and {} is none: use the laconic of a "
                    "tree that was built with ./dev build",
                    file, folder.string()));
  return as_typed(folder.string());
}

Places find_places(const std::string& out, const StudyFile& study,
                   const std::vector<Trial>& trials) {
  const bool has_peer = needs_python(study, trials);
  const auto advised = worker_environment(detect_cpu(), 1, {}, LACONIC_TORCH_VERSION);
  const std::string source = source_folder(has_peer ? "bench/peers/torch_ddp.py" : "");
  return {.laconic = as_typed(fs::read_symlink("/proc/self/exe").string()),
          .python = has_peer ? find_python() : "",
          .source = source,
          .work = out + "/scratch",
          .corpora = find_corpora(source),
          .peer_setting = peer_setting(advised, has_peer ? find_blas() : ""),
          .allocator = allocator_setting(advised)};
}

void require_labs(const std::vector<Trial>& trials) {
  if (std::any_of(trials.begin(), trials.end(),
                  [](const Trial& trial) { return trial.rate != "none"; }))
    refuse(check(detect_lab_rights()));
}

Study study_here(const StudyFile& study, const Places& places, const std::string& out,
                 const std::vector<Trial>& trials, double deadline_seconds) {
  Study here{.out = out,
             .environment = quiet_environment(current_environment()),
             .commit = std::string(build_commit()),
             .machine = machine_text(),
             .deadline_seconds = deadline_seconds};
  for (const Trial& trial : trials)
    here.trials.push_back(places.python.empty() ? without_weights(trial, study.models) : trial);
  here.command = [&](const Trial& trial, const std::string& folder) {
    return command_of(trial, study, places, folder);
  };
  here.samples = [&](const Trial& trial) { return samples_of(trial, study, places); };
  here.obstacle = [&](const Trial& trial) { return obstacle_to(trial, study.models, places); };
  here.estimate = [&](const Trial& trial) { return estimated_seconds(trial, study.models); };
  here.about = [&](const Trial& trial) {
    const StudyModel* model = find_model(study.models, trial.model);
    return model != nullptr ? description_of(*model) : "";
  };
  return here;
}

int tell_end(const StudyEnd& end, std::size_t trials, const std::string& again) {
  if (end.signal != 0) {
    fmt::print("interrupted after {} of {} trials; to go on: {}\n", end.outcomes.size(), trials,
               again);
    return 128 + end.signal;
  }
  const auto failures = std::count_if(end.outcomes.begin(), end.outcomes.end(), is_failure);
  fmt::print("{} trials, {} of them run now, {} failed\n", trials, end.ran, failures);
  tell_failures(end.outcomes);
  if (failures > 0) fmt::print("to run these again: {} --retry\n", again);
  return failures > 0 ? kExitFailure : 0;
}

}  // namespace laconic
