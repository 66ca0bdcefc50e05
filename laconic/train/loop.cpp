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
#include "laconic/report/console.hpp"
#include "laconic/report/jsonl.hpp"
#include "laconic/report/table.hpp"
#include "laconic/report/tensorboard.hpp"
#include "laconic/report/trace.hpp"
#include "laconic/train/batch.hpp"
#include "laconic/train/step.hpp"

namespace laconic {

namespace {

namespace fs = std::filesystem;

// Everything that is told about a run while it runs, to people and to files.
class Reports {
 public:
  Reports(const RunConfig& config, std::int64_t first_step)
      : config_(config), progress_(config.train.steps, is_live_terminal(stdout)) {
    const std::string& folder = config.run.folder;
    // Also when a run that left no checkpoint begins again.
    const std::optional<std::int64_t> resumed =
        fs::exists(folder + "/tensorboard") ? std::optional(first_step + 1) : std::nullopt;
    if (config.report.jsonl) jsonl_.emplace(folder + "/log.jsonl", first_step + 1);
    if (config.report.tensorboard) tensorboard_.emplace(folder + "/tensorboard", resumed);
    if (config.report.trace) trace_.emplace(0);
  }

  Trace* trace() { return trace_ ? &*trace_ : nullptr; }
  void line(const std::string& text) { progress_.line(text); }

  void step(const StepReport& r) {
    const double speed = static_cast<double>(r.tokens) / r.seconds;
    const std::string text = to_text(StepLine{.step = r.step,
                                              .steps = config_.train.steps,
                                              .loss = r.loss,
                                              .norm = r.norm,
                                              .lr = r.lr,
                                              .tokens_per_second = speed});
    const bool is_due =
        r.step % config_.report.every == 0 || r.step == config_.train.steps || r.is_skipped;
    if (is_due) progress_.line(r.is_skipped ? text + " | not finite: update left out" : text);
    progress_.update(r.step);
    if (!is_due) return;
    if (jsonl_)
      jsonl_->write({{"step", r.step},
                     {"loss", r.loss},
                     {"grad_norm", r.norm},
                     {"lr", r.lr},
                     {"tokens_per_second", speed},
                     {"seconds", r.seconds},
                     {"skipped", r.is_skipped},
                     {"time", utc_now()}});
    if (tensorboard_)
      tensorboard_->write(
          r.step, {{"loss", r.loss},
                   {"grad_norm", r.norm},
                   {"lr", r.lr},
                   {"throughput(tps)", speed},
                   {"time_metrics/step(s)", r.seconds},
                   {"memory/peak(GiB)", static_cast<double>(peak_memory_bytes()) / (1 << 30)}});
  }

  void evaluation(std::int64_t step, const Evaluation& e) {
    std::string text = fmt::format("step {:>5} | validation loss {:.4f} | perplexity {:.2f}", step,
                                   e.loss, e.perplexity());
    if (e.bits_per_byte) text += fmt::format(" | {:.4f} bits/byte", *e.bits_per_byte);
    progress_.line(text + fmt::format(" | {} samples in {}", with_commas(e.samples),
                                      human_seconds(e.seconds)));
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
    progress_.finish();
    if (trace_) trace_->write(config_.run.folder + "/trace.json");
  }

 private:
  const RunConfig& config_;
  Progress progress_;
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

// One run in progress. Members are in the order in which they come to life.
class Run {
 public:
  explicit Run(const TrainOptions& options)
      : config_(options.config),
        stop_signal_(options.stop_signal),
        data_(facts_of(config_.data.train)),
        start_(start_run(config_, options.start, data_)),
        train_(
            open_dataset(config_.data.train, config_.model.context, start_.gpt.shape.vocabulary)) {
    if (!config_.data.valid.empty()) {
      valid_.emplace(
          open_dataset(config_.data.valid, config_.model.context, start_.gpt.shape.vocabulary));
      token_bytes_ = token_bytes(config_.data.valid);
    }
    facts_ = {config_.model.dropout, end_of_text()};
    fs::create_directories(checkpoints_folder(config_));
    write_atomically(config_.run.folder + "/config.toml", to_toml(config_, true));
    // Nothing can be refused any more: what the user gave up goes, checkpoints last.
    if (!start_.replaced.empty() && start_.state.step == 0)
      for (const char* old : {"/tensorboard", "/log.jsonl"})
        fs::remove_all(config_.run.folder + old);
    reports_.emplace(config_, start_.state.step);
    for (const std::string& old : start_.replaced) remove_checkpoint(old);
    summary_.first_step = start_.state.step;
    summary_.steps = config_.train.steps;
    summary_.parameters = parameter_count(start_.gpt.shape);
    summary_.checkpoint = start_.is_resumed ? start_.from : "";
    saved_step_ = summary_.checkpoint.empty() ? -1 : start_.state.step;
  }

  TrainSummary go() {
    introduce();
    const StepPlan plan{
        config_,
        train_,
        {static_cast<std::uint64_t>(config_.run.seed), train_.samples(), config_.data.shuffle},
        reports_->trace()};
    try {
      while (start_.state.step < config_.train.steps && summary_.signal == 0) {
        take_step(plan);
        if (stop_signal_ != nullptr) summary_.signal = stop_signal_();
      }
    } catch (const NotFinite& error) {  // the steps before it are good
      save_now();
      reports_->finish();
      throw NotFinite(
          fmt::format("{}. The state before it is in {}", error.what(), summary_.checkpoint));
    }
    const bool is_new = start_.state.step > summary_.first_step || !start_.is_resumed;
    if (is_new && summary_.signal == 0 && evaluated_step_ != start_.state.step) evaluate_now();
    save_now();
    reports_->finish();
    summary_.step = start_.state.step;
    summary_.skipped = start_.state.skipped;
    summary_.total_seconds = watch_.seconds();
    summary_.peak_memory_bytes = peak_memory_bytes();
    return summary_;
  }

 private:
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
    for (const std::string& note : start_.notes) reports_->line("note: " + note);
    if (!start_.from.empty())
      reports_->line(fmt::format("{} from {}, step {}",
                                 start_.state.step > 0 ? "continuing" : "starting", start_.from,
                                 start_.state.step));
  }

  void take_step(const StepPlan& plan) {
    const StepReport report = train_step(plan, start_.gpt, start_.state);
    summary_.loss = report.loss;
    summary_.tokens += report.tokens;
    summary_.train_seconds += report.seconds;
    reports_->step(report);
    if (config_.evaluate.every > 0 && report.step % config_.evaluate.every == 0) evaluate_now();
    if (config_.checkpoint.every > 0 && report.step % config_.checkpoint.every == 0) save_now();
  }

  void evaluate_now() {
    if (!valid_) return;
    const TraceSpan span(trace_or_none(), "evaluate", "evaluate", "compute");
    summary_.evaluation = evaluate(start_.gpt, *valid_, config_.evaluate.samples,
                                   config_.microbatch_size(), token_bytes_);
    reports_->evaluation(start_.state.step, *summary_.evaluation);
    evaluated_step_ = start_.state.step;
  }

  void save_now() {
    if (saved_step_ == start_.state.step) return;
    const TraceSpan span(trace_or_none(), "checkpoint", "checkpoint");
    const std::string tokeniser = tokeniser_folder_of(config_.data.train);
    summary_.checkpoint =
        save_checkpoint({.folder = checkpoints_folder(config_),
                         .keep = config_.checkpoint.keep,
                         .facts = facts_,
                         .data_xxh3 = data_.xxh3,
                         .config_toml = to_toml(config_, false),
                         .tokeniser_folder = has_tokeniser(tokeniser) ? tokeniser : ""},
                        start_.gpt, start_.state);
    saved_step_ = start_.state.step;
    reports_->line("saved " + summary_.checkpoint);
  }

  // The id that ends a document, for whoever reads config.json; -1: nobody said.
  std::int64_t end_of_text() const {
    const std::string tokeniser = tokeniser_folder_of(config_.data.train);
    if (has_tokeniser(tokeniser)) return load_tokeniser(tokeniser).end_of_document();
    return start_.from.empty() ? -1 : read_gpt_facts(start_.from).end_of_text;
  }

  Trace& trace_or_none() { return reports_->trace() != nullptr ? *reports_->trace() : disabled_; }

  RunConfig config_;
  int (*stop_signal_)();
  Stopwatch watch_;
  DataFacts data_;
  Start start_;
  WindowedDataset train_;
  std::optional<WindowedDataset> valid_;
  std::vector<std::int32_t> token_bytes_;
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
  return Run(options).go();
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
  json["config"] = to_toml(config, false);
  return json.dump(2) + "\n";
}

}  // namespace laconic
