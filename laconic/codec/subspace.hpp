// codec/subspace.hpp — orthonormal columns: what low rank does between its matrix products.
//
// A matrix [rows, r] here is a set of r columns that span a subspace. Columns
// that depend on those before them become zero, never normalised noise: a
// product with such noise is no projection, and a matrix of true rank 2 coded
// with r = 8 would come back wrong. Nothing absolute is added anywhere, so
// results do not depend on the scale of the input.
//
// The same bits on every processor. Callers flush denormals.
#pragma once

#include <cstddef>

#include "laconic/base/philox.hpp"

namespace laconic {

// A column is dropped when what is left of it, outside the span of those before, is at most this
// fraction of its length.
inline constexpr double kDependent = 1e-5;

// Makes the columns of x[rows, r] orthonormal, or zero. Requires: x is finite.
void orthonormalise(float* x, std::size_t rows, std::size_t r);

// The same, for the start of an iteration, which must not have lost directions: a column that is
// zero or dependent is drawn anew from the key. If any number of x is not finite, all are drawn.
void orthonormalise_start(float* x, std::size_t rows, std::size_t r, Key key);

// Element (i, c) is normal number i r + c of the key.
void draw_start(float* x, std::size_t rows, std::size_t r, Key key);

}  // namespace laconic
