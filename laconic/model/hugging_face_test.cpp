#include "laconic/model/hugging_face.hpp"

#include <gtest/gtest.h>

#include <filesystem>
#include <fstream>
#include <nlohmann/json.hpp>

#include "laconic/base/error.hpp"
#include "laconic/file/json.hpp"
#include "laconic/file/safetensors_writer.hpp"
#include "laconic/file/test_folder.hpp"
#include "laconic/tensor/host.hpp"

namespace laconic {
namespace {

const GptShape kShape{.layers = 2, .width = 8, .heads = 2, .context = 5, .vocabulary = 11};

Weights some_weights() {
  return make_weights(kShape, 3, at::TensorOptions().dtype(at::kFloat));
}

void expect_equal(const Weights& a, const Weights& b) {
  ASSERT_EQ(a.parameters.size(), b.parameters.size());
  for (std::size_t i = 0; i < a.parameters.size(); ++i)
    EXPECT_TRUE(a.parameters[i].value.equal(b.parameters[i].value)) << a.parameters[i].name;
}

// Writes the parameters under other names, with extra tensors.
void write_renamed(const std::string& path, const Weights& weights, const std::string& prefix,
                   bool is_tied) {
  std::vector<SafetensorsSpec> specs;
  for (const Parameter& p : weights.parameters)
    specs.push_back({prefix + p.name, Dtype::f32, p.value.sizes().vec()});
  specs.push_back({prefix + "h.0.attn.bias", Dtype::u8, {1, 1, 5, 5}});
  specs.push_back({"lm_head.weight", Dtype::f32, {11, 8}});
  SafetensorsWriter writer(path, specs);
  for (const Parameter& p : weights.parameters) writer.write(bytes_of_tensor(p.value.detach()));
  writer.write(Bytes(25, std::byte{}));
  writer.write(is_tied ? bytes_of_tensor(weights.parameters[0].value.detach())
                       : ByteView(Bytes(11 * 8 * 4, std::byte{})));
  writer.commit();
}

std::string refusal_to_read(const std::string& folder) {
  try {
    read_model(folder, at::TensorOptions().dtype(at::kFloat));
  } catch (const std::exception& error) {
    return error.what();
  }
  return "(accepted)";
}

void edit_config(const std::string& folder, const std::string& key, const nlohmann::json& value) {
  nlohmann::json config = read_json(folder + "/config.json");
  if (value.is_discarded())
    config.erase(key);
  else
    config[key] = value;
  std::ofstream(folder + "/config.json") << config;
}

TEST(HuggingFace, WhatIsWrittenIsRead) {
  for (const std::uint64_t shard : {0, 1, 500, 1 << 20}) {
    const TemporaryFolder folder;
    write_model(folder.path(), some_weights(), {.max_shard_bytes = shard});
    EXPECT_EQ(read_family(folder.path()), Family(kShape));
    expect_equal(read_model(folder.path(), at::TensorOptions().dtype(at::kFloat)), some_weights());
  }
}

TEST(HuggingFace, SmallerTypesRoundOnTheWayOut) {
  const TemporaryFolder folder;
  write_model(folder.path(), some_weights(), {.dtype = Dtype::bf16});
  const Weights back = read_model(folder.path(), at::TensorOptions().dtype(at::kDouble));
  const at::Tensor expected = some_weights().parameters[0].value.to(at::kBFloat16).to(at::kDouble);
  EXPECT_TRUE(back.parameters[0].value.equal(expected));
}

TEST(HuggingFace, PrefixedNamesMasksAndATiedHeadAreAccepted) {
  for (const char* prefix : {"", "transformer."}) {
    const TemporaryFolder folder;
    write_model(folder.path(), some_weights(), {});
    write_renamed(folder / "model.safetensors", some_weights(), prefix, true);
    expect_equal(read_model(folder.path(), at::TensorOptions().dtype(at::kFloat)), some_weights());
    write_renamed(folder / "model.safetensors", some_weights(), prefix, false);
    EXPECT_NE(refusal_to_read(folder.path()).find("lm_head.weight: differs from wte.weight"),
              std::string::npos);
  }
}

TEST(HuggingFace, AnotherModelIsRefusedWithEveryReason) {
  const TemporaryFolder folder;
  write_model(folder.path(), some_weights(), {});
  edit_config(folder.path(), "activation_function", "relu");
  edit_config(folder.path(), "n_head", 3);
  edit_config(folder.path(), "n_layer", nlohmann::json(nlohmann::json::value_t::discarded));
  const std::string text = refusal_to_read(folder.path());
  EXPECT_NE(text.find("activation_function: = \"relu\" is not supported"), std::string::npos)
      << text;
  EXPECT_NE(text.find("n_head: = 3 does not divide n_embd = 8"), std::string::npos) << text;
  EXPECT_NE(text.find("n_layer: is missing"), std::string::npos) << text;
}

// Of openai-community/gpt2, gpt2-medium and distilgpt2, and of what Transformers 4 and 5 write, all
// keys; sizes of this test's.
TEST(HuggingFace, ConfigsThatPeopleHaveAreAccepted) {
  const TemporaryFolder folder;
  write_model(folder.path(), some_weights(), {});
  const nlohmann::json known = {
      {"activation_function", "gelu_new"},
      {"architectures", {"GPT2LMHeadModel"}},
      {"attn_pdrop", 0.1},
      {"bos_token_id", 10},
      {"embd_pdrop", 0.1},
      {"eos_token_id", 10},
      {"initializer_range", 0.02},
      {"layer_norm_epsilon", 1e-05},
      {"model_type", "gpt2"},
      {"n_ctx", 5},
      {"n_embd", 8},
      {"n_head", 2},
      {"n_layer", 2},
      {"n_positions", 5},
      {"n_special", 0},
      {"predict_special_tokens", true},
      {"output_past", true},
      {"resid_pdrop", 0.1},
      {"summary_activation", nullptr},
      {"summary_first_dropout", 0.1},
      {"summary_proj_to_labels", true},
      {"summary_type", "cls_index"},
      {"summary_use_proj", true},
      {"task_specific_params", {{"text-generation", {{"do_sample", true}, {"max_length", 50}}}}},
      {"vocab_size", 11},
      {"_num_labels", 1},
      {"id2label", {{"0", "LABEL_0"}}},
      {"label2id", {{"LABEL_0", 0}}},
      {"n_inner", nullptr},
      {"pad_token_id", nullptr},
      {"reorder_and_upcast_attn", false},
      {"scale_attn_by_inverse_layer_idx", false},
      {"scale_attn_weights", true},
      {"add_cross_attention", false},
      {"tie_word_embeddings", true},
      {"dtype", "float32"},
      {"torch_dtype", "float32"},
      {"transformers_version", "5.0.0"},
      {"use_cache", true},
      {"_name_or_path", "gpt2"}};
  std::ofstream(folder / "config.json") << known;
  EXPECT_EQ(read_family(folder.path()), Family(kShape));
  for (const auto& [key, value] :
       {std::pair<std::string, nlohmann::json>{"reorder_and_upcast_attn", true},
        {"scale_attn_by_inverse_layer_idx", true},
        {"add_cross_attention", true},
        {"is_encoder_decoder", true},
        {"pruned_heads", {{"0", {1}}}},
        {"n_special", 3},
        {"alibi", true},
        {"summary_types", "x"}}) {
    nlohmann::json other = known;
    other[key] = value;
    std::ofstream(folder / "config.json") << other;
    const std::string text = refusal_to_read(folder.path());
    EXPECT_NE(text.find(key + ": = " + value.dump() + " is not "), std::string::npos) << text;
  }
}

// What to_dict() of Transformers 4 has for any model, and what files of version 2 have.
TEST(HuggingFace, KeysOfAnyModelAskForNothing) {
  const nlohmann::json generic = nlohmann::json::parse(R"({"bad_words_ids": null,
      "chunk_size_feed_forward": 0, "cross_attention_hidden_size": null,
      "decoder_start_token_id": null, "diversity_penalty": 0.0, "do_sample": true,
      "early_stopping": false, "encoder_no_repeat_ngram_size": 0, "finetuning_task": null,
      "forced_eos_token_id": null, "id2label": {"0": "LABEL_0", "1": "LABEL_1"},
      "is_decoder": false, "is_encoder_decoder": false, "label2id": {"LABEL_0": 0, "LABEL_1": 1},
      "length_penalty": 1.0, "max_length": 50, "min_length": 0, "no_repeat_ngram_size": 0,
      "num_beam_groups": 1, "num_beams": 1, "num_labels": 2, "num_return_sequences": 1,
      "output_scores": false, "prefix": null, "problem_type": null, "pruned_heads": {},
      "remove_invalid_values": false, "repetition_penalty": 1.0, "return_dict_in_generate": false,
      "sep_token_id": 4, "unk_token_id": 3, "suppress_tokens": null, "temperature": 1.0,
      "tf_legacy_loss": false, "tie_encoder_decoder": false, "tokenizer_class": "X", "top_k": 50,
      "top_p": 1.0, "torchscript": false, "typical_p": 1.0, "use_bfloat16": false,
      "task_specific_params": {"text-generation": {"max_length": 50}}})");
  const Family families[] = {
      kShape,
      LlamaShape{.layers = 1,
                 .width = 8,
                 .heads = 2,
                 .key_heads = 2,
                 .head_width = 4,
                 .hidden = 8,
                 .context = 5,
                 .vocabulary = 11},
      BertShape{.layers = 1, .width = 8, .heads = 2, .hidden = 8, .context = 5, .vocabulary = 11}};
  for (const Family& family : families) {
    SCOPED_TRACE(to_text(family));
    const TemporaryFolder folder;
    write_model(folder.path(), make_weights(family, 3, at::TensorOptions().dtype(at::kFloat)), {});
    for (const auto& [key, value] : generic.items()) edit_config(folder.path(), key.c_str(), value);
    EXPECT_EQ(read_family(folder.path()), family);
    edit_config(folder.path(), "pruned_heads", {{"0", {1}}});
    EXPECT_NE(refusal_to_read(folder.path()).find("pruned_heads: = {\"0\":[1]} is not supported"),
              std::string::npos)
        << refusal_to_read(folder.path());
    edit_config(folder.path(), "pruned_heads", nullptr);
    edit_config(folder.path(), "per_layer_config", {{"0", {{"a", 1}}}});
    EXPECT_NE(refusal_to_read(folder.path()).find("per_layer_config"), std::string::npos);
  }
}

TEST(HuggingFace, TensorsThatDoNotFitAreNamedTogether) {
  const TemporaryFolder folder;
  write_model(folder.path(), some_weights(), {});
  edit_config(folder.path(), "n_layer", 3);
  edit_config(folder.path(), "vocab_size", 12);
  const std::string text = refusal_to_read(folder.path());
  EXPECT_NE(text.find("wte.weight: has shape [11, 8], not [12, 8]"), std::string::npos) << text;
  EXPECT_NE(text.find("h.2.mlp.c_fc.bias: is missing"), std::string::npos) << text;
}

GptShape projected_shape() {
  GptShape shape = kShape;
  shape.project = {.after = {1, 2},
                   .rank = 3,
                   .basis = BasisKind::learned,
                   .anchor = AnchorKind::learned,
                   .seed = 1ULL << 40};
  return shape;
}

TEST(HuggingFace, AProjectedModelHasATypeThatNobodyElseReads) {
  const TemporaryFolder folder;
  const auto like = at::TensorOptions().dtype(at::kFloat);
  const Weights weights = make_weights(projected_shape(), 3, like);
  write_model(folder.path(), weights, {});
  EXPECT_EQ(read_json(folder.path() + "/config.json")["model_type"], "laconic-projected-gpt2");
  EXPECT_EQ(read_family(folder.path()), Family(projected_shape()));
  expect_equal(read_model(folder.path(), like), weights);
  for (const auto& [key, value] : {std::pair<const char*, nlohmann::json>{"after", "1;2"},
                                   {"after", "1,3"},
                                   {"rank", 9},
                                   {"basis", "svd"},
                                   {"seed", 5}}) {
    edit_config(
        folder.path(), "laconic_project",
        {{"after", "1,2"}, {"rank", 3}, {"basis", "seed"}, {"anchor", "none"}, {"seed", "1"}});
    nlohmann::json config = read_json(folder.path() + "/config.json");
    config["laconic_project"][key] = value;
    edit_config(folder.path(), "laconic_project", config["laconic_project"]);
    EXPECT_NE(refusal_to_read(folder.path()).find(key), std::string::npos)
        << refusal_to_read(folder.path());
  }
}

TEST(HuggingFace, BoundariesThatAFolderDoesNotProjectAreLeftAlone) {
  const TemporaryFolder folder;
  write_model(folder.path(), some_weights(), {});
  Weights weights = make_weights(projected_shape(), 7, at::TensorOptions().dtype(at::kFloat));
  EXPECT_EQ(read_weights(folder.path(), weights).size(), 2U * 5)
      << "a basis, and tables by token and position on both sides, of each";
  for (std::size_t p = 0; p < some_weights().parameters.size(); ++p)
    EXPECT_TRUE(weights.parameters[p].value.equal(some_weights().parameters[p].value));
}

}  // namespace
}  // namespace laconic
