#include "laconic/train/code_start.hpp"

#include <ATen/ops/zeros.h>
#include <c10/core/GradMode.h>

#include <algorithm>
#include <map>
#include <string>
#include <tuple>

#include "laconic/train/basis_start.hpp"

namespace laconic {

namespace {

using at::Tensor;

// By site: X^T X over all rows that this rank had.
using Squares = std::map<std::string, Tensor>;

Squares squares_of(TensorGrid& grid, const std::function<void()>& forward) {
  Squares squares;
  grid.observe_codes([&](const std::string& name, const Tensor& rows) {
    const Tensor x = rows.to(at::kCPU, at::kDouble);
    const Tensor square = x.t().matmul(x);
    const auto [found, is_new] = squares.try_emplace(name, square);
    if (!is_new) found->second.add_(square);
  });
  forward();
  grid.observe_codes({});
  return squares;
}

Axes axes_beside(const Axes& features) {
  Axes beside;
  for (const Axis axis : kTensorAxes)
    if (std::ranges::find(features, axis) == features.end()) beside.push_back(axis);
  return beside;
}

// Of all slices, one below the other. One rank of those that share a slice decides, for all of them
// to have the same bits.
Tensor rows_of_slices(TensorGrid& grid, const Tensor& square, const CodeStart& start,
                      std::int64_t count) {
  const GridSite site{.traffic = Traffic::tp_weight, .is_small = true};
  const Axes beside = axes_beside(start.features);
  const Tensor all = grid.sum(square, beside, site);
  Tensor rows = grid.index(beside) == 0 ? principal_directions(all, count)
                                        : at::zeros({count, start.columns}, at::kDouble);
  rows = grid.sum(rows, beside, site);
  return grid.gather(rows, equal_rows(count, static_cast<int>(start.slices)), start.features, site)
      .contiguous();
}

}  // namespace

void start_codes_by_pca(Weights& weights, TensorGrid& grid, const std::function<void()>& forward) {
  const at::NoGradGuard no_grad;
  const Squares squares = squares_of(grid, forward);
  std::map<std::string, std::vector<std::vector<double>>> by_site;  // and slice
  for (Parameter& parameter : weights.parameters) {
    const ParameterSpec& spec = weights.spec.parameters[parameter.number];
    if (!spec.code) continue;
    auto& slices = by_site[spec.code->site];
    if (slices.empty()) {
      const Tensor rows =
          rows_of_slices(grid, squares.at(spec.code->site), *spec.code, spec.sizes[0]);
      const std::int64_t each = spec.sizes[0] * spec.code->columns;
      for (std::int64_t n = 0; n < spec.code->slices; ++n) {
        const auto* first = rows.data_ptr<double>() + n * each;
        slices.emplace_back(first, first + each);
      }
    }
    set_code(weights, parameter, [&](std::int64_t slice) -> const std::vector<double>& {
      return slices[static_cast<std::size_t>(slice)];
    });
  }
  refresh_copies(weights.parameters);
}

}  // namespace laconic
