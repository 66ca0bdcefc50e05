#include "laconic/reduce/shared_low_rank.hpp"

#include <fmt/format.h>

#include <algorithm>
#include <cmath>
#include <limits>
#include <set>

#include "laconic/base/denormals.hpp"
#include "laconic/base/error.hpp"
#include "laconic/codec/codec.hpp"
#include "laconic/codec/kernel/matrix.hpp"
#include "laconic/codec/subspace.hpp"

namespace laconic {

namespace {

constexpr std::uint64_t kStartStream = 4;  // as low_rank's
constexpr float kNan = std::numeric_limits<float>::quiet_NaN();

std::string basis_name(const std::string& tensor) {
  return tensor + ".basis";
}
std::string residual_name(const std::string& tensor) {
  return tensor + ".residual";
}

}  // namespace

Problems check(const SharedLowRankSpec& spec) {
  Problems problems = check(LowRank{spec.rank});
  if (!(spec.min_ratio >= 0) || !std::isfinite(spec.min_ratio))
    problems.push_back({"min_ratio", fmt::format("{} is not a ratio", spec.min_ratio)});
  return problems;
}

double low_rank_ratio(std::int64_t rank, const TensorSpec& tensor) {
  if (tensor.shape.size() < 2 || elements_of(tensor) == 0) return 0;
  const auto [rows, columns] = matrix_shape(tensor);
  const std::uint64_t factors = (rows + columns) * effective_rank({rank}, tensor);
  return static_cast<double>(elements_of(tensor)) / static_cast<double>(factors);
}

std::uint64_t factor_rank(const SharedLowRankSpec& spec, const TensorSpec& tensor) {
  const double ratio = low_rank_ratio(spec.rank, tensor);
  return ratio == 0 || ratio < spec.min_ratio ? 0 : effective_rank({spec.rank}, tensor);
}

Key start_key(const SharedLowRankSpec& spec, const std::string& name) {
  return derive(derive(key_of(spec.seed), kStartStream), name);
}

SharedLowRank::SharedLowRank(const SharedLowRankSpec& spec, const std::vector<NamedTensor>& tensors,
                             int workers)
    : spec_(spec), workers_(static_cast<float>(workers)) {
  LACONIC_ASSERT(check(spec).empty() && workers > 0, to_text(check(spec)));
  std::set<std::string> names;
  for (const auto& [name, tensor] : tensors) {
    LACONIC_ASSERT(names.insert(name).second && tensor.dtype == Dtype::f32, name);
    const auto [rows, columns] = matrix_shape(tensor);
    slots_.push_back({.name = name,
                      .rows = rows,
                      .columns = columns,
                      .rank = factor_rank(spec, tensor),
                      .elements = elements_of(tensor)});
  }
}

bool SharedLowRank::is_encoded(std::size_t tensor) const {
  return slots_[tensor].rank > 0;
}

std::size_t SharedLowRank::left_size(std::size_t tensor) const {
  return is_encoded(tensor) ? slots_[tensor].rows * slots_[tensor].rank : 0;
}

std::size_t SharedLowRank::right_size(std::size_t tensor) const {
  return is_encoded(tensor) ? slots_[tensor].columns * slots_[tensor].rank : 0;
}

SharedLowRank::Counts SharedLowRank::counts() const {
  Counts counts;
  for (std::size_t i = 0; i < slots_.size(); ++i) {
    counts.raw += is_encoded(i) ? 0 : slots_[i].elements;
    counts.left += left_size(i);
    counts.right += right_size(i);
  }
  return counts;
}

void SharedLowRank::require(Phase phase) const {
  LACONIC_ASSERT(phase_ == phase, fmt::format("phase {} instead of {}", static_cast<int>(phase_),
                                              static_cast<int>(phase)));
}

// --- the three phases

const float* SharedLowRank::input_of(const Slot& slot) const {
  return spec_.feedback ? slot.input.data() : slot.gradient;
}

void SharedLowRank::begin_matrix(Slot& slot, float* left) const {
  const Key key = start_key(spec_, slot.name);
  if (spec_.feedback) {
    slot.input.assign(slot.gradient, slot.gradient + slot.elements);
    for (std::size_t i = 0; i < slot.residual.size(); ++i) slot.input[i] += slot.residual[i];
  }
  slot.right = slot.basis;
  if (slot.right.empty()) {
    slot.right.resize(slot.columns * slot.rank);
    draw_start(slot.right.data(), slot.columns, slot.rank, key);
  }
  orthonormalise_start(slot.right.data(), slot.columns, slot.rank, key);
  kernel::multiply(input_of(slot), slot.rows, slot.columns, slot.right.data(), slot.rank, left);
}

void SharedLowRank::begin(std::span<const float* const> gradients, std::vector<float>& raw,
                          std::vector<float>& left) {
  require(Phase::idle);
  LACONIC_ASSERT(gradients.size() == slots_.size(), fmt::format("{}", gradients.size()));
  const ScopedDenormals flush(true);
  raw.resize(counts().raw);
  left.resize(counts().left);
  float *to_raw = raw.data(), *to_left = left.data();
  for (std::size_t i = 0; i < slots_.size(); ++i) {
    Slot& slot = slots_[i];
    slot.gradient = gradients[i];
    if (is_encoded(i))
      begin_matrix(slot, to_left);
    else
      to_raw = std::copy_n(gradients[i], slot.elements, to_raw);
    to_left += left_size(i);
  }
  phase_ = Phase::begun;
}

// P need not be divided by the number of workers: only its directions count.
void SharedLowRank::project_matrix(Slot& slot, std::span<const float> left_sum,
                                   float* right) const {
  slot.left.assign(left_sum.begin(), left_sum.end());
  slot.finite = is_finite(slot.left.data(), slot.left.size());
  if (!slot.finite) return void(std::fill_n(right, slot.columns * slot.rank, kNan));
  orthonormalise(slot.left.data(), slot.rows, slot.rank);
  kernel::multiply_transposed(input_of(slot), slot.rows, slot.columns, slot.left.data(), slot.rank,
                              right);
  if (fidelity_ != nullptr) measure(slot, right);
}

// Now, since the output may come to lie where the gradient is.
void SharedLowRank::measure(Slot& slot, const float* right) const {
  std::vector<float> share(slot.elements);
  kernel::multiply_factors(slot.left.data(), slot.rows, right, slot.columns, slot.rank,
                           share.data());
  slot.fidelity = compare({slot.gradient, slot.elements}, share);
}

void SharedLowRank::project(std::span<const float> left_sum, std::vector<float>& right) {
  require(Phase::begun);
  LACONIC_ASSERT(left_sum.size() == counts().left, fmt::format("{}", left_sum.size()));
  const ScopedDenormals flush(true);
  right.resize(counts().right);
  std::size_t from = 0, to = 0;
  for (std::size_t i = 0; i < slots_.size(); ++i) {
    if (!is_encoded(i)) continue;
    project_matrix(slots_[i], left_sum.subspan(from, left_size(i)), right.data() + to);
    from += left_size(i);
    to += right_size(i);
  }
  phase_ = Phase::projected;
}

void SharedLowRank::finish_matrix(Slot& slot, std::span<const float> right_sum,
                                  float* output) const {
  slot.finite = slot.finite && is_finite(right_sum.data(), right_sum.size());
  if (!slot.finite) return void(std::fill_n(output, slot.elements, kNan));
  for (std::size_t i = 0; i < right_sum.size(); ++i) slot.right[i] = right_sum[i] / workers_;
  kernel::multiply_factors(slot.left.data(), slot.rows, slot.right.data(), slot.columns, slot.rank,
                           output);
  for (std::size_t i = 0; i < slot.input.size(); ++i) slot.input[i] -= output[i];
  if (fidelity_ == nullptr) return;
  slot.fidelity.residual = square_of(slot.input);
  *fidelity_ += slot.fidelity;
}

void SharedLowRank::finish(std::span<const float> raw_sum, std::span<const float> right_sum,
                           std::span<float* const> outputs) {
  require(Phase::projected);
  LACONIC_ASSERT(outputs.size() == slots_.size() && raw_sum.size() == counts().raw &&
                     right_sum.size() == counts().right,
                 fmt::format("{} {} {}", outputs.size(), raw_sum.size(), right_sum.size()));
  const ScopedDenormals flush(true);
  std::size_t raw = 0, right = 0;
  for (std::size_t i = 0; i < slots_.size(); ++i) {
    Slot& slot = slots_[i];
    if (is_encoded(i)) {
      finish_matrix(slot, right_sum.subspan(right, right_size(i)), outputs[i]);
      right += right_size(i);
      continue;
    }
    for (std::size_t k = 0; k < slot.elements; ++k) outputs[i][k] = raw_sum[raw++] / workers_;
  }
  phase_ = Phase::finished;
}

// --- the end of a step

// By swapping, so that the memory of the last step serves the next.
void SharedLowRank::commit_matrix(Slot& slot) const {
  if (!slot.finite) return slot.basis.clear();
  std::swap(slot.basis, slot.right);
  if (spec_.feedback) std::swap(slot.residual, slot.input);
}

void SharedLowRank::commit() {
  require(Phase::finished);
  for (std::size_t i = 0; i < slots_.size(); ++i)
    if (is_encoded(i)) commit_matrix(slots_[i]);
  phase_ = Phase::idle;
}

void SharedLowRank::abandon() {
  phase_ = Phase::idle;
}

void SharedLowRank::measure_fidelity(Fidelity* into) {
  require(Phase::idle);
  fidelity_ = into;
}

const float* SharedLowRank::residual(std::size_t tensor) const {
  const std::vector<float>& residual = slots_[tensor].residual;
  return residual.empty() ? nullptr : residual.data();
}

// --- state

NamedFloats SharedLowRank::save() const {
  require(Phase::idle);
  NamedFloats state;
  for (const Slot& slot : slots_) {
    if (!slot.basis.empty()) state[basis_name(slot.name)] = slot.basis;
    if (!slot.residual.empty()) state[residual_name(slot.name)] = slot.residual;
  }
  return state;
}

void SharedLowRank::load(const NamedFloats& state) {
  require(Phase::idle);
  std::vector<Slot> slots = slots_;
  std::map<std::string, std::pair<std::vector<float>*, std::size_t>> places;  // and their size
  for (Slot& slot : slots) {
    slot.basis.clear();
    slot.residual.clear();
    if (slot.rank == 0) continue;
    places[basis_name(slot.name)] = {&slot.basis, slot.columns * slot.rank};
    if (spec_.feedback) places[residual_name(slot.name)] = {&slot.residual, slot.elements};
  }
  Problems problems;
  for (const auto& [name, values] : state) {
    const auto place = places.find(name);
    if (place == places.end())
      problems.push_back({name, "belongs to no matrix that travels by low rank"});
    else if (values.size() != place->second.second)
      problems.push_back(
          {name, fmt::format("{} numbers instead of {}", values.size(), place->second.second)});
    else
      *place->second.first = values;
  }
  refuse(problems);
  slots_ = std::move(slots);
}

}  // namespace laconic
