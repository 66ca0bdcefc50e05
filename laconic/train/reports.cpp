#include "laconic/train/reports.hpp"

#include <fmt/format.h>

#include <filesystem>
#include <nlohmann/json.hpp>

#include "laconic/base/clock.hpp"
#include "laconic/base/text.hpp"
#include "laconic/train/summary.hpp"

namespace laconic {

namespace {

namespace fs = std::filesystem;

void add_wire(const MeterReading& wire, StepLine& line) {
  const Count count = sent(wire);
  Times times;
  for (const auto& [traffic, spent] : wire.times) times += spent;
  line.wire_bytes = static_cast<double>(count.wire_bytes);
  if (count.wire_bytes > 0)
    line.wire_ratio = static_cast<double>(count.raw_bytes) / static_cast<double>(count.wire_bytes);
  line.comm_ms = times.active * 1e3;
  line.exposed_ms = times.exposed * 1e3;
}

}  // namespace

Reports::Reports(const RunConfig& config, std::int64_t first_step, const World& world)
    : config_(config), rank_(world.rank()) {
  if (config.report.trace) trace_.emplace(rank_);
  if (trace_ && !world.is_alone()) network_trace_.emplace(*trace_, world.engine());
  if (!world.is_first()) return;
  progress_.emplace(config.train.steps, is_live_terminal(stdout));
  const std::string& folder = config.run.folder;
  // Also when a run that left no checkpoint begins again.
  const std::optional<std::int64_t> resumed =
      fs::exists(folder + "/tensorboard") ? std::optional(first_step + 1) : std::nullopt;
  if (config.report.jsonl) jsonl_.emplace(folder + "/log.jsonl", first_step + 1);
  if (config.report.tensorboard) tensorboard_.emplace(folder + "/tensorboard", resumed);
}

void Reports::line(const std::string& text) {
  if (progress_) progress_->line(text);
}

void Reports::note(std::int64_t step, const std::string& text) {
  line(text);
  if (jsonl_) jsonl_->write({{"step", step}, {"note", text}, {"time", utc_now()}});
}

void Reports::step(const StepReport& r, const MeterReading* wire) {
  if (!progress_) return;
  const double speed = static_cast<double>(r.tokens) / r.seconds;
  StepLine line{.step = r.step,
                .steps = config_.train.steps,
                .loss = r.loss,
                .norm = r.norm,
                .lr = r.lr,
                .tokens_per_second = speed};
  if (flops_per_second_ > 0) line.mfu = r.flops / (flops_per_second_ * r.seconds);
  if (wire != nullptr) add_wire(*wire, line);
  const std::string text = to_text(line);
  const bool is_due =
      r.step % config_.report.every == 0 || r.step == config_.train.steps || r.is_skipped;
  if (is_due) progress_->line(r.is_skipped ? text + " | not finite: update left out" : text);
  progress_->update(r.step);
  if (is_due) write_step(r, line);
}

void Reports::evaluation(std::int64_t step, const Evaluation& e) {
  std::string text = fmt::format("step {:>5} | validation loss {:.4f}", step, e.loss);
  if (e.has_perplexity) text += fmt::format(" | perplexity {:.2f}", e.perplexity());
  for (const auto& [name, value] : e.metrics) text += fmt::format(" | {} {:.4f}", name, value);
  if (e.bits_per_byte) text += fmt::format(" | {:.4f} bits/byte", *e.bits_per_byte);
  line(text + fmt::format(" | {} samples in {}", with_commas(e.samples), human_seconds(e.seconds)));
  nlohmann::ordered_json json = {
      {"step", step}, {"validation_loss", e.loss}, {"validation_samples", e.samples}};
  std::vector<Scalar> scalars = {{"validation_metrics/loss", e.loss}};
  if (e.has_perplexity) {
    json["perplexity"] = e.perplexity();
    scalars.push_back({"validation_metrics/perplexity", e.perplexity()});
  }
  for (const auto& [name, value] : e.metrics) {
    json["metrics"][name] = value;
    scalars.push_back({"validation_metrics/" + name, value});
  }
  if (e.bits_per_byte) {
    json["bits_per_byte"] = *e.bits_per_byte;
    scalars.push_back({"validation_metrics/bits_per_byte", *e.bits_per_byte});
  }
  if (jsonl_) jsonl_->write(json);
  if (tensorboard_) tensorboard_->write(step, scalars);
}

void Reports::readings(std::int64_t step, const Readings& readings) {
  if (readings.empty()) return;
  nlohmann::ordered_json json = {{"step", step}, {"guard", nlohmann::ordered_json::object()}};
  std::vector<Scalar> scalars;
  for (const auto& [name, numbers] : readings)
    for (const Scalar& number : numbers) {
      json["guard"][name][number.tag] = number.value;
      scalars.push_back({fmt::format("guard/{}/{}", name, number.tag), number.value});
    }
  if (jsonl_) jsonl_->write(json);
  if (tensorboard_) tensorboard_->write(step, scalars);
}

void Reports::finish() {
  if (progress_) progress_->finish();
  if (!trace_) return;
  fs::create_directories(config_.run.folder);  // another machine may not have it
  const std::string of_rank = rank_ == 0 ? "" : fmt::format("-rank-{}", rank_);
  trace_->write(fmt::format("{}/trace{}.json", config_.run.folder, of_rank));
}

void Reports::write_step(const StepReport& r, const StepLine& line) {
  nlohmann::ordered_json json = {{"step", r.step},
                                 {"loss", r.loss},
                                 {"grad_norm", r.norm},
                                 {"lr", r.lr},
                                 {"tokens_per_second", line.tokens_per_second},
                                 {"seconds", r.seconds},
                                 {"skipped", r.is_skipped}};
  std::vector<Scalar> scalars = {
      {"loss", r.loss},
      {"grad_norm", r.norm},
      {"lr", r.lr},
      {"throughput(tps)", line.tokens_per_second},
      {"time_metrics/step(s)", r.seconds},
      {"memory/peak(GiB)", static_cast<double>(peak_memory_bytes()) / (1 << 30)}};
  if (line.mfu) {
    json["mfu"] = *line.mfu;
    scalars.push_back({"mfu(%)", 100 * *line.mfu});
  }
  if (line.wire_bytes) {
    json["wire_bytes"] = *line.wire_bytes;
    json["wire_ratio"] = line.wire_ratio.value_or(0);
    json["comm_seconds"] = *line.comm_ms / 1e3;
    json["exposed_seconds"] = *line.exposed_ms / 1e3;
    scalars.push_back({"network/wire(MB)", *line.wire_bytes / 1e6});
    scalars.push_back({"network/exposed(s)", *line.exposed_ms / 1e3});
  }
  json["time"] = utc_now();
  if (jsonl_) jsonl_->write(json);
  if (tensorboard_) tensorboard_->write(r.step, scalars);
}

}  // namespace laconic
