// file/safetensors_json.hpp — the JSON of a safetensors header, and only that JSON.
//
// Read event by event: no document is ever built, nothing nests deeper than
// the format does, and memory stays in proportion to the text. For
// safetensors.cpp alone; use parse_safetensors.
#pragma once

#include <string>
#include <string_view>

#include "laconic/file/safetensors.hpp"

namespace laconic {

// Entries in the order of the text, offsets as the text has them, `by_name` empty. Sizes and
// offsets are not checked, nor whether a tensor is named twice. Throws FileError.
SafetensorsHeader parse_safetensors_json(std::string_view text, const std::string& path);

}  // namespace laconic
