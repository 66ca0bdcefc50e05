#include <fmt/format.h>

#include "laconic/model/folder_convention.hpp"

namespace laconic {

namespace {

constexpr std::string_view kBesideLstm[] = {"architectures", "model_type",   "torch_dtype",
                                            "bos_token_id",  "eos_token_id", "attention_dropout"};

}  // namespace

FolderConvention convention_of(const LstmShape&) {
  return {.family = "this LSTM", .prefix = "", .ignored_ends = {}, .copies = {}};
}

LstmShape read_lstm_shape(FolderConfig& config) {
  const LstmShape shape{.layers = config.size("layers"),
                        .width = config.size("width"),
                        .hidden = config.size("hidden"),
                        .context = config.size("context"),
                        .vocabulary = config.size("vocab_size"),
                        .projection = config.choice("projection", kLstmProjectionNames)};
  config.refuse_unknown(kBesideLstm);
  return shape;
}

nlohmann::ordered_json config_json(const LstmShape& shape, const FolderFacts& facts,
                                   const char* dtype) {
  const std::int64_t end = facts.end_of_text >= 0 ? facts.end_of_text : shape.vocabulary - 1;
  return {{"model_type", kLstmType},
          {"layers", shape.layers},
          {"width", shape.width},
          {"hidden", shape.hidden},
          {"context", shape.context},
          {"vocab_size", shape.vocabulary},
          {"projection", name_in(kLstmProjectionNames, shape.projection)},
          {"attention_dropout", facts.dropout},
          {"bos_token_id", facts.begin_of_text >= 0 ? facts.begin_of_text : end},
          {"eos_token_id", end},
          {"torch_dtype", dtype}};
}

}  // namespace laconic
