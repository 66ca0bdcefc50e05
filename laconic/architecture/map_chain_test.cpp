#include "laconic/architecture/map_chain.hpp"

#include <fmt/format.h>
#include <gtest/gtest.h>

#include <utility>

namespace laconic {
namespace {

using ChainMaps = std::vector<std::pair<const char*, Role>>;

// Two layers of these maps between an embedding and a head. Behind each map stands a norm, so none
// shares its input with the next.
ModelSpec made_up(const ChainMaps& maps) {
  ModelSpec spec;
  spec.blocks.push_back({.name = "embedding", .kind = "embedding", .out = {{"x", {4, 8}}}});
  for (int layer = 0; layer < 2; ++layer) {
    BlockSpec block{.name = fmt::format("layer {}", layer),
                    .kind = "layer",
                    .out = {{"x", {4, 8}}},
                    .multiply_adds = 1};
    const auto add = [&](const std::string& name, std::vector<std::int64_t> sizes, Role role) {
      block.uses.push_back(spec.parameters.size());
      spec.parameters.push_back(
          {.name = fmt::format("h.{}.{}", layer, name), .sizes = std::move(sizes), .role = role});
    };
    for (const auto& [name, role] : maps) {
      add(name, {8, 8}, role);
      add(std::string(name) + ".norm", {8}, Role::stream_vector);
    }
    spec.blocks.push_back(std::move(block));
  }
  spec.blocks.push_back({.name = "head", .kind = "head"});
  return spec;
}

TEST(MapChain, MapsGoIntoABranchAndOutOfItInTurn) {
  const std::vector<std::pair<ChainMaps, std::string>> rows = {
      {{}, ""},
      {{{"in", Role::up}, {"out", Role::down}}, ""},
      {{{"in", Role::up}, {"out", Role::down}, {"more", Role::across}}, ""},
      {{{"q", Role::up}, {"encoder_attn.k_proj", Role::up}, {"out", Role::down}}, ""},
      {{{"in", Role::up}},
       "mesh.tp: h.*.in is the last map of a layer and leaves inner activations: the chain is odd, "
       "and the next layer takes the stream"},
      {{{"in", Role::up}, {"out", Role::down}, {"again", Role::up}},
       "mesh.tp: h.*.again is the last map of a layer and leaves inner activations: the chain is "
       "odd, and the next layer takes the stream"},
      {{{"in", Role::up}, {"again", Role::up}, {"out", Role::down}},
       "mesh.tp: h.*.again takes the stream, and h.*.in leaves inner activations: maps of a layer "
       "go into a branch and out of it in turn"},
      {{{"out", Role::down}},
       "mesh.tp: h.*.out takes inner activations, and the block before leaves the stream: maps of "
       "a "
       "layer go into a branch and out of it in turn"},
      {{{"in", Role::up}, {"more", Role::across}},
       "mesh.tp: h.*.more takes the stream, and h.*.in leaves inner activations: maps of a layer "
       "go "
       "into a branch and out of it in turn"},
      {{{"in", Role::up}, {"class", Role::inner_narrow}},
       "mesh.tp: h.*.class is the last map of a layer and leaves a few numbers: the chain is odd, "
       "and the next layer takes the stream"},
      {{{"out", Role::down}, {"in", Role::up}},
       "mesh.tp: h.*.out takes inner activations, and the block before leaves the stream: maps of "
       "a "
       "layer go into a branch and out of it in turn\n"
       "mesh.tp: h.*.in is the last map of a layer and leaves inner activations: the chain is odd, "
       "and the next layer takes the stream"}};
  for (const auto& [maps, problems] : rows)
    EXPECT_EQ(to_text(check_chains(made_up(maps))), problems);
}

TEST(MapChain, EveryFamilyOfLayersOfAttentionIsEven) {
  std::vector<Family> families = {GptShape(), LlamaShape()};
  for (const auto& named : kBertHeadNames) families.emplace_back(BertShape{.head = named.value});
  for (const NormPlace norm : {NormPlace::pre, NormPlace::post})
    families.emplace_back(Seq2SeqShape{.norm = norm});
  LlamaShape more;
  more.has_qk_norm = more.has_qkv_bias = true;
  families.emplace_back(more);
  for (const Family& family : families)
    EXPECT_EQ(to_text(check_chains(model_spec(family, 4))), "") << to_text(family);
}

}  // namespace
}  // namespace laconic
