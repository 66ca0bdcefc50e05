// tensor/learned_map.hpp — auto_encoder's two linear maps, which the task loss trains.
//
// They are parameters like any others: named, drawn by Philox, in the optimiser
// and in the checkpoint. map_down() and map_up() are ordinary differentiable
// functions, and the link between them carries the code:
//
//   sender    z = map_down(x, encoder)   pack(z)        z.backward(d code)
//   receiver  y = map_up(z, decoder)     z is a leaf    its gradient goes back: as short as z
//
// Both maps are linear, so codes of partial results may be summed on the way
// (is_summable). The codec auto_encoder (codec/spec.hpp) writes the same numbers
// without a graph, by way of host_maps().
#pragma once

#include <ATen/core/Tensor.h>

#include <cstdint>
#include <vector>

#include "laconic/base/philox.hpp"
#include "laconic/codec/codec.hpp"

namespace laconic {

struct LearnedMap {
  at::Tensor encoder;  // [code, width]
  at::Tensor decoder;  // [width, code]
};

enum class MapStart {
  xavier,      // both uniform in +-sqrt(6 / (width + code)), as published: at first what comes out
               // has nothing to do with what went in
  orthogonal,  // orthonormal rows and decoder = encoder transposed: a projection from the start
};

// [rows, columns] in the order of rows: orthonormal ones, the same bits on every processor.
// Requires: rows <= columns.
std::vector<double> orthonormal_rows(std::int64_t rows, std::int64_t columns, Key key);

// Draws both maps: equal for equal keys, on every rank. Requires: 1 <= code <= width for
// MapStart::orthogonal.
LearnedMap make_learned_map(std::int64_t width, std::int64_t code, MapStart start, Key key,
                            const at::TensorOptions& options);

at::Tensor map_down(const at::Tensor& x, const at::Tensor& encoder);  // [..., width] -> [..., code]
at::Tensor map_up(const at::Tensor& code, const at::Tensor& decoder);  // and back

// Gives MessageSpec::maps. Requires: f32, contiguous, on the CPU. Valid as long as the tensors.
LinearMaps host_maps(const LearnedMap& map);

}  // namespace laconic
