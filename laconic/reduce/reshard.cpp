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

// The new residuals of a block. The owner of a chunk has no up residual there, since its own
// contribution is not encoded: its share is what it adds to the sum, `down`.
struct Shares {
  Shares(const GradientPolicy& policy, int members, const std::vector<std::uint64_t>& offsets)
      : owner_encodes(passes_sums_on(policy)) {
    const bool has_up = members > 1 && has_up_residual(policy);
    const bool has_down = members == 1 || has_down_residual(policy);
    for (int w = 0; w < members; ++w) {
      const auto own = static_cast<std::size_t>(w);
      up.emplace_back(has_up ? offsets.back() : 0);
      down.emplace_back(has_down ? offsets[own + 1] - offsets[own] : 0);
    }
  }

  std::vector<float*> takers(std::size_t owner, std::uint64_t from) {
    std::vector<float*> takers;
    for (std::size_t w = 0; w < up.size(); ++w)
      if (!up[w].empty() && (w != owner || owner_encodes)) takers.push_back(up[w].data() + from);
    if (!down[owner].empty()) takers.push_back(down[owner].data());
    return takers;
  }

  bool owner_encodes;
  std::vector<std::vector<float>> up, down;  // by member
};

void divide_block(const Totals& totals, const GradientPolicy& policy, const BlockLayout& block,
                  std::vector<NamedFloats>& states) {
  const int members = static_cast<int>(states.size());
  const auto offsets = offsets_of(policy, totals.size(), members);
  Shares shares(policy, members, offsets);
  for (std::size_t chunk = 0; chunk + 1 < offsets.size(); ++chunk)
    if (offsets[chunk] < offsets[chunk + 1])
      share_out(totals, offsets[chunk], offsets[chunk + 1], shares.takers(chunk, offsets[chunk]));
  for (std::size_t w = 0; w < states.size(); ++w) {
    if (!shares.up[w].empty()) states[w][up_name(block)] = std::move(shares.up[w]);
    if (!shares.down[w].empty()) states[w][down_name(block)] = std::move(shares.down[w]);
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
  if (!problems.empty()) throw ConfigError(std::move(problems));
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
