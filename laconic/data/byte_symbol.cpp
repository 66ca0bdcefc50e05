#include "laconic/data/byte_symbol.hpp"

namespace laconic {

namespace {

constexpr std::size_t kSymbolLimit = 0x100 + 68;

constexpr bool is_visible(std::size_t byte) {
  return (byte >= 0x21 && byte <= 0x7e) || (byte >= 0xa1 && byte <= 0xff && byte != 0xad);
}

struct Table {
  std::array<std::uint16_t, 256> symbol_of{};
  std::array<std::int16_t, kSymbolLimit> byte_of{};
  std::array<std::uint8_t, 256> order{};
};

constexpr Table make_table() {
  Table table;
  for (std::int16_t& byte : table.byte_of) byte = -1;
  std::size_t next = 0x100;
  for (std::size_t byte = 0; byte < 256; ++byte) {
    const std::size_t symbol = is_visible(byte) ? byte : next++;
    table.symbol_of[byte] = static_cast<std::uint16_t>(symbol);
    table.byte_of[symbol] = static_cast<std::int16_t>(byte);
  }
  std::size_t place = 0;
  for (const std::int16_t byte : table.byte_of)
    if (byte >= 0) table.order[place++] = static_cast<std::uint8_t>(byte);
  return table;
}

constexpr Table kTable = make_table();

}  // namespace

const std::array<std::uint8_t, 256>& bytes_in_symbol_order() {
  return kTable.order;
}

std::string to_symbols(std::string_view bytes) {
  std::string text;
  for (const char c : bytes) {
    const unsigned symbol = kTable.symbol_of[static_cast<unsigned char>(c)];
    if (symbol < 0x80) {
      text += static_cast<char>(symbol);
    } else {  // all symbols are below U+0800: two bytes of UTF-8
      text += static_cast<char>(0xc0 | symbol >> 6);
      text += static_cast<char>(0x80 | (symbol & 0x3f));
    }
  }
  return text;
}

std::optional<std::string> parse_symbols(std::string_view symbols) {
  std::string bytes;
  for (std::size_t i = 0; i < symbols.size(); ++i) {
    std::size_t symbol = static_cast<unsigned char>(symbols[i]);
    if (symbol >= 0x80) {
      if (symbol < 0xc2 || symbol > 0xdf || ++i == symbols.size()) return {};
      const std::size_t tail = static_cast<unsigned char>(symbols[i]);
      if ((tail & 0xc0) != 0x80) return {};
      symbol = (symbol & 0x1f) << 6 | (tail & 0x3f);
    }
    if (symbol >= kSymbolLimit || kTable.byte_of[symbol] < 0) return {};
    bytes += static_cast<char>(kTable.byte_of[symbol]);
  }
  return bytes;
}

}  // namespace laconic
