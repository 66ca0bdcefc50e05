// train/model_ranks.hpp — the ranks that hold a model together while it is used, not trained.
//
// All of them make the same calls with the same words. What is chosen from numbers (a token, the
// hypotheses of a beam) rank 0 chooses: logits are the same on all ranks of a grid, but machines of
// several kinds may round what is made of them differently, and ranks that went on from different
// tokens would wait for each other for ever.
#pragma once

#include <span>
#include <type_traits>
#include <vector>

#include "laconic/base/bytes.hpp"
#include "laconic/world/world.hpp"

namespace laconic {

class TensorGrid;  // grid/grid.hpp

struct ModelRanks {
  World* world = nullptr;      // null: this process alone
  TensorGrid* grid = nullptr;  // of all ranks of the world; null: weights are whole here

  // The one that speaks: whose answers count, and who talks to people.
  bool is_first() const { return world == nullptr || world->is_first(); }

  // What rank 0 brought. Collective. Requires: equally many on all ranks.
  template <class T>
  std::vector<T> of_first(std::vector<T> mine) const {
    static_assert(std::is_trivially_copyable_v<T>);
    if (world == nullptr) return mine;
    const ByteView view = as_bytes(std::span<const T>(mine));
    const Bytes first = world->gather(is_first() ? view : ByteView()).front();
    for (std::size_t i = 0; i < mine.size(); ++i) mine[i] = get<T>(first, i * sizeof(T));
    return mine;
  }
};

}  // namespace laconic
