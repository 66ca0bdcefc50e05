// tests/equivalence/tensor_codec.hpp — ranks of a tensor grid as threads, with codecs, and matrices
// of which each has a part.
#pragma once

#include <ATen/core/Tensor.h>
#include <ATen/ops/empty.h>

#include <functional>
#include <span>
#include <vector>

#include "laconic/base/philox.hpp"
#include "laconic/engine/engine.hpp"
#include "laconic/grid/grid.hpp"
#include "laconic/transport/in_process.hpp"

namespace laconic::tensor_codec {
namespace {

using at::Tensor;

// The same at every call.
Tensor normal(std::vector<std::int64_t> sizes, std::uint64_t seed,
              at::ScalarType type = at::kFloat) {
  const Tensor x = at::empty(sizes, at::kDouble);
  fill_normal(key_of(seed), 0, 0.0, 1.0,
              std::span<double>(x.data_ptr<double>(), static_cast<std::size_t>(x.numel())));
  return x.to(type);
}

double distance_between(const Tensor& a, const Tensor& b) {
  return a.sub(b).abs().max().item<double>();
}

GridCodecs by_class(Traffic traffic, const GridCodec& codec) {
  return
      [=](const GridSite& site, GridCall) { return site.traffic == traffic ? codec : GridCodec(); };
}

void on_ranks(const GridPlan& plan, const GridCodecs& codecs,
              const std::function<void(TensorGrid&)>& body) {
  run_ranks(size(plan.mesh), [&](Transport& transport) {
    Engine engine(transport);
    {
      ProgressThread progress_thread(engine);
      TensorGrid grid(progress_thread, plan, plan.mesh, transport.rank(), codecs, 5);
      body(grid);
    }
    engine.flush();
  });
}

// Of a map that tests compute.
constexpr std::int64_t kRows = 8, kInputs = 12, kOutputs = 8;

// This rank's part of a matrix.
Tensor part_of(const TensorGrid& grid, const Tensor& whole, const Axes& rows, const Axes& columns) {
  const std::int64_t r = whole.size(0) / grid.extent(rows);
  const std::int64_t c = whole.size(1) / grid.extent(columns);
  return whole.narrow(0, r * grid.index(rows), r)
      .narrow(1, c * grid.index(columns), c)
      .contiguous();
}

}  // namespace
}  // namespace laconic::tensor_codec
