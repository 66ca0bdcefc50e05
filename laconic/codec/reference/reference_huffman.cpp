#include <bit>
#include <map>
#include <set>
#include <string>

#include "laconic/codec/reference/reference.hpp"
#include "laconic/codec/reference/reference_float.hpp"

namespace laconic::reference {

namespace {

// Numbers as strings of bits, highest first: sign, exponent, fraction.
std::string bits_of_number(Dtype kind, float x) {
  std::string bits;
  std::uint32_t word = kind == Dtype::f32 ? std::bit_cast<std::uint32_t>(x) : narrowed(kind, x);
  if (kind == Dtype::f32 && x != x) word = 0x7FC00000;
  for (int i = kind == Dtype::f32 ? 31 : 15; i >= 0; --i) bits += word >> i & 1 ? '1' : '0';
  return bits;
}

float number_of_bits(Dtype kind, const std::string& bits) {
  const auto word = static_cast<std::uint32_t>(std::stoul(bits, nullptr, 2));
  return kind == Dtype::f32 ? std::bit_cast<float>(word)
                            : widened(kind, static_cast<std::uint16_t>(word));
}

void put_bits(Bytes& out, std::string bits) {
  while (bits.size() % 8 != 0) bits += '0';
  for (std::size_t i = 0; i < bits.size(); i += 8)
    put(out, static_cast<std::uint8_t>(std::stoul(bits.substr(i, 8), nullptr, 2)));
}

std::string take_bits(ByteView bytes) {
  std::string bits;
  for (const std::byte byte : bytes)
    for (int i = 7; i >= 0; --i) bits += std::to_integer<int>(byte) >> i & 1 ? '1' : '0';
  return bits;
}

// Joins the two least of a set until one is left; every join makes the words of its bytes longer.
std::map<int, int> lengths_of(std::map<int, std::uint64_t> counts) {
  struct Tree {
    std::uint64_t weight;
    int order;  // bytes before trees, older trees first
    std::vector<int> bytes;
    bool operator<(const Tree& other) const {
      return std::pair(weight, order) < std::pair(other.weight, other.order);
    }
  };
  for (;;) {
    std::set<Tree> trees;
    for (const auto& [byte, count] : counts) trees.insert({count, byte, {byte}});
    std::map<int, int> lengths;
    int longest = 0;
    for (int order = 256; trees.size() > 1; ++order) {
      Tree a = *trees.begin();
      trees.erase(trees.begin());
      const Tree b = *trees.begin();
      trees.erase(trees.begin());
      a.weight += b.weight;
      a.order = order;
      a.bytes.insert(a.bytes.end(), b.bytes.begin(), b.bytes.end());
      for (const int byte : a.bytes) longest = std::max(longest, ++lengths[byte]);
      trees.insert(a);
    }
    if (longest <= 12) return lengths;
    for (auto& [byte, count] : counts) count = count / 2 + count % 2;
  }
}

std::map<int, std::string> words_of(const std::map<int, int>& lengths) {
  std::map<int, std::string> words;
  std::string word;
  for (int length = 1; length <= 12; ++length) {
    word += '0';
    for (const auto& [byte, its_length] : lengths) {
      if (its_length != length) continue;
      words[byte] = word;
      std::size_t i = word.size();  // count up
      while (i > 0 && word[i - 1] == '1') word[--i] = '0';
      if (i > 0) word[i - 1] = '1';
    }
  }
  return words;
}

}  // namespace

Bytes encode(const Huffman& codec, const TensorSpec&, const Floats& x, const CodecInput&) {
  Bytes coded, plain;
  if (x.empty()) return coded;
  put(plain, std::uint8_t{0});
  std::vector<std::string> numbers;
  std::map<int, std::uint64_t> counts;
  for (const float v : x) {
    std::string bits = bits_of_number(codec.kind, v);
    for (std::size_t end = bits.size(); end > 0; end -= 8) put_bits(plain, bits.substr(end - 8, 8));
    bits = bits.substr(1) + bits[0];
    numbers.push_back(bits);
    ++counts[std::stoi(bits.substr(0, 8), nullptr, 2)];
  }
  const int first = counts.begin()->first, last = counts.rbegin()->first;
  const std::map<int, int> lengths = lengths_of(counts);
  put(coded, std::uint8_t{1});
  put(coded, static_cast<std::uint8_t>(first));
  put(coded, static_cast<std::uint8_t>(last));
  std::string nibbles;
  for (int byte = first; byte <= last && first != last; ++byte) {
    const int length = lengths.contains(byte) ? lengths.at(byte) : 0;
    for (int i = 3; i >= 0; --i) nibbles += length >> i & 1 ? '1' : '0';
  }
  put_bits(coded, nibbles);
  for (const std::string& bits : numbers)
    for (std::size_t end = bits.size(); end > 8; end -= 8) put_bits(coded, bits.substr(end - 8, 8));
  if (first != last) {
    const std::map<int, std::string> words = words_of(lengths);
    const std::size_t most = (x.size() + 3) / 4;
    std::vector<Bytes> streams(4);
    for (std::size_t stream = 0; stream < 4; ++stream) {
      std::string bits;
      for (std::size_t i = stream * most; i < std::min((stream + 1) * most, x.size()); ++i)
        bits += words.at(std::stoi(numbers[i].substr(0, 8), nullptr, 2));
      put_bits(streams[stream], bits);
      if (stream < 3) put(coded, static_cast<std::uint32_t>(streams[stream].size()));
    }
    for (const Bytes& stream : streams) coded.insert(coded.end(), stream.begin(), stream.end());
  }
  return coded.size() < plain.size() ? coded : plain;
}

Floats decode(const Huffman& codec, const TensorSpec& tensor, ByteView payload, const CodecInput&) {
  const std::size_t count = elements_of(tensor), size = bytes_of(codec.kind);
  Floats x;
  if (count == 0) return x;
  const auto reversed = [](ByteView bytes) {
    return take_bits(Bytes(bytes.rbegin(), bytes.rend()));
  };
  if (payload[0] == std::byte{0}) {
    for (std::size_t i = 0; i < count; ++i)
      x.push_back(number_of_bits(codec.kind, reversed(payload.subspan(1 + i * size, size))));
    return x;
  }
  const int first = std::to_integer<int>(payload[1]), last = std::to_integer<int>(payload[2]);
  std::map<int, int> lengths;
  const std::size_t nibbles = first == last ? 0 : static_cast<std::size_t>(last - first + 1);
  const std::string table = take_bits(payload.subspan(3, (nibbles + 1) / 2));
  for (std::size_t i = 0; i < nibbles; ++i)
    if (const int length = std::stoi(table.substr(4 * i, 4), nullptr, 2); length > 0)
      lengths[first + static_cast<int>(i)] = length;
  std::map<std::string, int> bytes;
  for (const auto& [byte, word] : words_of(lengths)) bytes[word] = byte;
  const std::size_t rest = 3 + (nibbles + 1) / 2;
  std::size_t stream_at = rest + count * (size - 1) + 12;
  const std::size_t most = (count + 3) / 4;
  std::string bits;
  std::size_t at = 0;
  for (std::size_t i = 0; i < count; ++i) {
    if (first != last && i % most == 0) {
      const std::size_t stream = i / most;
      std::size_t length = payload.size() - stream_at;
      if (stream < 3) length = get<std::uint32_t>(payload, rest + count * (size - 1) + 4 * stream);
      bits = take_bits(payload.subspan(stream_at, length));
      at = 0;
      stream_at += length;
    }
    int byte = first;
    for (std::size_t length = 1; first != last; ++length)
      if (const auto found = bytes.find(bits.substr(at, length)); found != bytes.end()) {
        byte = found->second;
        at += length;
        break;
      }
    std::string number;
    for (int k = 7; k >= 0; --k) number += byte >> k & 1 ? '1' : '0';
    number += reversed(payload.subspan(rest + i * (size - 1), size - 1));
    x.push_back(number_of_bits(codec.kind, number.back() + number.substr(0, number.size() - 1)));
  }
  return x;
}

}  // namespace laconic::reference
