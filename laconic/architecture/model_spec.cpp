#include "laconic/architecture/model_spec.hpp"

#include <fmt/format.h>

#include <algorithm>
#include <functional>
#include <numeric>

#include "laconic/architecture/bert_spec.hpp"
#include "laconic/architecture/gnmt_spec.hpp"
#include "laconic/architecture/gpt_spec.hpp"
#include "laconic/architecture/llama_spec.hpp"
#include "laconic/architecture/lstm_spec.hpp"
#include "laconic/architecture/seq2seq_spec.hpp"
#include "laconic/base/error.hpp"
#include "laconic/base/text.hpp"

namespace laconic {

namespace {

std::int64_t product_of(const std::vector<std::int64_t>& sizes) {
  return std::accumulate(sizes.begin(), sizes.end(), std::int64_t{1}, std::multiplies<>());
}

bool uses(const BlockSpec& block, std::size_t parameter) {
  return !block.uses.empty() && block.uses.front() <= parameter && parameter <= block.uses.back() &&
         std::ranges::binary_search(block.uses, parameter);
}

}  // namespace

namespace {

ModelSpec plain_spec(const Family& family, std::int64_t tokens, std::int64_t target_tokens) {
  struct Visitor {
    std::int64_t tokens, target_tokens;
    ModelSpec operator()(const GptShape& shape) const { return gpt_spec(shape, tokens); }
    ModelSpec operator()(const LlamaShape& shape) const { return llama_spec(shape, tokens); }
    ModelSpec operator()(const BertShape& shape) const { return bert_spec(shape, tokens); }
    ModelSpec operator()(const Seq2SeqShape& shape) const {
      return seq2seq_spec(shape, tokens, target_tokens);
    }
    ModelSpec operator()(const LstmShape& shape) const { return lstm_spec(shape, tokens); }
    ModelSpec operator()(const GnmtShape& shape) const {
      return gnmt_spec(shape, tokens, target_tokens);
    }
  };
  return std::visit(Visitor{tokens, target_tokens}, family);
}

// Positions whose rows are in the stream: rotary ones are not.
std::int64_t learned_positions(const Family& family) {
  return std::holds_alternative<LlamaShape>(family) ? 0 : context_of(family);
}

}  // namespace

ModelSpec model_spec(const Family& family, std::int64_t tokens, std::int64_t target_tokens) {
  ModelSpec spec = plain_spec(family, tokens, target_tokens);
  add_projection(spec, projection_of(family), vocabulary_of(family), learned_positions(family));
  return spec;
}

const ProjectedSeam* projection_behind(const ModelSpec& spec, std::int64_t block) {
  const auto found = std::ranges::find(spec.projections, block, &ProjectedSeam::block);
  return found != spec.projections.end() ? &*found : nullptr;
}

Problems check(const ModelSpec& spec) {
  Problems problems;
  const auto problem = [&](const std::string& where, std::string what) {
    problems.push_back({where, std::move(what)});
  };
  if (spec.blocks.empty()) problem("model", "has no blocks");
  if (block_count(spec) > kMostLayers + 2)
    problem("model", fmt::format("has {} blocks; at most {} are possible", block_count(spec),
                                 kMostLayers + 2));
  std::vector<bool> is_used(spec.parameters.size(), false);
  for (std::size_t b = 0; b < spec.blocks.size(); ++b) {
    const BlockSpec& block = spec.blocks[b];
    if (!std::ranges::is_sorted(block.uses, std::ranges::less_equal()))
      problem(block.name, "lists its parameters out of order, or one twice");
    for (const std::size_t p : block.uses) {
      if (p < is_used.size())
        is_used[p] = true;
      else
        problem(block.name, fmt::format("uses parameter {} of {}", p, is_used.size()));
    }
    if (block.out.empty() != (b + 1 == spec.blocks.size()))
      problem(block.name, block.out.empty() ? "hands nothing to the next block"
                                            : "is the last block, and returns no loss");
    if (block.out.size() > kMostSeamTensors)
      problem(block.name, fmt::format("hands on {} tensors; at most {} are possible",
                                      block.out.size(), kMostSeamTensors));
    for (const SeamTensor& tensor : block.out)
      if (tensor.per_sample.empty() || elements_of(tensor) <= 0)
        problem(block.name, tensor.name + " has no elements");
  }
  for (std::size_t p = 0; p < is_used.size(); ++p)
    if (!is_used[p]) problem(spec.parameters[p].name, "is used by no block");
  return problems;
}

std::int64_t elements_of(const ParameterSpec& parameter) {
  return product_of(parameter.sizes);
}

std::string common_name(const ParameterSpec& parameter) {
  std::vector<std::string> words = split(parameter.name, '.');
  for (std::string& word : words)
    if (word.find_first_not_of("0123456789") == std::string::npos) word = "*";
  return join(words, ".");
}

std::int64_t elements_of(const SeamTensor& tensor) {
  return product_of(tensor.per_sample);
}

std::int64_t block_count(const ModelSpec& spec) {
  return static_cast<std::int64_t>(spec.blocks.size());
}

std::int64_t parameter_count(const ModelSpec& spec) {
  std::int64_t total = 0;
  for (const ParameterSpec& parameter : spec.parameters) total += elements_of(parameter);
  return total;
}

std::vector<std::size_t> layer_blocks(const ModelSpec& spec) {
  std::vector<std::size_t> blocks;
  for (std::size_t b = 0; b < spec.blocks.size(); ++b)
    if (!spec.blocks[b].out.empty() && spec.blocks[b].multiply_adds > 0) blocks.push_back(b);
  return blocks;
}

std::vector<std::int64_t> users_of(const ModelSpec& spec, std::size_t parameter) {
  std::vector<std::int64_t> users;
  for (std::size_t b = 0; b < spec.blocks.size(); ++b)
    if (uses(spec.blocks[b], parameter)) users.push_back(static_cast<std::int64_t>(b));
  return users;
}

std::int64_t first_user(const ModelSpec& spec, std::size_t parameter) {
  const auto found = std::ranges::find_if(
      spec.blocks, [&](const BlockSpec& block) { return uses(block, parameter); });
  LACONIC_ASSERT(found != spec.blocks.end(),
                 "no block uses parameter " + std::to_string(parameter));
  return found - spec.blocks.begin();
}

bool is_hidden_matrix(const ModelSpec& spec, std::size_t parameter) {
  const std::vector<std::int64_t> users = users_of(spec, parameter);
  return spec.parameters[parameter].sizes.size() == 2 && !spec.parameters[parameter].is_table &&
         !spec.parameters[parameter].is_basis && users.front() > 0 &&
         users.back() + 1 < block_count(spec);
}

std::vector<SharedParameters> shared_parameters(const ModelSpec& spec,
                                                const std::vector<int>& rank_of_block) {
  std::vector<SharedParameters> sets;
  std::vector<std::vector<std::int64_t>> users_of_all(spec.parameters.size());
  for (std::size_t b = 0; b < spec.blocks.size(); ++b)
    for (const std::size_t p : spec.blocks[b].uses)
      users_of_all[p].push_back(static_cast<std::int64_t>(b));
  for (std::size_t p = 0; p < spec.parameters.size(); ++p) {
    const std::vector<std::int64_t>& users = users_of_all[p];
    if (spec.parameters[p].is_frozen || users.size() < 2) continue;
    std::vector<int> holders;
    for (const std::int64_t block : users)
      holders.push_back(rank_of_block[static_cast<std::size_t>(block)]);
    std::ranges::sort(holders);
    holders.erase(std::unique(holders.begin(), holders.end()), holders.end());
    if (holders.size() < 2) continue;
    const auto same = std::ranges::find_if(sets, [&](const SharedParameters& set) {
      return set.holders == holders && set.first_user == users.front();
    });
    if (same != sets.end())
      same->parameters.push_back(p);
    else
      sets.push_back({{p}, holders, users.front()});
  }
  return sets;
}

}  // namespace laconic
