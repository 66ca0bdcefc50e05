#include "laconic/base/xml.hpp"

namespace laconic {

std::string xml_escaped(std::string_view text) {
  std::string out;
  for (const char letter : text) switch (letter) {
      case '&': out += "&amp;"; break;
      case '<': out += "&lt;"; break;
      case '>': out += "&gt;"; break;
      case '"': out += "&quot;"; break;
      default:
        if (static_cast<unsigned char>(letter) >= 0x20) out += letter;
    }
  return out;
}

}  // namespace laconic
