#include "laconic/train/resume.hpp"

#include <ATen/Context.h>
#include <fmt/format.h>

#include <cstdlib>
#include <filesystem>

#include "laconic/base/error.hpp"
#include "laconic/base/text.hpp"
#include "laconic/config/read.hpp"
#include "laconic/model/hugging_face.hpp"
#include "laconic/tensor/host.hpp"

namespace laconic {

namespace {

namespace fs = std::filesystem;

GptShape configured_shape(const RunConfig& config, std::int64_t vocabulary) {
  const ModelSection& m = config.model;
  if (!m.start.empty()) {
    if (is_checkpoint(m.start)) verify_checkpoint(m.start);
    const GptShape shape = read_gpt_shape(m.start);
    if (m.context > shape.context)
      throw ConfigError(fmt::format("model.context = {} is more than the {} positions of {}",
                                    m.context, shape.context, m.start));
    return shape;
  }
  const std::int64_t tokens = m.vocabulary > 0 ? m.vocabulary : vocabulary;
  if (tokens == 0)
    throw ConfigError(
        fmt::format("model.vocabulary = 0 and {}.json does not exist: say how many token ids "
                    "the data has",
                    config.data.train));
  return {.layers = m.layers,
          .width = m.width,
          .heads = m.heads,
          .context = m.context,
          .vocabulary = tokens};
}

void require_same_shape(const GptShape& found, const GptShape& wanted, const std::string& folder) {
  Problems problems;
  const auto compare = [&](const char* key, std::int64_t has, std::int64_t wants) {
    if (has != wants)
      problems.push_back({folder, fmt::format("was made with model.{} = {}, the run asks for {}",
                                              key, has, wants)});
  };
  compare("layers", found.layers, wanted.layers);
  compare("width", found.width, wanted.width);
  compare("heads", found.heads, wanted.heads);
  compare("context", found.context, wanted.context);
  compare("vocabulary", found.vocabulary, wanted.vocabulary);
  refuse(problems);
}

// Parameters, gradients and both moments, and what forward keeps of each layer at the very least. A
// run that cannot fit is refused here, before the system runs out of memory and kills somebody.
void require_memory(const RunConfig& config, const GptShape& shape, const HeldBlocks& held,
                    std::int64_t memory_bytes) {
  if (memory_bytes == 0 || config.run.device != Device::cpu) return;
  const auto is_held = [&](std::int64_t block) {
    return held.empty() || held[static_cast<std::size_t>(block)];
  };
  const auto width = static_cast<double>(shape.width);
  double layers = 0;
  for (std::int64_t b = 1; b <= shape.layers; ++b) layers += is_held(b) ? 1 : 0;
  const auto item = static_cast<double>(bytes_of(config.run.dtype));
  const double ends = is_held(0) || is_held(shape.layers + 1)
                          ? static_cast<double>(shape.vocabulary + shape.context) * width
                          : 0;
  const double parameters = ends + layers * (12 * width + 13) * width + 2 * width;
  const std::int64_t samples = config.microbatch_size();
  const double activations = static_cast<double>(samples) *
                             static_cast<double>(config.model.context) * layers * width * item;
  const double needed = 4 * parameters * item + activations;
  if (needed <= static_cast<double>(memory_bytes)) return;
  throw ConfigError(fmt::format(
      "this run needs at least {}, {} for {} parameters and {} for a microbatch of {}; the machine "
      "has {}",
      human_bytes(needed), human_bytes(4 * parameters * item), human_count(parameters),
      human_bytes(activations), samples, human_bytes(static_cast<double>(memory_bytes))));
}

// Old checkpoints stand in the way: they go once everything else is known to be fine, if the user
// said so.
void replace(std::vector<std::string> old, const RunConfig& config, const StartOptions& options,
             Start& start) {
  if (old.empty()) return;
  if (!options.overwrite)
    throw ConfigError(fmt::format(
        "{} already holds {}: add --resume auto to continue from there, --overwrite to throw it "
        "away, or choose another run.folder",
        config.run.folder, fs::path(old.front()).filename().string()));
  start.replaced = std::move(old);
}

std::string newest_good(const std::string& folder, Start& start) {
  const std::string latest = find_latest_checkpoint(folder, start.notes);
  if (latest.empty() && !start.notes.empty())
    throw FileError(folder, "", "no checkpoint there is good:\n" + join(start.notes, "\n"),
                    "--overwrite without --resume begins anew");
  return latest;
}

// The checkpoint to continue from; empty: none.
std::string checkpoint_to_resume(const RunConfig& config, const StartOptions& options,
                                 Start& start) {
  if (options.follows) {
    if (options.resume == "none") return "";
    if (!is_checkpoint(options.resume))
      throw FileError(options.resume, "", "is where rank 0 goes on from, but cannot be seen here",
                      "use a run.folder that all machines share, or copy the checkpoint there");
    verify_checkpoint(options.resume);
    return options.resume;
  }
  const std::string folder = checkpoints_folder(config);
  if (options.resume == "auto") return newest_good(folder, start);
  std::int64_t kept = -1;  // checkpoints after this step stand in the way
  if (options.resume != "none") {
    verify_checkpoint(options.resume);
    const fs::path home = fs::weakly_canonical(options.resume).parent_path();
    if (home == fs::weakly_canonical(folder)) kept = read_checkpoint_info(options.resume).step;
  }
  replace(checkpoints_after(folder, kept), config, options, start);
  return options.resume == "none" ? "" : options.resume;
}

void continue_from(const std::string& checkpoint, const RunConfig& config, const GptShape& shape,
                   const HeldBlocks& held, const DataFacts& data, Start& start) {
  const GptShape found = read_gpt_shape(checkpoint);
  require_same_shape(found, shape, checkpoint);
  start.gpt = make_empty_gpt(found, tensor_options(config), held);  // with its own epsilon
  load_checkpoint(checkpoint, start.gpt, start.state);
  start.from = checkpoint;
  start.is_resumed = true;
  for (const std::string& change : changes_since(checkpoint, config))
    start.notes.push_back("changed since the checkpoint: " + change);
  if (read_checkpoint_info(checkpoint).data_xxh3 != data.xxh3)
    start.notes.push_back("the training data is not what the checkpoint was made with: position " +
                          with_commas(start.state.position) + " now means other samples");
}

}  // namespace

std::string checkpoints_folder(const RunConfig& config) {
  return config.run.folder + "/checkpoints";
}

at::TensorOptions tensor_options(const RunConfig& config) {
  const bool is_cuda = config.run.device == Device::cuda;
  if (is_cuda && !at::hasCUDA())
    throw ConfigError(std::string("run.device = \"cuda\", but this libtorch (" LACONIC_TORCH_VERSION
                                  ") sees no CUDA device: `laconic doctor` says why"));
  if (is_cuda) {
    // Sums of gradients by atomic addition come in any order; a resumed run must not.
    ::setenv("CUBLAS_WORKSPACE_CONFIG", ":4096:8", 0);
    at::globalContext().setDeterministicAlgorithms(true, /*warn_only=*/true);
  }
  return at::TensorOptions()
      .dtype(scalar_type_of(config.run.dtype))
      .device(is_cuda ? at::kCUDA : at::kCPU);
}

std::vector<std::string> changes_since(const std::string& checkpoint, const RunConfig& config) {
  RunConfig before;
  // Keys of other versions are passed over.
  apply_toml(read_checkpoint_info(checkpoint).config_toml, checkpoint, before);
  return differences(before, config);
}

Start start_run(const RunConfig& config, const StartOptions& options, const DataFacts& data,
                const HeldBy& held_by) {
  Start start;
  const std::string checkpoint = checkpoint_to_resume(config, options, start);
  const GptShape shape = configured_shape(config, data.vocabulary);
  const HeldBlocks held = held_by ? held_by(shape, checkpoint) : HeldBlocks();
  require_memory(config, shape, held, options.memory_bytes);
  if (!checkpoint.empty()) {
    continue_from(checkpoint, config, shape, held, data, start);
    return start;
  }
  if (config.model.start.empty()) {
    start.gpt =
        make_gpt(shape, static_cast<std::uint64_t>(config.run.seed), tensor_options(config), held);
  } else {
    start.gpt = make_empty_gpt(shape, tensor_options(config), held);
    read_gpt_weights(config.model.start, start.gpt);
    start.from = config.model.start;
  }
  start.state.optimiser = make_optimiser_state(start.gpt.parameters);
  return start;
}

}  // namespace laconic
