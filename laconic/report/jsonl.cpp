#include "laconic/report/jsonl.hpp"

#include <fmt/format.h>

#include <algorithm>
#include <filesystem>
#include <nlohmann/json.hpp>

#include "laconic/base/error.hpp"
#include "laconic/file/atomic_file.hpp"
#include "laconic/file/mapped_file.hpp"

namespace laconic {

namespace {

bool is_before(const nlohmann::json& object, std::int64_t first_step) {
  const auto step = object.find("step");
  return step == object.end() || !step->is_number() || step->get<double>() < first_step;
}

// Makes the file what it may continue from, and gives its path back.
const std::string& repaired(const std::string& path, std::optional<std::int64_t> first_step) {
  if (!std::filesystem::exists(path)) return path;
  const MappedFile file(path);
  const std::string kept = kept_lines(file.text(), first_step, path);
  if (kept != file.text()) write_atomically(path, kept);
  return path;
}

}  // namespace

std::string kept_lines(std::string_view text, std::optional<std::int64_t> first_step,
                       const std::string& path) {
  std::string kept;
  for (int number = 1; !text.empty(); ++number) {
    const std::size_t end = std::min(text.find('\n'), text.size());
    const std::string_view line = text.substr(0, end);
    text.remove_prefix(std::min(end + 1, text.size()));
    const auto object = nlohmann::json::parse(line.begin(), line.end(), nullptr, false);
    if (!object.is_object() && text.empty()) break;  // torn
    if (!object.is_object())
      throw FileError(path, fmt::format("line {}", number), "is not a JSON object",
                      "move the file away to go on with a new one");
    if (!first_step || is_before(object, *first_step)) kept.append(line).push_back('\n');
  }
  return kept;
}

JsonLines::JsonLines(const std::string& path, std::optional<std::int64_t> first_step)
    : file_(repaired(path, first_step)) {}

void JsonLines::write(const nlohmann::ordered_json& object) {
  LACONIC_ASSERT(object.is_object(), object.type_name());
  file_.write(object.dump(-1, ' ', false, nlohmann::json::error_handler_t::replace) + "\n");
}

}  // namespace laconic
