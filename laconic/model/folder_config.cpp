#include <fmt/format.h>

#include <algorithm>

#include "laconic/base/error.hpp"
#include "laconic/file/json.hpp"
#include "laconic/model/folder_convention.hpp"

namespace laconic {

namespace {

// Keys of any model that say nothing about what is computed here: where it came from, how outputs
// are packed, which ids are special, heads and tasks of other uses.
constexpr std::string_view kBesideAnyModel[] = {"_attn_implementation_autoset",
                                                "_commit_hash",
                                                "_name_or_path",
                                                "_num_labels",
                                                "architectures",
                                                "bos_token_id",
                                                "cls_token_id",
                                                "decoder_start_token_id",
                                                "dtype",
                                                "eos_token_id",
                                                "finetuning_task",
                                                "gradient_checkpointing",
                                                "id2label",
                                                "initializer_range",
                                                "label2id",
                                                "mask_token_id",
                                                "model_type",
                                                "name_or_path",
                                                "num_labels",
                                                "output_attentions",
                                                "output_hidden_states",
                                                "output_past",
                                                "pad_token_id",
                                                "prefix",
                                                "problem_type",
                                                "return_dict",
                                                "sep_token_id",
                                                "task_specific_params",
                                                "tf_legacy_loss",
                                                "tokenizer_class",
                                                "torch_dtype",
                                                "torchscript",
                                                "transformers.js_config",
                                                "transformers_version",
                                                "unk_token_id",
                                                "use_bfloat16",
                                                "use_cache"};

// How Transformers' generate() chooses tokens. Up to version 4 it wrote its settings here.
constexpr std::string_view kGenerationKeys[] = {"bad_words_ids",
                                                "begin_suppress_tokens",
                                                "diversity_penalty",
                                                "do_sample",
                                                "early_stopping",
                                                "encoder_no_repeat_ngram_size",
                                                "exponential_decay_length_penalty",
                                                "forced_bos_token_id",
                                                "forced_eos_token_id",
                                                "length_penalty",
                                                "max_length",
                                                "max_new_tokens",
                                                "min_length",
                                                "min_new_tokens",
                                                "no_repeat_ngram_size",
                                                "num_beam_groups",
                                                "num_beams",
                                                "num_return_sequences",
                                                "output_scores",
                                                "remove_invalid_values",
                                                "repetition_penalty",
                                                "return_dict_in_generate",
                                                "suppress_tokens",
                                                "temperature",
                                                "top_k",
                                                "top_p",
                                                "typical_p"};

}  // namespace

FolderConfig::FolderConfig(const std::string& path) : path_(path), json_(read_json(path)) {
  if (!json_.is_object()) throw FileError(path, "", "is not a JSON object");
}

const nlohmann::json* FolderConfig::find(const char* key) {
  seen_.insert(key);
  const auto it = json_.find(key);
  return it == json_.end() ? nullptr : &*it;
}

std::int64_t FolderConfig::size(const char* key) {
  const nlohmann::json* value = find(key);
  if (value != nullptr && value->is_number_integer() && value->get<std::int64_t>() > 0 &&
      value->get<std::int64_t>() <= (1 << 24))
    return value->get<std::int64_t>();
  problem(key, value == nullptr ? "is missing"
                                : fmt::format("= {} is not a possible size", value->dump()));
  return 1;
}

std::int64_t FolderConfig::size(const char* key, std::int64_t otherwise) {
  const nlohmann::json* value = find(key);
  return value == nullptr || value->is_null() ? otherwise : size(key);
}

double FolderConfig::number(const char* key, double otherwise) {
  const nlohmann::json* value = find(key);
  if (value == nullptr || value->is_null()) return otherwise;
  if (value->is_number()) return value->get<double>();
  problem(key, fmt::format("= {} is not a number", value->dump()));
  return otherwise;
}

bool FolderConfig::flag(const char* key, bool otherwise) {
  const nlohmann::json* value = find(key);
  if (value == nullptr || value->is_null()) return otherwise;
  if (value->is_boolean()) return value->get<bool>();
  problem(key, fmt::format("= {} is neither true nor false", value->dump()));
  return otherwise;
}

std::string FolderConfig::text(const char* key, const std::string& otherwise) {
  const nlohmann::json* value = find(key);
  if (value == nullptr || value->is_null()) return otherwise;
  if (value->is_string()) return value->get<std::string>();
  problem(key, fmt::format("= {} is not a text", value->dump()));
  return otherwise;
}

std::vector<std::string> FolderConfig::texts(const char* key) {
  const nlohmann::json* value = find(key);
  if (value == nullptr || value->is_null()) return {};
  std::vector<std::string> texts;
  if (value->is_array())
    for (const nlohmann::json& item : *value)
      if (item.is_string()) texts.push_back(item);
  if (!value->is_array() || texts.size() != value->size())
    problem(key, fmt::format("= {} is not a list of texts", value->dump()));
  return texts;
}

void FolderConfig::refuse_choice(const char* key, const std::string& given,
                                 const std::string& names) {
  problem(key, fmt::format("= \"{}\" is none of {}", given, names));
}

FolderConfig FolderConfig::part(const char* key) {
  const nlohmann::json* value = find(key);
  if (value != nullptr && !value->is_null() && !value->is_object())
    problem(key, fmt::format("= {} is not an object", value->dump()));
  const bool is_there = value != nullptr && value->is_object();
  return {path_ + ": " + key, is_there ? *value : nlohmann::json::object()};
}

void FolderConfig::require(const char* key, std::initializer_list<nlohmann::json> accepted) {
  const nlohmann::json* value = find(key);
  if (value == nullptr || value->is_null()) return;
  if (std::find(accepted.begin(), accepted.end(), *value) != accepted.end()) return;
  problem(key, fmt::format("= {} is not supported", value->dump()));
}

void FolderConfig::take_generic() {
  for (const std::string_view key : kBesideAnyModel) seen_.emplace(key);
  for (const std::string_view key : kGenerationKeys) seen_.emplace(key);
  require("pruned_heads", {nlohmann::json::object()});
  require("is_encoder_decoder", {false});
  require("add_cross_attention", {false});
  require("tie_encoder_decoder", {false});
  require("chunk_size_feed_forward", {0});
}

void FolderConfig::refuse_unknown(std::span<const std::string_view> harmless) {
  for (const auto& [key, value] : json_.items())
    if (!seen_.contains(key) && std::ranges::find(harmless, key) == harmless.end() &&
        !value.is_null())
      problem(key, fmt::format("= {} is not known here, and may ask for something that is not "
                               "computed",
                               value.dump()));
}

void FolderConfig::take_problems(FolderConfig& part) {
  append(problems_, std::move(part.problems_));
}

void FolderConfig::problem(const std::string& key, const std::string& what) {
  problems_.push_back({path_ + ": " + key, what});
}

void FolderConfig::finish() {
  refuse(problems_);
}

}  // namespace laconic
