// train/introduction.hpp — the lines with which a run begins: model, data, mesh, pipeline,
// estimate, warnings and notes.
#pragma once

#include <string>
#include <vector>

#include "laconic/runtime/pipeline.hpp"
#include "laconic/train/common_start.hpp"
#include "laconic/train/row_reader.hpp"

namespace laconic {

struct IntroducedRun {
  const RunConfig& config;
  const CommonStart& common;
  const RowReader& reader;  // of the data that it trains on
  const PipelinePlan& pipeline;
  World& world;
};

// What rank 0 prints; the others may call it, and hear no estimate.
std::vector<std::string> introduction(const IntroducedRun& run);

}  // namespace laconic
