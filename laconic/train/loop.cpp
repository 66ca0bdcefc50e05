#include "laconic/train/loop.hpp"

#include <ATen/Parallel.h>
#include <fmt/format.h>
#include <sys/resource.h>

#include <cstdio>
#include <filesystem>
#include <nlohmann/json.hpp>

#include "laconic/base/clock.hpp"
#include "laconic/base/error.hpp"
#include "laconic/base/text.hpp"
#include "laconic/config/read.hpp"
#include "laconic/data/sidecar.hpp"
#include "laconic/data/tokeniser.hpp"
#include "laconic/file/atomic_file.hpp"
#include "laconic/file/checksum.hpp"
#include "laconic/report/console.hpp"
#include "laconic/report/jsonl.hpp"
#include "laconic/report/table.hpp"
#include "laconic/report/tensorboard.hpp"
#include "laconic/report/trace.hpp"
#include "laconic/tensor/host.hpp"
#include "laconic/train/batch.hpp"
#include "laconic/train/rank_state.hpp"
#include "laconic/train/step.hpp"
#include "laconic/train/update_rule.hpp"

namespace laconic {

namespace {

namespace fs = std::filesystem;

// Everything that is told about a run while it runs, to people and to files.
class Reports {
 public:
  Reports(const RunConfig& config, std::int64_t first_step, const World& world)
      : config_(config), rank_(world.rank()) {
    if (config.report.trace) trace_.emplace(rank_);
    if (!world.is_first()) return;
    progress_.emplace(config.train.steps, is_live_terminal(stdout));
    const std::string& folder = config.run.folder;
    // Also when a run that left no checkpoint begins again.
    const std::optional<std::int64_t> resumed =
        fs::exists(folder + "/tensorboard") ? std::optional(first_step + 1) : std::nullopt;
    if (config.report.jsonl) jsonl_.emplace(folder + "/log.jsonl", first_step + 1);
    if (config.report.tensorboard) tensorboard_.emplace(folder + "/tensorboard", resumed);
  }

  Trace* trace() { return trace_ ? &*trace_ : nullptr; }
  void line(const std::string& text) {
    if (progress_) progress_->line(text);
  }

  // `wire` is what this rank did to the network in the step; null: there is none.
  void step(const StepReport& r, const MeterReading* wire) {
    if (!progress_) return;
    const double speed = static_cast<double>(r.tokens) / r.seconds;
    StepLine line{.step = r.step,
                  .steps = config_.train.steps,
                  .loss = r.loss,
                  .norm = r.norm,
                  .lr = r.lr,
                  .tokens_per_second = speed};
    if (wire != nullptr) add_wire(*wire, line);
    const std::string text = to_text(line);
    const bool is_due =
        r.step % config_.report.every == 0 || r.step == config_.train.steps || r.is_skipped;
    if (is_due) progress_->line(r.is_skipped ? text + " | not finite: update left out" : text);
    progress_->update(r.step);
    if (is_due) write_step(r, line);
  }

  void evaluation(std::int64_t step, const Evaluation& e) {
    std::string text = fmt::format("step {:>5} | validation loss {:.4f} | perplexity {:.2f}", step,
                                   e.loss, e.perplexity());
    if (e.bits_per_byte) text += fmt::format(" | {:.4f} bits/byte", *e.bits_per_byte);
    line(text +
         fmt::format(" | {} samples in {}", with_commas(e.samples), human_seconds(e.seconds)));
    nlohmann::ordered_json json = {{"step", step},
                                   {"validation_loss", e.loss},
                                   {"perplexity", e.perplexity()},
                                   {"validation_samples", e.samples}};
    std::vector<Scalar> scalars = {{"validation_metrics/loss", e.loss},
                                   {"validation_metrics/perplexity", e.perplexity()}};
    if (e.bits_per_byte) {
      json["bits_per_byte"] = *e.bits_per_byte;
      scalars.push_back({"validation_metrics/bits_per_byte", *e.bits_per_byte});
    }
    if (jsonl_) jsonl_->write(json);
    if (tensorboard_) tensorboard_->write(step, scalars);
  }

  void finish() {
    if (progress_) progress_->finish();
    if (!trace_) return;
    fs::create_directories(config_.run.folder);  // another machine may not have it
    const std::string of_rank = rank_ == 0 ? "" : fmt::format("-rank-{}", rank_);
    trace_->write(fmt::format("{}/trace{}.json", config_.run.folder, of_rank));
  }

 private:
  static void add_wire(const MeterReading& wire, StepLine& line) {
    const Count count = sent(wire);
    Times times;
    for (const auto& [traffic, spent] : wire.times) times += spent;
    line.wire_bytes = static_cast<double>(count.wire_bytes);
    if (count.wire_bytes > 0)
      line.wire_ratio =
          static_cast<double>(count.raw_bytes) / static_cast<double>(count.wire_bytes);
    line.comm_ms = times.active * 1e3;
    line.exposed_ms = times.exposed * 1e3;
  }

  void write_step(const StepReport& r, const StepLine& line) {
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

  const RunConfig& config_;
  Rank rank_;
  std::optional<Progress> progress_;  // on the rank that speaks
  std::optional<JsonLines> jsonl_;
  std::optional<TensorboardWriter> tensorboard_;
  std::optional<Trace> trace_;
};

// Opens the training data before anything else is made: a wrong path is the likeliest mistake.
DataFacts facts_of(const std::string& prefix) {
  if (!fs::exists(prefix + ".idx"))
    throw FileError(prefix + ".idx", "", "does not exist",
                    "make it with `laconic prepare`, or correct data.train");
  const IndexedDataset checked(prefix);
  const std::optional<Sidecar> sidecar = read_sidecar(prefix);
  return sidecar ? DataFacts{sidecar->vocabulary, sidecar->bin_xxh3} : DataFacts{};
}

void require_mesh(const RunConfig& config, const World& world) {
  Problems problems = check(Mesh{.dp = static_cast<int>(config.mesh.dp)}, world.size());
  if (problems.empty()) problems = check_parallel(config);
  if (!problems.empty()) throw ConfigError(std::move(problems));
}

// Rank 0 looks at the run's folder and decides; the others do as it does.
Start start_together(const TrainOptions& options, const DataFacts& data, World& world) {
  Start start;
  const std::string from = world.first_decides([&] {
    start = start_run(options.config, options.start, data);
    return start.is_resumed ? fs::absolute(start.from).string() : "none";
  });
  if (world.is_first()) return start;
  StartOptions follow = options.start;
  follow.follows = true;
  follow.resume = from;
  return start_run(options.config, follow, data);
}

std::uint64_t digest_of(const Gpt& gpt) {
  Checksum sum;
  for (const Parameter& p : gpt.parameters) sum.update(bytes_of_tensor(on_host(p.value)));
  return sum.value();
}

// Replicas that have drifted apart would go on unnoticed for ever.
void require_equal_models(const Gpt& gpt, World& world, std::int64_t step) {
  if (world.is_alone()) return;
  const std::vector<std::uint64_t> digests = world.gather_values(digest_of(gpt));
  std::vector<std::string> others;
  for (std::size_t r = 1; r < digests.size(); ++r)
    if (digests[r] != digests[0]) others.push_back(std::to_string(r));
  if (!others.empty())
    throw std::runtime_error(
        fmt::format("step {}: rank {} and rank 0 hold different models: not the same weights, "
                    "program or processor arithmetic at the start, or damage since",
                    step, join(others, ", ")));
}

struct PlainTraffic {  // one traffic class of one rank, as it travels
  Count sent;
  Times times;
};

std::vector<TrafficTotal> total_traffic(World& world) {
  if (world.is_alone()) return {};
  const MeterReading reading = world.engine().meter().read();
  std::vector<PlainTraffic> mine(kTrafficClasses);
  for (int t = 0; t < kTrafficClasses; ++t) {
    const auto traffic = static_cast<Traffic>(t);
    mine[static_cast<std::size_t>(t)].sent = sent(reading, traffic);
    if (const auto found = reading.times.find(traffic); found != reading.times.end())
      mine[static_cast<std::size_t>(t)].times = found->second;
  }
  std::vector<TrafficTotal> totals(kTrafficClasses);
  for (const Bytes& bytes : world.gather(as_bytes(std::span<const PlainTraffic>(mine))))
    for (std::size_t t = 0; t < totals.size(); ++t) {
      const auto of_rank = get<PlainTraffic>(bytes, t * sizeof(PlainTraffic));
      totals[t].traffic = static_cast<Traffic>(t);
      totals[t].sent += of_rank.sent;
      const double share = 1.0 / world.size();
      totals[t].times += {.active = of_rank.times.active * share,
                          .exposed = of_rank.times.exposed * share,
                          .codec = of_rank.times.codec * share};
    }
  std::erase_if(totals, [](const TrafficTotal& total) { return total.sent.messages == 0; });
  return totals;
}

// One run in progress. Members are in the order in which they come to life.
class Run {
 public:
  Run(const TrainOptions& options, World& world)
      : config_(options.config),
        world_(world),
        stop_signal_(options.stop_signal),
        data_(facts_of(config_.data.train)),
        start_(start_together(options, data_, world)),
        train_(
            open_dataset(config_.data.train, config_.model.context, start_.gpt.shape.vocabulary)),
        order_(sample_order(config_, train_.samples(), start_.state.position)) {
    if (!config_.data.valid.empty()) {
      valid_.emplace(
          open_dataset(config_.data.valid, config_.model.context, start_.gpt.shape.vocabulary));
      token_bytes_ = token_bytes(config_.data.valid);
    }
    require_equal_models(start_.gpt, world_, start_.state.step);
    rule_ = make_update_rule(config_, start_.gpt, world_);
    const std::string note =
        rule_->load(start_.is_resumed ? read_rank_states(start_.from) : std::vector<RankTensors>(),
                    start_.state.optimiser);
    if (!note.empty()) start_.notes.push_back(note);
    facts_ = {config_.model.dropout, end_of_text()};
    if (world_.is_first()) prepare_folder();
    reports_.emplace(config_, start_.state.step, world_);
    if (world_.is_first())
      for (const std::string& old : start_.replaced) remove_checkpoint(old);
    summary_.first_step = start_.state.step;
    summary_.steps = config_.train.steps;
    summary_.parameters = parameter_count(start_.gpt.shape);
    summary_.checkpoint = start_.is_resumed ? start_.from : "";
    if (!world_.is_alone()) summary_.mesh = to_text(Mesh{.dp = world_.size()});
    saved_step_ = summary_.checkpoint.empty() ? -1 : start_.state.step;
  }

  TrainSummary go() {
    introduce();
    const StepPlan plan{config_,     train_, order_, reports_->trace(), world_.dp_member(),
                        stop_signal_};
    try {
      while (start_.state.step < config_.train.steps && summary_.signal == 0) take_step(plan);
    } catch (const NotFinite& error) {  // the steps before it are good
      save_now();
      reports_->finish();
      throw NotFinite(
          fmt::format("{}. The last good state is in {}", error.what(), summary_.checkpoint));
    }
    const bool is_new = start_.state.step > summary_.first_step || !start_.is_resumed;
    if (is_new && summary_.signal == 0 && evaluated_step_ != start_.state.step) evaluate_now();
    save_now();
    summary_.traffic = total_traffic(world_);
    reports_->finish();
    summary_.step = start_.state.step;
    summary_.skipped = start_.state.skipped;
    summary_.total_seconds = watch_.seconds();
    summary_.peak_memory_bytes = peak_memory_bytes();
    return summary_;
  }

 private:
  void prepare_folder() {
    fs::create_directories(checkpoints_folder(config_));
    write_atomically(config_.run.folder + "/config.toml", to_toml(config_, true));
    // Nothing can be refused any more: what the user gave up goes, checkpoints last.
    if (!start_.replaced.empty() && start_.state.step == 0)
      for (const char* old : {"/tensorboard", "/log.jsonl"})
        fs::remove_all(config_.run.folder + old);
  }

  void introduce() {
    const GptShape& s = start_.gpt.shape;
    reports_->line(
        fmt::format("model: GPT, {} layers, width {}, {} heads, {} tokens, vocabulary {}: {} "
                    "parameters, {} on {}",
                    s.layers, s.width, s.heads, config_.model.context, s.vocabulary,
                    human_count(static_cast<double>(summary_.parameters)), config_.run.dtype,
                    config_.run.device));
    const double epochs = static_cast<double>(config_.train.steps * config_.train.batch) /
                          static_cast<double>(train_.samples());
    reports_->line(
        fmt::format("data: {} tokens, {} samples; {} steps of {} are {:.2f} epochs; {} threads",
                    with_commas(static_cast<std::int64_t>(train_.tokens().tokens())),
                    with_commas(static_cast<std::int64_t>(train_.samples())), config_.train.steps,
                    config_.train.batch, epochs, at::get_num_threads()));
    if (!world_.is_alone())
      reports_->line(fmt::format("mesh: {}; {} samples a rank and step; {}; over {}", summary_.mesh,
                                 config_.local_batch(), describe_gradients(),
                                 world_.engine().transport().name()));
    for (const std::string& note : start_.notes) reports_->line("note: " + note);
    if (!start_.from.empty())
      reports_->line(fmt::format("{} from {}, step {}",
                                 start_.state.step > 0 ? "continuing" : "starting", start_.from,
                                 start_.state.step));
  }

  std::string describe_gradients() const {
    const DpGradientSection& g = config_.dp_gradient;
    std::string text = g.method == "power_sgd"
                           ? fmt::format("gradients by power_sgd, rank {}", g.rank)
                       : g.method == "compressed_adam"
                           ? fmt::format("first moments by {} after {} steps", g.codec, g.warmup)
                           : fmt::format("gradients by {}", g.codec);
    if (config_.local.steps > 0)
      text = fmt::format("changes of {} local steps by {}", config_.local.steps, g.codec);
    return text;
  }

  void take_step(const StepPlan& plan) {
    world_.set_doing(fmt::format("step {}", start_.state.step + 1));
    const MeterReading before = world_.is_alone() ? MeterReading() : world_.engine().meter().read();
    const StepReport report = train_step(plan, start_.gpt, *rule_, start_.state);
    summary_.loss = report.loss;
    summary_.tokens += report.tokens;
    summary_.train_seconds += report.seconds;
    summary_.signal = report.signal;
    if (world_.is_alone()) {
      reports_->step(report, nullptr);
    } else {
      const MeterReading wire = world_.engine().meter().read() - before;
      reports_->step(report, &wire);
    }
    if (config_.evaluate.every > 0 && report.step % config_.evaluate.every == 0) evaluate_now();
    if (config_.checkpoint.every > 0 && report.step % config_.checkpoint.every == 0) save_now();
  }

  void evaluate_now() {
    if (!valid_) return;
    world_.set_doing(fmt::format("evaluating after step {}", start_.state.step));
    const TraceSpan span(trace_or_none(), "evaluate", "evaluate", "compute");
    summary_.evaluation = evaluate(start_.gpt, *valid_, config_.evaluate.samples,
                                   config_.microbatch_size(), token_bytes_, world_);
    reports_->evaluation(start_.state.step, *summary_.evaluation);
    evaluated_step_ = start_.state.step;
  }

  void save_now() {
    if (saved_step_ == start_.state.step) return;
    world_.set_doing(fmt::format("saving step {}", start_.state.step));
    const TraceSpan span(trace_or_none(), "checkpoint", "checkpoint");
    require_equal_models(start_.gpt, world_, start_.state.step);
    const RankTensors mine = rule_->save(start_.state.optimiser);
    bool has_files = false;
    for (const int has : world_.gather_values(mine.empty() ? 0 : 1)) has_files |= has != 0;
    if (has_files && !world_.is_first()) add_rank_files(world_, "", mine);
    summary_.checkpoint = world_.first_decides([&] {
      CheckpointSpec spec = checkpoint_spec();
      if (has_files)
        spec.add_files = [&](const std::string& folder) { add_rank_files(world_, folder, mine); };
      return save_checkpoint(spec, start_.gpt, start_.state);
    });
    saved_step_ = start_.state.step;
    reports_->line("saved " + summary_.checkpoint);
  }

  CheckpointSpec checkpoint_spec() const {
    const std::string tokeniser = tokeniser_folder_of(config_.data.train);
    return {.folder = checkpoints_folder(config_),
            .keep = config_.checkpoint.keep,
            .facts = facts_,
            .data_xxh3 = data_.xxh3,
            .config_toml = to_toml(config_, false),
            .tokeniser_folder = has_tokeniser(tokeniser) ? tokeniser : ""};
  }

  // The id that ends a document, for whoever reads config.json; -1: nobody said.
  std::int64_t end_of_text() const {
    const std::string tokeniser = tokeniser_folder_of(config_.data.train);
    if (has_tokeniser(tokeniser)) return load_tokeniser(tokeniser).end_of_document();
    return start_.from.empty() ? -1 : read_gpt_facts(start_.from).end_of_text;
  }

  Trace& trace_or_none() { return reports_->trace() != nullptr ? *reports_->trace() : disabled_; }

  RunConfig config_;
  World& world_;
  int (*stop_signal_)();
  Stopwatch watch_;
  DataFacts data_;
  Start start_;
  WindowedDataset train_;
  SampleOrder order_;
  std::optional<WindowedDataset> valid_;
  std::vector<std::int32_t> token_bytes_;
  std::unique_ptr<UpdateRule> rule_;
  GptFolderFacts facts_;
  std::optional<Reports> reports_;
  Trace disabled_;
  TrainSummary summary_;
  std::int64_t evaluated_step_ = -1;
  std::int64_t saved_step_ = -1;
};

}  // namespace

std::int64_t peak_memory_bytes() {
  rusage usage{};
  getrusage(RUSAGE_SELF, &usage);
  return static_cast<std::int64_t>(usage.ru_maxrss) * 1024;
}

TrainSummary train(const TrainOptions& options) {
  World alone;
  World& world = options.world != nullptr ? *options.world : alone;
  require_mesh(options.config, world);
  return Run(options, world).go();
}

std::string to_text(const TrainSummary& s) {
  Table table({{"what", Align::left}, {"value", Align::right}});
  table.add({"steps", fmt::format("{} of {}", s.step, s.steps)});
  if (s.skipped > 0) table.add({"updates left out", std::to_string(s.skipped)});
  table.add({"parameters", with_commas(s.parameters)});
  table.add({"tokens trained on", with_commas(s.tokens)});
  if (s.step > s.first_step) table.add({"training loss, last step", fmt::format("{:.4f}", s.loss)});
  if (s.evaluation) {
    table.add({"validation loss", fmt::format("{:.4f}", s.evaluation->loss)});
    table.add({"validation perplexity", fmt::format("{:.2f}", s.evaluation->perplexity())});
    if (s.evaluation->bits_per_byte)
      table.add({"validation bits per byte", fmt::format("{:.4f}", *s.evaluation->bits_per_byte)});
  }
  if (s.train_seconds > 0)
    table.add({"tokens per second", with_commas(static_cast<std::int64_t>(
                                        static_cast<double>(s.tokens) / s.train_seconds))});
  table.add({"time in steps", human_seconds(s.train_seconds)});
  table.add({"time in all", human_seconds(s.total_seconds)});
  table.add({"peak memory", human_bytes(static_cast<double>(s.peak_memory_bytes))});
  return to_text(table) + (s.traffic.empty() ? "" : "\n" + to_text(s.traffic));
}

std::string to_text(const std::vector<TrafficTotal>& traffic) {
  Table table({{"traffic", Align::left},
               {"messages"},
               {"raw"},
               {"wire"},
               {"ratio"},
               {"under way"},
               {"exposed"},
               {"codec"}});
  for (const TrafficTotal& t : traffic)
    table.add({std::string(name_of(t.traffic)),
               with_commas(static_cast<std::int64_t>(t.sent.messages)),
               human_bytes(static_cast<double>(t.sent.raw_bytes)),
               human_bytes(static_cast<double>(t.sent.wire_bytes)),
               fmt::format("{:.1f}x", static_cast<double>(t.sent.raw_bytes) /
                                          static_cast<double>(t.sent.wire_bytes)),
               human_seconds(t.times.active), human_seconds(t.times.exposed),
               human_seconds(t.times.codec)});
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
      {"loss", s.step > s.first_step ? nlohmann::ordered_json(s.loss) : nlohmann::ordered_json()},
      {"train_seconds", s.train_seconds},
      {"total_seconds", s.total_seconds},
      {"tokens_per_second",
       s.train_seconds > 0 ? static_cast<double>(s.tokens) / s.train_seconds : 0},
      {"peak_memory_bytes", s.peak_memory_bytes},
      {"checkpoint", s.checkpoint},
      {"signal", s.signal}};
  if (s.evaluation) {
    json["validation_loss"] = s.evaluation->loss;
    json["perplexity"] = s.evaluation->perplexity();
    if (s.evaluation->bits_per_byte) json["bits_per_byte"] = *s.evaluation->bits_per_byte;
  }
  json["traffic"] = nlohmann::ordered_json::array();
  for (const TrafficTotal& t : s.traffic)
    json["traffic"].push_back({{"class", name_of(t.traffic)},
                               {"messages", t.sent.messages},
                               {"raw_bytes", t.sent.raw_bytes},
                               {"wire_bytes", t.sent.wire_bytes},
                               {"active_seconds", t.times.active},
                               {"exposed_seconds", t.times.exposed},
                               {"codec_seconds", t.times.codec}});
  json["config"] = to_toml(config, false);
  return json.dump(2) + "\n";
}

}  // namespace laconic
