#include "laconic/checkpoint/checkpoint.hpp"

#include <c10/core/GradMode.h>
#include <fmt/format.h>

#include <algorithm>
#include <cerrno>
#include <cstdio>
#include <filesystem>
#include <nlohmann/json.hpp>

#include "laconic/base/clock.hpp"
#include "laconic/base/error.hpp"
#include "laconic/file/atomic_file.hpp"
#include "laconic/file/checksum.hpp"
#include "laconic/file/json.hpp"
#include "laconic/file/mapped_file.hpp"
#include "laconic/file/safetensors_writer.hpp"
#include "laconic/model/hugging_face.hpp"
#include "laconic/run/run_folder.hpp"
#include "laconic/tensor/host.hpp"

namespace laconic {

namespace {

namespace fs = std::filesystem;

constexpr int kFormat = 1;
constexpr std::string_view kWriting = ".writing";
constexpr std::string_view kRemoving = ".removing";
constexpr std::string_view kBest = "best";
constexpr const char* kCodes = "codes.safetensors";  // of a tensor grid's messages
constexpr const char* kRemedy = "use an older checkpoint";

// Newest first.
std::vector<fs::path> checkpoints_in(const std::string& folder) {
  const std::vector<std::string> found = step_folders(folder);
  return {found.begin(), found.end()};
}

TakePiece piece_writer(SafetensorsWriter& writer) {
  return [&writer](const at::Tensor& piece) {
    writer.write_piece(bytes_of_tensor(piece.to(at::kCPU).contiguous()));
  };
}

void write_moments(const std::string& path, const ModelSource& model) {
  const ModelSpec spec = model_spec(model.family, context_of(model.family));
  std::vector<ParameterSpec> parameters = spec.parameters;
  parameters.insert(parameters.end(), model.codes.begin(), model.codes.end());
  const auto has_part = [&](Part part, std::size_t p) {
    if (p < spec.parameters.size()) return laconic::has_part(model.optimiser, spec, part, p);
    return part != Part::moment2 || moment_count(model.optimiser, false) == 2;
  };
  std::vector<SafetensorsSpec> specs;
  for (const Part part : {Part::moment1, Part::moment2})
    for (std::size_t p = 0; p < parameters.size(); ++p)
      if (has_part(part, p))
        specs.push_back({(part == Part::moment1 ? "moment1." : "moment2.") + parameters[p].name,
                         model.dtype, parameters[p].sizes});
  SafetensorsWriter writer(path, std::move(specs));
  for (const Part part : {Part::moment1, Part::moment2})
    for (std::size_t p = 0; p < parameters.size(); ++p)
      if (has_part(part, p)) model.tensor(part, p, piece_writer(writer));
  writer.commit();
}

void write_codes(const std::string& path, const ModelSource& model) {
  if (model.codes.empty()) return;
  const std::size_t first = model_spec(model.family, context_of(model.family)).parameters.size();
  std::vector<SafetensorsSpec> specs;
  for (const ParameterSpec& code : model.codes)
    specs.push_back({code.name, model.dtype, code.sizes});
  SafetensorsWriter writer(path, std::move(specs));
  for (std::size_t n = 0; n < model.codes.size(); ++n)
    model.tensor(Part::value, first + n, piece_writer(writer));
  writer.commit();
}

void copy_tokeniser(const std::string& from, const fs::path& to) {
  for (const auto& entry : fs::directory_iterator(from))
    if (entry.is_regular_file())
      write_atomically((to / entry.path().filename()).string(),
                       MappedFile(entry.path().string()).text());
}

// Sums up everything in state.json but the check sum itself, in sorted order.
std::string checksum_of_state(nlohmann::json state) {
  state.erase("xxh3");
  const std::string text = state.dump();
  Checksum sum;
  sum.update(as_bytes(std::span(text.data(), text.size())));
  return sum.hex();
}

nlohmann::ordered_json json_of(const ValidationState& validation) {
  nlohmann::ordered_json json = {{"stale", validation.stale}};
  if (validation.reference) json["reference"] = *validation.reference;
  if (!validation.best_loss) return json;
  json["best_loss"] = *validation.best_loss;
  json["best_step"] = validation.best_step;
  return json;
}

// Absent where padding was never cut off.
std::int64_t tokens_of(const nlohmann::json& state, const std::string& folder) {
  if (!state.contains("tokens")) return 0;
  const nlohmann::json& tokens = state["tokens"];
  if (!tokens.is_number_integer() || tokens.get<std::int64_t>() < 0)
    throw FileError(folder + "/state.json", "tokens", "is not what this program writes", kRemedy);
  return tokens.get<std::int64_t>();
}

// Absent before the first evaluation, and in checkpoints of older programs.
ValidationState validation_of(const nlohmann::json& state, const std::string& folder) {
  ValidationState validation;
  if (!state.contains("validation")) return validation;
  try {
    const nlohmann::json& json = state["validation"];
    validation.stale = json.at("stale").get<std::int64_t>();
    if (json.contains("reference")) validation.reference = json["reference"].get<double>();
    if (!json.contains("best_loss")) return validation;
    validation.best_loss = json["best_loss"].get<double>();
    validation.best_step = json.at("best_step").get<std::int64_t>();
  } catch (const nlohmann::json::exception&) {
    throw FileError(folder + "/state.json", "validation", "is not what this program writes",
                    kRemedy);
  }
  return validation;
}

void write_state(const fs::path& folder, const CheckpointSpec& spec, Dtype dtype,
                 const TrainState& state) {
  nlohmann::ordered_json files;
  std::vector<fs::path> paths;
  for (const auto& entry : fs::directory_iterator(folder)) paths.push_back(entry.path());
  std::sort(paths.begin(), paths.end());
  for (const fs::path& path : paths)
    files[path.filename().string()] = {{"bytes", fs::file_size(path)},
                                       {"xxh3", checksum_of_file(path)}};
  nlohmann::ordered_json json = {{"format", kFormat},
                                 {"step", state.step},
                                 {"position", state.position},
                                 {"skipped", state.skipped},
                                 {"skipped_in_a_row", state.skipped_in_a_row},
                                 {"updates", state.optimiser.updates},
                                 {"dtype", to_text(dtype)},
                                 {"saved", utc_now()},
                                 {"data_xxh3", spec.data_xxh3},
                                 {"files", files},
                                 {"config", spec.config_toml}};
  if (state.tokens > 0) json["tokens"] = state.tokens;
  if (state.validation.best_loss || state.validation.stale > 0)
    json["validation"] = json_of(state.validation);
  if (!spec.pipeline.empty()) json["pipeline"] = spec.pipeline;
  if (!spec.steering.empty()) json["steering"] = spec.steering;
  json["xxh3"] = checksum_of_state(json);
  write_atomically((folder / "state.json").string(), json.dump(2) + "\n");
}

// Later ones than `step` are not ours to count or remove: damaged, or of another attempt.
void remove_old(const CheckpointSpec& spec, std::int64_t step, const std::string& best) {
  std::vector<fs::path> old;
  for (const auto& entry : fs::directory_iterator(spec.folder))
    if (entry.path().extension() == kRemoving) old.push_back(entry.path());  // of a killed run
  std::int64_t kept = 0;
  for (const fs::path& path : checkpoints_in(spec.folder))
    if (spec.keep > 0 && *step_of_folder(path) <= step && path.filename() != best &&
        ++kept > spec.keep)
      old.push_back(path);
  for (const fs::path& path : old) {
    try {
      remove_checkpoint(path.string());
    } catch (const fs::filesystem_error&) {
      // A checkpoint that cannot be removed is no reason to end a run.
    }
  }
}

// state.json, with every field the reader relies on checked.
nlohmann::json read_state(const std::string& folder) {
  const std::string path = folder + "/state.json";
  if (!fs::exists(path))
    throw FileError(folder, "state.json", "is missing: not a Laconic checkpoint",
                    "to begin from other weights, set model.start");
  nlohmann::json state = read_json(path);
  const auto require = [&](const char* key, bool holds) {
    if (!holds) throw FileError(path, key, "is missing or of another type", kRemedy);
  };
  require("", state.is_object());
  require("format", state.contains("format") && state["format"].is_number_integer());
  if (state["format"] != kFormat)
    throw FileError(path, "format",
                    fmt::format("is {}, this program reads {}", state["format"].dump(), kFormat),
                    "use the version that wrote it");
  for (const char* key : {"step", "position", "skipped", "skipped_in_a_row", "updates"})
    require(key, state.contains(key) && state[key].is_number_integer() &&
                     state[key].get<std::int64_t>() >= 0);
  for (const char* key : {"dtype", "config", "data_xxh3", "xxh3"})
    require(key, state.contains(key) && state[key].is_string());
  require("files", state.contains("files") && state["files"].is_object());
  if (state["xxh3"] != checksum_of_state(state))
    throw FileError(path, "check sum", "does not fit: the file is damaged", kRemedy);
  return state;
}

void verify_file(const fs::path& path, const nlohmann::json& expected) {
  if (!expected.is_object() || !expected.contains("bytes") || !expected.contains("xxh3"))
    throw FileError(path.string(), "state.json", "has no size and check sum for it", kRemedy);
  if (!fs::is_regular_file(path)) throw FileError(path.string(), "", "is missing", kRemedy);
  const std::uint64_t size = fs::file_size(path);
  if (expected["bytes"] != size)
    throw FileError(path.string(), "size",
                    fmt::format("is {} bytes, not {}", size, expected["bytes"].dump()), kRemedy);
  if (const std::string sum = checksum_of_file(path); expected["xxh3"] != sum)
    throw FileError(path.string(), "check sum",
                    fmt::format("is {}, not {}: the file is damaged", sum, expected["xxh3"].dump()),
                    kRemedy);
}

// Returns those that are not there, or of another size.
std::vector<std::string> load_codes(const std::string& folder, Weights& weights) {
  const std::string path = folder + "/" + kCodes;
  std::optional<SafetensorsFile> file;
  if (fs::exists(path)) file.emplace(path);
  const at::NoGradGuard no_grad;
  std::vector<std::string> missing;
  for (Parameter& parameter : weights.parameters) {
    const ParameterSpec& spec = weights.spec.parameters[parameter.number];
    if (!spec.code) continue;
    const SafetensorsEntry* entry = file ? file->find(parameter.name) : nullptr;
    if (entry != nullptr && entry->shape == spec.sizes)
      parameter.value.copy_(
          shard_from_bytes(file->bytes(*entry), entry->dtype, weights.place, spec));
    else
      missing.push_back(parameter.name);
  }
  refresh_copies(weights.parameters);
  return missing;
}

void load_moments(const std::string& path, const Weights& weights, OptimiserState& optimiser) {
  const SafetensorsFile file(path);
  const auto load = [&](const std::string& name, const ParameterSpec& like, at::Tensor& into) {
    const SafetensorsEntry& entry = file.at(name);
    if (entry.shape != like.sizes)
      throw FileError(path, name,
                      fmt::format("has shape [{}], not [{}]", fmt::join(entry.shape, ", "),
                                  fmt::join(like.sizes, ", ")),
                      kRemedy);
    into.copy_(shard_from_bytes(file.bytes(entry), entry.dtype, weights.place, like));
  };
  for (std::size_t i = 0; i < weights.parameters.size(); ++i) {
    const Parameter& parameter = weights.parameters[i];
    const ParameterSpec& spec = weights.spec.parameters[parameter.number];
    const SafetensorsEntry* found = file.find("moment1." + parameter.name);
    if (spec.code && (found == nullptr || found->shape != spec.sizes)) continue;  // begins anew
    load("moment1." + parameter.name, spec, optimiser.moment1[i]);
    if (optimiser.moment2[i].defined())
      load("moment2." + parameter.name, spec, optimiser.moment2[i]);
  }
}

}  // namespace

void remove_checkpoint(const std::string& folder) {
  fs::path removing = folder;
  if (removing.extension() != kRemoving) {
    removing += kRemoving;
    fs::remove_all(removing);
    fs::rename(folder, removing);
  }
  fs::remove_all(removing);
}

bool has_part(OptimiserKind optimiser, const ModelSpec& spec, Part part, std::size_t p) {
  return part != Part::moment2 || moment_count(optimiser, is_hidden_matrix(spec, p)) == 2;
}

std::vector<ParameterSpec> codes_of(const ModelSpec& spec) {
  std::vector<ParameterSpec> codes;
  for (const ParameterSpec& p : spec.parameters)
    if (p.code) codes.push_back(p);
  return codes;
}

ModelSource source_of(const Weights& weights, const OptimiserState& optimiser, OptimiserKind kind) {
  return {
      .family = weights.family,
      .dtype = dtype_of(weights.precision.master),
      .optimiser = kind,
      .codes = codes_of(weights.spec),
      .tensor = [&](Part part, std::size_t p, const TakePiece& take) {
        if (part == Part::value) return take(weights.value(p).detach());
        take((part == Part::moment1 ? optimiser.moment1 : optimiser.moment2)[weights.places[p]]);
      }};
}

std::string save_checkpoint(const CheckpointSpec& spec, const ModelSource& model,
                            const TrainState& state) {
  const fs::path final = fs::path(spec.folder) / step_folder_name(state.step);
  const fs::path writing = final.string() + std::string(kWriting);
  try {
    fs::remove_all(writing);
    fs::create_directories(writing);
    write_model(writing.string(), model.family,
                [&](std::size_t p, const TakePiece& take) { model.tensor(Part::value, p, take); },
                {.dtype = model.dtype, .facts = spec.facts});
    write_codes((writing / kCodes).string(), model);
    write_moments((writing / "optimiser.safetensors").string(), model);
    if (!spec.tokeniser_folder.empty()) copy_tokeniser(spec.tokeniser_folder, writing);
    if (spec.add_files) spec.add_files(writing.string());
    write_state(writing, spec, model.dtype, state);
    if (fs::exists(final)) remove_checkpoint(final.string());  // after a resume from an older one
    fs::rename(writing, final);
    sync_folder(spec.folder);
  } catch (...) {
    std::error_code ignored;
    fs::remove_all(writing, ignored);
    throw;
  }
  const bool has_best = spec.keeps_best && state.validation.best_loss;
  if (has_best) point_to_best(spec.folder, state.validation);
  remove_old(spec, state.step, has_best ? step_folder_name(state.validation.best_step) : "");
  return final.string();
}

// A link is made under another name and renamed, so that there is always one or the other.
void point_to_best(const std::string& folder, const ValidationState& validation) {
  const fs::path link = fs::path(folder) / kBest;
  const std::string target = step_folder_name(validation.best_step);
  std::error_code ignored;
  if (!validation.best_loss || !is_checkpoint((fs::path(folder) / target).string())) {
    fs::remove(link, ignored);
    return;
  }
  if (fs::read_symlink(link, ignored) == target) return;
  const fs::path making = link.string() + std::string(kWriting);
  fs::remove(making, ignored);
  std::error_code error;
  fs::create_directory_symlink(target, making, error);
  if (!error) fs::rename(making, link, error);
  if (error) throw SystemError(link.string(), "link", error.value());
  sync_folder(folder);
}

std::string best_checkpoint(const std::string& folder) {
  const fs::path link = fs::path(folder) / kBest;
  if (!is_checkpoint(link.string()))
    throw FileError(link.string(), "", "does not exist",
                    "runs with checkpoint.best = true make it at the first evaluation");
  return fs::weakly_canonical(link).string();
}

void verify_checkpoint(const std::string& folder) {
  const nlohmann::json state = read_state(folder);
  for (const char* needed : {"config.json", "model.safetensors", "optimiser.safetensors"})
    if (!state["files"].contains(needed))
      throw FileError(folder, needed, "is not listed in state.json", kRemedy);
  for (const auto& [name, expected] : state["files"].items()) {
    if (name.find('/') != std::string::npos)
      throw FileError(folder + "/state.json", "files", "names a path outside: " + name, kRemedy);
    verify_file(fs::path(folder) / name, expected);
  }
}

std::string find_latest_checkpoint(const std::string& folder, std::vector<std::string>& warnings) {
  for (const fs::path& path : checkpoints_in(folder)) {
    try {
      verify_checkpoint(path.string());
      return path.string();
    } catch (const FileError& error) {
      warnings.push_back(fmt::format("passing over a damaged checkpoint: {}", error.what()));
    }
  }
  return {};
}

CheckpointInfo read_checkpoint_info(const std::string& folder) {
  const nlohmann::json state = read_state(folder);
  return {state["step"].get<std::int64_t>(), state["config"].get<std::string>(),
          state["data_xxh3"].get<std::string>(), state.value("pipeline", std::string()),
          state.value("steering", std::string())};
}

bool is_checkpoint(const std::string& folder) {
  return fs::exists(folder + "/state.json");
}

std::vector<std::string> load_checkpoint(const std::string& folder, Weights& weights,
                                         TrainState& state, OptimiserKind kind) {
  const nlohmann::json json = read_state(folder);
  const std::string_view dtype = to_text(dtype_of(weights.precision.master));
  if (json["dtype"] != dtype)
    throw FileError(folder, "dtype",
                    fmt::format("is {}, the run's is {}", json["dtype"].dump(), dtype),
                    "set run.precision to one with parameters of that type, or begin a new run "
                    "with model.start");
  read_weights(folder, weights);
  std::vector<std::string> missing = load_codes(folder, weights);
  const at::NoGradGuard no_grad;
  state.optimiser = make_optimiser_state(weights.parameters, kind);
  load_moments(folder + "/optimiser.safetensors", weights, state.optimiser);
  state.step = json["step"].get<std::int64_t>();
  state.position = json["position"].get<std::int64_t>();
  state.tokens = tokens_of(json, folder);
  state.skipped = json["skipped"].get<std::int64_t>();
  state.skipped_in_a_row = json["skipped_in_a_row"].get<std::int64_t>();
  state.optimiser.updates = json["updates"].get<std::int64_t>();
  state.validation = validation_of(json, folder);
  return missing;
}

}  // namespace laconic
