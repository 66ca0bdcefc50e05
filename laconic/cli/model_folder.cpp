#include "laconic/cli/model_folder.hpp"

#include <ATen/Parallel.h>
#include <fmt/format.h>

#include <filesystem>
#include <nlohmann/json.hpp>
#include <optional>

#include "laconic/base/error.hpp"
#include "laconic/checkpoint/resume.hpp"
#include "laconic/cli/rank.hpp"
#include "laconic/file/atomic_file.hpp"
#include "laconic/launch/place.hpp"

namespace laconic {

namespace fs = std::filesystem;

std::string model_folder(const std::string& path) {
  if (!fs::exists(path) && fs::path(path).filename() == "best" &&
      fs::is_directory(fs::path(path).parent_path() / "checkpoints"))
    return model_folder(best_checkpoint((fs::path(path).parent_path() / "checkpoints").string()));
  if (!fs::exists(path))
    throw FileError(path, "", "does not exist",
                    "give a checkpoint, a run folder or a Hugging Face folder");
  if (fs::exists(path + "/config.json")) {
    if (is_checkpoint(path)) verify_checkpoint(path);
    return path;
  }
  std::vector<std::string> warnings;
  const std::string latest = find_latest_checkpoint(
      fs::is_directory(path + "/checkpoints") ? path + "/checkpoints" : path, warnings);
  for (const std::string& warning : warnings) fmt::print(stderr, "laconic: {}\n", warning);
  if (latest.empty())
    throw FileError(path, "", "holds neither config.json nor a good checkpoint",
                    "give a checkpoint, a run folder or a Hugging Face folder");
  return latest;
}

namespace {

// Which folder is meant rank 0 finds out: a run may be writing checkpoints there.
void use_in(World& world, const RunConfig& config, int local_rank, const UseModel& use) {
  const std::string folder =
      world.decide_on_rank_0([&] { return model_folder(config.model.start); });
  use(load_model(folder, config, local_rank, world));
}

}  // namespace

void with_model(const ModelArguments& arguments, const UseModel& use) {
  RunConfig config = config_of(arguments);
  if (arguments.threads > 0) at::set_num_threads(arguments.threads);
  const int ranks = tp_size(mesh_of(config));
  if (ranks == 1) {
    World alone;
    return use_in(alone, config, 0, use);
  }
  const std::optional<Place> place = find_place(current_environment());
  if (!place)
    throw ConfigError(fmt::format(
        "--tp {} needs {} ranks, and nobody has started any: laconic does", arguments.tp, ranks));
  config.train.batch = ranks;  // which any grid divides: other numbers leave some ranks with less
  config.run.folder.clear();   // no run, and nothing to keep
  const RankWork work = [&](const TrainOptions& options, const PreflightReport&) {
    use_in(*options.world, options.config, options.start.local_rank, use);
    return TrainSummary();
  };
  train_as_rank({.config = config}, *place, work, /*introduces=*/false);
}

void write_json(const std::string& path, const nlohmann::ordered_json& json,
                const ModelRanks& ranks) {
  if (!path.empty() && ranks.is_first())
    write_atomically(path,
                     json.dump(2, ' ', false, nlohmann::json::error_handler_t::replace) + "\n");
}

}  // namespace laconic
