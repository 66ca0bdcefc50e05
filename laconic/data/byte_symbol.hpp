// data/byte_symbol.hpp — GPT-2's way to write any byte as one printable character.
//
// vocab.json and merges.txt are text files, but a token may hold any bytes.
// GPT-2 writes byte b as the character b where that is visible Latin-1, and the
// 68 others, in order, as U+0100, U+0101, ... (a space becomes "Ġ").
#pragma once

#include <array>
#include <cstdint>
#include <optional>
#include <string>
#include <string_view>

namespace laconic {

// The 256 bytes in the order of their symbols, which is the order of ids 0..255 in GPT-2's
// vocabulary and in those that train_bpe makes.
const std::array<std::uint8_t, 256>& bytes_in_symbol_order();

std::string to_symbols(std::string_view bytes);

// Empty when some character stands for no byte.
std::optional<std::string> parse_symbols(std::string_view symbols);

}  // namespace laconic
