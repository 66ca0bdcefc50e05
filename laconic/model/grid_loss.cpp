// Norms and losses of a tensor grid: what adds up over columns that lie on several ranks.
//
// A norm makes two passes for its statistics, mean first: the sum of squares minus the square of
// the sum cancels where the mean is large. A softmax over a vocabulary in parts needs three numbers
// of each part and row, which all get in one exchange: the largest logit m, s = sum of exp(logit -
// m), and the logit of the target, if it is there. Then, over the parts, M = max m, log sum = M +
// log(sum of s exp(m - M)).
#include <ATen/ops/stack.h>
#include <ATen/ops/where.h>
#include <ATen/ops/zeros.h>
#include <c10/core/GradMode.h>

#include <algorithm>
#include <limits>

#include "laconic/base/error.hpp"
#include "laconic/base/target.hpp"
#include "laconic/model/grid_ops.hpp"
#include "laconic/model/ops.hpp"

namespace laconic {

namespace {

using at::Tensor;

// Row sums over all columns of all ranks, [rows, 1].
Tensor row_sums(const GridSpot& spot, const Tensor& x, const Axes& features, Traffic traffic) {
  return spot.grid.sum(x.sum(1, true), features, small_site(spot, traffic));
}

}  // namespace

Tensor grid_norm(const GridSpot& spot, const Tensor& x, const Tensor& weight, const Tensor& bias,
                 double epsilon, const Axes& features, std::int64_t width) {
  const bool is_centred = bias.defined();
  const auto count = static_cast<double>(width);
  Tensor z, inverse, y;
  {
    const at::NoGradGuard no_grad;
    Tensor centred = full_length(x.detach());
    if (is_centred)
      centred = centred.sub(row_sums(spot, centred, features, Traffic::tp_activation).div_(count));
    const Tensor squares = row_sums(spot, centred.square(), features, Traffic::tp_activation);
    inverse = squares.div(count).add_(epsilon).rsqrt_();
    z = centred.mul(inverse);
    y = z.mul(full_length(weight.detach()));
    if (is_centred) y.add_(full_length(bias.detach()));
    y = y.to(x.scalar_type());
  }
  return with_backward(
      {y}, {x, weight, bias},
      [spot, features, count, is_centred, z, inverse, weight = weight.detach(),
       type = x.scalar_type()](const Tensors& gradients) {
        const Tensor dy = full_length(gradients[0]), dz = dy.mul(full_length(weight));
        const Tensor along = dz.mul(z).sum(1, true);
        Tensor sums = is_centred ? at::stack({dz.sum(1, true), along}) : at::stack({along});
        sums = spot.grid.sum(sums, features, small_site(spot, Traffic::tp_gradient)).div_(count);
        Tensor dx = dz.sub(z.mul(sums[sums.size(0) - 1]));
        if (is_centred) dx.sub_(sums[0]);
        return Tensors{dx.mul_(inverse).to(type), dy.mul(z).sum(0),
                       is_centred ? dy.sum(0) : Tensor()};
      })[0];
}

Tensor grid_cross_entropy(const GridSpot& spot, const Tensor& any_logits, const Tensor& targets,
                          const GridLoss& loss) {
  TensorGrid& grid = spot.grid;
  Tensor value, softmax, here, is_here, has_target;
  {
    const at::NoGradGuard no_grad;
    const Tensor logits = full_length(any_logits.detach());
    const std::int64_t rows = logits.size(0), columns = logits.size(1);
    has_target = targets.ne(kNoTarget);
    const Tensor column = targets.sub(loss.first);
    is_here = column.ge(0).logical_and(column.lt(columns)).logical_and(has_target);
    here = column.masked_fill(is_here.logical_not(), 0).unsqueeze(1);
    const double lowest = -std::numeric_limits<double>::infinity();
    const bool is_empty = columns == 0;
    const Tensor nothing = at::zeros({rows}, logits.options());
    const Tensor largest = is_empty ? nothing.add(lowest) : logits.amax(1);
    const Tensor powers = is_empty ? logits : logits.sub(largest.unsqueeze(1)).exp_();
    const Tensor chosen =
        is_empty ? nothing
                 : logits.gather(1, here).squeeze(1).mul(is_here.to(logits.scalar_type()));
    Tensors mine = {largest, powers.sum(1), chosen};
    if (loss.smoothing > 0) mine.push_back(logits.sum(1));
    const auto numbers = static_cast<std::int64_t>(mine.size());
    const int members = grid.extent(loss.vocabulary);
    const Tensor all = grid.gather(at::stack(mine).unsqueeze(0), equal_rows(1, members),
                                   loss.vocabulary, small_site(spot, Traffic::tp_activation))
                           .view({members, numbers, rows});
    const Tensor most = all.select(1, 0).amax(0);
    const Tensor sum = all.select(1, 1).mul(all.select(1, 0).sub(most).exp_()).sum(0);
    const Tensor log_sum = most.add(sum.log());
    Tensor each = log_sum.sub(all.select(1, 2).sum(0)).mul(1 - loss.smoothing);
    if (loss.smoothing > 0)
      each.add_(log_sum.sub(all.select(1, 3).sum(0).div(static_cast<double>(loss.size))),
                loss.smoothing);
    each = at::where(has_target, each, at::zeros({}, each.options()));
    value =
        each.to(at::kDouble).sum().div(static_cast<double>(loss.all_rows)).to(each.scalar_type());
    softmax = is_empty ? logits : powers.mul_(largest.sub(log_sum).exp_().unsqueeze(1));
  }
  const bool speaks = grid.index(loss.vocabulary) == 0;
  if (!speaks) value = at::zeros({}, value.options());
  return with_backward(
      {value}, {any_logits},
      [softmax, here, is_here, has_target, loss,
       type = any_logits.scalar_type()](const Tensors& gradients) {
        const double scale = gradients[0].item<double>() / static_cast<double>(loss.all_rows);
        Tensor d = softmax;
        if (d.size(1) > 0) {
          if (loss.smoothing > 0) d.sub_(loss.smoothing / static_cast<double>(loss.size));
          d.scatter_add_(1, here, is_here.to(d.scalar_type()).mul(loss.smoothing - 1).unsqueeze(1));
          d.mul_(has_target.to(d.scalar_type()).mul(scale).unsqueeze(1));
        }
        return Tensors{d.to(type)};
      })[0];
}

Tensor spoken_loss(const TensorGrid& grid, const Tensor& loss, const Axes& rows) {
  for (const Axis axis : kTensorAxes)
    if (std::find(rows.begin(), rows.end(), axis) == rows.end() && along(grid.coord(), axis) != 0)
      return with_backward({at::zeros({}, loss.options().requires_grad(false))}, {loss},
                           [](const Tensors& gradients) { return gradients; })[0];
  return loss;
}

}  // namespace laconic
