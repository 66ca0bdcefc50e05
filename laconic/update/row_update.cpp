#include "laconic/update/row_update.hpp"

#include <algorithm>
#include <cmath>

#include "laconic/base/error.hpp"
#include "laconic/update/kernel/update.hpp"

namespace laconic {

namespace {

template <class T>
void adagrad(const RowRule& rule, const T* gradient, T* value, T* sum, std::int64_t width) {
  const T scale = static_cast<T>(rule.gradient_scale), lr = static_cast<T>(rule.lr),
          epsilon = static_cast<T>(rule.epsilon),
          shrink = static_cast<T>(1 - rule.lr * rule.weight_decay);
  for (std::int64_t c = 0; c < width; ++c) {
    const T g = gradient[c] * scale;
    sum[c] += g * g;
    value[c] = value[c] * shrink - lr * g / (std::sqrt(sum[c]) + epsilon);
  }
}

template <class T>
void plain_sgd(const RowRule& rule, const T* gradient, T* value, std::int64_t width) {
  const T scale = static_cast<T>(rule.gradient_scale), lr = static_cast<T>(rule.lr),
          shrink = static_cast<T>(1 - rule.lr * rule.weight_decay);
  for (std::int64_t c = 0; c < width; ++c) value[c] = value[c] * shrink - gradient[c] * scale * lr;
}

kernel::AdamWRule adam_of(const RowRule& rule) {
  const auto t = static_cast<double>(rule.updates);
  return {.lr = rule.lr,
          .beta1 = rule.beta1,
          .beta2 = rule.beta2,
          .epsilon = rule.epsilon,
          .weight_decay = rule.weight_decay,
          .correction1 = 1 - std::pow(rule.beta1, t),
          .correction2 = 1 - std::pow(rule.beta2, t),
          .gradient_scale = rule.gradient_scale};
}

}  // namespace

template <class T>
void update_rows(const RowRule& rule, std::span<const std::int64_t> rows, const T* gradients,
                 const RowColumns<T>& columns) {
  const std::int64_t width = columns.width;
  const kernel::AdamWRule adam = adam_of(rule);
  const auto adamw = kernel::update<T>().adamw;
  for (std::size_t i = 0; i < rows.size(); ++i) {
    const T* gradient = gradients + static_cast<std::int64_t>(i) * width;
    const std::int64_t at = rows[i] * width;
    T* value = columns.value + at;
    switch (rule.algorithm) {
      case RowAlgorithm::sgd: plain_sgd(rule, gradient, value, width); break;
      case RowAlgorithm::adagrad:
        adagrad(rule, gradient, value, columns.moment1 + at, width);
        break;
      case RowAlgorithm::adam:
        adamw(value, gradient, columns.moment1 + at, columns.moment2 + at, width, adam);
        break;
    }
  }
}

RowDecay::RowDecay(std::int64_t rows, bool is_used)
    : had_(is_used ? static_cast<std::size_t>(rows) : 0, 0) {}

void RowDecay::add_step(const RowRule& rule) {
  if (is_used()) factors_.push_back(1 - rule.lr * rule.weight_decay);
}

void RowDecay::note(std::span<const std::int64_t> rows, std::int64_t step) {
  if (!is_used()) return;
  for (const std::int64_t row : rows) had_[static_cast<std::size_t>(row)] = step + 1;
}

template <class T>
void RowDecay::shrink(std::int64_t row, T* columns, std::int64_t width) const {
  if (!is_used()) return;
  const auto had = static_cast<std::size_t>(had_[static_cast<std::size_t>(row)]);
  for (std::size_t step = had; step < factors_.size(); ++step) {
    const T factor = static_cast<T>(factors_[step]);
    for (std::int64_t c = 0; c < width; ++c) columns[c] *= factor;
  }
}

template <class T>
void RowDecay::catch_up(std::span<const std::int64_t> rows, const RowColumns<T>& columns) {
  if (!is_used()) return;
  for (const std::int64_t row : rows) {
    shrink(row, columns.value + row * columns.width, columns.width);
    had_[static_cast<std::size_t>(row)] = steps();
  }
}

template <class T>
void RowDecay::catch_up_all(const RowColumns<T>& columns) {
  for (std::size_t row = 0; row < had_.size(); ++row) {
    const auto one = static_cast<std::int64_t>(row);
    catch_up<T>(std::span(&one, 1), columns);
  }
  std::ranges::fill(had_, 0);
  factors_.clear();
}

template void update_rows<float>(const RowRule&, std::span<const std::int64_t>, const float*,
                                 const RowColumns<float>&);
template void update_rows<double>(const RowRule&, std::span<const std::int64_t>, const double*,
                                  const RowColumns<double>&);
template void RowDecay::shrink<float>(std::int64_t, float*, std::int64_t) const;
template void RowDecay::shrink<double>(std::int64_t, double*, std::int64_t) const;
template void RowDecay::catch_up<float>(std::span<const std::int64_t>, const RowColumns<float>&);
template void RowDecay::catch_up<double>(std::span<const std::int64_t>, const RowColumns<double>&);
template void RowDecay::catch_up_all<float>(const RowColumns<float>&);
template void RowDecay::catch_up_all<double>(const RowColumns<double>&);

}  // namespace laconic
