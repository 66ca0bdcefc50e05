#include <fmt/format.h>

#include "laconic/model/folder_convention.hpp"

namespace laconic {

namespace {

constexpr std::string_view kBesideSeq2Seq[] = {"architectures", "model_type",
                                               "torch_dtype",   "bos_token_id",
                                               "eos_token_id",  "attention_dropout"};

}  // namespace

FolderConvention convention_of(const Seq2SeqShape&) {
  return {.family = "this encoder-decoder", .prefix = "", .ignored_ends = {}, .copies = {}};
}

Seq2SeqShape read_seq2seq_shape(FolderConfig& config) {
  Seq2SeqShape shape{.layers = config.size("encoder_layers"),
                     .decoder_layers = config.size("decoder_layers"),
                     .width = config.size("width"),
                     .heads = config.size("heads"),
                     .hidden = config.size("hidden"),
                     .context = config.size("context"),
                     .target_context = config.size("target_context"),
                     .vocabulary = config.size("vocab_size"),
                     .norm_epsilon = config.number("layer_norm_eps", 1e-5),
                     .norm = config.choice("norm", kNormPlaceNames),
                     .positions = config.choice("positions", kPositionKindNames),
                     .sharing = config.choice("sharing", kTableSharingNames)};
  if (!(shape.norm_epsilon > 0))
    config.problem("layer_norm_eps", fmt::format("= {} is not positive", shape.norm_epsilon));
  if (shape.width % shape.heads != 0)
    config.problem("heads",
                   fmt::format("= {} does not divide width = {}", shape.heads, shape.width));
  config.refuse_unknown(kBesideSeq2Seq);
  return shape;
}

nlohmann::ordered_json config_json(const Seq2SeqShape& shape, const FolderFacts& facts,
                                   const char* dtype) {
  const std::int64_t end = facts.end_of_text >= 0 ? facts.end_of_text : shape.vocabulary - 1;
  return {{"model_type", kSeq2SeqType},
          {"encoder_layers", shape.layers},
          {"decoder_layers", shape.decoder_layers},
          {"width", shape.width},
          {"heads", shape.heads},
          {"hidden", shape.hidden},
          {"context", shape.context},
          {"target_context", shape.target_context},
          {"vocab_size", shape.vocabulary},
          {"layer_norm_eps", shape.norm_epsilon},
          {"norm", name_in(kNormPlaceNames, shape.norm)},
          {"positions", name_in(kPositionKindNames, shape.positions)},
          {"sharing", name_in(kTableSharingNames, shape.sharing)},
          {"attention_dropout", facts.dropout},
          {"bos_token_id", facts.begin_of_text >= 0 ? facts.begin_of_text : end},
          {"eos_token_id", end},
          {"torch_dtype", dtype}};
}

}  // namespace laconic
