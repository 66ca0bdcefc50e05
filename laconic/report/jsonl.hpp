// report/jsonl.hpp — a log of one JSON object per line.
//
// Each line is with the system when write() returns, so a killed process loses
// at most the line it was writing; that torn line is taken off when the file is
// opened again. A resumed run also takes off the lines at or after its first
// step, which it is about to write anew: no step is there twice.
#pragma once

#include <cstdint>
#include <nlohmann/json_fwd.hpp>
#include <optional>
#include <string>
#include <string_view>

#include "laconic/file/append_file.hpp"

namespace laconic {

// The lines of a log that stay: whole, and with a "step" below `first_step` or none at all.
// `path` is only for messages. Throws FileError when a line other than the last is not JSON.
std::string kept_lines(std::string_view text, std::optional<std::int64_t> first_step,
                       const std::string& path);

class JsonLines {
 public:
  // Without `first_step` every whole line stays. Throws FileError or SystemError.
  explicit JsonLines(const std::string& path,
                     std::optional<std::int64_t> first_step = std::nullopt);

  // Keys in the given order; a number that is not finite becomes null. Throws SystemError.
  void write(const nlohmann::ordered_json& object);

 private:
  AppendFile file_;
};

}  // namespace laconic
