// Folders of the families beside GPT-2: written and read again, and what is refused.
#include <gtest/gtest.h>

#include <fstream>
#include <nlohmann/json.hpp>

#include "laconic/base/error.hpp"
#include "laconic/file/json.hpp"
#include "laconic/file/safetensors_writer.hpp"
#include "laconic/file/test_folder.hpp"
#include "laconic/model/hugging_face.hpp"
#include "laconic/tensor/host.hpp"

namespace laconic {
namespace {

const LlamaShape kLlama{.layers = 2,
                        .width = 8,
                        .heads = 2,
                        .key_heads = 1,
                        .head_width = 4,
                        .hidden = 12,
                        .context = 16,
                        .vocabulary = 11,
                        .rope = {.theta = 500}};
const BertShape kBert{
    .layers = 1, .width = 8, .heads = 2, .hidden = 12, .context = 6, .vocabulary = 11};

at::TensorOptions floats() {
  return at::TensorOptions().dtype(at::kFloat);
}

std::vector<Family> all_shapes() {
  LlamaShape qwen2 = kLlama, qwen3 = kLlama, scaled = kLlama, stretched = kLlama;
  qwen2.has_qkv_bias = qwen2.is_tied = true;
  qwen3.has_qk_norm = true;
  scaled.rope.scaling = RopeScaling::linear;
  scaled.rope.factor = 2;
  stretched.rope = {.theta = 100,
                    .scaling = RopeScaling::llama3,
                    .factor = 4,
                    .low_turns = 1,
                    .high_turns = 3,
                    .trained_context = 8};
  std::vector<Family> shapes = {kLlama, qwen2, qwen3, scaled, stretched};
  for (const auto& row : kBertHeadNames) {
    BertShape bert = kBert;
    bert.head = row.value;
    if (row.value == BertHead::classify) bert.labels = 3;
    shapes.push_back(bert);
  }
  for (const TableSharing sharing : {TableSharing::all, TableSharing::input, TableSharing::none})
    shapes.push_back(Seq2SeqShape{.layers = 1,
                                  .decoder_layers = 2,
                                  .width = 8,
                                  .heads = 2,
                                  .hidden = 12,
                                  .context = 6,
                                  .target_context = 6,
                                  .vocabulary = 11,
                                  .norm = NormPlace::post,
                                  .positions = PositionKind::learned,
                                  .sharing = sharing});
  for (const auto& row : kLstmProjectionNames)
    shapes.push_back(LstmShape{.layers = 2,
                               .width = 6,
                               .hidden = row.value == LstmProjection::none ? 6 : 9,
                               .context = 5,
                               .vocabulary = 11,
                               .projection = row.value});
  shapes.push_back(GnmtShape{.layers = 2,
                             .decoder_layers = 3,
                             .width = 6,
                             .context = 5,
                             .target_context = 7,
                             .vocabulary = 11});
  return shapes;
}

TEST(FamilyFolder, EveryShapeIsReadAsItWasWritten) {
  for (const Family& family : all_shapes()) {
    SCOPED_TRACE(to_text(family));
    const TemporaryFolder folder;
    const Weights weights = make_weights(family, 3, floats());
    write_model(folder.path(), weights, {.facts = {.label_names = {"a", "b", "c"}}});
    EXPECT_EQ(read_family(folder.path()), family);
    const Weights again = read_model(folder.path(), floats());
    for (std::size_t p = 0; p < weights.parameters.size(); ++p)
      EXPECT_TRUE(weights.parameters[p].value.equal(again.parameters[p].value))
          << weights.parameters[p].name;
  }
}

// What is read of a folder after its config.json was edited; or the refusal.
std::string outcome(const Family& family, const nlohmann::json& edits) {
  const TemporaryFolder folder;
  write_model(folder.path(), make_weights(family, 3, floats()), {});
  nlohmann::json config = read_json(folder / "config.json");
  for (const auto& [key, value] : edits.items()) config[key] = value;
  std::ofstream(folder / "config.json") << config;
  try {
    return to_text(read_family(folder.path())) == to_text(family) ? "the same" : "another";
  } catch (const std::exception& error) {
    return error.what();
  }
}

TEST(FamilyFolder, WhatALlamaAsksForAndIsNotComputedIsRefusedByItsKey) {
  const nlohmann::json refused = {
      {"hidden_act", "gelu"},  {"attention_bias", true},
      {"mlp_bias", true},      {"sliding_window", 8},
      {"use_mrope", true},     {"pretraining_tp", 2},
      {"rms_norm_eps", 0},     {"num_key_value_heads", 3},
      {"head_dim", 3},         {"layer_types", {"full_attention", "sliding_attention"}},
      {"logits_scaling", 2.0}, {"rope_theta", -1}};
  for (const auto& [key, value] : refused.items()) {
    const std::string found = outcome(kLlama, {{key, value}});
    EXPECT_NE(found.find(key == "rope_theta" ? "rope" : key), std::string::npos)
        << key << ": " << found;
  }
  EXPECT_NE(
      outcome(kLlama, {{"rope_scaling", {{"rope_type", "yarn"}, {"factor", 2}}}}).find("yarn"),
      std::string::npos);
  EXPECT_NE(outcome(kLlama, {{"architectures", {"LlamaForSequenceClassification"}}})
                .find("architectures"),
            std::string::npos);
}

TEST(FamilyFolder, WhatChangesNothingIsPassedOver) {
  for (const nlohmann::json& edits :
       {nlohmann::json{{"use_mrope", false}}, nlohmann::json{{"sliding_window", nullptr}},
        nlohmann::json{{"sliding_window", 16}}, nlohmann::json{{"rope_scaling", nullptr}},
        nlohmann::json{{"use_cache", true}, {"_attn_implementation_autoset", true}},
        nlohmann::json{{"sliding_window", 8}, {"use_sliding_window", false}},
        nlohmann::json{{"eos_token_id", {3, 4}}, {"bos_token_id", nullptr}}})
    EXPECT_EQ(outcome(kLlama, edits), "the same") << edits;
  // As transformers writes it since version 5.
  const TemporaryFolder folder;
  write_model(folder.path(), make_weights(kLlama, 3, floats()), {});
  nlohmann::json config = read_json(folder / "config.json");
  config.erase("rope_theta");
  config["rope_parameters"] = {{"rope_theta", 500.0}, {"rope_type", "default"}};
  std::ofstream(folder / "config.json") << config;
  EXPECT_EQ(read_family(folder.path()), Family(kLlama));
}

TEST(FamilyFolder, ABertIsRefusedForRelativePositionsAndTheLike) {
  const nlohmann::json refused = {{"hidden_act", "relu"},
                                  {"position_embedding_type", "relative_key"},
                                  {"is_decoder", true},
                                  {"unheard_of", 1}};
  for (const auto& [key, value] : refused.items())
    EXPECT_NE(outcome(kBert, {{key, value}}).find(key), std::string::npos) << key;
}

// Writes weights under other names, some left out.
void write_as(const std::string& folder, const Weights& weights,
              const std::function<std::string(std::string)>& name_of) {
  std::vector<SafetensorsSpec> specs;
  std::vector<const Parameter*> kept;
  for (const Parameter& p : weights.parameters)
    if (const std::string name = name_of(p.name); !name.empty()) {
      specs.push_back({name, Dtype::f32, p.value.sizes().vec()});
      kept.push_back(&p);
    }
  SafetensorsWriter writer(folder + "/model.safetensors", specs);
  for (const Parameter* p : kept) writer.write(bytes_of_tensor(p->value.detach()));
  writer.commit();
}

TEST(FamilyFolder, AnEncoderAloneLendsItsWeightsToAnyHead) {
  const TemporaryFolder folder;
  BertShape other = kBert;
  other.head = BertHead::pretraining;
  const Weights source = make_weights(other, 3, floats());
  // As BertModel is stored, and with the names that norms had once.
  write_as(folder.path(), source, [](std::string name) -> std::string {
    if (!name.starts_with("bert.")) return "";
    name.erase(0, 5);
    for (const auto& [end, older] : {std::pair{".LayerNorm.weight", ".LayerNorm.gamma"},
                                     {".LayerNorm.bias", ".LayerNorm.beta"}})
      if (name.ends_with(end)) name = name.substr(0, name.size() - std::string(end).size()) + older;
    return name;
  });
  BertShape wanted = kBert;
  wanted.head = BertHead::classify;
  Weights weights = make_weights(wanted, 4, floats());
  const std::vector<std::string> left =
      read_weights(folder.path(), weights, HeadPolicy::exchangeable);
  EXPECT_EQ(left, (std::vector<std::string>{"classifier.weight", "classifier.bias"}));
  EXPECT_TRUE(weights.parameters[0].value.equal(source.parameters[0].value));
  EXPECT_THROW(read_weights(folder.path(), weights), ConfigError);
}

TEST(FamilyFolder, HeadsBesideTheOneThatIsNamedArePassedOver) {
  const TemporaryFolder folder;
  BertShape all = kBert;
  all.head = BertHead::pretraining;
  write_as(folder.path(), make_weights(all, 3, floats()), [](std::string name) { return name; });
  Weights weights = make_weights(kBert, 4, floats());  // masked: no pooler, no next sentence
  EXPECT_TRUE(read_weights(folder.path(), weights).empty());
}

}  // namespace
}  // namespace laconic
