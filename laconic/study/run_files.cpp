#include "laconic/study/run_files.hpp"

#include <fmt/format.h>

#include <algorithm>
#include <limits>
#include <nlohmann/json.hpp>
#include <stdexcept>

#include "laconic/base/error.hpp"
#include "laconic/base/text.hpp"
#include "laconic/file/json.hpp"

namespace laconic {

namespace {

double number(const nlohmann::json& json, const char* key) {
  const auto found = json.find(key);
  if (found == json.end()) return 0;
  if (found->is_null()) return std::numeric_limits<double>::quiet_NaN();
  return found->get<double>();
}

void add_note(const std::string& note, std::vector<std::string>& notes) {
  if (std::find(notes.begin(), notes.end(), note) == notes.end()) notes.push_back(note);
}

void add_line(const nlohmann::json& json, RunLog& log) {
  if (const auto note = json.find("note"); note != json.end() && note->is_string())
    add_note(note->get<std::string>(), log.notes);
  if (json.contains("validation_loss"))
    log.validations.push_back({json.at("step"), number(json, "validation_loss")});
  if (!json.contains("loss")) return;
  log.steps.push_back({.step = json.at("step"),
                       .seconds = number(json, "seconds"),
                       .loss = number(json, "loss"),
                       .wire_bytes = number(json, "wire_bytes"),
                       .exposed_seconds = number(json, "exposed_seconds")});
  // The mean of all: steps differ where padding is cut off.
  const auto count = static_cast<double>(log.steps.size());
  const double tokens = number(json, "tokens_per_second") * number(json, "seconds");
  log.tokens_per_step += (tokens - log.tokens_per_step) / count;
}

void read_summary(const std::string& summary, Outcome& outcome) {
  const nlohmann::json json = parse_json(summary, "summary.json");
  for (const nlohmann::json& total : json.at("traffic"))
    outcome.traffic.push_back({.traffic = total.at("class"),
                               .messages = number(total, "messages"),
                               .raw_bytes = number(total, "raw_bytes"),
                               .wire_bytes = number(total, "wire_bytes"),
                               .active_seconds = number(total, "active_seconds"),
                               .exposed_seconds = number(total, "exposed_seconds"),
                               .codec_seconds = number(total, "codec_seconds"),
                               .decode_seconds = number(total, "decode_seconds")});
  outcome.validation_loss = number(json, "validation_loss");
  if (const auto metrics = json.find("metrics"); metrics != json.end())
    for (const auto& [name, value] : metrics->items())
      outcome.metrics[name] = number(*metrics, name.c_str());
  for (const char* name : {"perplexity", "bits_per_byte"})
    if (json.contains(name)) outcome.metrics[name] = number(json, name);
  if (const auto pipeline = json.find("pipeline"); pipeline != json.end())
    for (const nlohmann::json& rank : pipeline->at("ranks"))
      outcome.computing_seconds.push_back(number(rank, "forward_seconds") +
                                          number(rank, "backward_seconds"));
}

void read_lab(const std::string& lab, Outcome& outcome) {
  const nlohmann::json json = parse_json(lab, "lab.json");
  for (const nlohmann::json& host : json.at("labs").at(0).at("hosts")) {
    outcome.interface_sent_bytes += number(host, "sent_bytes");
    outcome.interface_packets += number(host, "sent_packets");
  }
}

// The one line of JSON that bench/peers/torch_ddp.py prints.
void read_peer(const std::string& output, Outcome& outcome) {
  std::string last;
  for (const std::string& line : split(output, '\n'))
    if (line.starts_with("{")) last = line;
  const nlohmann::json json = parse_json(last, "what rank 0 printed");
  const nlohmann::json &seconds = json.at("seconds"), &losses = json.at("losses");
  for (std::size_t i = 0; i < std::min(seconds.size(), losses.size()); ++i)
    outcome.steps.push_back({.step = static_cast<std::int64_t>(i) + 1,
                             .seconds = seconds[i].get<double>(),
                             .loss = losses[i].is_null() ? std::numeric_limits<double>::quiet_NaN()
                                                         : losses[i].get<double>()});
  outcome.counted_sent_bytes = json.at("sent_bytes_per_step_all").get<double>();
  outcome.versions = json.at("versions").get<std::string>();
}

void read_notes(const std::string& output, Outcome& outcome) {
  for (const std::string& line : split(output, '\n'))
    if (line.starts_with("bypass:") || line.starts_with("guard:")) add_note(line, outcome.notes);
}

void read_all(const RunTexts& texts, Outcome& outcome) {
  read_notes(texts.output, outcome);
  if (outcome.trial.program == Program::ddp) {
    read_peer(texts.output, outcome);
  } else {
    RunLog log = read_log(texts.log, "log.jsonl");
    outcome.steps = std::move(log.steps);
    outcome.validations = std::move(log.validations);
    for (const std::string& note : log.notes) add_note(note, outcome.notes);
    read_summary(texts.summary, outcome);
  }
  if (outcome.trial.rate != "none") read_lab(texts.lab, outcome);
}

}  // namespace

RunLog read_log(const std::string& text, const std::string& path) {
  RunLog log;
  int number_of_line = 0;
  for (const std::string& line : split(text, '\n')) {
    ++number_of_line;
    if (line.empty()) continue;
    try {
      add_line(parse_json(line, path), log);
    } catch (const nlohmann::json::exception& error) {
      throw FileError(path, fmt::format("line {}", number_of_line), error.what());
    }
  }
  return log;
}

void read_run(const RunTexts& texts, Outcome& outcome) {
  try {
    read_all(texts, outcome);
  } catch (const nlohmann::json::exception& error) {
    throw FileError("what the trial has left", "", error.what());
  }
  const std::int64_t wanted = outcome.trial.warmup + outcome.trial.steps;
  for (std::size_t i = 0; i < outcome.steps.size(); ++i)
    if (outcome.steps[i].step != static_cast<std::int64_t>(i) + 1)
      throw std::runtime_error(
          fmt::format("step {} of the log stands where {} should", outcome.steps[i].step, i + 1));
  if (static_cast<std::int64_t>(outcome.steps.size()) != wanted)
    throw std::runtime_error(
        fmt::format("{} of {} steps are in the log", outcome.steps.size(), wanted));
}

std::string failure_reason(int exit_code, std::string_view errors) {
  std::string any, own;
  for (const std::string& line : split(errors, '\n')) {
    if (trim(line).empty() || line.starts_with("laconic: rank") || line.starts_with("  rank") ||
        line.starts_with("laconic: how") || line.starts_with("laconic: ending") ||
        line.starts_with("laconic: killing"))
      continue;
    any = trim(line);
    if (line.find(" is lost: ") == std::string::npos &&
        line.find("records of") == std::string::npos)
      own = any;
  }
  const std::string& reason = own.empty() ? any : own;
  return fmt::format("exit code {}: {}", exit_code,
                     reason.empty() ? "no reason was given" : printable(reason, 300));
}

}  // namespace laconic
