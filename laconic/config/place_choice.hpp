// config/place_choice.hpp — which layers of a model, or which boundaries of a pipeline, a setting
// is about, as people write it.
//
//   all   "last half"   "first half"   2,3,5
//
// They count from 0; boundary q lies behind stage q. Of an odd number of places the middle one
// belongs to the last half.
#pragma once

#include <cstdint>
#include <string_view>
#include <vector>

#include "laconic/base/problem.hpp"

namespace laconic {

// What is chosen among, for people.
struct PlaceWords {
  std::string_view one = "layer";
  std::string_view several = "layers";
  std::string_view whole = "a model";
};
inline constexpr PlaceWords kBoundaryWords = {"boundary", "boundaries", "a pipeline"};

// By place. Requires: check_places(text, places) is empty.
std::vector<bool> chosen_places(std::string_view text, std::int64_t places);

// Every reason why the text does not choose among so many places; 0: their number is not known.
Problems check_places(std::string_view text, std::int64_t places, const PlaceWords& words = {});

}  // namespace laconic
