// grid/gather_order.hpp — what will be gathered next, from what was gathered the last time.
//
// A pass asks for gathered weights in an order that only a family's code knows, and that is the
// same every time: so a pass says what the next of its kind will ask for. Nobody knows before the
// first one. All ranks of a grid make the same passes and expect the same.
#pragma once

#include <compare>
#include <cstdint>
#include <map>
#include <span>
#include <vector>

namespace laconic {

// Whose weights: as GridSite counts.
struct GatherPlace {
  std::int64_t block = 0;
  int place = 0;
  auto operator<=>(const GatherPlace&) const = default;
};

// A way through the blocks of a stage, which begins with `first_block`.
enum class PassKind : std::uint8_t { forward, backward, backward_weight, evaluation };
struct PassName {
  PassKind kind = PassKind::forward;
  std::int64_t first_block = 0;
  auto operator<=>(const PassName&) const = default;
};

class GatherOrder {
 public:
  void begin(const PassName& pass);
  // This one is asked for now. Where another was expected, that and all behind it are forgotten.
  void ask(const GatherPlace& place);
  // What will be asked for, soonest first, as far as anybody knows. Valid until the next call.
  std::span<const GatherPlace> expected() const;
  void end();  // what has not been asked for is forgotten

 private:
  std::map<PassName, std::vector<GatherPlace>> last_;
  std::vector<GatherPlace>* order_ = nullptr;  // of the pass that is under way
  std::size_t asked_ = 0;
};

}  // namespace laconic
