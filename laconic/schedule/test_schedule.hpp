// schedule/test_schedule.hpp — for tests: every small shape, and problems as lines.
#pragma once

#include <gtest/gtest.h>

#include <string>

#include "laconic/schedule/schedule.hpp"

namespace laconic {

inline std::string lines(const Problems& problems) {
  return problems.empty() ? "" : to_text(problems) + "\n";
}

// Calls body(kind, shape) for all there are up to these numbers.
template <class Body>
void for_each_shape(int max_ranks, int max_microbatches, int max_chunks, const Body& body) {
  for (const ScheduleKind kind : kScheduleKinds)
    for (int ranks = 1; ranks <= max_ranks; ++ranks)
      for (int microbatches = 1; microbatches <= max_microbatches; ++microbatches)
        for (int chunks = 1; chunks <= max_chunks; ++chunks) {
          const PipelineShape shape{ranks, ranks * chunks, microbatches};
          if (!check(kind, shape).empty()) continue;
          SCOPED_TRACE(testing::Message()
                       << name_of(kind) << ", " << ranks << " ranks, " << microbatches
                       << " microbatches, " << chunks << " chunks");
          body(kind, shape);
        }
}

}  // namespace laconic
