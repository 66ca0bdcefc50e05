#include <fmt/format.h>

#include "laconic/model/folder_convention.hpp"

namespace laconic {

namespace {

// Keys that say nothing about what is computed here: summaries, labels and tasks are of other
// heads.
constexpr std::string_view kBesideGpt[] = {"_name_or_path",
                                           "_num_labels",
                                           "_attn_implementation_autoset",
                                           "architectures",
                                           "attn_pdrop",
                                           "bos_token_id",
                                           "dtype",
                                           "embd_pdrop",
                                           "eos_token_id",
                                           "finetuning_task",
                                           "gradient_checkpointing",
                                           "id2label",
                                           "initializer_range",
                                           "is_decoder",
                                           "label2id",
                                           "n_ctx",
                                           "output_attentions",
                                           "output_hidden_states",
                                           "output_past",
                                           "pad_token_id",
                                           "predict_special_tokens",
                                           "resid_pdrop",
                                           "return_dict",
                                           "summary_activation",
                                           "summary_first_dropout",
                                           "summary_proj_to_labels",
                                           "summary_type",
                                           "summary_use_proj",
                                           "task_specific_params",
                                           "torch_dtype",
                                           "transformers.js_config",
                                           "transformers_version",
                                           "use_cache"};

}  // namespace

FolderConvention convention_of(const GptShape&) {
  return {.family = "GPT-2",
          .prefix = "transformer.",
          // Masks that old versions stored beside the weights.
          .ignored_ends = {".attn.bias", ".attn.masked_bias"},
          .copies = {{"lm_head.weight", "wte.weight"}}};
}

GptShape read_gpt_shape(FolderConfig& config) {
  config.require("activation_function", {"gelu_new", "gelu_pytorch_tanh"});
  config.require("tie_word_embeddings", {true});
  config.require("scale_attn_weights", {true});
  config.require("scale_attn_by_inverse_layer_idx", {false});
  config.require("reorder_and_upcast_attn", {false});
  config.require("add_cross_attention", {false});
  config.require("is_encoder_decoder", {false});
  config.require("n_special", {0});
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
  config.refuse_unknown(kBesideGpt);
  return shape;
}

nlohmann::ordered_json config_json(const GptShape& shape, const FolderFacts& facts,
                                   const char* dtype) {
  // Unless told otherwise, the last id: where GPT-2 has it, and our tokenisers too.
  const std::int64_t end_of_text =
      facts.end_of_text >= 0 ? facts.end_of_text : shape.vocabulary - 1;
  return {{"architectures", {"GPT2LMHeadModel"}},
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
          {"torch_dtype", dtype}};
}

}  // namespace laconic
