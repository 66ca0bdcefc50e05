// transport/tag.hpp — whom a message is for, inside a rank: traffic class, unit, number, part.
//
//   bits 56-63  traffic class          who talks about what
//   bits 40-55  unit                   which block, edge or table of that class
//   bits 12-39  number                 which operation on that unit, counted from 0, modulo 2^28
//   bits  0-11  part                   which message of that operation
//
// Both ends count their operations alike, so they name a message alike without
// a word between them; the number also keeps a late message of one step from
// being taken for one of the next. Tags print as "dp.gradient 2 #4182.3", those of
// tensor grids as "tp.weight tp0 #7".
#pragma once

#include <cstdint>
#include <optional>
#include <string>
#include <string_view>

#include "laconic/transport/transport.hpp"

namespace laconic {

// Append only: the numbers are on the wire.
enum class Traffic : std::uint8_t {
  control,  // start-up, reduction of losses and signals, checkpoints
  dp_gradient,
  pp_activation,
  pp_gradient,
  embedding_tied,
  embedding_rows,
  tp_activation,
  tp_gradient,
  tp_weight,
  preflight,
};
inline constexpr int kTrafficClasses = 10;
std::string_view name_of(Traffic traffic);  // "dp.gradient"
std::optional<Traffic> traffic_named(std::string_view name);

// Whether units of the class are sets of axes of a tensor grid: bit i for tp<i>.
constexpr bool has_axes(Traffic traffic) {
  return traffic == Traffic::tp_activation || traffic == Traffic::tp_gradient ||
         traffic == Traffic::tp_weight;
}
inline constexpr std::uint32_t kAxisSets = 8;
std::string unit_text(Traffic traffic, std::uint32_t unit);  // "2"; of axes "tp0", "tp0+tp2"

struct TagFields {
  Traffic traffic = Traffic::control;
  std::uint32_t unit = 0;    // < 2^16
  std::uint64_t number = 0;  // taken modulo 2^28
  std::uint32_t part = 0;    // < 2^12
  bool operator==(const TagFields&) const = default;
};

Tag make_tag(const TagFields& fields);
TagFields fields_of(Tag tag);
std::string to_text(Tag tag);

}  // namespace laconic
