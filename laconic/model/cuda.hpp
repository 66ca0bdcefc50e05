// model/cuda.hpp — what the GPU's kernels take, and what linear maps need of them. Those of whole
// operations are in ops.hpp.
//
// In a program that was built without CUDA nothing is taken, and nothing else may be called.
#pragma once

namespace at {
class Tensor;
}

namespace laconic::cuda {

// Whether x is on a GPU, of float or bfloat16, with rows that are read 16 bytes at a time; false
// for everything in a program that was built without CUDA.
bool takes(const at::Tensor& x);
// Whether norms take it, too: a row must fit into the registers of a block.
bool takes_norm(const at::Tensor& x);
// Whether dropout takes it, whose rows may have any length.
bool takes_drop(const at::Tensor& x);

// Settles how libtorch computes on GPUs: fresh memory is not filled, bfloat16 products add up in
// float32, and where results must be the same every time attention leaves out kernels whose are
// not.
void prepare(bool is_deterministic);

enum class Gelu { tanh, exact };

// gelu(x), without a graph.
at::Tensor gelu_of(const at::Tensor& x, Gelu kind);

// sum += left^T right, in the type of `sum`, or in float32, if it is undefined.
void add_product(const at::Tensor& left, const at::Tensor& right, at::Tensor& sum);

// sum += the rows of x added up, likewise.
void add_rows(const at::Tensor& x, at::Tensor& sum);

// The gradient of gelu's input x from that of its output; its rows are added to `sum`, likewise.
at::Tensor gelu_backward(const at::Tensor& x, const at::Tensor& gradient, Gelu kind,
                         at::Tensor& sum);

}  // namespace laconic::cuda
