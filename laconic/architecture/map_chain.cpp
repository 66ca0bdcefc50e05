#include "laconic/architecture/map_chain.hpp"

#include <fmt/format.h>

#include <algorithm>

#include "laconic/architecture/joined_maps.hpp"

namespace laconic {

namespace {

Problem refuse_map(const std::string& map, Role role, const std::string& before,
                   ActivationKind left) {
  return {"mesh.tp", fmt::format("{} takes {}, and {} leaves {}: maps of a layer go into a branch "
                                 "and out of it in turn",
                                 map, name_of(kind_taken(role)),
                                 before.empty() ? "the block before" : before, name_of(left))};
}

Problem refuse_end(const std::string& map, ActivationKind left) {
  return {"mesh.tp", fmt::format("{} is the last map of a layer and leaves {}: the chain is odd, "
                                 "and the next layer takes the stream",
                                 map, name_of(left))};
}

Problems check_chain(const ModelSpec& spec, const BlockSpec& block) {
  Problems problems;
  ActivationKind left = ActivationKind::stream;
  std::string before;
  for (const JoinedMaps& map : joined_maps(spec, block)) {
    const std::string name = common_name(spec.parameters[map.weights.front()]);
    if (!map.takes_memory && kind_taken(map.role) != left)
      problems.push_back(refuse_map(name, map.role, before, left));
    left = kind_left(map.role);
    before = name;
  }
  if (left != ActivationKind::stream) problems.push_back(refuse_end(before, left));
  return problems;
}

}  // namespace

Problems check_chains(const ModelSpec& spec) {
  Problems problems;
  for (const std::size_t block : layer_blocks(spec))
    for (Problem& problem : check_chain(spec, spec.blocks[block]))
      if (std::ranges::find(problems, problem) == problems.end())
        problems.push_back(std::move(problem));
  return problems;
}

}  // namespace laconic
