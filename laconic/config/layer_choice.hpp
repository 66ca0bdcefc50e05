// config/layer_choice.hpp — which layers of a model a setting is about, as people write it.
//
//   all   "last half"   "first half"   2,3,5
//
// Of an odd number of layers the middle one belongs to the last half.
#pragma once

#include <cstdint>
#include <string_view>
#include <vector>

#include "laconic/base/problem.hpp"

namespace laconic {

// By layer. Requires: check_layers(text, layers) is empty.
std::vector<bool> chosen_layers(std::string_view text, std::int64_t layers);

// Every reason why the text does not choose among so many layers; 0: their number is not known.
Problems check_layers(std::string_view text, std::int64_t layers);

}  // namespace laconic
