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

// The columns of a row-major f32 matrix as f64, in blocks of rows: a block has its part of each
// column, one after the other, so that it stays in the near cache. The last block is padded with
// zeros to a multiple of kStep.
class Blocks {
 public:
  Blocks(const float* x, std::size_t rows, std::size_t count, std::size_t most)
      : rows_(rows),
        count_(count),
        most_(most),
        length_((rows + kStep - 1) / kStep * kStep),
        values_(hwy::AllocateAligned<double>(std::max<std::size_t>(length_ * count, 1))) {
    if (values_ == nullptr) throw std::bad_alloc();  // Highway returns null
    for_each([&](std::size_t begin, std::size_t length, double* block) {
      for (std::size_t c = 0; c < count; ++c)
        for (std::size_t i = 0; i < length; ++i)
          block[c * length + i] = begin + i < rows ? x[(begin + i) * count + c] : 0.0;
    });
  }

  void store(float* x) {
    for_each([&](std::size_t begin, std::size_t length, const double* block) {
      for (std::size_t c = 0; c < count_; ++c)
        for (std::size_t i = 0; i < std::min(length, rows_ - begin); ++i)
          x[(begin + i) * count_ + c] = static_cast<float>(block[c * length + i]);
    });
  }

  // op(first row, rows, columns)
  template <class Op>
  void for_each(const Op& op) {
    for (std::size_t i = 0; i < length_; i += most_)
      op(i, std::min(most_, length_ - i), values_.get() + i * count_);
  }

 private:
  std::size_t rows_, count_, most_, length_;
  hwy::AlignedFreeUniquePtr<double[]> values_;
};

// Products of columns, G = X^T X, and of them the triangle R with G = R^T R, whose inverse makes
// the columns orthonormal. Sums over blocks of rows are added in order: a GPU makes them side by
// side (kernel/subspace.cu), and has the same bits.
class Triangle {
 public:
  explicit Triangle(std::size_t r) : r_(r), g_(r * r), scales_(r), dots_(r) {}

  void add(const double* block, std::size_t length) {
    for (std::size_t c = 0; c < r_; ++c) {
      kernel::dot_columns(block + c * length, block, length, c + 1, dots_.data());
      for (std::size_t j = 0; j <= c; ++j) at(c, j) += dots_[j];
    }
  }

  // Whether G is that of orthonormal columns, or zero ones.
  bool is_straight() {
    for (std::size_t c = 0; c < r_; ++c)
      for (std::size_t j = 0; j <= c; ++j)
        if (std::abs(at(c, j) - (j == c && at(c, c) != 0 ? 1.0 : 0.0)) > kernel::kStraight)
          return false;
    return true;
  }

  // G becomes R: R[j, c] lies at (c, j). False where a column is too near the span of those before
  // it. Zero columns have a scale of zero, and stay zero.
  bool factorise() {
    for (std::size_t c = 0; c < r_; ++c) dots_[c] = at(c, c);
    for (std::size_t k = 0; k < r_; ++k) {
      const double rest = at(k, k);
      if (rest < kernel::kApart * dots_[k]) return false;
      scales_[k] = dots_[k] == 0 ? 0.0 : 1.0 / std::sqrt(rest);
      for (std::size_t c = k + 1; c < r_; ++c) {
        at(c, k) *= scales_[k];
        for (std::size_t j = k + 1; j <= c; ++j) at(c, j) -= at(j, k) * at(c, k);
      }
    }
    return true;
  }

  bool has_zeros() const { return std::ranges::find(scales_, 0.0) != scales_.end(); }

  // X becomes X R^-1.
  void solve(double* block, std::size_t length) const {
    for (std::size_t c = 0; c < r_; ++c) {
      double* x = block + c * length;
      kernel::subtract_columns(x, block, length, c, g_.data() + c * r_);
      for (std::size_t i = 0; i < length; ++i) x[i] *= scales_[c];
    }
  }

 private:
  double& at(std::size_t c, std::size_t j) { return g_[c * r_ + j]; }

  std::size_t r_;
  std::vector<double> g_, scales_, dots_;
};

// Orthonormal columns by their products, where these say enough: rounding in G grows with the
// square of how nearly dependent columns are. So it is done twice, and the second G shows how good
// the first was. False where it was not, or where a zero column must not be: then x is as it was.
bool orthonormalise_together(float* x, std::size_t rows, std::size_t r, bool may_have_zeros) {
  Blocks blocks(x, rows, r, kernel::kGramRows);
  Triangle first(r), second(r);
  blocks.for_each(
      [&](std::size_t, std::size_t length, double* block) { first.add(block, length); });
  if (!first.factorise() || (first.has_zeros() && !may_have_zeros)) return false;
  blocks.for_each([&](std::size_t, std::size_t length, double* block) {
    first.solve(block, length);
    second.add(block, length);
  });
  if (!second.is_straight()) return false;
  second.factorise();
  blocks.for_each(
      [&](std::size_t, std::size_t length, double* block) { second.solve(block, length); });
  blocks.store(x);
  return true;
}

// Columns one after the other, whatever they are.
class Columns {
 public:
  Columns(const float* x, std::size_t rows, std::size_t count)
      : blocks_(x, rows, count, std::max<std::size_t>((rows + kStep - 1) / kStep * kStep, 1)),
        rows_(rows),
        count_(count) {
    blocks_.for_each([&](std::size_t, std::size_t length, double* block) {
      length_ = length;
      values_ = block;
    });
  }

  void store(float* x) { blocks_.store(x); }

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
  double* column(std::size_t c) { return values_ + c * length_; }

  double norm(std::size_t c) {
    double square = 0;
    kernel::dot_columns(column(c), column(c), length_, 1, &square);
    return std::sqrt(square);
  }

  void project(std::size_t c) {
    dots_.resize(c);
    kernel::dot_columns(column(c), values_, length_, c, dots_.data());
    kernel::subtract_columns(column(c), values_, length_, c, dots_.data());
  }

  Blocks blocks_;  // one
  std::size_t rows_, count_, length_ = 0;
  double* values_ = nullptr;
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
  if (orthonormalise_together(x, rows, r, /*may_have_zeros=*/true)) return;
  Columns columns(x, rows, r);
  for (std::size_t c = 0; c < r; ++c) columns.settle(c);
  columns.store(x);
}

void orthonormalise_start(float* x, std::size_t rows, std::size_t r, Key key) {
  if (!is_finite(x, rows * r)) draw_start(x, rows, r, key);
  if (orthonormalise_together(x, rows, r, /*may_have_zeros=*/false)) return;
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
