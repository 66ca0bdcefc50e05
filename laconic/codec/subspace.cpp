#include "laconic/codec/subspace.hpp"

#include <hwy/aligned_allocator.h>

#include <algorithm>
#include <cmath>
#include <cstdint>
#include <new>
#include <span>
#include <vector>

#include "laconic/codec/codec.hpp"
#include "laconic/codec/kernel/projection.hpp"

namespace laconic {

namespace {

constexpr std::size_t kStep = kernel::kColumnStep;
constexpr int kDraws = 4;  // a drawn column is dependent with a probability of about 1e-5

// The columns of a row-major f32 matrix as f64, one after the other and padded with zeros.
class Columns {
 public:
  Columns(const float* x, std::size_t rows, std::size_t count)
      : rows_(rows),
        count_(count),
        length_((rows + kStep - 1) / kStep * kStep),
        values_(hwy::AllocateAligned<double>(std::max<std::size_t>(length_ * count, 1))) {
    if (values_ == nullptr) throw std::bad_alloc();  // Highway returns null
    for (std::size_t c = 0; c < count; ++c) std::fill(column(c) + rows, column(c) + length_, 0.0);
    for_each_band([&](std::size_t begin, std::size_t end) {
      for (std::size_t c = 0; c < count; ++c)
        for (std::size_t i = begin; i < end; ++i) column(c)[i] = x[i * count + c];
    });
  }

  void store(float* x) const {
    for_each_band([&](std::size_t begin, std::size_t end) {
      for (std::size_t c = 0; c < count_; ++c)
        for (std::size_t i = begin; i < end; ++i)
          x[i * count_ + c] = static_cast<float>(column(c)[i]);
    });
  }

  void assign(std::size_t c, const float* x) {
    for (std::size_t i = 0; i < rows_; ++i) column(c)[i] = x[i * count_ + c];
  }

  // Projects column c out of the span of those before it and makes it a unit, or else zero.
  bool settle(std::size_t c) {
    const double before = norm(c);
    project(c);
    project(c);  // the second time removes what rounding left: Kahan's "twice is enough"
    const double after = norm(c);
    const bool kept = after > kDependent * before;
    const double scale = kept ? 1.0 / after : 0.0;
    for (std::size_t i = 0; i < length_; ++i) column(c)[i] *= scale;
    return kept;
  }

 private:
  // Bands of rows that stay in the near cache while they are transposed.
  template <class Op>
  void for_each_band(const Op& op) const {
    for (std::size_t i = 0; i < rows_; i += 64) op(i, std::min(i + 64, rows_));
  }

  double* column(std::size_t c) { return values_.get() + c * length_; }
  const double* column(std::size_t c) const { return values_.get() + c * length_; }

  double norm(std::size_t c) const {
    double square = 0;
    kernel::dot_columns(column(c), column(c), length_, 1, &square);
    return std::sqrt(square);
  }

  void project(std::size_t c) {
    dots_.resize(c);
    kernel::dot_columns(column(c), values_.get(), length_, c, dots_.data());
    kernel::subtract_columns(column(c), values_.get(), length_, c, dots_.data());
  }

  std::size_t rows_, count_, length_;
  hwy::AlignedFreeUniquePtr<double[]> values_;
  std::vector<double> dots_;
};

// Matrices of draws, each made when it is first wanted.
class Draws {
 public:
  Draws(std::size_t rows, std::size_t r, Key key) : rows_(rows), r_(r), key_(key) {}

  const float* operator[](int number) {
    if (number != number_) {
      values_.resize(rows_ * r_);
      draw_start(values_.data(), rows_, r_,
                 number == 0 ? key_ : derive(key_, static_cast<std::uint64_t>(number)));
      number_ = number;
    }
    return values_.data();
  }

 private:
  std::size_t rows_, r_;
  Key key_;
  int number_ = -1;
  std::vector<float> values_;
};

}  // namespace

void draw_start(float* x, std::size_t rows, std::size_t r, Key key) {
  fill_normal(key, 0, 0.0, 1.0, std::span<float>(x, rows * r));
}

void orthonormalise(float* x, std::size_t rows, std::size_t r) {
  Columns columns(x, rows, r);
  for (std::size_t c = 0; c < r; ++c) columns.settle(c);
  columns.store(x);
}

void orthonormalise_start(float* x, std::size_t rows, std::size_t r, Key key) {
  if (!is_finite(x, rows * r)) draw_start(x, rows, r, key);
  Columns columns(x, rows, r);
  Draws draws(rows, r, key);
  for (std::size_t c = 0; c < r; ++c) {
    bool kept = columns.settle(c);
    for (int number = 0; number < kDraws && !kept; ++number) {
      columns.assign(c, draws[number]);
      kept = columns.settle(c);
    }
  }
  columns.store(x);
}

}  // namespace laconic
