#include <fmt/format.h>

#include "laconic/model/folder_convention.hpp"

namespace laconic {

namespace {

// Keys that say nothing about what is computed.
constexpr std::string_view kBesideLlama[] = {"attention_dropout", "is_decoder", "is_llama_config",
                                             "max_window_layers", "rope_interleaved"};

// Transformers wrote rope_theta and rope_scaling up to version 4, and rope_parameters since.
Rope read_rope(FolderConfig& config) {
  Rope rope{.theta = config.number("rope_theta", 10000)};
  FolderConfig scaling = config.part("rope_parameters");
  if (scaling.is_empty()) scaling = config.part("rope_scaling");
  if (scaling.is_empty()) return rope;
  rope.theta = scaling.number("rope_theta", rope.theta);
  const std::string kind = scaling.text("rope_type", scaling.text("type", "default"));
  if (kind == "linear") {
    rope.scaling = RopeScaling::linear;
    rope.factor = scaling.number("factor", 1);
  } else if (kind == "llama3") {
    rope.scaling = RopeScaling::llama3;
    rope.factor = scaling.number("factor", 1);
    rope.low_turns = scaling.number("low_freq_factor", 1);
    rope.high_turns = scaling.number("high_freq_factor", 4);
    rope.trained_context = scaling.size("original_max_position_embeddings");
  } else if (kind != "default") {
    scaling.problem("rope_type", fmt::format("= \"{}\" is not supported", kind));
  }
  scaling.refuse_unknown({});
  config.take_problems(scaling);
  if (!(rope.theta > 0) || !(rope.factor > 0) || !(rope.high_turns > rope.low_turns))
    config.problem("rope", fmt::format("theta = {}, factor = {}, low_freq_factor = {} and "
                                       "high_freq_factor = {} make no angles",
                                       rope.theta, rope.factor, rope.low_turns, rope.high_turns));
  return rope;
}

// A window as long as the context, or switched off, changes nothing.
void refuse_sliding_window(FolderConfig& config, const std::string& kind, std::int64_t context) {
  // What Hugging Face takes where a key is missing differs from kind to kind.
  if (config.flag("use_sliding_window", !kind.starts_with("qwen"))) {
    const bool is_said = config.has("sliding_window");
    const std::int64_t window =
        config.size("sliding_window", kind == "mistral" && !is_said ? 4096 : context);
    if (window < context)
      config.problem("sliding_window", fmt::format("= {} is less than the context of {}: attention "
                                                   "to a window is not supported",
                                                   window, context));
  } else {
    config.skip("sliding_window");
  }
  for (const std::string& kind : config.texts("layer_types"))
    if (kind != "full_attention")
      config.problem("layer_types", fmt::format("has \"{}\", which is not supported", kind));
}

}  // namespace

FolderConvention convention_of(const LlamaShape& shape) {
  FolderConvention convention{.family = "Llama",
                              .prefix = "",
                              .ignored_ends = {".rotary_emb.inv_freq"},  // old versions stored them
                              .copies = {}};
  if (shape.is_tied) convention.copies = {{"lm_head.weight", "model.embed_tokens.weight"}};
  return convention;
}

LlamaShape read_llama_shape(FolderConfig& config) {
  const std::string kind = config.text("model_type", "llama");
  for (const std::string& name : config.texts("architectures"))
    if (!name.ends_with("ForCausalLM"))
      config.problem("architectures", fmt::format("has {}; only ...ForCausalLM is read", name));
  LlamaShape shape{.layers = config.size("num_hidden_layers"),
                   .width = config.size("hidden_size"),
                   .heads = config.size("num_attention_heads"),
                   .hidden = config.size("intermediate_size"),
                   .context = config.size("max_position_embeddings"),
                   .vocabulary = config.size("vocab_size"),
                   .norm_epsilon = config.number("rms_norm_eps", 1e-6),
                   .rope = read_rope(config),
                   .has_qkv_bias = kind == "qwen2",
                   .has_qk_norm = kind == "qwen3",
                   .is_tied = config.flag("tie_word_embeddings", false)};
  shape.key_heads = config.size("num_key_value_heads", shape.heads);
  // Qwen3's own default, which its configurations need not say.
  shape.head_width = config.size(
      "head_dim", kind == "qwen3" ? 128 : std::max<std::int64_t>(shape.width / shape.heads, 1));
  config.require("hidden_act", {"silu"});
  config.require("attention_bias", {false});
  config.require("mlp_bias", {false});
  config.require("pretraining_tp", {1});
  config.require("use_mrope", {false});
  refuse_sliding_window(config, kind, shape.context);
  if (!(shape.norm_epsilon > 0))
    config.problem("rms_norm_eps", fmt::format("= {} is not positive", shape.norm_epsilon));
  if (shape.heads % shape.key_heads != 0)
    config.problem(
        "num_key_value_heads",
        fmt::format("= {} does not divide num_attention_heads = {}", shape.key_heads, shape.heads));
  if (shape.head_width % 2 != 0)
    config.problem("head_dim", fmt::format("= {} is odd: pairs are rotated", shape.head_width));
  config.take_generic();
  config.refuse_unknown(kBesideLlama);
  return shape;
}

nlohmann::ordered_json config_json(const LlamaShape& shape, const FolderFacts& facts,
                                   const char* dtype) {
  const char* kind = shape.has_qk_norm ? "qwen3" : shape.has_qkv_bias ? "qwen2" : "llama";
  const char* model = shape.has_qk_norm    ? "Qwen3ForCausalLM"
                      : shape.has_qkv_bias ? "Qwen2ForCausalLM"
                                           : "LlamaForCausalLM";
  nlohmann::ordered_json json = {{"architectures", {model}},
                                 {"model_type", kind},
                                 {"hidden_act", "silu"},
                                 {"num_hidden_layers", shape.layers},
                                 {"hidden_size", shape.width},
                                 {"num_attention_heads", shape.heads},
                                 {"num_key_value_heads", shape.key_heads},
                                 {"head_dim", shape.head_width},
                                 {"intermediate_size", shape.hidden},
                                 {"max_position_embeddings", shape.context},
                                 {"vocab_size", shape.vocabulary},
                                 {"rms_norm_eps", shape.norm_epsilon},
                                 {"rope_theta", shape.rope.theta},
                                 {"attention_dropout", facts.dropout},
                                 {"tie_word_embeddings", shape.is_tied},
                                 {"torch_dtype", dtype}};
  if (shape.rope.scaling == RopeScaling::linear)
    json["rope_scaling"] = {{"rope_type", "linear"}, {"factor", shape.rope.factor}};
  if (shape.rope.scaling == RopeScaling::llama3)
    json["rope_scaling"] = {{"rope_type", "llama3"},
                            {"factor", shape.rope.factor},
                            {"low_freq_factor", shape.rope.low_turns},
                            {"high_freq_factor", shape.rope.high_turns},
                            {"original_max_position_embeddings", shape.rope.trained_context}};
  // Unless told otherwise, the last id: where our tokenisers have it.
  const std::int64_t end = facts.end_of_text >= 0 ? facts.end_of_text : shape.vocabulary - 1;
  json["bos_token_id"] = facts.begin_of_text >= 0 ? facts.begin_of_text : end;
  json["eos_token_id"] = end;
  return json;
}

}  // namespace laconic
