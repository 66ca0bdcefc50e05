#include "laconic/file/json.hpp"

#include <fmt/format.h>

#include <nlohmann/json.hpp>
#include <unordered_set>
#include <vector>

#include "laconic/base/error.hpp"
#include "laconic/base/text.hpp"
#include "laconic/file/mapped_file.hpp"

namespace laconic {

namespace {

using Event = nlohmann::json::parse_event_t;

// One set of keys for each object that is open.
class KeyWatch {
 public:
  explicit KeyWatch(const std::string& path) : path_(path) {}

  void see(int depth, Event event, const nlohmann::json& value) {
    if (depth > kMaxJsonDepth)
      throw FileError(path_, "", fmt::format("nested deeper than {}", kMaxJsonDepth));
    if (event == Event::object_start) open_.emplace_back();
    if (event == Event::object_end) open_.pop_back();
    if (event == Event::key && !open_.back().insert(value.get<std::string>()).second)
      throw FileError(path_, printable(value.get<std::string>()), "the key is there twice",
                      "remove one");
  }

 private:
  const std::string& path_;
  std::vector<std::unordered_set<std::string>> open_;
};

}  // namespace

nlohmann::json parse_json(std::string_view text, const std::string& path,
                          const std::string& remedy) {
  KeyWatch watch(path);
  const auto callback = [&](int depth, Event event, nlohmann::json& value) {
    watch.see(depth, event, value);
    return true;
  };
  try {
    return nlohmann::json::parse(text.begin(), text.end(), callback);
  } catch (const nlohmann::json::parse_error& error) {
    throw FileError(path, "", fmt::format("is not JSON at byte {} of {}", error.byte, text.size()),
                    remedy);
  } catch (const nlohmann::json::exception&) {  // a number that no double can hold
    throw FileError(path, "", "holds a number out of range");
  }
}

nlohmann::json read_json(const std::string& path) {
  const MappedFile file(path);
  return parse_json(file.text(), path);
}

}  // namespace laconic
