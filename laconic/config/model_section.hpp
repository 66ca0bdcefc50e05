// config/model_section.hpp — what is trained: [model].
#pragma once

#include <cstdint>
#include <string>

#include "laconic/architecture/family.hpp"
#include "laconic/config/option.hpp"

namespace laconic {

// Keys that only some kinds have say which; check() refuses them elsewhere.
struct ModelSection {
  ModelKind kind = ModelKind::gpt;
  std::int64_t layers = 6;
  std::int64_t decoder_layers = 0;
  std::int64_t width = 384;
  std::int64_t heads = 6;
  std::int64_t key_heads = 0;
  std::int64_t head_width = 0;
  std::int64_t hidden = 0;
  std::int64_t context = 128;
  std::int64_t vocabulary = 0;
  std::int64_t labels = 0;
  bool tied = false;
  bool qkv_bias = false;
  bool qk_norm = false;
  double rope_theta = 10000;
  RopeScaling rope_scaling = RopeScaling::none;
  double rope_factor = 1;
  double rope_low_turns = 1;
  double rope_high_turns = 4;
  std::int64_t rope_trained_context = 8192;
  NormPlace norm = NormPlace::pre;
  PositionKind positions = PositionKind::sinusoidal;
  TableSharing sharing = TableSharing::all;
  LstmProjection projection = LstmProjection::none;
  std::string project_after = "";
  std::int64_t project_rank = 0;
  BasisKind project_basis = BasisKind::seed;
  CodeBegin project_start = CodeBegin::orthogonal;
  AnchorKind project_anchor = AnchorKind::none;
  double dropout = 0.0;
  bool dropout_by_sample = false;
  bool recompute = false;
  std::string start = "";

  template <class V>
  void visit(V& v) {
    v("kind", kind,
      "architecture; gpt: GPT-2; llama: Llama, Mistral, Qwen; bert; seq2seq: encoder-decoder; "
      "lstm: a language model of LSTM layers; gnmt: an encoder-decoder of them",
      kModelKindNames);
    v("layers", layers, "layers; seq2seq, gnmt: of the encoder");
    v("decoder_layers", decoder_layers,
      "seq2seq, gnmt: layers of the decoder; 0: as many as layers");
    v("width", width, "of the residual stream; lstm, gnmt: of tables, and of what layers hand on");
    v("heads", heads,
      "attention heads; must divide width, unless head_width is given; lstm and gnmt have none");
    v("key_heads", key_heads,
      "llama: heads of keys and values (grouped queries); must divide heads; 0: heads");
    v("head_width", head_width, "llama: width of a head, an even number; 0: width / heads");
    v("hidden", hidden,
      "width of the feed-forward part; 0: 4 width; llama: 8/3 of width, rounded up to a multiple "
      "of 64; a gpt's is 4 width; lstm: cells of a layer, 0: width");
    v("context", context,
      "tokens per sample, and the longest position; seq2seq, gnmt: of source and target each");
    v("vocabulary", vocabulary, "token ids; 0: the tokeniser's size, from the data");
    v("labels", labels, "bert: classes to choose from; 0: from the data");
    v("tied", tied, "llama: the head uses the embedding's table (a gpt's always does)");
    v("qkv_bias", qkv_bias, "llama: biases of queries, keys and values, as in Qwen2");
    v("qk_norm", qk_norm, "llama: queries and keys are normed head by head, as in Qwen3");
    v("rope_theta", rope_theta, "llama: base of the rotary positions' angles");
    v("rope_scaling", rope_scaling,
      "llama: how angles are stretched for contexts longer than the trained one",
      kRopeScalingNames);
    v("rope_factor", rope_factor, "llama: by how much they are stretched");
    v("rope_low_turns", rope_low_turns,
      "llama3 scaling: pairs that turn less often within the trained context are stretched whole");
    v("rope_high_turns", rope_high_turns,
      "llama3 scaling: pairs that turn more often stay as they are");
    v("rope_trained_context", rope_trained_context,
      "llama3 scaling: the context that the model was trained with");
    v("norm", norm, "seq2seq: norms stand before a branch, or behind its sum", kNormPlaceNames);
    v("positions", positions, "seq2seq: how positions are told", kPositionKindNames);
    v("sharing", sharing,
      "seq2seq: tables that are one; all: of source, target and output; input: of source and "
      "target; output: of target and output",
      kTableSharingNames);
    v("projection", projection,
      "lstm: what brings cells back to the width; recurrent: a matrix whose result the next token "
      "sees too; output: a linear map behind the layer; none: there are as many cells",
      kLstmProjectionNames);
    v("project_after", project_after,
      "gpt, llama, bert: layers behind which the stream is projected, as 2,4,6, counted from 1 "
      "(docs/projection.md); empty: none");
    v("project_rank", project_rank, "of these boundaries: numbers that stand for a token's row");
    v("project_basis", project_basis,
      "of these: directions that are kept; seed: drawn; pca: found in the first samples; learned: "
      "trained, and sent every step; maps: a map before and one behind it, trained (an "
      "auto-encoder); tied: one map for both",
      kBasisKindNames);
    v("project_start", project_start,
      "of these, with maps and tied: what they begin as (as tp.activation.start)", kCodeBeginNames);
    v("project_anchor", project_anchor,
      "of these: rows that both sides know by token and position, and that do not travel; initial: "
      "what the embedding begins with; learned: tables of each side's own",
      kAnchorKindNames);
    v("dropout", dropout,
      "after embedding, attention and each residual branch; lstm: after embedding and each layer; "
      "gnmt: before each layer");
    v("dropout_by_sample", dropout_by_sample,
      "a sample's masks are the same in every epoch, so that its activations change less");
    v("recompute", recompute, "keep only block inputs and run forward again in backward");
    v("start", start,
      "begin from these weights: a Hugging Face folder (docs/models.md) or a checkpoint");
  }
};

}  // namespace laconic
