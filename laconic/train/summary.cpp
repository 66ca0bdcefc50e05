#include "laconic/train/summary.hpp"

#include <fmt/format.h>
#include <sys/resource.h>

#include <nlohmann/json.hpp>

#include "laconic/base/clock.hpp"
#include "laconic/base/text.hpp"
#include "laconic/config/read.hpp"
#include "laconic/report/table.hpp"

namespace laconic {

namespace {

struct PlainTraffic {  // one traffic class of one rank, as it travels
  Count sent;
  Times times;
};

struct PlainPipeline {  // one rank's part
  RankTimes times;
  std::uint64_t repaired = 0, references = 0, reference_bytes = 0, not_admitted = 0;
  double reference_wait_seconds = 0;
  std::uint64_t prefetch_hits = 0, prefetch_misses = 0;
};

}  // namespace

std::int64_t peak_memory_bytes() {
  rusage usage{};
  getrusage(RUSAGE_SELF, &usage);
  return static_cast<std::int64_t>(usage.ru_maxrss) * 1024;
}

double hidden_seconds(const Times& times) {
  return std::max(0.0, times.active - times.exposed);
}

namespace {

// Rows of what a rank tells: by class, and behind it its sets of axes.
constexpr std::size_t kRowsOfClass = 1 + kAxisSets;

std::vector<PlainTraffic> rows_of(const MeterReading& reading) {
  std::vector<PlainTraffic> rows(kTrafficClasses * kRowsOfClass);
  for (std::size_t t = 0; t < kTrafficClasses; ++t) {
    const auto traffic = static_cast<Traffic>(t);
    rows[t * kRowsOfClass].sent = sent(reading, traffic);
    if (const auto found = reading.times.find(traffic); found != reading.times.end())
      rows[t * kRowsOfClass].times = found->second;
  }
  for (const auto& [key, along] : reading.by_axes)
    if (key.second < kAxisSets)
      rows[static_cast<std::size_t>(key.first) * kRowsOfClass + 1 + key.second] = {along.sent,
                                                                                   along.times};
  return rows;
}

}  // namespace

std::vector<TrafficTotal> total_traffic(World& world) {
  if (world.is_alone()) return {};
  world.engine().flush();  // what is still queued was not counted yet
  const std::vector<PlainTraffic> mine = rows_of(world.engine().meter().read());
  std::vector<PlainTraffic> sums(mine.size());
  const double share = 1.0 / world.size();
  for (const Bytes& bytes : world.gather(as_bytes(std::span<const PlainTraffic>(mine))))
    for (std::size_t i = 0; i < sums.size(); ++i) {
      const auto of_rank = get<PlainTraffic>(bytes, i * sizeof(PlainTraffic));
      sums[i].sent += of_rank.sent;
      sums[i].times += {.active = of_rank.times.active * share,
                        .exposed = of_rank.times.exposed * share,
                        .codec = of_rank.times.codec * share,
                        .decode = of_rank.times.decode * share};
    }
  std::vector<TrafficTotal> totals;
  for (std::size_t t = 0; t < kTrafficClasses; ++t) {
    const PlainTraffic& all = sums[t * kRowsOfClass];
    if (all.sent.messages == 0) continue;
    const auto traffic = static_cast<Traffic>(t);
    TrafficTotal& total = totals.emplace_back(TrafficTotal{traffic, all.sent, all.times});
    for (std::uint32_t unit = 0; unit < kAxisSets; ++unit)
      if (const PlainTraffic& along = sums[t * kRowsOfClass + 1 + unit]; along.sent.messages > 0)
        total.axes.push_back({unit_text(traffic, unit), along.sent, along.times});
  }
  return totals;
}

PipelineTotal total_pipeline(World& world, Pipeline& pipeline) {
  PipelineTotal total;
  if (world.mesh().pp == 1) return total;
  const ComputeTimes& times = pipeline.times();
  const DeltaStoreStats stats = pipeline.references();
  const PlainPipeline mine{
      .times = {.forward = times.forward.mean(),
                .backward = times.backward.mean() + times.backward_input.mean() +
                            times.backward_weight.mean(),
                .waiting = times.waiting},
      .repaired = pipeline.repaired(),
      .references = stats.records,
      .reference_bytes = stats.bytes,
      .not_admitted = stats.refused,
      .reference_wait_seconds = stats.seconds_waited,
      .prefetch_hits = stats.prefetch_hits,
      .prefetch_misses = stats.prefetch_misses};
  for (const PlainPipeline& of_rank : world.gather_values(mine)) {
    total.ranks.push_back(of_rank.times);
    total.repaired += of_rank.repaired;
    total.references += of_rank.references;
    total.reference_bytes += of_rank.reference_bytes;
    total.not_admitted += of_rank.not_admitted;
    total.reference_wait_seconds += of_rank.reference_wait_seconds;
    total.prefetch_hits += of_rank.prefetch_hits;
    total.prefetch_misses += of_rank.prefetch_misses;
  }
  return total;
}

namespace {

void add_pipeline(const PipelineTotal& p, Table& table) {
  if (p.references > 0)
    table.add({"references of samples",
               fmt::format("{} in {}", with_commas(static_cast<std::int64_t>(p.references)),
                           human_bytes(static_cast<double>(p.reference_bytes)))});
  if (p.not_admitted > 0)
    table.add(
        {"visits without room for one", with_commas(static_cast<std::int64_t>(p.not_admitted))});
  if (p.reference_wait_seconds > 0)
    table.add({"waiting for references", human_seconds(p.reference_wait_seconds)});
  if (p.repaired > 0)
    table.add({"samples sent again", with_commas(static_cast<std::int64_t>(p.repaired))});
}

nlohmann::ordered_json json_of(const PipelineTotal& p) {
  nlohmann::ordered_json json = {{"repaired", p.repaired},
                                 {"references", p.references},
                                 {"reference_bytes", p.reference_bytes},
                                 {"not_admitted", p.not_admitted},
                                 {"reference_wait_seconds", p.reference_wait_seconds},
                                 {"prefetch_hits", p.prefetch_hits},
                                 {"prefetch_misses", p.prefetch_misses},
                                 {"ranks", nlohmann::ordered_json::array()}};
  for (const RankTimes& r : p.ranks)
    json["ranks"].push_back({{"forward_seconds", r.forward},
                             {"backward_seconds", r.backward},
                             {"waiting_seconds", r.waiting}});
  return json;
}

}  // namespace

namespace {

nlohmann::ordered_json json_of(const GuardReading& r) {
  return {{"cosine", r.cosine},
          {"relative_error", r.relative_error},
          {"residual_ratio", r.residual_ratio}};
}

nlohmann::ordered_json json_of(const GuardSummary& guard) {
  nlohmann::ordered_json json = {{"classes", nlohmann::ordered_json::object()},
                                 {"alarms", nlohmann::ordered_json::array()}};
  for (const auto& [traffic, watch] : guard.classes)
    json["classes"][std::string(name_of(traffic))] = {
        {"step", watch.step}, {"last", json_of(watch.last)}, {"worst", json_of(watch.worst)}};
  for (const Alarm& alarm : guard.alarms)
    json["alarms"].push_back({{"step", alarm.step},
                              {"class", name_of(alarm.traffic)},
                              {"followed", alarm.is_followed},
                              {"treatment", to_text(alarm.proposed)},
                              {"text", to_text(alarm)}});
  if (guard.shadow)
    json["shadow"] = {{"step", guard.shadow->step},
                      {"cosine", guard.shadow->cosine},
                      {"norm_ratio", guard.shadow->norm_ratio},
                      {"loss_difference", guard.shadow->loss_difference},
                      {"worst_cosine", guard.worst_shadow_cosine}};
  return json;
}

// Says so where nobody counted the bytes.
std::string wire_text(const Count& sent) {
  const std::string text = human_bytes(static_cast<double>(sent.wire_bytes));
  if (sent.computed_bytes == 0) return text;
  if (sent.computed_bytes == sent.wire_bytes) return text + " computed";
  return fmt::format("{}, {} of it computed", text,
                     human_bytes(static_cast<double>(sent.computed_bytes)));
}

}  // namespace

double mfu_of(const TrainSummary& s) {
  const double able = s.estimate.flops_per_second * s.train_seconds;
  return able > 0 ? s.flops / able : 0;
}

namespace {

nlohmann::ordered_json json_of(const MemoryEstimate& m) {
  return {{"parameters", m.parameters},   {"gradients", m.gradients},   {"optimiser", m.optimiser},
          {"activations", m.activations}, {"references", m.references}, {"buffers", m.buffers},
          {"program", m.program},         {"total", m.total()}};
}

nlohmann::ordered_json json_of(const RunEstimate& e) {
  nlohmann::ordered_json json = {{"step_flops", e.step_flops},
                                 {"flops_per_second", e.flops_per_second},
                                 {"step_seconds", e.step_seconds},
                                 {"ranks", nlohmann::ordered_json::array()},
                                 {"hosts", nlohmann::ordered_json::array()},
                                 {"gpus", nlohmann::ordered_json::array()}};
  for (const MemoryEstimate& rank : e.ranks) json["ranks"].push_back(json_of(rank));
  for (const HostEstimate& host : e.hosts)
    json["hosts"].push_back({{"name", host.name},
                             {"ranks", host.ranks},
                             {"needed_bytes", host.needed.total()},
                             {"memory_bytes", host.has}});
  for (const GpuEstimate& gpu : e.gpus)
    json["gpus"].push_back({{"host", gpu.host},
                            {"index", gpu.index},
                            {"ranks", gpu.ranks},
                            {"needed_bytes", gpu.needed.total()},
                            {"free_bytes", gpu.has},
                            {"total_bytes", gpu.whole}});
  return json;
}

}  // namespace

std::string to_text(const TrainSummary& s) {
  if (!s.has_worked)
    return fmt::format(
        "nothing to do: {} has done {} steps, and train.steps asks for {}; a larger train.steps "
        "goes on from there\n",
        s.checkpoint, s.step, s.steps);
  Table table({{"what", Align::left}, {"value", Align::right}});
  table.add({"steps", fmt::format("{} of {}", s.step, s.steps)});
  if (s.skipped > 0) table.add({"updates left out", std::to_string(s.skipped)});
  table.add({"parameters", with_commas(s.parameters)});
  table.add({"tokens trained on", with_commas(s.all_tokens)});
  if (s.first_step > 0)
    table.add({fmt::format("of these since step {}", s.first_step), with_commas(s.tokens)});
  if (s.step > s.first_step) table.add({"training loss, last step", fmt::format("{:.4f}", s.loss)});
  if (s.evaluation) {
    table.add({"validation loss", fmt::format("{:.4f}", s.evaluation->loss)});
    if (s.evaluation->has_perplexity)
      table.add({"validation perplexity", fmt::format("{:.2f}", s.evaluation->perplexity())});
    for (const auto& [name, value] : s.evaluation->metrics)
      table.add({"validation " + name, fmt::format("{:.4f}", value)});
    if (s.evaluation->bits_per_byte)
      table.add({"validation bits per byte", fmt::format("{:.4f}", *s.evaluation->bits_per_byte)});
  }
  if (s.validation.best_loss)
    table.add({"best validation loss",
               fmt::format("{:.4f}, step {}", *s.validation.best_loss, s.validation.best_step)});
  if (s.is_stopped_early)
    table.add({"stopped early",
               fmt::format("after {} evaluations without improvement", s.validation.stale)});
  if (s.train_seconds > 0)
    table.add({"tokens per second", with_commas(static_cast<std::int64_t>(
                                        static_cast<double>(s.tokens) / s.train_seconds))});
  if (mfu_of(s) > 0)
    table.add({"model FLOPs utilisation (MFU)", fmt::format("{:.1f} %", 100 * mfu_of(s))});
  table.add({"time in steps", human_seconds(s.train_seconds)});
  table.add({"time in all", human_seconds(s.total_seconds)});
  table.add({"peak memory", human_bytes(static_cast<double>(s.peak_memory_bytes))});
  add_pipeline(s.pipeline, table);
  for (const auto& [name, codec_override] : s.overrides) table.add({name, codec_override});
  return to_text(table) + (s.traffic.empty() ? "" : "\n" + to_text(s.traffic)) +
         (s.guard.is_empty() ? "" : "\n" + to_text(s.guard));
}

std::string to_text(const GuardSummary& guard) {
  Table table({{"guarded", Align::left},
               {"cosine"},
               {"worst"},
               {"relative error"},
               {"worst"},
               {"residual"},
               {"worst"}});
  const auto number = [](double value) { return fmt::format("{:.4g}", value); };
  for (const auto& [traffic, watch] : guard.classes)
    table.add({std::string(name_of(traffic)), number(watch.last.cosine), number(watch.worst.cosine),
               number(watch.last.relative_error), number(watch.worst.relative_error),
               number(watch.last.residual_ratio), number(watch.worst.residual_ratio)});
  if (guard.shadow)
    table.add({"step", number(guard.shadow->cosine), number(guard.worst_shadow_cosine), "-", "-",
               "-", "-"});
  std::string text = to_text(table);
  for (const Alarm& alarm : guard.alarms) text += to_text(alarm) + "\n";
  return text;
}

namespace {

std::vector<std::string> traffic_cells(const std::string& name, const Count& sent,
                                       const Times& times) {
  return {name,
          with_commas(static_cast<std::int64_t>(sent.messages)),
          human_bytes(static_cast<double>(sent.raw_bytes)),
          wire_text(sent),
          fmt::format("{:.1f}x",
                      static_cast<double>(sent.raw_bytes) / static_cast<double>(sent.wire_bytes)),
          human_seconds(times.active),
          human_seconds(times.exposed),
          human_seconds(hidden_seconds(times)),
          human_seconds(times.codec)};
}

void add_traffic(const Count& sent, const Times& times, nlohmann::ordered_json& json) {
  json["messages"] = sent.messages;
  json["raw_bytes"] = sent.raw_bytes;
  json["wire_bytes"] = sent.wire_bytes;
  json["computed_bytes"] = sent.computed_bytes;
  json["active_seconds"] = times.active;
  json["exposed_seconds"] = times.exposed;
  json["hidden_seconds"] = hidden_seconds(times);
  json["codec_seconds"] = times.codec;
  json["decode_seconds"] = times.decode;
}

nlohmann::ordered_json json_of(const TrafficTotal& total) {
  nlohmann::ordered_json json = {{"class", name_of(total.traffic)}};
  add_traffic(total.sent, total.times, json);
  for (const AxesTotal& along : total.axes) {
    nlohmann::ordered_json part = {{"axes", along.axes}};
    add_traffic(along.sent, along.times, part);
    json["along"].push_back(std::move(part));
  }
  return json;
}

}  // namespace

std::string to_text(const std::vector<TrafficTotal>& traffic) {
  Table table({{"traffic", Align::left},
               {"messages"},
               {"raw"},
               {"wire"},
               {"ratio"},
               {"under way"},
               {"exposed"},
               {"hidden"},
               {"codec"}});
  for (const TrafficTotal& t : traffic) {
    table.add(traffic_cells(std::string(name_of(t.traffic)), t.sent, t.times));
    for (const AxesTotal& along : t.axes)
      table.add(traffic_cells("  along " + along.axes, along.sent, along.times));
  }
  return to_text(table);
}

std::string to_json(const TrainSummary& s, const RunConfig& config) {
  nlohmann::ordered_json json = {
      {"command", "train"},
      {"finished", utc_now()},
      {"first_step", s.first_step},
      {"step", s.step},
      {"steps", s.steps},
      {"skipped", s.skipped},
      {"parameters", s.parameters},
      {"tokens", s.tokens},
      {"all_tokens", s.all_tokens},
      {"loss", s.step > s.first_step ? nlohmann::ordered_json(s.loss) : nlohmann::ordered_json()},
      {"train_seconds", s.train_seconds},
      {"total_seconds", s.total_seconds},
      {"tokens_per_second",
       s.train_seconds > 0 ? static_cast<double>(s.tokens) / s.train_seconds : 0},
      {"mfu", mfu_of(s)},
      {"peak_memory_bytes", s.peak_memory_bytes},
      {"estimate", json_of(s.estimate)},
      {"checkpoint", s.checkpoint},
      {"signal", s.signal}};
  if (s.evaluation) {
    json["validation_loss"] = s.evaluation->loss;
    if (s.evaluation->has_perplexity) json["perplexity"] = s.evaluation->perplexity();
    for (const auto& [name, value] : s.evaluation->metrics) json["metrics"][name] = value;
    if (s.evaluation->bits_per_byte) json["bits_per_byte"] = *s.evaluation->bits_per_byte;
  }
  if (s.validation.best_loss) {
    json["best_validation_loss"] = *s.validation.best_loss;
    json["best_step"] = s.validation.best_step;
  }
  json["stopped_early"] = s.is_stopped_early;
  json["traffic"] = nlohmann::ordered_json::array();
  for (const TrafficTotal& t : s.traffic) json["traffic"].push_back(json_of(t));
  json["treatments"] = nlohmann::ordered_json::object();
  for (const auto& [name, codec_override] : s.overrides) json["treatments"][name] = codec_override;
  if (!s.pipeline.ranks.empty()) json["pipeline"] = json_of(s.pipeline);
  if (!s.guard.is_empty()) json["guard"] = json_of(s.guard);
  json["config"] = to_toml(config, false);
  return json.dump(2) + "\n";
}

}  // namespace laconic
