#include "laconic/cli/model_folder.hpp"

#include <ATen/Parallel.h>
#include <fmt/format.h>

#include <filesystem>
#include <nlohmann/json.hpp>

#include "laconic/base/error.hpp"
#include "laconic/checkpoint/resume.hpp"
#include "laconic/file/atomic_file.hpp"
#include "laconic/model/hugging_face.hpp"

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

Weights load_model(const ModelArguments& arguments, const std::string& folder) {
  RunConfig config;
  config.run.device = parse_device(arguments.device).value();
  config.run.precision = value_in(kRunPrecisionNames, arguments.dtype).value();
  if (arguments.threads > 0) at::set_num_threads(arguments.threads);
  return read_model(folder, tensor_options(config));
}

void write_json(const std::string& path, const nlohmann::ordered_json& json) {
  if (!path.empty())
    write_atomically(path,
                     json.dump(2, ' ', false, nlohmann::json::error_handler_t::replace) + "\n");
}

}  // namespace laconic
