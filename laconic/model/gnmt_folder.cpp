#include "laconic/model/folder_convention.hpp"

namespace laconic {

namespace {

constexpr std::string_view kBesideGnmt[] = {"architectures", "model_type",   "torch_dtype",
                                            "bos_token_id",  "eos_token_id", "attention_dropout"};

}  // namespace

FolderConvention convention_of(const GnmtShape&) {
  return {.family = "this GNMT", .prefix = "", .ignored_ends = {}, .copies = {}};
}

GnmtShape read_gnmt_shape(FolderConfig& config) {
  const GnmtShape shape{.layers = config.size("encoder_layers"),
                        .decoder_layers = config.size("decoder_layers"),
                        .width = config.size("width"),
                        .context = config.size("context"),
                        .target_context = config.size("target_context"),
                        .vocabulary = config.size("vocab_size")};
  config.refuse_unknown(kBesideGnmt);
  return shape;
}

nlohmann::ordered_json config_json(const GnmtShape& shape, const FolderFacts& facts,
                                   const char* dtype) {
  const std::int64_t end = facts.end_of_text >= 0 ? facts.end_of_text : shape.vocabulary - 1;
  return {{"model_type", kGnmtType},
          {"encoder_layers", shape.layers},
          {"decoder_layers", shape.decoder_layers},
          {"width", shape.width},
          {"context", shape.context},
          {"target_context", shape.target_context},
          {"vocab_size", shape.vocabulary},
          {"attention_dropout", facts.dropout},
          {"bos_token_id", facts.begin_of_text >= 0 ? facts.begin_of_text : end},
          {"eos_token_id", end},
          {"torch_dtype", dtype}};
}

}  // namespace laconic
