// What a grid remembers, measures, and does otherwise than it was configured to.
//
// A class that goes by another codec has other collectives; what those of before remembered goes
// to them. One that is bypassed remembers nothing: what its sums still owe is added to the first
// raw ones that are committed, as for sums over replicas (reduce/steered_sum.cpp).
#include <fmt/format.h>

#include <utility>

#include "laconic/base/denormals.hpp"
#include "laconic/base/error.hpp"
#include "laconic/grid/grid_rows.hpp"
#include "laconic/tensor/host.hpp"

namespace laconic {

std::string memory_name(const GridSite& site) {
  return fmt::format("{}.{}", site.block, site.place);
}

std::string start_name(const std::string& memory) {
  return memory + ".start";
}

// In a step every place has asked for what was loaded: the rest is of codecs that are no more.
void TensorGrid::commit() {
  loaded_.clear();
  for (const std::string& name : paid_) owed_.erase(name);
  paid_.clear();
  for (auto& [purpose, row] : made_->rows)
    if (std::exchange(row.has_open_step, false)) row.collective->commit();
}

void TensorGrid::abandon() {
  paid_.clear();
  for (auto& [purpose, row] : made_->rows)
    if (std::exchange(row.has_open_step, false)) row.collective->abandon();
}

NamedFloats TensorGrid::save() const {
  NamedFloats state = loaded_;
  for (const auto& [name, values] : owed_) state[name] = values;
  for (const auto& [purpose, row] : made_->rows)
    if (!row.memory.empty()) {
      CollectiveState kept = row.collective->save();
      if (!kept.up.empty()) state[row.memory] = std::move(kept.up);
      if (!kept.basis.empty()) state[start_name(row.memory)] = std::move(kept.basis);
    }
  return state;
}

void TensorGrid::load(NamedFloats state) {
  owed_.clear();
  std::erase_if(made_->rows, [](const auto& item) { return !item.second.memory.empty(); });
  (is_bypassed(Traffic::tp_weight) ? owed_ : loaded_) = std::move(state);
}

void TensorGrid::override_codec(Traffic traffic, const CodecOverride& codec_override) {
  NamedFloats state = save();
  overrides_[traffic] = codec_override;
  if (traffic != Traffic::tp_weight) return;
  loaded_.clear();
  load(std::move(state));
}

bool TensorGrid::is_bypassed(Traffic traffic) const {
  const auto found = overrides_.find(traffic);
  return found != overrides_.end() && found->second.is_bypassed;
}

GridCodec TensorGrid::codec_of(const GridSite& site, GridCall call) const {
  if (site.is_small || is_exact_ || !codecs_) return {};
  GridCodec codec = codecs_(site, call);
  if (!is_lossy(codec.codec)) codec.is_gathered = false;
  const auto found = overrides_.find(site.traffic);
  if (found == overrides_.end() || !is_lossy(codec.codec)) return codec;
  if (found->second.is_bypassed) return {};
  codec.codec = effective_codec(found->second, codec.codec);
  codec.is_masked = codec.is_masked && is_sparse(codec.codec);
  return codec;
}

// Once in a step, however many microbatches it has.
void TensorGrid::pay(const GridSite& site, GridCall call, at::Tensor& buffer) {
  if (owed_.empty() || is_exact_ || site.is_small || site.traffic != Traffic::tp_weight ||
      call != GridCall::scatter)
    return;
  const auto owed = owed_.find(memory_name(site));
  if (owed == owed_.end() || !paid_.insert(owed->first).second) return;
  LACONIC_ASSERT(static_cast<std::int64_t>(owed->second.size()) == buffer.numel(),
                 fmt::format("{} residuals of {} elements", owed->second.size(), buffer.numel()));
  const ScopedDenormals flush(true);  // as sums do
  buffer.view(-1).add_(tensor_from_bytes(as_bytes(std::span<const float>(owed->second)), Dtype::f32,
                                         {buffer.numel()}));
}

void TensorGrid::measure_fidelity(Traffic traffic, bool is_on) {
  if (is_on)
    measured_[traffic] = {};
  else
    gather_fidelity(traffic);
  is_measured_[static_cast<std::size_t>(traffic)] = is_on;
  for (auto& [purpose, row] : made_->rows)
    if (std::get<Traffic>(purpose) == traffic) row.collective->measure_fidelity(is_on);
}

// Collectives forget when they are asked to measure again, not before.
void TensorGrid::gather_fidelity(Traffic traffic) {
  if (!is_measured_[static_cast<std::size_t>(traffic)]) return;
  for (const auto& [purpose, row] : made_->rows)
    if (std::get<Traffic>(purpose) == traffic) measured_[traffic] += row.collective->fidelity();
}

Fidelity TensorGrid::fidelity(Traffic traffic) const {
  const auto found = measured_.find(traffic);
  return found == measured_.end() ? Fidelity() : found->second;
}

void TensorGrid::add_fidelity(const at::Tensor& truth, const at::Tensor& decoded) {
  const at::Tensor x = on_host(truth.to(at::kFloat)).contiguous();
  const at::Tensor y = on_host(decoded.to(at::kFloat)).contiguous();
  const auto count = static_cast<std::size_t>(x.numel());
  measured_[Traffic::tp_activation] +=
      compare({x.data_ptr<float>(), count}, {y.data_ptr<float>(), count});
}

}  // namespace laconic
