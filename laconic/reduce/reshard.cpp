#include <fmt/format.h>

#include <algorithm>

#include "laconic/base/error.hpp"
#include "laconic/reduce/method.hpp"

namespace laconic {

namespace {

using Totals = std::vector<double>;

const std::vector<float>* find(const NamedFloats& state, const std::string& name) {
  const auto at = state.find(name);
  return at == state.end() ? nullptr : &at->second;
}

// Whether there was such a thing; totals[from ...] += it.
bool add(const NamedFloats& state, const std::string& name, std::uint64_t from, Totals& totals) {
  const std::vector<float>* values = find(state, name);
  if (values == nullptr) return false;
  for (std::size_t i = 0; i < values->size(); ++i)
    totals[from + i] += static_cast<double>((*values)[i]);
  return true;
}

// Divides totals[from, to) among the takers, each of whom has room for that many. The last takes
// what rounding left of the equal shares, so that the total stays.
void share_out(const Totals& totals, std::uint64_t from, std::uint64_t to,
               const std::vector<float*>& takers) {
  const auto shares = static_cast<double>(takers.size());
  for (std::uint64_t i = from; i < to; ++i) {
    const auto share = static_cast<float>(totals[i] / shares);
    for (float* taker : takers) taker[i - from] = share;
    takers.back()[i - from] =
        static_cast<float>(totals[i] - (shares - 1) * static_cast<double>(share));
  }
}

// --- codec: residuals of contributions, everywhere, and of sums, at the owners

// Everything that the old ranks owe to the sums of a block; empty: nothing.
Totals outstanding(const std::vector<NamedFloats>& saved, const GradientPolicy& policy,
                   const BlockLayout& block) {
  const auto offsets = offsets_of(policy, elements_of(block), static_cast<int>(saved.size()));
  Totals totals(elements_of(block));
  bool is_any = false;
  for (std::size_t w = 0; w < saved.size(); ++w) {
    is_any |= add(saved[w], up_name(block), 0, totals);
    is_any |= add(saved[w], down_name(block), offsets[std::min(w, offsets.size() - 1)], totals);
  }
  return is_any ? totals : Totals();
}

// Who may have a part of a chunk: those who encode a contribution to it, and with `down` its owner,
// whose own contribution is not encoded (unless sums are passed on) and who adds to the sum
// instead. The states have room.
std::vector<float*> takers_of(std::size_t owner, std::uint64_t from, const BlockLayout& block,
                              bool owner_encodes, std::vector<NamedFloats>& states) {
  std::vector<float*> takers;
  for (std::size_t w = 0; w < states.size(); ++w)
    if (const auto up = states[w].find(up_name(block));
        up != states[w].end() && (w != owner || owner_encodes))
      takers.push_back(up->second.data() + from);
  if (const auto down = states[owner].find(down_name(block)); down != states[owner].end())
    takers.push_back(down->second.data());
  return takers;
}

void divide_block(const Totals& totals, const GradientPolicy& policy, const BlockLayout& block,
                  std::vector<NamedFloats>& states) {
  const int members = static_cast<int>(states.size());
  for (int w = 0; w < members; ++w)
    for (const auto& [name, size] : state_sizes(policy, {block}, members, w))
      states[static_cast<std::size_t>(w)][name].resize(size);
  const auto offsets = offsets_of(policy, totals.size(), members);
  for (std::size_t chunk = 0; chunk + 1 < offsets.size(); ++chunk) {
    const std::uint64_t from = offsets[chunk], to = offsets[chunk + 1];
    if (from < to)
      share_out(totals, from, to, takers_of(chunk, from, block, passes_sums_on(policy), states));
  }
}

// --- power_sgd: a residual per matrix and rank, and bases that all share

void divide_tensor(const std::vector<NamedFloats>& saved, const NamedTensor& tensor,
                   std::vector<NamedFloats>& states) {
  const auto* basis = find(saved[0], basis_name(tensor));
  if (basis != nullptr && states.size() > 1)
    for (NamedFloats& state : states) state[basis_name(tensor)] = *basis;
  Totals totals(elements_of(tensor.tensor));
  bool is_any = false;
  for (const NamedFloats& state : saved) is_any |= add(state, residual_name(tensor), 0, totals);
  if (!is_any) return;
  std::vector<float*> takers;
  for (NamedFloats& state : states) {
    state[residual_name(tensor)].resize(totals.size());
    takers.push_back(state[residual_name(tensor)].data());
  }
  share_out(totals, 0, totals.size(), takers);
}

void require_all_fit(const std::vector<NamedFloats>& saved, const GradientPolicy& policy,
                     const std::vector<BlockLayout>& blocks) {
  const int members = static_cast<int>(saved.size());
  Problems problems;
  for (int w = 0; w < members; ++w)
    for (const Problem& problem :
         misfits(saved[static_cast<std::size_t>(w)], state_sizes(policy, blocks, members, w)))
      problems.push_back({fmt::format("member {}: {}", w, problem.where), problem.what});
  refuse(problems);
}

}  // namespace

std::vector<NamedFloats> reshard(const std::vector<NamedFloats>& saved, int members,
                                 const GradientPolicy& policy,
                                 const std::vector<BlockLayout>& blocks) {
  LACONIC_ASSERT(!saved.empty() && members > 0, fmt::format("{} to {}", saved.size(), members));
  require_all_fit(saved, policy, blocks);
  if (saved.size() == static_cast<std::size_t>(members)) return saved;
  std::vector<NamedFloats> states(static_cast<std::size_t>(members));
  for (const BlockLayout& block : blocks) {
    if (policy.method == ReduceMethod::power_sgd) {
      for (const NamedTensor& tensor : block.tensors) divide_tensor(saved, tensor, states);
      continue;
    }
    const Totals totals = outstanding(saved, policy, block);
    if (!totals.empty()) divide_block(totals, policy, block, states);
  }
  return states;
}

}  // namespace laconic
