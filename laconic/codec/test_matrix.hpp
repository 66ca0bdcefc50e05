// codec/test_matrix.hpp — for tests: matrices with a known spectrum, and how far apart two are.
#pragma once

#include <cmath>
#include <vector>

#include "laconic/codec/test_round_trip.hpp"

namespace laconic::test {

using Matrix = std::vector<float>;

// sum of (a - b)^2, in f64.
inline double square_distance(const Matrix& a, const Matrix& b) {
  double sum = 0;
  for (std::size_t i = 0; i < a.size(); ++i) {
    const double d = static_cast<double>(a[i]) - static_cast<double>(b[i]);
    sum += d * d;
  }
  return sum;
}

inline double norm(const Matrix& a) {
  return std::sqrt(square_distance(a, Matrix(a.size())));
}

inline double relative_error(const Matrix& a, const Matrix& out) {
  return std::sqrt(square_distance(a, out)) / norm(a);
}

// `count` orthonormal columns of the given length, one after the other. Requires: count <= length.
inline std::vector<double> orthonormal_columns(std::size_t length, std::size_t count,
                                               std::uint64_t seed) {
  std::vector<double> q(length * count);
  fill_normal(key_of(seed), 0, 0.0, 1.0, std::span<double>(q));
  for (std::size_t c = 0; c < count; ++c)
    for (int pass = 0; pass < 3; ++pass) {
      double* v = q.data() + c * length;
      for (std::size_t b = 0; b < c; ++b) {
        double dot = 0;
        for (std::size_t i = 0; i < length; ++i) dot += v[i] * q[b * length + i];
        for (std::size_t i = 0; i < length; ++i) v[i] -= dot * q[b * length + i];
      }
      double square = 0;
      for (std::size_t i = 0; i < length; ++i) square += v[i] * v[i];
      for (std::size_t i = 0; i < length; ++i) v[i] /= std::sqrt(square);
    }
  return q;
}

// [n, m] with the given singular values.
inline Matrix matrix_with_spectrum(std::size_t n, std::size_t m, const std::vector<double>& values,
                                   std::uint64_t seed) {
  const std::vector<double> u = orthonormal_columns(n, values.size(), seed);
  const std::vector<double> v = orthonormal_columns(m, values.size(), seed + 1);
  Matrix a(n * m);
  for (std::size_t i = 0; i < n; ++i)
    for (std::size_t j = 0; j < m; ++j) {
      double sum = 0;
      for (std::size_t k = 0; k < values.size(); ++k)
        sum += values[k] * u[k * n + i] * v[k * m + j];
      a[i * m + j] = static_cast<float>(sum);
    }
  return a;
}

// 1, ratio, ratio^2, ...
inline std::vector<double> decaying(std::size_t count, double ratio) {
  std::vector<double> values;
  for (std::size_t k = 0; k < count; ++k) values.push_back(std::pow(ratio, k));
  return values;
}

// What the best approximation of that rank leaves, relative to the whole.
inline double best_error(const std::vector<double>& values, std::size_t rank) {
  double lost = 0, all = 0;
  for (std::size_t k = 0; k < values.size(); ++k) {
    all += values[k] * values[k];
    if (k >= rank) lost += values[k] * values[k];
  }
  return std::sqrt(lost / all);
}

inline Matrix scaled(Matrix a, float factor) {
  for (float& x : a) x *= factor;
  return a;
}

inline TensorSpec matrix_spec(std::size_t n, std::size_t m) {
  return {Dtype::f32, {static_cast<std::int64_t>(n), static_cast<std::int64_t>(m)}};
}

}  // namespace laconic::test
