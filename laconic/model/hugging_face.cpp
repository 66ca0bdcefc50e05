#include "laconic/model/hugging_face.hpp"

#include <ATen/ops/empty.h>
#include <c10/core/GradMode.h>
#include <fmt/format.h>

#include <algorithm>
#include <cstring>
#include <filesystem>
#include <nlohmann/json.hpp>

#include "laconic/base/error.hpp"
#include "laconic/file/atomic_file.hpp"
#include "laconic/file/json.hpp"
#include "laconic/file/safetensors_writer.hpp"
#include "laconic/file/sharded.hpp"
#include "laconic/model/folder_convention.hpp"
#include "laconic/tensor/host.hpp"

namespace laconic {

namespace {

// What the weights hold of a parameter.
void copy_part(const Weights& weights, Parameter& parameter, const TensorView& source) {
  parameter.value.copy_(shard_from_bytes(source.bytes, source.entry->dtype, weights.place,
                                         weights.spec.parameters[parameter.number]));
}

bool is_ignored(const FolderConvention& convention, std::string_view name) {
  return std::ranges::any_of(convention.ignored_ends,
                             [&](const std::string& end) { return name.ends_with(end); });
}

bool is_of_head(const FolderConvention& convention, std::string_view name) {
  return std::ranges::any_of(convention.head_parts,
                             [&](const std::string& part) { return name.starts_with(part); });
}

// What the folder calls a parameter: its own name, with or without the prefix, or an older one;
// empty when it is not there.
std::string name_in_folder(const ShardedTensors& tensors, const FolderConvention& convention,
                           const std::string& parameter) {
  std::vector<std::string> names = {parameter, convention.prefix + parameter};
  if (parameter.starts_with(convention.prefix))
    names.push_back(parameter.substr(convention.prefix.size()));
  for (const auto& [end, older] : convention.older_ends)
    for (std::size_t i = 0, count = names.size(); i < count; ++i)
      if (names[i].ends_with(end))
        names.push_back(names[i].substr(0, names[i].size() - end.size()) + older);
  for (const std::string& name : names)
    if (tensors.contains(name)) return name;
  return "";
}

// What each parameter of a model is called in a folder, by number; empty: not there.
struct FolderNames {
  std::vector<std::string> names;
  Problems problems;  // everything that keeps the folder from being this model
};

FolderNames find_parameters(const ShardedTensors& tensors, const ModelSpec& model,
                            const FolderConvention& convention, HeadPolicy policy,
                            const std::string& folder) {
  FolderNames found;
  std::vector<std::string> expected;
  for (const auto& [copy, parameter] : convention.copies) expected.push_back(copy);
  const bool has_boundaries = std::ranges::any_of(
      tensors.names(), [](const std::string& name) { return name.starts_with(kBoundaryPrefix); });
  for (const ParameterSpec& spec : model.parameters) {
    if (spec.code) {
      found.names.emplace_back();
      continue;
    }
    const bool is_exchangeable =
        (policy == HeadPolicy::exchangeable && is_of_head(convention, spec.name)) ||
        (spec.is_of_boundary && !has_boundaries);
    std::string name = name_in_folder(tensors, convention, spec.name);
    const auto problem = [&](std::string what) {
      if (is_exchangeable)
        name.clear();
      else
        found.problems.push_back(
            {folder + ": " + (name.empty() ? spec.name : name), std::move(what)});
    };
    if (name.empty()) {
      problem("is missing");
    } else {
      expected.push_back(name);
      const SafetensorsEntry& entry = *tensors.at(name).entry;
      if (!is_float(entry.dtype))
        problem(fmt::format("has type {}, not a float type", to_text(entry.dtype)));
      if (!name.empty() && entry.shape != spec.sizes)
        problem(fmt::format("has shape [{}], not [{}]", fmt::join(entry.shape, ", "),
                            fmt::join(spec.sizes, ", ")));
    }
    found.names.push_back(std::move(name));
  }
  std::sort(expected.begin(), expected.end());
  for (const std::string& name : tensors.names())
    // Folders may hold heads beside the one that they name: bert-base-uncased does.
    if (!is_ignored(convention, name) && !is_of_head(convention, name) &&
        !std::binary_search(expected.begin(), expected.end(), name))
      found.problems.push_back(
          {folder + ": " + name, fmt::format("is not a parameter of {}", convention.family)});
  return found;
}

// What repeats a parameter must be equal to it.
void require_tied(const ShardedTensors& tensors, const FolderConvention& convention,
                  const std::string& folder) {
  for (const auto& [copy, parameter] : convention.copies) {
    const std::string name = name_in_folder(tensors, convention, parameter);
    if (!tensors.contains(copy) || name.empty()) continue;
    const ByteView head = tensors.at(copy).bytes, table = tensors.at(name).bytes;
    if (head.size() != table.size() || std::memcmp(head.data(), table.data(), head.size()) != 0)
      throw FileError(folder, copy,
                      fmt::format("differs from {}: an untied head is not supported", parameter));
  }
}

const char* name_of_type(Dtype dtype) {
  return dtype == Dtype::f64    ? "float64"
         : dtype == Dtype::f16  ? "float16"
         : dtype == Dtype::bf16 ? "bfloat16"
                                : "float32";
}

std::uint64_t bytes_of(const ParameterSpec& spec, Dtype dtype) {
  return laconic::bytes_of(dtype) * static_cast<std::uint64_t>(elements_of(spec));
}

using Shard = std::pair<std::size_t, std::size_t>;  // parameters by number: begin, end

// Parameters cut in consecutive runs of at most `most` bytes (0: one run).
std::vector<Shard> shards_of(const std::vector<ParameterSpec>& parameters, Dtype dtype,
                             std::uint64_t most) {
  std::vector<Shard> shards;
  std::size_t begin = 0;
  std::uint64_t bytes = 0;
  for (std::size_t i = 0; i < parameters.size(); ++i) {
    const std::uint64_t size = bytes_of(parameters[i], dtype);
    if (most > 0 && i > begin && bytes + size > most) {
      shards.emplace_back(begin, i);
      begin = i;
      bytes = 0;
    }
    bytes += size;
  }
  shards.emplace_back(begin, parameters.size());
  return shards;
}

void write_shard(const std::string& path, const std::vector<ParameterSpec>& parameters,
                 const ParameterSource& source, Shard shard, Dtype dtype) {
  std::vector<SafetensorsSpec> specs;
  for (std::size_t i = shard.first; i < shard.second; ++i)
    specs.push_back({parameters[i].name, dtype, parameters[i].sizes});
  // Hugging Face refuses a file whose metadata does not name the framework.
  SafetensorsWriter writer(path, std::move(specs), {{"format", "pt"}});
  for (std::size_t i = shard.first; i < shard.second; ++i)
    source(i, [&](const at::Tensor& piece) {
      writer.write_piece(bytes_of_tensor(piece.to(at::kCPU, scalar_type_of(dtype)).contiguous()));
    });
  writer.commit();
}

void write_index(const std::string& folder, const std::vector<ParameterSpec>& parameters,
                 const std::vector<std::string>& files, const std::vector<Shard>& shards,
                 Dtype dtype) {
  nlohmann::ordered_json map;
  std::uint64_t total = 0;
  for (std::size_t s = 0; s < shards.size(); ++s) {
    for (std::size_t i = shards[s].first; i < shards[s].second; ++i) {
      map[parameters[i].name] = files[s];
      total += bytes_of(parameters[i], dtype);
    }
  }
  const nlohmann::ordered_json index = {{"metadata", {{"total_size", total}}}, {"weight_map", map}};
  write_atomically(folder + "/model.safetensors.index.json", index.dump(2) + "\n");
}

}  // namespace

namespace {

// What a folder of a projected model has in its config.json: a type that no other program takes for
// the model that it would be without.
constexpr std::string_view kProjectedType = "laconic-projected-";
constexpr const char* kProjectKey = "laconic_project";

Projection read_projection(FolderConfig& config) {
  FolderConfig part = config.part(kProjectKey);
  Projection projection{.after = {},
                        .rank = part.size("rank"),
                        .basis = part.choice("basis", kBasisKindNames),
                        .anchor = part.choice("anchor", kAnchorKindNames)};
  const std::string after = part.text("after", ""), seed = part.text("seed", "");
  if (const auto layers = parse_layer_list(after); layers && !layers->empty())
    projection.after = *layers;
  else
    part.problem("after", fmt::format("= \"{}\" is no list of layers", after));
  if (const auto number = parse_layer_list(seed); number && number->size() == 1)
    projection.seed = static_cast<std::uint64_t>(number->front());
  else
    part.problem("seed", fmt::format("= \"{}\" is no number", seed));
  config.take_problems(part);
  return projection;
}

void write_projection(const Projection& projection, nlohmann::ordered_json& config) {
  config.erase("architectures");
  config["model_type"] = std::string(kProjectedType) + config["model_type"].get<std::string>();
  config[kProjectKey] = {{"after", layer_list(projection.after)},
                         {"rank", projection.rank},
                         {"basis", name_in(kBasisKindNames, projection.basis)},
                         {"anchor", name_in(kAnchorKindNames, projection.anchor)},
                         {"seed", fmt::to_string(projection.seed)}};
}

}  // namespace

Family read_family(const std::string& folder) {
  FolderConfig config(folder + "/config.json");
  std::string kind = config.text("model_type", "gpt2");
  const bool is_projected = kind.starts_with(kProjectedType);
  if (is_projected) kind = kind.substr(kProjectedType.size());
  const Projection projection = is_projected ? read_projection(config) : Projection();
  Family family;
  if (kind == "gpt2")
    family = read_gpt_shape(config);
  else if (kind == "llama" || kind == "mistral" || kind == "qwen2" || kind == "qwen3")
    family = read_llama_shape(config);
  else if (kind == "bert")
    family = read_bert_shape(config);
  else if (kind == kSeq2SeqType)
    family = read_seq2seq_shape(config);
  else if (kind == kLstmType)
    family = read_lstm_shape(config);
  else if (kind == kGnmtType)
    family = read_gnmt_shape(config);
  else
    config.problem("model_type", fmt::format("= \"{}\" is not supported", kind));
  if (is_projected && !can_project(family))
    config.problem("model_type", fmt::format("= \"{}\" cannot be projected", kind));
  config.finish();
  if (is_projected) family = with_projection(family, projection);
  refuse(check(family));
  return family;
}

std::vector<std::string> read_weights(const std::string& folder, Weights& weights,
                                      HeadPolicy policy) {
  const ShardedTensors tensors(folder);
  const FolderConvention convention =
      std::visit([](const auto& shape) { return convention_of(shape); }, weights.family);
  FolderNames found = find_parameters(tensors, weights.spec, convention, policy, folder);
  refuse(std::move(found.problems));
  require_tied(tensors, convention, folder);
  const at::NoGradGuard no_grad;
  std::vector<std::string> left;
  for (Parameter& p : weights.parameters) {
    const ParameterSpec& spec = weights.spec.parameters[p.number];
    if (spec.code) continue;
    std::string name = found.names[p.number];
    if (name.empty() && !spec.begins_as.empty())
      name = name_in_folder(tensors, convention, spec.begins_as);
    if (name.empty())
      left.push_back(p.name);
    else
      copy_part(weights, p, tensors.at(name));
  }
  refresh_copies(weights.parameters);
  return left;
}

Weights read_model(const std::string& folder, const at::TensorOptions& like,
                   const GridPlace& place) {
  Weights weights = make_empty_weights(read_family(folder), like, {}, 0, place);
  read_weights(folder, weights);
  return weights;
}

FolderFacts read_folder_facts(const std::string& folder) {
  const nlohmann::json config = read_json(folder + "/config.json");
  FolderFacts facts;
  for (const char* key : {"resid_pdrop", "attention_dropout", "hidden_dropout_prob"})
    if (const auto it = config.find(key); it != config.end() && it->is_number())
      facts.dropout = *it;
  // Llama 3 has several ends; the first is that of a text.
  const auto id_under = [&](const char* key) -> std::int64_t {
    const auto it = config.find(key);
    if (it == config.end()) return -1;
    const nlohmann::json& id = it->is_array() && !it->empty() ? it->front() : *it;
    return id.is_number_integer() ? id.get<std::int64_t>() : -1;
  };
  facts.end_of_text = id_under("eos_token_id");
  facts.begin_of_text = id_under("bos_token_id");
  if (const auto it = config.find("id2label"); it != config.end() && it->is_object())
    for (std::size_t i = 0; i < it->size(); ++i)
      if (const auto name = it->find(std::to_string(i)); name != it->end() && name->is_string())
        facts.label_names.push_back(*name);
  return facts;
}

std::string config_json(const Family& family, const FolderFacts& facts, Dtype dtype) {
  nlohmann::ordered_json config = std::visit(
      [&](const auto& shape) { return config_json(shape, facts, name_of_type(dtype)); }, family);
  const Projection projection = projection_of(family);
  if (!projection.is_empty()) write_projection(projection, config);
  return config.dump(2) + "\n";
}

void write_model(const std::string& folder, const Family& family, const ParameterSource& source,
                 const ExportOptions& options) {
  const std::vector<ParameterSpec> parameters = model_spec(family, context_of(family)).parameters;
  const std::vector<Shard> shards = shards_of(parameters, options.dtype, options.max_shard_bytes);
  std::vector<std::string> files;
  for (std::size_t s = 0; s < shards.size(); ++s) {
    files.push_back(shards.size() == 1
                        ? "model.safetensors"
                        : fmt::format("model-{:05}-of-{:05}.safetensors", s + 1, shards.size()));
    write_shard(folder + "/" + files.back(), parameters, source, shards[s], options.dtype);
  }
  if (shards.size() > 1) write_index(folder, parameters, files, shards, options.dtype);
  write_atomically(folder + "/config.json", config_json(family, options.facts, options.dtype));
}

void write_model(const std::string& folder, const Weights& weights, const ExportOptions& options) {
  write_model(
      folder, weights.family,
      [&](std::size_t p, const TakePiece& take) { take(weights.value(p).detach()); }, options);
}

}  // namespace laconic
