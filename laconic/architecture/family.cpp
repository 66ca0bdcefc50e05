#include "laconic/architecture/family.hpp"

#include <fmt/format.h>

#include <map>

#include "laconic/base/error.hpp"
#include "laconic/base/word_law.hpp"

namespace laconic {

std::int64_t context_of(const Family& family) {
  return std::visit([](const auto& shape) { return shape.context; }, family);
}

std::int64_t vocabulary_of(const Family& family) {
  return std::visit([](const auto& shape) { return shape.vocabulary; }, family);
}

namespace {

std::string describe(const GptShape& s) {
  return fmt::format("GPT, {} layers, width {}, {} heads", s.layers, s.width, s.heads);
}

std::string describe(const LlamaShape& s) {
  return fmt::format("Llama, {} layers, width {}, {} heads{}", s.layers, s.width, s.heads,
                     s.key_heads == s.heads ? "" : fmt::format(" ({} of keys)", s.key_heads));
}

std::string describe(const BertShape& s) {
  return fmt::format("BERT, {} layers, width {}, {} heads, head {}{}", s.layers, s.width, s.heads,
                     name_in(kBertHeadNames, s.head),
                     s.head == BertHead::classify ? fmt::format(" ({} classes)", s.labels) : "");
}

std::string describe(const Seq2SeqShape& s) {
  return fmt::format("encoder-decoder, {} + {} layers, width {}, {} heads", s.layers,
                     s.decoder_layers, s.width, s.heads);
}

std::string describe(const LstmShape& s) {
  return fmt::format(
      "LSTM, {} layers, width {}, {} cells{}", s.layers, s.width, s.hidden,
      s.projection == LstmProjection::none
          ? ""
          : fmt::format(" (projection {})", name_in(kLstmProjectionNames, s.projection)));
}

std::string describe(const GnmtShape& s) {
  return fmt::format("GNMT, {} + {} layers, width {}", s.layers, s.decoder_layers, s.width);
}

template <class Shape>
concept ProjectedShape = requires(const Shape& shape) {
  shape.project;
};

using Traits = std::vector<std::pair<std::string, std::string>>;

Traits list_traits(const GptShape& s) {
  return {{"layers", fmt::to_string(s.layers)},
          {"width", fmt::to_string(s.width)},
          {"heads", fmt::to_string(s.heads)},
          {"context", fmt::to_string(s.context)},
          {"vocabulary", fmt::to_string(s.vocabulary)}};
}

Traits list_traits(const LlamaShape& s) {
  Traits traits = {{"layers", fmt::to_string(s.layers)},
                   {"width", fmt::to_string(s.width)},
                   {"heads", fmt::to_string(s.heads)},
                   {"key_heads", fmt::to_string(s.key_heads)},
                   {"head_width", fmt::to_string(s.head_width)},
                   {"hidden", fmt::to_string(s.hidden)},
                   {"context", fmt::to_string(s.context)},
                   {"vocabulary", fmt::to_string(s.vocabulary)},
                   {"qkv_bias", fmt::to_string(s.has_qkv_bias)},
                   {"qk_norm", fmt::to_string(s.has_qk_norm)},
                   {"tied", fmt::to_string(s.is_tied)},
                   {"rope_theta", fmt::to_string(s.rope.theta)},
                   {"rope_scaling", std::string(name_in(kRopeScalingNames, s.rope.scaling))}};
  if (s.rope.scaling != RopeScaling::none)
    traits.emplace_back("rope_factor", fmt::to_string(s.rope.factor));
  if (s.rope.scaling == RopeScaling::llama3) {
    traits.emplace_back("rope_low_turns", fmt::to_string(s.rope.low_turns));
    traits.emplace_back("rope_high_turns", fmt::to_string(s.rope.high_turns));
    traits.emplace_back("rope_trained_context", fmt::to_string(s.rope.trained_context));
  }
  return traits;
}

Traits list_traits(const BertShape& s) {
  Traits traits = {{"layers", fmt::to_string(s.layers)},
                   {"width", fmt::to_string(s.width)},
                   {"heads", fmt::to_string(s.heads)},
                   {"hidden", fmt::to_string(s.hidden)},
                   {"context", fmt::to_string(s.context)},
                   {"vocabulary", fmt::to_string(s.vocabulary)},
                   {"types", fmt::to_string(s.types)},
                   {"head", std::string(name_in(kBertHeadNames, s.head))}};
  if (s.head == BertHead::classify) traits.emplace_back("labels", fmt::to_string(s.labels));
  return traits;
}

Traits list_traits(const Seq2SeqShape& s) {
  return {{"layers", fmt::to_string(s.layers)},
          {"decoder_layers", fmt::to_string(s.decoder_layers)},
          {"width", fmt::to_string(s.width)},
          {"heads", fmt::to_string(s.heads)},
          {"hidden", fmt::to_string(s.hidden)},
          {"context", fmt::to_string(s.context)},
          {"target_context", fmt::to_string(s.target_context)},
          {"vocabulary", fmt::to_string(s.vocabulary)},
          {"norm", std::string(name_in(kNormPlaceNames, s.norm))},
          {"positions", std::string(name_in(kPositionKindNames, s.positions))},
          {"sharing", std::string(name_in(kTableSharingNames, s.sharing))}};
}

Traits list_traits(const LstmShape& s) {
  return {{"layers", fmt::to_string(s.layers)},
          {"width", fmt::to_string(s.width)},
          {"hidden", fmt::to_string(s.hidden)},
          {"context", fmt::to_string(s.context)},
          {"vocabulary", fmt::to_string(s.vocabulary)},
          {"projection", std::string(name_in(kLstmProjectionNames, s.projection))}};
}

Traits list_traits(const GnmtShape& s) {
  return {{"layers", fmt::to_string(s.layers)},
          {"decoder_layers", fmt::to_string(s.decoder_layers)},
          {"width", fmt::to_string(s.width)},
          {"context", fmt::to_string(s.context)},
          {"target_context", fmt::to_string(s.target_context)},
          {"vocabulary", fmt::to_string(s.vocabulary)}};
}

void check_heads(std::int64_t heads, std::int64_t width, Problems& problems) {
  if (width % heads != 0)
    problems.push_back(
        {"model.heads", fmt::format("heads = {} does not divide width = {}", heads, width)});
}

void check_shape(const GptShape& s, Problems& problems) {
  check_heads(s.heads, s.width, problems);
}

void check_shape(const BertShape& s, Problems& problems) {
  check_heads(s.heads, s.width, problems);
  if (s.head == BertHead::classify && s.labels < 2)
    problems.push_back(
        {"model.labels", fmt::format("{} classes leave nothing to choose between", s.labels)});
}

void check_shape(const Seq2SeqShape& s, Problems& problems) {
  check_heads(s.heads, s.width, problems);
  if (s.positions == PositionKind::sinusoidal && s.width % 2 != 0)
    problems.push_back(
        {"model.width", fmt::format("sinusoidal positions need an even width, not {}", s.width)});
}

void check_shape(const LstmShape& s, Problems& problems) {
  if (s.projection == LstmProjection::none && s.hidden != s.width)
    problems.push_back(
        {"model.projection",
         fmt::format("{} cells and a width of {} need a projection: \"recurrent\" or \"output\"",
                     s.hidden, s.width)});
  if (s.projection == LstmProjection::recurrent && s.hidden <= s.width)
    problems.push_back({"model.projection", fmt::format("a recurrent projection makes {} cells "
                                                        "fewer, not {}: raise model.hidden",
                                                        s.hidden, s.width)});
  // Before the data is known there is a vocabulary of one word.
  if (s.vocabulary > 1 && s.sampled > most_negatives(s.vocabulary))
    problems.push_back(
        {"task.sampled", fmt::format("{} negatives of a vocabulary of {}: at most {}, half of it, "
                                     "can be told apart from all; 0 is the whole",
                                     s.sampled, s.vocabulary, most_negatives(s.vocabulary))});
}

void check_shape(const GnmtShape& s, Problems& problems) {
  for (const auto& [key, layers] :
       {std::pair{"model.layers", s.layers}, {"model.decoder_layers", s.decoder_layers}})
    if (layers < 2)
      problems.push_back(
          {key, fmt::format("{}: a GNMT has at least 2 on either side, one of which reads in both "
                            "directions or looks at the source",
                            layers)});
}

void check_shape(const LlamaShape& s, Problems& problems) {
  if (s.heads % s.key_heads != 0)
    problems.push_back({"model.key_heads", fmt::format("key_heads = {} does not divide heads = {}",
                                                       s.key_heads, s.heads)});
  if (s.head_width % 2 != 0)
    problems.push_back(
        {"model.head_width",
         fmt::format("heads of {} cannot be rotated pair by pair: head_width must be even",
                     s.head_width)});
  if (s.has_qkv_bias && s.has_qk_norm)
    problems.push_back({"model.qk_norm", "no model that others know has qkv_bias and qk_norm"});
  const Rope& r = s.rope;
  if (!(r.theta > 0) || !(r.factor > 0))
    problems.push_back(
        {"model.rope_theta",
         fmt::format("rope_theta = {} and rope_factor = {} must be positive", r.theta, r.factor)});
  if (r.scaling == RopeScaling::llama3 && !(r.high_turns > r.low_turns && r.trained_context > 0))
    problems.push_back(
        {"model.rope_high_turns",
         fmt::format("rope_high_turns = {} must be more than rope_low_turns = {}, and "
                     "rope_trained_context = {} at least 1",
                     r.high_turns, r.low_turns, r.trained_context)});
}

}  // namespace

Projection projection_of(const Family& family) {
  return std::visit(
      [](const auto& shape) -> Projection {
        if constexpr (ProjectedShape<std::decay_t<decltype(shape)>>) return shape.project;
        return {};
      },
      family);
}

bool can_project(const Family& family) {
  return std::visit([](const auto& shape) { return ProjectedShape<std::decay_t<decltype(shape)>>; },
                    family);
}

Family with_projection(const Family& family, const Projection& projection) {
  LACONIC_ASSERT(can_project(family), to_text(family));
  return std::visit(
      [&](auto shape) -> Family {
        if constexpr (ProjectedShape<decltype(shape)>) shape.project = projection;
        return shape;
      },
      family);
}

std::string to_text(const Family& family) {
  const Projection projection = projection_of(family);
  const auto with = [&](const auto& shape) {
    return describe(shape) +
           (projection.is_empty() ? "" : ", projected " + to_text(projection, shape.width));
  };
  return std::visit(with, family);
}

std::vector<std::pair<std::string, std::string>> traits_of(const Family& family) {
  Traits traits = std::visit([](const auto& shape) { return list_traits(shape); }, family);
  if (!can_project(family)) return traits;
  const Projection p = projection_of(family);
  traits.emplace_back("project_after", fmt::format("\"{}\"", layer_list(p.after)));
  if (p.is_empty()) return traits;
  traits.emplace_back("project_rank", fmt::to_string(p.rank));
  traits.emplace_back("project_basis", name_in(kBasisKindNames, p.basis));
  traits.emplace_back("project_anchor", name_in(kAnchorKindNames, p.anchor));
  return traits;
}

std::int64_t layers_between(const Family& family) {
  // Between encoder and decoder the target's embedding is a block of its own.
  if (const auto* s = std::get_if<Seq2SeqShape>(&family)) return s->layers + 1 + s->decoder_layers;
  if (const auto* s = std::get_if<GnmtShape>(&family)) return s->layers + 1 + s->decoder_layers;
  return std::visit([](const auto& shape) { return shape.layers; }, family);
}

bool is_causal(const Family& family) {
  return std::holds_alternative<GptShape>(family) || std::holds_alternative<LlamaShape>(family) ||
         std::holds_alternative<LstmShape>(family);
}

bool translates(const Family& family) {
  return std::holds_alternative<Seq2SeqShape>(family) || std::holds_alternative<GnmtShape>(family);
}

std::int64_t target_context_of(const Family& family) {
  if (const auto* s = std::get_if<Seq2SeqShape>(&family)) return s->target_context;
  return std::get<GnmtShape>(family).target_context;
}

bool is_recurrent(const Family& family) {
  return std::holds_alternative<LstmShape>(family) || std::holds_alternative<GnmtShape>(family);
}

Problems check(const Family& family) {
  const std::int64_t layers = layers_between(family);
  Problems problems;
  if (layers > kMostLayers)
    problems.push_back(
        {"model.layers", fmt::format("{} layers; at most {} are possible", layers, kMostLayers)});
  const auto check_whole = [&](const auto& shape) {
    check_shape(shape, problems);
    if constexpr (ProjectedShape<std::decay_t<decltype(shape)>>)
      append(problems, check(shape.project, shape.layers, shape.width));
    if (std::holds_alternative<BertShape>(family) &&
        projection_of(family).anchor == AnchorKind::initial)
      problems.push_back({"model.project_anchor",
                          "\"initial\" with a BERT: what its embedding puts out is normed, and is "
                          "not the sum of rows of tables; take \"learned\""});
  };
  std::visit(check_whole, family);
  return problems;
}

Problems compare(const Family& found, const Family& wanted, const std::string& folder) {
  if (found.index() != wanted.index())
    return {{folder,
             fmt::format("holds a {}, the run asks for a {}", to_text(found), to_text(wanted))}};
  Problems problems;
  const auto has = traits_of(found);
  std::map<std::string, std::string> wants;
  for (auto& [key, value] : traits_of(wanted)) wants.emplace(std::move(key), std::move(value));
  for (const auto& [key, value] : has) {
    const auto want = wants.find(key);
    if (want != wants.end() && want->second != value)
      problems.push_back({folder, fmt::format("was made with model.{} = {}, the run asks for {}",
                                              key, value, want->second)});
  }
  return problems;
}

}  // namespace laconic
