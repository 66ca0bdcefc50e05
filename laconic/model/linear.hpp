// model/linear.hpp — products of activations and weights, whose backward can be cut in two.
//
// Without `deferred` backward adds the gradients of weight and bias to their grad(): by autograd,
// or, in bfloat16 and where a GPU has kernels, by a node of its own, in float32. With it
// the values are the same, and backward computes the gradient of x alone: those of weight
// and bias are noted in *deferred, which must still be there then.
// Requires, with `deferred`: weight and bias are leaves that require a gradient.
#pragma once

namespace at {
class Tensor;
}

namespace laconic {

class DeferredWeights;  // model/deferred.hpp

// a b, which add up in float32 at least.
at::Tensor matrix_product(const at::Tensor& a, const at::Tensor& b);
// a^T b in the type that gradients of weights have: float32 where a and b are shorter.
at::Tensor weight_gradient(const at::Tensor& a, const at::Tensor& b);

// x weight + bias. x: [rows, in], weight: [in, out], bias: [out].
at::Tensor linear(const at::Tensor& x, const at::Tensor& weight, const at::Tensor& bias,
                  DeferredWeights* deferred = nullptr);

// x weight^T + bias, as torch.nn.Linear. x: [rows, in], weight: [out, in], bias: [out] or
// undefined.
at::Tensor transposed_linear(const at::Tensor& x, const at::Tensor& weight, const at::Tensor& bias,
                             DeferredWeights* deferred = nullptr);

// gelu(x weight + bias), by tanh; in_out as linear().
at::Tensor gelu_linear(const at::Tensor& x, const at::Tensor& weight, const at::Tensor& bias,
                       DeferredWeights* deferred = nullptr);

// The same with x Phi(x) and the weight as in transposed_linear().
at::Tensor exact_gelu_linear(const at::Tensor& x, const at::Tensor& weight, const at::Tensor& bias,
                             DeferredWeights* deferred = nullptr);

}  // namespace laconic
