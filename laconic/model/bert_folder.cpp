#include <fmt/format.h>

#include "laconic/model/folder_convention.hpp"

namespace laconic {

namespace {

// Keys that say nothing about what is computed here.
constexpr std::string_view kBesideBert[] = {
    "attention_probs_dropout_prob", "classifier_dropout",   "directionality",
    "hidden_dropout_prob",          "pooler_fc_size",       "pooler_num_attention_heads",
    "pooler_num_fc_layers",         "pooler_size_per_head", "pooler_type"};

struct HeadName {
  BertHead head;
  const char* architecture;
};
constexpr HeadName kHeadNames[] = {{BertHead::masked, "BertForMaskedLM"},
                                   {BertHead::pretraining, "BertForPreTraining"},
                                   {BertHead::classify, "BertForSequenceClassification"},
                                   {BertHead::regress, "BertForSequenceClassification"},
                                   {BertHead::span, "BertForQuestionAnswering"}};

// The encoder alone counts as one that finds hidden words: whoever starts from it says what its
// head shall be.
BertHead read_head(FolderConfig& config, std::int64_t labels) {
  const std::vector<std::string> names = config.texts("architectures");
  const std::string name = names.empty() ? "BertModel" : names.front();
  const std::string problem = config.text("problem_type", "");
  if (name == "BertModel") return BertHead::masked;
  for (const HeadName& row : kHeadNames)
    if (name == row.architecture) {
      if (row.head != BertHead::classify) return row.head;
      if (problem == "multi_label_classification")
        config.problem("problem_type", "= \"multi_label_classification\" is not supported");
      const bool is_number = problem == "regression" || (problem.empty() && labels == 1);
      return is_number ? BertHead::regress : BertHead::classify;
    }
  config.problem("architectures", fmt::format("has {}, which is not supported", name));
  return BertHead::masked;
}

// Hugging Face counts labels by their names, and takes two when there are none.
std::int64_t count_labels(FolderConfig& config) {
  const std::int64_t named = static_cast<std::int64_t>(config.part("id2label").size());
  return config.size("num_labels", named > 0 ? named : 2);
}

}  // namespace

FolderConvention convention_of(const BertShape& shape) {
  FolderConvention convention{
      .family = "BERT",
      .prefix = "bert.",
      .ignored_ends = {"embeddings.position_ids"},
      .copies = {},
      .older_ends = {{".LayerNorm.weight", ".LayerNorm.gamma"},
                     {".LayerNorm.bias", ".LayerNorm.beta"}},
      .head_parts = {"cls.", "classifier.", "qa_outputs.", "bert.pooler.", "pooler."}};
  if (shape.head == BertHead::masked || shape.head == BertHead::pretraining)
    convention.copies = {
        {"cls.predictions.decoder.weight", "bert.embeddings.word_embeddings.weight"},
        {"cls.predictions.decoder.bias", "cls.predictions.bias"}};
  return convention;
}

BertShape read_bert_shape(FolderConfig& config) {
  config.require("hidden_act", {"gelu"});
  config.require("position_embedding_type", {"absolute"});
  config.require("is_decoder", {false});
  config.require("tie_word_embeddings", {true});
  BertShape shape{.layers = config.size("num_hidden_layers"),
                  .width = config.size("hidden_size"),
                  .heads = config.size("num_attention_heads"),
                  .hidden = config.size("intermediate_size"),
                  .context = config.size("max_position_embeddings"),
                  .vocabulary = config.size("vocab_size"),
                  .types = config.size("type_vocab_size", 2),
                  .norm_epsilon = config.number("layer_norm_eps", 1e-12),
                  .labels = count_labels(config)};
  shape.head = read_head(config, shape.labels);
  if (shape.head != BertHead::classify) shape.labels = BertShape().labels;
  if (!(shape.norm_epsilon > 0))
    config.problem("layer_norm_eps", fmt::format("= {} is not positive", shape.norm_epsilon));
  if (shape.width % shape.heads != 0)
    config.problem("num_attention_heads",
                   fmt::format("= {} does not divide hidden_size = {}", shape.heads, shape.width));
  config.take_generic();
  config.refuse_unknown(kBesideBert);
  return shape;
}

nlohmann::ordered_json config_json(const BertShape& shape, const FolderFacts& facts,
                                   const char* dtype) {
  const char* architecture = "";
  for (const HeadName& row : kHeadNames)
    if (row.head == shape.head) architecture = row.architecture;
  nlohmann::ordered_json json = {{"architectures", {architecture}},
                                 {"model_type", "bert"},
                                 {"hidden_act", "gelu"},
                                 {"num_hidden_layers", shape.layers},
                                 {"hidden_size", shape.width},
                                 {"num_attention_heads", shape.heads},
                                 {"intermediate_size", shape.hidden},
                                 {"max_position_embeddings", shape.context},
                                 {"vocab_size", shape.vocabulary},
                                 {"type_vocab_size", shape.types},
                                 {"layer_norm_eps", shape.norm_epsilon},
                                 {"hidden_dropout_prob", facts.dropout},
                                 {"attention_probs_dropout_prob", facts.dropout},
                                 {"torch_dtype", dtype}};
  if (shape.head != BertHead::classify && shape.head != BertHead::regress) return json;
  const bool is_number = shape.head == BertHead::regress;
  json["problem_type"] = is_number ? "regression" : "single_label_classification";
  for (std::int64_t i = 0; i < (is_number ? 1 : shape.labels); ++i) {
    const auto place = static_cast<std::size_t>(i);
    const std::string name =
        place < facts.label_names.size() ? facts.label_names[place] : fmt::format("LABEL_{}", i);
    json["id2label"][std::to_string(i)] = name;
    json["label2id"][name] = i;
  }
  return json;
}

}  // namespace laconic
