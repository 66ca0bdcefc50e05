#include "laconic/codec/huffman_code.hpp"

#include <algorithm>
#include <utility>

namespace laconic {

namespace {

struct Node {
  std::uint64_t weight = 0;
  int parent = -1;
};

// The depth of every leaf after joining the two lightest nodes until one is left. Leaves come
// sorted, and joined nodes are never lighter than earlier ones: two queues instead of a heap.
std::vector<int> leaf_depths(std::vector<Node> nodes) {
  const std::size_t leaves = nodes.size();
  nodes.reserve(2 * leaves - 1);
  std::size_t leaf = 0, joined = leaves;
  const auto take_lightest = [&] {
    const bool is_leaf =
        leaf < leaves && (joined == nodes.size() || nodes[leaf].weight <= nodes[joined].weight);
    return is_leaf ? leaf++ : joined++;
  };
  while (nodes.size() < 2 * leaves - 1) {
    const std::size_t a = take_lightest(), b = take_lightest();
    nodes[a].parent = nodes[b].parent = static_cast<int>(nodes.size());
    nodes.push_back({nodes[a].weight + nodes[b].weight, -1});
  }
  std::vector<int> depths(nodes.size());
  for (std::size_t i = nodes.size() - 1; i-- > 0;)
    depths[i] = depths[static_cast<std::size_t>(nodes[i].parent)] + 1;
  depths.resize(leaves);
  return depths;
}

}  // namespace

CodeLengths huffman_lengths(const ByteCounts& counts) {
  std::vector<std::pair<std::uint64_t, std::uint8_t>> used;
  for (unsigned byte = 0; byte < 256; ++byte)
    if (counts[byte] > 0) used.emplace_back(counts[byte], static_cast<std::uint8_t>(byte));
  CodeLengths lengths{};
  if (used.size() < 2) return lengths;
  for (;;) {
    std::ranges::sort(used);
    std::vector<Node> leaves;
    for (const auto& [count, byte] : used) leaves.push_back({count, -1});
    const std::vector<int> depths = leaf_depths(std::move(leaves));
    if (*std::ranges::max_element(depths) <= kMaxCodeBits) {
      for (std::size_t i = 0; i < used.size(); ++i)
        lengths[used[i].second] = static_cast<std::uint8_t>(depths[i]);
      return lengths;
    }
    for (auto& [count, byte] : used) count = (count + 1) / 2;
  }
}

bool is_complete_code(const CodeLengths& lengths) {
  std::uint32_t covered = 0;  // in units of the longest possible word
  for (const std::uint8_t length : lengths) {
    if (length > kMaxCodeBits) return false;
    if (length > 0) covered += 1u << (kMaxCodeBits - length);
  }
  return covered == 1u << kMaxCodeBits;
}

std::array<std::uint16_t, 256> canonical_words(const CodeLengths& lengths) {
  std::array<std::uint16_t, 256> words{};
  unsigned next = 0;
  for (int length = 1; length <= kMaxCodeBits; ++length, next <<= 1)
    for (std::size_t byte = 0; byte < 256; ++byte)
      if (lengths[byte] == length) words[byte] = static_cast<std::uint16_t>(next++);
  return words;
}

DecodingTable decoding_table(const CodeLengths& lengths) {
  DecodingTable table;
  table.width = *std::ranges::max_element(lengths);
  table.entries.reserve(std::size_t{1} << table.width);
  // Canonical words count up, so their entries follow each other.
  for (int length = 1; length <= table.width; ++length)
    for (std::size_t byte = 0; byte < 256; ++byte)
      if (lengths[byte] == length)
        table.entries.insert(table.entries.end(), std::size_t{1} << (table.width - length),
                             {static_cast<std::uint8_t>(byte), static_cast<std::uint8_t>(length)});
  return table;
}

}  // namespace laconic
