#include <fmt/format.h>

#include "laconic/model/folder_convention.hpp"

namespace laconic {

namespace {

// Keys that say nothing about what is computed here: dropout is the run's, summaries are of other
// heads.
constexpr std::string_view kBesideGpt[] = {"attn_pdrop",
                                           "embd_pdrop",
                                           "is_decoder",
                                           "n_ctx",
                                           "predict_special_tokens",
                                           "resid_pdrop",
                                           "summary_activation",
                                           "summary_first_dropout",
                                           "summary_proj_to_labels",
                                           "summary_type",
                                           "summary_use_proj"};

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
  config.take_generic();
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
