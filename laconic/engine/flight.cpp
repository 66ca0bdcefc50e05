// Flights as JSON.
#include <fmt/format.h>

#include <array>
#include <nlohmann/json.hpp>

#include "laconic/base/error.hpp"
#include "laconic/engine/recorder.hpp"
#include "laconic/file/json.hpp"

namespace laconic {

namespace {

constexpr std::array<const char*, 2> kKinds = {"send", "recv"};
constexpr std::array<const char*, 3> kStates = {"posted", "done", "failed"};
constexpr const char* kFlight = "flight";

// `name` is for people; `tag` is what is read back.
nlohmann::json json_of(const Record& r) {
  return {{"id", r.id},
          {"kind", kKinds.at(static_cast<std::size_t>(r.kind))},
          {"state", kStates.at(static_cast<std::size_t>(r.state))},
          {"peer", r.peer},
          {"tag", r.tag},
          {"name", to_text(r.tag)},
          {"bytes", r.bytes},
          {"posted_ns", r.posted_ns},
          {"finished_ns", r.finished_ns}};
}

// Throws FileError when the field is not there or not of this kind. JSON's integers are checked
// for range: a 64-bit number must not become a rank silently.
template <class T>
T field(const nlohmann::json& object, const char* key) {
  const auto found = object.find(key);
  if (found == object.end()) throw FileError(kFlight, key, "is missing");
  if constexpr (std::is_same_v<T, std::string>) {
    if (found->is_string()) return found->template get<std::string>();
  } else if constexpr (std::is_same_v<T, bool>) {
    if (found->is_boolean()) return found->template get<bool>();
  } else if (found->is_number_unsigned()) {
    if (std::in_range<T>(found->template get<std::uint64_t>())) return found->template get<T>();
  } else if (found->is_number_integer()) {
    if (std::in_range<T>(found->template get<std::int64_t>())) return found->template get<T>();
  }
  throw FileError(kFlight, key, "has a value that cannot be");
}

template <std::size_t N>
std::size_t choice(const nlohmann::json& object, const char* key,
                   const std::array<const char*, N>& names) {
  const auto text = field<std::string>(object, key);
  for (std::size_t i = 0; i < N; ++i)
    if (text == names[i]) return i;
  throw FileError(kFlight, key, "has a value that cannot be");
}

Record parse_record(const nlohmann::json& json) {
  if (!json.is_object()) throw FileError(kFlight, "records", "holds something else than objects");
  Record r;
  r.id = field<std::uint64_t>(json, "id");
  r.kind = static_cast<Record::Kind>(choice(json, "kind", kKinds));
  r.state = static_cast<Record::State>(choice(json, "state", kStates));
  r.peer = field<Rank>(json, "peer");
  r.tag = field<Tag>(json, "tag");
  r.bytes = field<std::uint64_t>(json, "bytes");
  r.posted_ns = field<std::int64_t>(json, "posted_ns");
  r.finished_ns = field<std::int64_t>(json, "finished_ns");
  return r;
}

}  // namespace

std::string to_json(const Flight& flight) {
  nlohmann::json records = nlohmann::json::array();
  for (const Record& record : flight.records) records.push_back(json_of(record));
  const nlohmann::json json = {{"rank", flight.rank},         {"host", flight.host},
                               {"doing", flight.doing},       {"error", flight.error},
                               {"taken_ns", flight.taken_ns}, {"is_cause", flight.is_cause},
                               {"records", records}};
  // Bytes that are not UTF-8, in an error message say, must not cost us the record.
  return json.dump(1, ' ', false, nlohmann::json::error_handler_t::replace);
}

Flight parse_flight(std::string_view text) {
  const nlohmann::json json = parse_json(text, kFlight);
  if (!json.is_object()) throw FileError(kFlight, "", "is not an object");
  Flight flight;
  flight.rank = field<Rank>(json, "rank");
  flight.host = field<std::string>(json, "host");
  flight.doing = field<std::string>(json, "doing");
  flight.error = field<std::string>(json, "error");
  flight.taken_ns = field<std::int64_t>(json, "taken_ns");
  flight.is_cause = field<bool>(json, "is_cause");
  const auto records = json.find("records");
  if (records == json.end() || !records->is_array())
    throw FileError(kFlight, "records", "is not a list");
  for (const nlohmann::json& record : *records) flight.records.push_back(parse_record(record));
  return flight;
}

}  // namespace laconic
