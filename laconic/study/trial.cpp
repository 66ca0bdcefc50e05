#include "laconic/study/trial.hpp"

#include <fmt/format.h>

#include <cctype>
#include <cmath>
#include <limits>
#include <nlohmann/json.hpp>

#include "laconic/base/error.hpp"
#include "laconic/file/json.hpp"
#include "laconic/study/statistics.hpp"

namespace laconic {

namespace {

constexpr const char* kFile = "outcome of a trial";  // for messages

// "AC-SGD, 4 and 8 bits" as "ac-sgd-4-and-8-bits".
std::string slug(const std::string& text) {
  std::string result;
  for (const char c : text) {
    if (std::isalnum(static_cast<unsigned char>(c)) != 0)
      result += static_cast<char>(std::tolower(static_cast<unsigned char>(c)));
    else if (!result.empty() && result.back() != '-')
      result += '-';
  }
  while (!result.empty() && result.back() == '-') result.pop_back();
  return result;
}

const char* name_of(Program program) {
  return program == Program::laconic ? "laconic" : "ddp";
}

Program parse_program(const std::string& name) {
  for (const Program program : {Program::laconic, Program::ddp})
    if (name == name_of(program)) return program;
  throw FileError(kFile, "trial.program", fmt::format("'{}' is no program", name));
}

nlohmann::ordered_json json_of(const Trial& t) {
  nlohmann::ordered_json json = {
      {"part", t.part},     {"method", t.method}, {"rate", t.rate},
      {"round", t.round},   {"hosts", t.hosts},   {"program", name_of(t.program)},
      {"model", t.model},   {"preset", t.preset}, {"set", t.set},
      {"warmup", t.warmup}, {"steps", t.steps}};
  for (const CountedSteps& kind : t.kinds)
    json["kinds"].push_back({{"steps", kind.steps}, {"share", kind.share}});
  if (!t.environment.empty()) json["environment"] = t.environment;
  return json;
}

Trial trial_in(const nlohmann::json& json) {
  Trial trial{.part = json.at("part"),
              .method = json.at("method"),
              .rate = json.at("rate"),
              .round = json.at("round"),
              .program = parse_program(json.at("program")),
              .hosts = json.at("hosts"),
              .model = json.at("model"),
              .preset = json.at("preset"),
              .set = json.at("set"),
              .warmup = json.at("warmup"),
              .steps = json.at("steps")};
  if (json.contains("kinds"))
    for (const nlohmann::json& kind : json.at("kinds"))
      trial.kinds.push_back({.steps = kind.at("steps"), .share = kind.at("share")});
  if (json.contains("environment")) trial.environment = json.at("environment");
  return trial;
}

// A number that is not finite is null in JSON: a loss can be.
double number_in(const nlohmann::json& json, const char* key) {
  const nlohmann::json& value = json.at(key);
  return value.is_null() ? std::numeric_limits<double>::quiet_NaN() : value.get<double>();
}

nlohmann::ordered_json json_of(const StepRow& row) {
  return {{"step", row.step},
          {"seconds", row.seconds},
          {"loss", row.loss},
          {"wire_bytes", row.wire_bytes},
          {"exposed_seconds", row.exposed_seconds}};
}

StepRow row_in(const nlohmann::json& json) {
  return {.step = json.at("step"),
          .seconds = number_in(json, "seconds"),
          .loss = number_in(json, "loss"),
          .wire_bytes = number_in(json, "wire_bytes"),
          .exposed_seconds = number_in(json, "exposed_seconds")};
}

nlohmann::ordered_json json_of(const ValidationRow& row) {
  return {{"step", row.step}, {"loss", row.loss}};
}

nlohmann::ordered_json json_of(const ClassTotal& total) {
  return {{"class", total.traffic},
          {"messages", total.messages},
          {"raw_bytes", total.raw_bytes},
          {"wire_bytes", total.wire_bytes},
          {"active_seconds", total.active_seconds},
          {"exposed_seconds", total.exposed_seconds},
          {"codec_seconds", total.codec_seconds},
          {"decode_seconds", total.decode_seconds}};
}

ClassTotal total_in(const nlohmann::json& json) {
  return {
      .traffic = json.at("class"),
      .messages = number_in(json, "messages"),
      .raw_bytes = number_in(json, "raw_bytes"),
      .wire_bytes = number_in(json, "wire_bytes"),
      .active_seconds = number_in(json, "active_seconds"),
      .exposed_seconds = number_in(json, "exposed_seconds"),
      .codec_seconds = number_in(json, "codec_seconds"),
      .decode_seconds = json.contains("decode_seconds") ? number_in(json, "decode_seconds") : 0};
}

template <class T>
nlohmann::ordered_json list_of(const std::vector<T>& values) {
  nlohmann::ordered_json list = nlohmann::ordered_json::array();
  for (const T& value : values) list.push_back(json_of(value));
  return list;
}

Outcome outcome_in(const nlohmann::json& json) {
  Outcome outcome{.trial = trial_in(json.at("trial")),
                  .failure = json.at("failure"),
                  .commit = json.at("commit"),
                  .machine = json.at("machine"),
                  .began = json.at("began"),
                  .seconds = number_in(json, "seconds"),
                  .command = json.at("command"),
                  .interface_sent_bytes = number_in(json, "interface_sent_bytes"),
                  .interface_packets = number_in(json, "interface_packets"),
                  .counted_sent_bytes = number_in(json, "counted_sent_bytes"),
                  .versions = json.at("versions"),
                  .computing_seconds = json.at("computing_seconds"),
                  .samples = number_in(json, "samples"),
                  .notes = json.at("notes")};
  if (json.contains("validation_loss"))
    outcome.validation_loss = number_in(json, "validation_loss");
  if (json.contains("model_about")) outcome.model_about = json.at("model_about");
  if (json.contains("metrics"))
    for (const auto& [name, value] : json.at("metrics").items())
      outcome.metrics[name] = number_in(json.at("metrics"), name.c_str());
  for (const nlohmann::json& row : json.at("steps")) outcome.steps.push_back(row_in(row));
  if (json.contains("validations"))
    for (const nlohmann::json& row : json.at("validations"))
      outcome.validations.push_back({.step = row.at("step"), .loss = number_in(row, "loss")});
  for (const nlohmann::json& total : json.at("traffic")) outcome.traffic.push_back(total_in(total));
  return outcome;
}

}  // namespace

std::string id_of(const Trial& trial) {
  return fmt::format("{}/{}/{}/{}", slug(trial.part), slug(trial.rate), slug(trial.method),
                     trial.round);
}

std::string to_json(const Outcome& o) {
  nlohmann::ordered_json json = {{"trial", json_of(o.trial)},
                                 {"failure", o.failure},
                                 {"commit", o.commit},
                                 {"machine", o.machine},
                                 {"began", o.began},
                                 {"seconds", o.seconds},
                                 {"command", o.command},
                                 {"steps", list_of(o.steps)},
                                 {"traffic", list_of(o.traffic)},
                                 {"interface_sent_bytes", o.interface_sent_bytes},
                                 {"interface_packets", o.interface_packets},
                                 {"counted_sent_bytes", o.counted_sent_bytes},
                                 {"versions", o.versions},
                                 {"computing_seconds", o.computing_seconds},
                                 {"samples", o.samples},
                                 {"notes", o.notes}};
  if (!o.validations.empty()) json["validations"] = list_of(o.validations);
  if (o.validation_loss != 0) json["validation_loss"] = o.validation_loss;
  if (!o.metrics.empty()) json["metrics"] = o.metrics;
  if (!o.model_about.empty()) json["model_about"] = o.model_about;
  // What a program has printed need not be UTF-8.
  return json.dump(1, ' ', false, nlohmann::json::error_handler_t::replace) + "\n";
}

Outcome parse_outcome(const std::string& json) {
  const nlohmann::json parsed = parse_json(json, kFile);
  try {
    return outcome_in(parsed);
  } catch (const nlohmann::json::exception& error) {
    throw FileError(kFile, "", error.what(), "remove the file, and the trial is run again");
  }
}

bool was_skipped(const Outcome& outcome) {
  return outcome.failure.starts_with("skipped");
}

std::optional<double> of_a_step(const Outcome& outcome, double StepRow::*what) {
  std::vector<double> values;
  for (const StepRow& row : outcome.steps)
    if (row.step > outcome.trial.warmup) values.push_back(row.*what);
  if (values.empty()) return {};
  if (outcome.trial.kinds.empty()) return median_of(values);
  double sum = 0, shares = 0;
  auto first = values.begin();
  for (const CountedSteps& kind : outcome.trial.kinds) {
    if (values.end() - first < kind.steps) return {};
    const auto last = first + kind.steps;
    sum += kind.share * mean_of({first, last});
    shares += kind.share;
    first = last;
  }
  return sum / shares;
}

}  // namespace laconic
