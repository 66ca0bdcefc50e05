// model/code_blocks.hpp — products with the maps of several learned codes that stand beside each
// other: each member's columns have their own.
#pragma once

#include <ATen/core/Tensor.h>
#include <ATen/ops/cat.h>

#include <cstdint>
#include <vector>

namespace laconic {

// [rows, members * from] times a map of each member's part, [from, to], which stand beside each
// other as [from, members * to]: [rows, members * to].
inline at::Tensor times_blocks(const at::Tensor& x, const at::Tensor& maps, std::int64_t members) {
  if (members == 1) return x.matmul(maps);
  const std::int64_t from = x.size(1) / members, to = maps.size(1) / members;
  std::vector<at::Tensor> parts;
  for (std::int64_t m = 0; m < members; ++m)
    parts.push_back(x.narrow(1, m * from, from).matmul(maps.narrow(1, m * to, to)));
  return at::cat(parts, 1);
}
// The other way round: [rows, members * to] times the transposed maps.
inline at::Tensor times_blocks_back(const at::Tensor& x, const at::Tensor& maps,
                                    std::int64_t members) {
  if (members == 1) return x.matmul(maps.t());
  const std::int64_t to = x.size(1) / members;
  std::vector<at::Tensor> parts;
  for (std::int64_t m = 0; m < members; ++m)
    parts.push_back(x.narrow(1, m * to, to).matmul(maps.narrow(1, m * to, to).t()));
  return at::cat(parts, 1);
}
// Gradients of the maps.
inline at::Tensor blocks_gradient(const at::Tensor& x, const at::Tensor& dy, std::int64_t members) {
  if (members == 1) return x.t().matmul(dy);
  const std::int64_t from = x.size(1) / members, to = dy.size(1) / members;
  std::vector<at::Tensor> parts;
  for (std::int64_t m = 0; m < members; ++m)
    parts.push_back(x.narrow(1, m * from, from).t().matmul(dy.narrow(1, m * to, to)));
  return at::cat(parts, 1);
}

}  // namespace laconic
