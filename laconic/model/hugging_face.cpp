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
#include "laconic/tensor/host.hpp"

namespace laconic {

namespace {

constexpr std::string_view kPrefix = "transformer.";

// Reads config.json and remembers everything that is wrong with it.
class ConfigReader {
 public:
  explicit ConfigReader(const std::string& path) : path_(path), json_(read_json(path)) {
    if (!json_.is_object()) throw FileError(path, "", "is not a JSON object");
  }

  std::int64_t size(const char* key) {
    const auto it = json_.find(key);
    if (it != json_.end() && it->is_number_integer() && it->get<std::int64_t>() > 0 &&
        it->get<std::int64_t>() <= (1 << 24))
      return it->get<std::int64_t>();
    problem(key, it == json_.end() ? "is missing"
                                   : fmt::format("= {} is not a possible size", it->dump()));
    return 1;
  }

  double number(const char* key, double otherwise) {
    const auto it = json_.find(key);
    if (it == json_.end()) return otherwise;
    if (it->is_number()) return it->get<double>();
    problem(key, fmt::format("= {} is not a number", it->dump()));
    return otherwise;
  }

  // Absent or null is fine; anything else must be one of `accepted`.
  void require(const char* key, std::initializer_list<nlohmann::json> accepted) {
    const auto it = json_.find(key);
    if (it == json_.end() || it->is_null()) return;
    if (std::find(accepted.begin(), accepted.end(), *it) != accepted.end()) return;
    problem(key, fmt::format("= {} is not supported", it->dump()));
  }

  void problem(const std::string& key, const std::string& what) {
    problems_.push_back({path_ + ": " + key, what});
  }
  void finish() { refuse(problems_); }

 private:
  std::string path_;
  nlohmann::json json_;
  Problems problems_;
};

// Masks that old versions stored beside the weights.
bool is_buffer(std::string_view name) {
  return name.ends_with(".attn.bias") || name.ends_with(".attn.masked_bias");
}

void copy_into(at::Tensor& target, const TensorView& source) {
  target.copy_(tensor_from_bytes(source.bytes, source.entry->dtype, source.entry->shape));
}

// Everything in the folder that keeps it from being this model. `prefix` stands before every name.
Problems compare(const ShardedTensors& tensors, const GptShape& shape, const std::string& prefix,
                 const std::string& folder) {
  Problems problems;
  std::vector<std::string> expected = {"lm_head.weight"};
  for (const ParameterSpec& spec : parameter_specs(shape)) {
    const std::string name = prefix + spec.name;
    expected.push_back(name);
    if (!tensors.contains(name)) {
      problems.push_back({folder + ": " + name, "is missing"});
      continue;
    }
    const SafetensorsEntry& entry = *tensors.at(name).entry;
    if (entry.shape != spec.sizes)
      problems.push_back({folder + ": " + name,
                          fmt::format("has shape [{}], not [{}]", fmt::join(entry.shape, ", "),
                                      fmt::join(spec.sizes, ", "))});
    if (!is_float(entry.dtype))
      problems.push_back({folder + ": " + name,
                          fmt::format("has type {}, not a float type", to_text(entry.dtype))});
  }
  std::sort(expected.begin(), expected.end());
  for (const std::string& name : tensors.names())
    if (!is_buffer(name) && !std::binary_search(expected.begin(), expected.end(), name))
      problems.push_back({folder + ": " + name, "is not a parameter of GPT-2"});
  return problems;
}

void require_tied_head(const ShardedTensors& tensors, const std::string& prefix,
                       const std::string& folder) {
  if (!tensors.contains("lm_head.weight")) return;
  const ByteView head = tensors.at("lm_head.weight").bytes;
  const ByteView table = tensors.at(prefix + "wte.weight").bytes;
  if (head.size() != table.size() || std::memcmp(head.data(), table.data(), head.size()) != 0)
    throw FileError(folder, "lm_head.weight",
                    "differs from wte.weight: an untied head is not supported");
}

std::uint64_t bytes_of(const ParameterSpec& spec, Dtype dtype) {
  std::uint64_t bytes = laconic::bytes_of(dtype);
  for (const std::int64_t size : spec.sizes) bytes *= static_cast<std::uint64_t>(size);
  return bytes;
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
    writer.write(bytes_of_tensor(source(i).to(at::kCPU, scalar_type_of(dtype)).contiguous()));
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

GptShape read_gpt_shape(const std::string& folder) {
  ConfigReader config(folder + "/config.json");
  config.require("model_type", {"gpt2"});
  config.require("activation_function", {"gelu_new", "gelu_pytorch_tanh"});
  config.require("tie_word_embeddings", {true});
  config.require("scale_attn_weights", {true});
  config.require("scale_attn_by_inverse_layer_idx", {false});
  config.require("add_cross_attention", {false});
  GptShape shape{.layers = config.size("n_layer"),
                 .width = config.size("n_embd"),
                 .heads = config.size("n_head"),
                 .context = config.size("n_positions"),
                 .vocabulary = config.size("vocab_size"),
                 .norm_epsilon = config.number("layer_norm_epsilon", 1e-5)};
  config.require("n_inner", {4 * shape.width});
  if (!(shape.norm_epsilon > 0))
    config.problem("layer_norm_epsilon", fmt::format("= {} is not positive", shape.norm_epsilon));
  if (shape.width % shape.heads != 0)
    config.problem("n_head",
                   fmt::format("= {} does not divide n_embd = {}", shape.heads, shape.width));
  config.finish();
  return shape;
}

void read_gpt_weights(const std::string& folder, Gpt& gpt) {
  const ShardedTensors tensors(folder);
  const bool has_prefix = tensors.contains(std::string(kPrefix) + "wte.weight");
  const std::string prefix(has_prefix ? kPrefix : "");
  refuse(compare(tensors, gpt.shape, prefix, folder));
  require_tied_head(tensors, prefix, folder);
  const at::NoGradGuard no_grad;
  for (Parameter& p : gpt.parameters) copy_into(p.value, tensors.at(prefix + p.name));
}

Gpt read_gpt(const std::string& folder, const at::TensorOptions& like) {
  Gpt gpt = make_empty_gpt(read_gpt_shape(folder), like);
  read_gpt_weights(folder, gpt);
  return gpt;
}

GptFolderFacts read_gpt_facts(const std::string& folder) {
  const nlohmann::json config = read_json(folder + "/config.json");
  GptFolderFacts facts;
  if (const auto it = config.find("resid_pdrop"); it != config.end() && it->is_number())
    facts.dropout = *it;
  if (const auto it = config.find("eos_token_id"); it != config.end() && it->is_number_integer())
    facts.end_of_text = *it;
  return facts;
}

std::string gpt_config_json(const GptShape& shape, const GptFolderFacts& facts, Dtype dtype) {
  const char* type = dtype == Dtype::f64    ? "float64"
                     : dtype == Dtype::f16  ? "float16"
                     : dtype == Dtype::bf16 ? "bfloat16"
                                            : "float32";
  // Unless told otherwise, the last id: where GPT-2 has it, and our tokenisers too.
  const std::int64_t end_of_text =
      facts.end_of_text >= 0 ? facts.end_of_text : shape.vocabulary - 1;
  return nlohmann::ordered_json{{"architectures", {"GPT2LMHeadModel"}},
                                {"model_type", "gpt2"},
                                {"activation_function", "gelu_new"},
                                {"n_layer", shape.layers},
                                {"n_embd", shape.width},
                                {"n_head", shape.heads},
                                {"n_positions", shape.context},
                                {"n_inner", nullptr},
                                {"vocab_size", shape.vocabulary},
                                {"layer_norm_epsilon", shape.norm_epsilon},
                                {"embd_pdrop", facts.dropout},
                                {"attn_pdrop", facts.dropout},
                                {"resid_pdrop", facts.dropout},
                                {"tie_word_embeddings", true},
                                {"bos_token_id", end_of_text},
                                {"eos_token_id", end_of_text},
                                {"torch_dtype", type}}
             .dump(2) +
         "\n";
}

void write_gpt(const std::string& folder, const GptShape& shape, const ParameterSource& source,
               const ExportOptions& options) {
  const std::vector<ParameterSpec> parameters = parameter_specs(shape);
  const std::vector<Shard> shards = shards_of(parameters, options.dtype, options.max_shard_bytes);
  std::vector<std::string> files;
  for (std::size_t s = 0; s < shards.size(); ++s) {
    files.push_back(shards.size() == 1
                        ? "model.safetensors"
                        : fmt::format("model-{:05}-of-{:05}.safetensors", s + 1, shards.size()));
    write_shard(folder + "/" + files.back(), parameters, source, shards[s], options.dtype);
  }
  if (shards.size() > 1) write_index(folder, parameters, files, shards, options.dtype);
  write_atomically(folder + "/config.json", gpt_config_json(shape, options.facts, options.dtype));
}

void write_gpt(const std::string& folder, const Gpt& gpt, const ExportOptions& options) {
  write_gpt(
      folder, gpt.shape, [&](std::size_t p) { return gpt.value(p).detach(); }, options);
}

}  // namespace laconic
