#include "laconic/train/loop.hpp"

#include <fmt/format.h>

#include <algorithm>
#include <cstdio>
#include <filesystem>

#include "laconic/base/clock.hpp"
#include "laconic/base/error.hpp"
#include "laconic/checkpoint/collect.hpp"
#include "laconic/checkpoint/link_state.hpp"
#include "laconic/checkpoint/rank_state.hpp"
#include "laconic/config/grid_choice.hpp"
#include "laconic/config/model_family.hpp"
#include "laconic/config/read.hpp"
#include "laconic/data/tokeniser.hpp"
#include "laconic/file/atomic_file.hpp"
#include "laconic/grid/grid.hpp"
#include "laconic/grid/overlap.hpp"
#include "laconic/policy/class_policy.hpp"
#include "laconic/policy/grid_policy.hpp"
#include "laconic/report/trace.hpp"
#include "laconic/rows/row_plan.hpp"
#include "laconic/steer/bypass_judge.hpp"
#include "laconic/steer/guarding.hpp"
#include "laconic/steer/steering.hpp"
#include "laconic/tensor/gpu.hpp"
#include "laconic/tensor/host.hpp"
#include "laconic/train/basis_start.hpp"
#include "laconic/train/batch.hpp"
#include "laconic/train/code_start.hpp"
#include "laconic/train/common_start.hpp"
#include "laconic/train/gpu_report.hpp"
#include "laconic/train/introduction.hpp"
#include "laconic/train/reports.hpp"
#include "laconic/train/row_reader.hpp"
#include "laconic/train/run_facts.hpp"
#include "laconic/train/run_hooks.hpp"
#include "laconic/train/step.hpp"
#include "laconic/train/validation_bleu.hpp"
#include "laconic/update/grid_links.hpp"
#include "laconic/update/residual_state.hpp"
#include "laconic/update/update_rule.hpp"

namespace laconic {

namespace {

namespace fs = std::filesystem;

// What each exchange of a grid undergoes, by the policy.
GridCodecs grid_codecs(const GridPolicy& policy) {
  return [policy](const GridSite& site, GridCall call) -> GridCodec {
    const GridClassPolicy* one = &policy.activation;
    if (site.traffic == Traffic::tp_gradient) one = &policy.gradient;
    if (site.traffic == Traffic::tp_weight)
      one = call == GridCall::gather ? &policy.weight : &policy.weight_gradient;
    const auto block = static_cast<std::size_t>(site.block);
    if (!one->blocks[block]) return {};
    return {.codec = message_codec(*one, block),
            .has_feedback = one->has_feedback,
            .is_masked = one->is_masked,
            .is_gathered = one->is_gathered};
  };
}

// Whether blocks have the same parameters.
bool has_same_maps(const GridCodes& a, const GridCodes& b) {
  return a.size == b.size && a.is_tied == b.is_tied && a.blocks == b.blocks;
}

// One run in progress. Members are in the order in which they come to life.
class Run {
 public:
  Run(const TrainOptions& options, const RunHooks& hooks, World& world)
      : config_(options.config),
        world_(world),
        stop_signal_(options.stop_signal),
        step_begins_(options.step_begins),
        hooks_(hooks),
        data_(read_data_facts(config_.data.train)),
        common_(start_all_ranks(options, data_, world)),
        start_(common_.start),
        train_(open_data(config_.data.train)),
        order_(sample_order(config_, samples_in(train_), start_.state.position)),
        task_(task_of(config_, train_)),
        flops_(start_.weights.family) {
    config_ = as_decided(config_, common_.decisions);
    if (!config_.data.valid.empty()) {
      valid_.emplace(open_data(config_.data.valid));
      token_bytes_ = token_bytes(config_.data.valid);
      if (config_.task.kind == TaskKind::translate && config_.evaluate.bleu_samples > 0)
        bleu_.emplace(config_.data.valid, world_);
      if (bleu_ && !bleu_->why_not().empty()) start_.notes.push_back(bleu_->why_not());
    }
    require_equal_models(start_.weights, world_, start_.state.step);
    make_grid();
    make_rule();
    facts_ = folder_facts_of(config_, start_, train_);
    refuse(check_labels(start_.weights.family, train_, config_.data.train));
    if (valid_) refuse(compare_labels(train_, *valid_, config_.data.train, config_.data.valid));
    if (world_.is_first()) prepare_folder();
    reports_.emplace(config_, start_.state.step, world_);
    reports_->set_speed(common_.estimate.flops_per_second);
    make_pipeline(options);
    if (world_.is_first()) {
      for (const std::string& old : start_.replaced) remove_checkpoint(old);
      if (config_.checkpoint.best)
        point_to_best(checkpoints_folder(config_), start_.state.validation);
    }
    summary_.first_step = start_.state.step;
    summary_.steps = config_.train.steps;
    summary_.parameters = parameter_count(start_.weights.spec);
    summary_.checkpoint = start_.is_resumed ? start_.from : "";
    if (!world_.is_alone()) summary_.mesh = to_text(world_.mesh());
    saved_step_ = summary_.checkpoint.empty() ? -1 : start_.state.step;
  }

  TrainSummary go() {
    const RowReader reader{config_, train_, order_, task_};
    for (const std::string& line :
         introduction({config_, common_, reader, pipeline_->plan(), world_}))
      reports_->line(line);
    const StepPlan plan{
        .config = config_,
        .data = train_,
        .order = order_,
        .task = task_,
        .trace = reports_->trace(),
        .flops = &flops_,
        .member = world_.dp_member(),
        .stop_signal = stop_signal_,
        .before_update = [this](const Measured& m) { guarding_->before_update(m); },
        .is_spoiled = [this](std::int64_t step) { return hooks_.spoiled.contains(step); }};
    start_codes(plan);
    start_bases(plan);
    try {
      while (start_.state.step < config_.train.steps && summary_.signal == 0 && !is_exhausted())
        take_step(plan);
      finish_open_step(plan);
    } catch (const NotFinite& error) {  // the steps before it are good
      if (!error.is_state_lost()) save_now();
      reports_->finish();
      if (summary_.checkpoint.empty())
        throw NotFinite(fmt::format("{}. Nothing was saved before", error.what()));
      throw NotFinite(
          fmt::format("{}. The last good state is in {}", error.what(), summary_.checkpoint));
    }
    if (step_begins_ != nullptr) step_begins_(0);
    const bool is_new = start_.state.step > summary_.first_step || !start_.is_resumed;
    summary_.has_worked = is_new;
    if (is_new && summary_.signal == 0 && evaluated_step_ != start_.state.step) evaluate_now();
    if (is_exhausted() && start_.state.step < config_.train.steps) tell_exhausted();
    if (config_.checkpoint.at_end || summary_.signal != 0) save_now();
    summary_.traffic = total_traffic(world_);
    summary_.pipeline = total_pipeline(world_, *pipeline_);
    summary_.guard = guarding_->summary();
    for (const auto& [traffic, codec_override] : steering_->state().overrides)
      summary_.overrides.emplace_back(name_of(traffic), to_text(codec_override));
    reports_->finish();
    summary_.step = start_.state.step;
    summary_.all_tokens = start_.state.tokens > 0
                              ? start_.state.tokens
                              : start_.state.position * tokens_per_sample(task_, train_);
    summary_.estimate = common_.estimate;
    summary_.validation = start_.state.validation;
    summary_.skipped = start_.state.skipped;
    summary_.total_seconds = watch_.seconds();
    summary_.peak_memory_bytes = peak_memory_bytes();
    return summary_;
  }

 private:
  Dataset open_data(const std::string& prefix) const {
    return open_dataset(prefix, config_.model.context, vocabulary_of(start_.weights.family), 0,
                        sample_kind_of(config_));
  }

  void prepare_folder() {
    fs::create_directories(checkpoints_folder(config_));
    write_atomically(config_.run.folder + "/config.toml", to_toml(config_, true));
    // Nothing can be refused any more: what the user gave up goes, checkpoints last.
    if (!start_.replaced.empty() && start_.state.step == 0)
      for (const char* old : {"/tensorboard", "/log.jsonl"})
        fs::remove_all(config_.run.folder + old);
  }

  // The other ranks of this stage that hold parts of what this one does, if there are any.
  void make_grid() {
    const GridPlan& plan = start_.weights.place.plan;
    if (is_trivial(plan)) return;
    grid_.emplace(world_.progress_thread(), plan, world_.mesh(), world_.rank(),
                  grid_codecs(grid_policy_of(config_, start_.weights.spec)),
                  static_cast<std::uint64_t>(config_.run.seed));
    grid_->overlap().enable(config_.tensor.prefetch);
    add_grid_links(*grid_, world_, links_);
  }

  // Maps of a run that goes on are what it has.
  void start_codes(const StepPlan& plan) {
    if (!grid_ || grid_->plan().codes.size == 0 || start_.is_resumed ||
        config_.tp_activation.start != CodeBegin::pca)
      return;
    const Batch batch =
        first_batches(plan, start_.weights, start_.state, config_.microbatch_size()).front();
    start_codes_by_pca(start_.weights, *grid_, [&] { pipeline_->evaluate(batch, 0); });
  }

  // Bases of a run that goes on, and of a folder that has some, are what they are.
  void start_bases(const StepPlan& plan) {
    const Family& family = start_.weights.family;
    const bool has_some =
        !config_.model.start.empty() && !projection_of(read_family(config_.model.start)).is_empty();
    const BasisKind basis = projection_of(family).basis;
    const bool is_found =
        basis == BasisKind::pca || (is_code(basis) && boundary_start(config_) == CodeBegin::pca);
    if (!is_found || start_.is_resumed || has_some) return;
    start_bases_by_pca(start_.weights, *pipeline_, grid_ ? &*grid_ : nullptr, world_,
                       first_batches(plan, start_.weights, start_.state, kBasisSamples));
  }

  void make_rule() {
    const PipelinePlan plan = plan_of(config_, common_.decisions);
    rule_ =
        make_update_rule({.config = config_,
                          .weights = start_.weights,
                          .world = world_,
                          .shared = shared_parameters(start_.weights.spec, ranks_of_blocks(plan)),
                          .encoded = encoded_ranks(config_, common_.decisions.encoded_ranks),
                          .leaves_on_host = hooks_.leaves_steps,
                          .tables_are_apart = hooks_.tables_are_apart});
    rule_->add_links(links_);
    const std::vector<RankTensors> saved = saved_states();
    rule_->load(saved, start_.state.optimiser);
    const std::string note = first_note(links_.restore(saved));
    if (!note.empty()) start_.notes.push_back(note);
  }

  // What ranks remembered at the checkpoint. Parts that were cut in another way on the same grid
  // would be taken for those of now.
  std::vector<RankTensors> saved_states() {
    if (!start_.is_resumed) return {};
    const GridPlan& now = start_.weights.place.plan;
    const RunConfig config = read_checkpoint_config(start_.from);
    const GridPlan before = is_trivial(now) || !check_grid(config, start_.weights.family).empty()
                                ? now
                                : grid_plan_of(config, start_.weights.family);
    const bool is_cut_alike = before.method == now.method && before.table == now.table;
    if (before.mesh.tp == now.mesh.tp && !is_cut_alike) {
      start_.notes.push_back(fmt::format(
          "what ranks remember in the checkpoint is that of tensors cut by {} with the table {}, "
          "and this run cuts by {} with the table {}: dropped",
          name_of(before.method), name_in(kTableCutNames, before.table), name_of(now.method),
          name_in(kTableCutNames, now.table)));
      return {};
    }
    if (!has_same_maps(before.codes, now.codes)) {
      start_.notes.push_back(
          "what ranks remember in the checkpoint is that of blocks with other learned codes: "
          "dropped");
      return {};
    }
    return read_rank_states(start_.from);
  }

  // The first that any rank has to say. Collective.
  std::string first_note(const std::string& mine) {
    for (const Bytes& bytes : world_.gather(as_bytes(std::span(mine.data(), mine.size()))))
      if (!bytes.empty()) return {reinterpret_cast<const char*>(bytes.data()), bytes.size()};
    return "";
  }

  void make_pipeline(const TrainOptions& options) {
    pipeline_ = std::make_unique<Pipeline>(start_.weights, plan_of(config_, common_.decisions),
                                           world_.is_alone() ? nullptr : &world_.engine(),
                                           world_.pp_group(), world_.pp_member(),
                                           PipelineOptions{.recompute = config_.model.recompute,
                                                           .grid = grid_ ? &*grid_ : nullptr,
                                                           .trace = reports_->trace()});
    pipeline_->add_links(links_);
    steering_.emplace(links_, common_.steering);
    judge_.emplace(
        BypassJudge::Parts{.config = config_,
                           .spec = start_.weights.spec,
                           .world = world_,
                           .plan = pipeline_->plan(),
                           .steering = *steering_,
                           .link = options.link,
                           .encoded = encoded_ranks(config_, common_.decisions.encoded_ranks),
                           .costs = hooks_.costs},
        start_.state.step);
    if (!judge_->note().empty()) start_.notes.push_back(judge_->note());
    guarding_.emplace(Guarding::Parts{
        .config = config_,
        .world = world_,
        .weights = start_.weights,
        .links = links_,
        .steering = *steering_,
        .judge = *judge_,
        .reports = {
            .line = [this](const std::string& text) { reports_->line(text); },
            .note = [this](std::int64_t step,
                           const std::string& text) { reports_->note(step, text); },
            .readings = [this](std::int64_t step,
                               const Readings& readings) { reports_->readings(step, readings); }}});
    if (!start_.is_resumed || !any_has_memory()) return;
    const std::string note = load_link_files(world_, common_.has_links ? start_.from : "", links_);
    if (!note.empty()) start_.notes.push_back(note);
  }

  // Collective: some ranks may have none, where not all boundaries are encoded.
  bool any_has_memory() const {
    const std::vector<int> all = world_.gather_values(links_.has_memory() ? 1 : 0);
    return std::ranges::any_of(all, [](int has) { return has != 0; });
  }

  // A step that nobody has heard of while the next one is computed: its sums are under way
  // (train.update = "block"), or a GPU is still at work on it.
  struct OpenStep {
    StepReport report;
    MeterReading before;  // of the meter, when it began
    MeterReading wire;
    TrainState state = {};  // when it began, if it is left; tensors are those of now
  };

  void take_step(const StepPlan& plan) {
    const std::int64_t step = start_.state.step + 1;
    const bool stands_alone = judge_->is_waiting() || guarding_->is_due(step) ||
                              hooks_.changes.contains(start_.state.step);
    if (stands_alone) finish_open_step(plan);
    world_.set_activity(fmt::format("step {}", start_.state.step + 1));
    if (step_begins_ != nullptr) step_begins_(start_.state.step + 1);
    reports_->begin_step(start_.state.step + 1);
    if (const auto changes = hooks_.changes.find(start_.state.step);
        changes != hooks_.changes.end())
      for (const auto& [traffic, codec_override] : changes->second)
        steering_->override_codec(traffic, codec_override);
    guarding_->before_step(start_.state.step + 1, [&] {
      return shadow_step(plan, start_.weights, *pipeline_, *rule_, start_.state);
    });
    OpenStep taken{.report = {}, .before = read_meter(), .wire = {}};
    if (rule_->leaves_steps()) taken.state = start_.state;
    taken.report = train_step(plan, start_.weights, *pipeline_, *rule_, start_.state);
    taken.wire = read_meter() - taken.before;
    if (taken.report.is_open) {
      std::optional<OpenStep> done = std::exchange(open_, std::move(taken));
      if (done && !complete(plan, *done, open_->report)) {
        open_.reset();
        return;
      }
      if (stands_alone) finish_open_step(plan);
    } else {
      tell_step(taken);
    }
    if (config_.evaluate.every > 0 && step % config_.evaluate.every == 0) {
      finish_open_step(plan);
      evaluate_now();
    }
    if (config_.checkpoint.every > 0 && step % config_.checkpoint.every == 0) {
      finish_open_step(plan);
      save_now();
    }
  }

  // Ends what the last step has left to the next one.
  void finish_open_step(const StepPlan& plan) {
    if (!open_) return;
    OpenStep open = *std::exchange(open_, std::nullopt);
    const Stopwatch watch;
    rule_->settle(/*is_checkpoint=*/false);
    open.report.seconds += watch.seconds();
    open.wire = read_meter() - open.before;
    complete(plan, open, open.report);
  }

  // Hears of a step and tells it. The time that it waits is a part of the step that `waits`.
  // Returns whether steps that were taken since stand.
  bool complete(const StepPlan& plan, OpenStep& step, StepReport& waits) {
    const Stopwatch watch;
    const bool stands = complete_step(plan, *rule_, step.state, step.report, start_.state);
    waits.seconds += watch.seconds();
    tell_step(step);
    return stands;
  }

  MeterReading read_meter() const {
    return world_.is_alone() ? MeterReading() : world_.engine().meter().read();
  }

  void tell_step(const OpenStep& taken) {
    const StepReport& report = taken.report;
    summary_.loss = report.loss;
    summary_.tokens += report.tokens;
    summary_.flops += report.flops;
    summary_.train_seconds += report.seconds;
    summary_.signal = report.signal;
    if (world_.is_alone()) {
      reports_->step(report, nullptr);
    } else {
      reports_->step(report, &taken.wire);
      for (const std::string& line : judge_->step_done(report.step, taken.wire))
        reports_->note(report.step, line);
    }
    guarding_->after_step(report.step);
  }

  bool is_exhausted() const {
    return laconic::is_exhausted(start_.state.validation, config_.evaluate.patience);
  }

  void tell_exhausted() {
    const ValidationState& v = start_.state.validation;
    summary_.is_stopped_early = true;
    const std::string text = fmt::format(
        "stopped early: {} evaluations in a row have not brought the validation loss down by more "
        "than {}{}",
        v.stale, config_.evaluate.min_improvement,
        v.best_loss ? fmt::format("; the best is {:.4f}, after step {}", *v.best_loss, v.best_step)
                    : "");
    if (start_.state.step > summary_.first_step)
      reports_->note(start_.state.step, text);
    else
      reports_->line(text);  // the log has it already
  }

  void evaluate_now() {
    if (!valid_) return;
    world_.set_activity(fmt::format("evaluating after step {}", start_.state.step));
    const TraceSpan span(trace_or_none(), "evaluate", "evaluate", "compute");
    rule_->settle(/*is_checkpoint=*/false);
    summary_.evaluation = evaluate(
        [&](const Batch& batch, std::uint64_t number, const Pass& pass) {
          return pipeline_->evaluate(batch, number, with_rows(pass), config_.evaluate.encoded);
        },
        *valid_,
        {.task = task_of(config_, *valid_),
         .samples = config_.evaluate.samples,
         .batch = config_.microbatch_size(),
         .device = start_.weights.device(),
         .bytes_of_token = token_bytes_,
         .before_round = rows_of_round()},
        world_);
    if (bleu_) measure_bleu(*summary_.evaluation);
    reports_->evaluation(start_.state.step, *summary_.evaluation);
    evaluated_step_ = start_.state.step;
    const bool is_best = observe(start_.state.validation, summary_.evaluation->loss,
                                 start_.state.step, config_.evaluate.min_improvement);
    if (is_best && config_.checkpoint.best) save_now();
  }

  // Tables that lie on several ranks are looked up by all of them together.
  Pass with_rows(Pass pass) const {
    pass.rows = rule_->row_lookup();
    return pass;
  }
  EvaluationSpec::BeforeRound rows_of_round() {
    if (rule_->row_lookup() == nullptr) return {};
    return [this](const std::vector<Batch>& round) {
      std::vector<bool> takes_part;
      for (const Batch& batch : round) takes_part.push_back(!batch.fields().empty());
      const auto read = [&](std::int64_t, const std::string& field, int member) -> RowIds {
        if (!takes_part[static_cast<std::size_t>(member)]) return {};
        const at::Tensor ids = on_host(round[static_cast<std::size_t>(member)][field]);
        return unique_rows(
            std::span(ids.data_ptr<std::int64_t>(), static_cast<std::size_t>(ids.numel())));
      };
      rule_->peek(read, takes_part);
    };
  }

  void measure_bleu(Evaluation& evaluation) {
    const Stopwatch watch;
    const std::optional<double> score =
        bleu_->measure(start_.weights, *pipeline_, *valid_,
                       {.samples = std::min(config_.evaluate.bleu_samples, evaluation.samples),
                        .microbatch = config_.microbatch_size(),
                        .grid = grid_ ? &*grid_ : nullptr},
                       world_);
    if (score) evaluation.metrics.emplace_back("bleu", *score);
    evaluation.seconds += watch.seconds();
  }

  void save_now() {
    if (saved_step_ == start_.state.step) return;
    world_.set_activity(fmt::format("saving step {}", start_.state.step));
    const TraceSpan span(trace_or_none(), "checkpoint", "checkpoint");
    rule_->settle(/*is_checkpoint=*/true);
    require_equal_models(start_.weights, world_, start_.state.step);
    RankTensors mine = rule_->save(start_.state.optimiser);
    mine.merge(links_.tensors());
    add_mesh(world_.mesh(), mine);
    const bool has_memory = any_has_memory();
    bool has_files = has_memory;
    for (const int has : world_.gather_values(mine.empty() ? 0 : 1)) has_files |= has != 0;
    const std::uint64_t number = collections_++;
    if (!world_.is_first()) {
      if (is_in_parts()) give(world_, start_.weights, start_.state.optimiser, number);
      if (has_files) add_files("", mine, has_memory);
    }
    summary_.checkpoint = world_.decide_on_rank_0([&] {
      CheckpointSpec spec = checkpoint_spec();
      if (has_files)
        spec.add_files = [&](const std::string& folder) { add_files(folder, mine, has_memory); };
      const ModelSource source =
          is_in_parts() ? collecting_source(world_, pipeline_->plan(), start_.weights,
                                            start_.state.optimiser, config_.optimiser.kind, number)
                        : source_of(start_.weights, start_.state.optimiser, config_.optimiser.kind);
      return save_checkpoint(spec, source, start_.state);
    });
    saved_step_ = start_.state.step;
    reports_->line("saved " + summary_.checkpoint);
  }

  // Whether no rank has the whole model.
  bool is_in_parts() const {
    return world_.replica().size() > 1 || start_.weights.place.tables.is_any();
  }

  // What this rank alone remembers.
  void add_files(const std::string& folder, const RankTensors& mine, bool has_memory) {
    const RankFolder place = find_rank_folder(world_, folder);
    add_rank_files(world_, place, mine);
    if (!has_memory) return;
    if (!place.is_seen_by_all)
      reports_->line("note: not every rank sees " + place.path +
                     ": what links remember is not saved, and begins anew after a resume");
    add_link_files(world_, place, links_);
  }

  CheckpointSpec checkpoint_spec() const {
    const std::string tokeniser = tokeniser_folder_of(config_.data.train);
    return {.folder = checkpoints_folder(config_),
            .keep = config_.checkpoint.keep,
            .keeps_best = config_.checkpoint.best,
            .facts = facts_,
            .data_xxh3 = data_.xxh3,
            .config_toml = to_toml(config_, false),
            .tokeniser_folder = has_tokeniser(tokeniser) ? tokeniser : "",
            .pipeline = config_.mesh.pp > 1 ? to_json(common_.decisions) : "",
            .steering = steering_->state() == SteeringState() ? "" : to_json(steering_->state())};
  }

  Trace& trace_or_none() { return reports_->trace() != nullptr ? *reports_->trace() : disabled_; }

  RunConfig config_;
  World& world_;
  int (*stop_signal_)();
  void (*step_begins_)(std::int64_t step);
  RunHooks hooks_;
  Stopwatch watch_;
  DataFacts data_;
  CommonStart common_;
  Start& start_;
  Dataset train_;
  SampleOrder order_;
  Task task_;
  SampleFlops flops_;
  std::optional<Dataset> valid_;
  std::vector<std::int32_t> token_bytes_;
  std::optional<ValidationBleu> bleu_;
  std::optional<TensorGrid> grid_;
  std::unique_ptr<UpdateRule> rule_;
  FolderFacts facts_;
  std::optional<Reports> reports_;
  std::unique_ptr<Pipeline> pipeline_;
  LinkRegistry links_;  // rule and pipeline add theirs
  std::optional<Steering> steering_;
  std::optional<BypassJudge> judge_;
  std::optional<Guarding> guarding_;
  std::optional<OpenStep> open_;
  Trace disabled_;
  TrainSummary summary_;
  std::int64_t evaluated_step_ = -1;
  std::int64_t saved_step_ = -1;
  std::uint64_t collections_ = 0;
};

}  // namespace

namespace {

int gpu_of(const TrainOptions& options) {
  return choose_gpu(options.config.run.device, std::max(count_gpus(), 1), options.start.local_rank);
}

bool are_all_on_gpus(const RunConfig& config, World& world) {
  return std::ranges::all_of(
      world.gather_values(static_cast<std::uint8_t>(config.run.device.is_cuda())),
      [](std::uint8_t is_gpu) { return is_gpu != 0; });
}

}  // namespace

TrainSummary train(const TrainOptions& options) {
  return train(options, RunHooks());
}

TrainSummary train(const TrainOptions& options, const RunHooks& hooks) {
  World alone;
  World& world = options.world != nullptr ? *options.world : alone;
  refuse(check_mesh(options.config, world.size()));
  if (options.config.embedding_rows.method != RowsMethod::allreduce &&
      !options.config.embedding_rows.decided) {
    TrainOptions decided = options;
    EmbeddingRowsSection& rows = decided.config.embedding_rows;
    rows.rates = measure_row_rates(options.link, world);
    RowDecision decision;
    if (rows.method == RowsMethod::automatic) decision = decide_rows(decided.config, world);
    rows.decided = decision.methods;
    rows.reasons = decision.reasons;
    return train(decided, hooks);
  }
  TrainOptions chosen = options;
  choose_lanes(are_all_on_gpus(options.config, world), chosen.config);
  if (!options.config.run.device.is_cuda()) return Run(chosen, hooks, world).go();
  // The weights go before anything is asked of the GPU again.
  try {
    return Run(chosen, hooks, world).go();
  } catch (...) {
    rethrow_gpu_failure(gpu_of(options), world);
  }
}

}  // namespace laconic
