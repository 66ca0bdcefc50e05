#include "laconic/reduce/device_low_rank.hpp"

#include <fmt/format.h>

#include <algorithm>
#include <bit>
#include <utility>

#include "laconic/base/error.hpp"
#include "laconic/codec/device_floats.hpp"
#include "laconic/reduce/method.hpp"

namespace laconic {

namespace {

using kernel::BatchMatrix;
using kernel::BatchPiece;
using kernel::BatchStep;
using kernel::BatchTable;

constexpr float kTrue = std::bit_cast<float>(std::uint32_t{1});

// Matrices begin where four floats can be read at a time.
std::uint64_t aligned(std::uint64_t elements) {
  return (elements + 3) / 4 * 4;
}

bool is_set(const std::vector<float>& flags, std::size_t number) {
  return std::bit_cast<std::uint32_t>(flags[number]) != 0;
}

}  // namespace

DeviceLowRank::DeviceLowRank(const SharedLowRankSpec& spec, const std::vector<NamedTensor>& tensors,
                             int workers)
    : spec_(spec), workers_(static_cast<float>(workers)), tensors_(tensors.size()) {
  std::uint64_t raw = 0, left = 0;
  for (std::size_t t = 0; t < tensors.size(); ++t) {
    const auto& [name, tensor] = tensors[t];
    const std::uint64_t elements = elements_of(tensor), rank = factor_rank(spec, tensor);
    if (rank == 0) {
      pieces_.push_back({t, {.offset = raw, .elements = elements}});
      raw += elements;
      continue;
    }
    const auto [rows, columns] = matrix_shape(tensor);
    matrices_.push_back({tensors[t],
                         t,
                         {.rows = rows,
                          .columns = columns,
                          .rank = rank,
                          .input = inputs_,
                          .left = left,
                          .right = right_,
                          .number = matrices_.size(),
                          .key = start_key(spec, name)}});
    inputs_ += spec.feedback ? aligned(elements) : 0;
    left += rows * rank;
    right_ += columns * rank;
  }
  committed_ = make_memory();
  next_ = make_memory();
  is_unsound_ = DeviceBuffer(matrices_.size() * sizeof(std::uint32_t));
  load({});
}

DeviceLowRank::Memory DeviceLowRank::make_memory() const {
  const std::uint64_t flags = matrices_.size() * sizeof(std::uint32_t);
  return {DeviceBuffer(inputs_ * sizeof(float)), DeviceBuffer(right_ * sizeof(float)),
          DeviceBuffer(flags), DeviceBuffer(flags)};
}

void DeviceLowRank::require(Phase phase) const {
  LACONIC_ASSERT(phase_ == phase, fmt::format("phase {} instead of {}", static_cast<int>(phase_),
                                              static_cast<int>(phase)));
}

// --- the three phases

void DeviceLowRank::update_table(std::span<float* const> gradients) {
  if (!table_.is_empty() && std::ranges::equal(gradients, gradients_)) return;
  gradients_.assign(gradients.begin(), gradients.end());
  std::vector<BatchMatrix> matrices;
  for (const Matrix& matrix : matrices_) {
    matrices.push_back(matrix.batch);
    matrices.back().gradient = gradients[matrix.place];
  }
  std::vector<BatchPiece> pieces;
  for (const Piece& piece : pieces_) {
    pieces.push_back(piece.batch);
    pieces.back().gradient = gradients[piece.place];
  }
  const BatchTable table = kernel::batch_table(std::move(matrices), pieces);
  table_ = DeviceBuffer(table.bytes.size());
  upload(table.bytes, table_.data());
  batch_ = table.at(table_.data());
}

BatchStep DeviceLowRank::step_of(const DeviceBuffer& scratch) const {
  return {.batch = batch_,
          .members = workers_,
          .inputs = spec_.feedback ? next_.residuals.floats() : nullptr,
          .residuals = committed_.residuals.floats(),
          .basis = committed_.basis.floats(),
          .next_basis = next_.basis.floats(),
          .has_basis = committed_.has_basis.flag(),
          .has_residual = committed_.has_residual.flag(),
          .next_has_basis = next_.has_basis.flag(),
          .next_has_residual = next_.has_residual.flag(),
          .is_unsound = is_unsound_.flag(),
          .left = left_,
          .scratch = scratch.data()};
}

void DeviceLowRank::begin(std::span<float* const> gradients, float* raw, float* left) {
  require(Phase::idle);
  LACONIC_ASSERT(gradients.size() == tensors_, fmt::format("{}", gradients.size()));
  update_table(gradients);
  left_ = left;
  const DeviceBuffer scratch(batch_.scratch_bytes);
  kernel::device_begin_factors(step_of(scratch), raw, codec_stream());
  phase_ = Phase::begun;
}

void DeviceLowRank::project(float* left, float* right) {
  require(Phase::begun);
  left_ = left;
  const DeviceBuffer scratch(batch_.scratch_bytes);
  kernel::device_project_factors(step_of(scratch), right, codec_stream());
  phase_ = Phase::projected;
}

void DeviceLowRank::finish(const float* raw_sum, const float* right_sum) {
  require(Phase::projected);
  kernel::device_finish_factors(step_of(DeviceBuffer()), raw_sum, right_sum, right_,
                                codec_stream());
  phase_ = Phase::finished;
}

void DeviceLowRank::commit() {
  require(Phase::finished);
  std::swap(committed_, next_);
  phase_ = Phase::idle;
}

void DeviceLowRank::abandon() {
  phase_ = Phase::idle;
}

// --- state

NamedFloats DeviceLowRank::save() const {
  require(Phase::idle);
  const std::vector<float> has_basis = downloaded(committed_.has_basis),
                           has_residual = downloaded(committed_.has_residual);
  NamedFloats state;
  const auto take = [&](const std::string& name, const float* from, std::uint64_t count) {
    std::vector<float>& values = state[name];
    values.resize(count);
    download(from, values);
  };
  for (const auto& [tensor, place, m] : matrices_) {
    if (is_set(has_basis, m.number))
      take(basis_name(tensor), committed_.basis.floats() + m.right, m.columns * m.rank);
    if (is_set(has_residual, m.number))
      take(residual_name(tensor), committed_.residuals.floats() + m.input, m.rows * m.columns);
  }
  return state;
}

void DeviceLowRank::load(const NamedFloats& state) {
  require(Phase::idle);
  std::vector<float> has_basis(matrices_.size()), has_residual(matrices_.size());
  const auto put = [&](const std::string& name, float* to, float& flag) {
    const auto values = state.find(name);
    if (values == state.end()) return;
    upload(values->second, to);
    flag = kTrue;
  };
  for (const auto& [tensor, place, m] : matrices_) {
    put(basis_name(tensor), committed_.basis.floats() + m.right, has_basis[m.number]);
    put(residual_name(tensor), committed_.residuals.floats() + m.input, has_residual[m.number]);
  }
  upload(has_basis, committed_.has_basis.floats());
  upload(has_residual, committed_.has_residual.floats());
}

}  // namespace laconic
