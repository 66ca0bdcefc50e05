#include "laconic/architecture/joined_maps.hpp"

namespace laconic {

namespace {

bool takes_memory(const std::string& name) {
  return name.find("encoder_attn.k_proj") != std::string::npos ||
         name.find("encoder_attn.v_proj") != std::string::npos;
}

JoinedMaps map_of(const ParameterSpec& p, std::size_t number) {
  return {.role = p.role,
          .inputs = p.sizes[p.is_out_in ? 1 : 0],
          .outputs = p.sizes[p.is_out_in ? 0 : 1],
          .takes_memory = takes_memory(p.name),
          .weights = {number}};
}

}  // namespace

std::vector<JoinedMaps> joined_maps(const ModelSpec& spec, const BlockSpec& block) {
  std::vector<JoinedMaps> maps;
  bool is_open = false;  // whether the last map may have more outputs
  for (const std::size_t number : block.uses) {
    const ParameterSpec& p = spec.parameters[number];
    if (p.role == Role::inner_vector || p.role == Role::common_vector) continue;
    if (is_vector(p.role) || p.role == Role::table) {
      is_open = false;
      continue;
    }
    JoinedMaps map = map_of(p, number);
    const bool is_more = is_open && map.role == Role::up && maps.back().inputs == map.inputs &&
                         maps.back().takes_memory == map.takes_memory;
    is_open = map.role == Role::up;
    if (is_more) {
      maps.back().outputs += map.outputs;
      maps.back().weights.push_back(number);
    } else {
      maps.push_back(std::move(map));
    }
  }
  return maps;
}

}  // namespace laconic
