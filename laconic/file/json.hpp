// file/json.hpp — JSON files, read strictly.
//
// A key twice in one object is refused (the library alone would keep the last
// silently), and so is a nesting that no file of ours needs.
#pragma once

#include <nlohmann/json_fwd.hpp>
#include <string>
#include <string_view>

namespace laconic {

inline constexpr int kMaxJsonDepth = 32;

// `path` is only for messages, `remedy` for text that is not JSON. Throws FileError.
nlohmann::json parse_json(std::string_view text, const std::string& path,
                          const std::string& remedy = "the file is damaged or incomplete");
// Throws FileError or SystemError.
nlohmann::json read_json(const std::string& path);

}  // namespace laconic
