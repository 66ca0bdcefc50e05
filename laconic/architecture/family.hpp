// architecture/family.hpp — which kind of model, and how large: a value.
//
// A family is one of a closed set of shapes: std::visit finds what was forgotten.
// docs/architecture.md says how to add one. Beside this folder and laconic/model only
// whoever reads the configuration (checkpoint/resume.cpp) knows families by name.
#pragma once

#include <cstdint>
#include <string>
#include <utility>
#include <variant>
#include <vector>

#include "laconic/architecture/projection.hpp"
#include "laconic/base/named.hpp"
#include "laconic/base/problem.hpp"

namespace laconic {

struct GptShape {
  std::int64_t layers = 0;
  std::int64_t width = 0;
  std::int64_t heads = 0;
  std::int64_t context = 0;  // positions; a sample may have fewer tokens
  std::int64_t vocabulary = 0;
  double norm_epsilon = 1e-5;
  Projection project = {};
  bool operator==(const GptShape&) const = default;
};

// How rotary positions are stretched beyond the context that a model was trained with.
enum class RopeScaling : std::uint8_t { none, linear, llama3 };
inline constexpr auto kRopeScalingNames =
    std::to_array<Named<RopeScaling>>({{RopeScaling::none, "none"},
                                       {RopeScaling::linear, "linear"},
                                       {RopeScaling::llama3, "llama3"}});

// Rotary positions: pair i of a head turns by position * theta^(-2 i / head width).
struct Rope {
  double theta = 10000;
  RopeScaling scaling = RopeScaling::none;
  double factor = 1;  // linear: positions are divided by it; llama3: those of slow pairs are
  // llama3: pairs that turn fewer than `low_turns` times within `trained_context` are slow, those
  // with more than `high_turns` stay as they are, and between the two it changes evenly.
  double low_turns = 1;
  double high_turns = 4;
  std::int64_t trained_context = 8192;
  bool operator==(const Rope&) const = default;
};

// Llama, and what differs from it by these alone: Mistral, Qwen2, Qwen3, SmolLM.
struct LlamaShape {
  std::int64_t layers = 0;
  std::int64_t width = 0;
  std::int64_t heads = 0;       // of queries
  std::int64_t key_heads = 0;   // of keys and values: each serves heads / key_heads of the queries
  std::int64_t head_width = 0;  // heads * head_width need not be the width
  std::int64_t hidden = 0;      // width of the feed-forward part
  std::int64_t context = 0;
  std::int64_t vocabulary = 0;
  double norm_epsilon = 1e-5;
  Rope rope = {};
  bool has_qkv_bias = false;  // Qwen2
  bool has_qk_norm = false;   // Qwen3: queries and keys are normed head by head
  bool is_tied = false;       // the head uses the embedding
  Projection project = {};
  bool operator==(const LlamaShape&) const = default;
};

// What a BERT answers, by the head on its encoder.
enum class BertHead : std::uint8_t {
  masked,       // which tokens were hidden
  pretraining,  // that, and whether the second part follows the first
  classify,     // one of `labels` classes
  regress,      // a number
  span,         // where in the text an answer begins and ends
};
inline constexpr auto kBertHeadNames =
    std::to_array<Named<BertHead>>({{BertHead::masked, "masked"},
                                    {BertHead::pretraining, "pretraining"},
                                    {BertHead::classify, "classify"},
                                    {BertHead::regress, "regress"},
                                    {BertHead::span, "span"}});

struct BertShape {
  std::int64_t layers = 0;
  std::int64_t width = 0;
  std::int64_t heads = 0;
  std::int64_t hidden = 0;  // width of the feed-forward part
  std::int64_t context = 0;
  std::int64_t vocabulary = 0;
  std::int64_t types = 2;  // kinds of parts: the first text of a pair, and the second
  double norm_epsilon = 1e-12;
  BertHead head = BertHead::masked;
  std::int64_t labels = 2;  // classify: classes
  Projection project = {};
  bool operator==(const BertShape&) const = default;
};

enum class NormPlace : std::uint8_t { pre, post };  // before a branch, or behind its sum
inline constexpr auto kNormPlaceNames =
    std::to_array<Named<NormPlace>>({{NormPlace::pre, "pre"}, {NormPlace::post, "post"}});

enum class PositionKind : std::uint8_t { sinusoidal, learned };
inline constexpr auto kPositionKindNames = std::to_array<Named<PositionKind>>(
    {{PositionKind::sinusoidal, "sinusoidal"}, {PositionKind::learned, "learned"}});

// Which of the tables of source, target and output are one.
enum class TableSharing : std::uint8_t {
  all,     // one for the three
  input,   // the target uses the source's
  output,  // the output uses the target's
  none,
};
inline constexpr auto kTableSharingNames =
    std::to_array<Named<TableSharing>>({{TableSharing::all, "all"},
                                        {TableSharing::input, "input"},
                                        {TableSharing::output, "output"},
                                        {TableSharing::none, "none"}});
// Whether source and target look up one table, and whether the output has one of its own.
constexpr bool is_input_shared(TableSharing sharing) {
  return sharing == TableSharing::all || sharing == TableSharing::input;
}
constexpr bool has_output_table(TableSharing sharing) {
  return sharing == TableSharing::input || sharing == TableSharing::none;
}

// The Transformer as it was first described: an encoder, and a decoder that looks at it.
struct Seq2SeqShape {
  std::int64_t layers = 0;  // of the encoder
  std::int64_t decoder_layers = 0;
  std::int64_t width = 0;
  std::int64_t heads = 0;
  std::int64_t hidden = 0;
  std::int64_t context = 0;         // of the source
  std::int64_t target_context = 0;  // of what is written
  std::int64_t vocabulary = 0;
  double norm_epsilon = 1e-5;
  NormPlace norm = NormPlace::pre;
  PositionKind positions = PositionKind::sinusoidal;
  TableSharing sharing = TableSharing::all;
  bool operator==(const Seq2SeqShape&) const = default;
};

// What brings the cells of an LSTM layer back to the width of the stream.
enum class LstmProjection : std::uint8_t {
  none,       // nothing: as many cells as the stream is wide
  recurrent,  // a matrix whose result is also what the next step sees: torch.nn.LSTM's proj_size
  output,     // a linear map behind the layer; the next step sees all cells
};
inline constexpr auto kLstmProjectionNames =
    std::to_array<Named<LstmProjection>>({{LstmProjection::none, "none"},
                                          {LstmProjection::recurrent, "recurrent"},
                                          {LstmProjection::output, "output"}});

// A language model of LSTM layers, with tables of its own for input and output.
struct LstmShape {
  std::int64_t layers = 0;
  std::int64_t width = 0;   // of tables, and of what layers hand on
  std::int64_t hidden = 0;  // cells of a layer
  std::int64_t context = 0;
  std::int64_t vocabulary = 0;
  LstmProjection projection = LstmProjection::none;
  // Words that training compares a target with instead of the whole vocabulary; 0: all. No trait of
  // the model: evaluation knows nothing of it.
  std::int64_t sampled = 0;
  bool operator==(const LstmShape&) const = default;
};

// GNMT: an encoder of LSTM layers, the first of which reads in both directions, and a decoder whose
// first layer looks at it; from the third on, layers add to what they take. No tables are shared.
struct GnmtShape {
  std::int64_t layers = 0;  // of the encoder
  std::int64_t decoder_layers = 0;
  std::int64_t width = 0;           // of everything
  std::int64_t context = 0;         // of the source
  std::int64_t target_context = 0;  // of what is written
  std::int64_t vocabulary = 0;
  bool operator==(const GnmtShape&) const = default;
};

using Family = std::variant<GptShape, LlamaShape, BertShape, Seq2SeqShape, LstmShape, GnmtShape>;

std::int64_t context_of(const Family& family);     // the longest sample, in tokens
std::int64_t vocabulary_of(const Family& family);  // token ids are below this

// Blocks between the first and the last, which a pipeline is split by.
std::int64_t layers_between(const Family& family);

// Whether it tells the next token of a text from those before.
bool is_causal(const Family& family);

// Whether it writes one text for another.
bool translates(const Family& family);
// The longest such text. Requires: it does.
std::int64_t target_context_of(const Family& family);

// Whether its layers go from token to token, one after the other.
bool is_recurrent(const Family& family);

// Boundaries at which its stream is projected; families that cannot have any have none.
Projection projection_of(const Family& family);
bool can_project(const Family& family);
// The same model with these. Requires: it can.
Family with_projection(const Family& family, const Projection& projection);

// "GPT, 6 layers, width 384, 6 heads"
std::string to_text(const Family& family);

// What makes two models of a family different, by its key in the section [model] of a
// configuration:
// {"layers", "6"}. Epsilons of norms are left out: a folder's own counts.
std::vector<std::pair<std::string, std::string>> traits_of(const Family& family);

// Messages have a number for each block, and a model that nobody can run must not be spelled out.
inline constexpr std::int64_t kMostLayers = 4094;
// Everything that no model can have here.
Problems check(const Family& family);

// Every trait in which `found` is not what the run asks for. `folder` says where it was found.
Problems compare(const Family& found, const Family& wanted, const std::string& folder);

}  // namespace laconic
