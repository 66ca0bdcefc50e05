#include "laconic/train/introduction.hpp"

#include <ATen/Parallel.h>
#include <fmt/format.h>

#include "laconic/base/text.hpp"
#include "laconic/codec/device_codec.hpp"
#include "laconic/config/row_choice.hpp"

namespace laconic {

namespace {

std::string describe_gradients(const RunConfig& config) {
  const DpGradientSection& g = config.dp_gradient;
  std::string text = g.method == GradientMethod::power_sgd
                         ? fmt::format("gradients by power_sgd, rank {}", g.rank)
                     : g.method == GradientMethod::compressed_adam
                         ? fmt::format("first moments by {} after {} steps", g.codec, g.warmup)
                         : fmt::format("gradients by {}", g.codec);
  if (config.local.steps > 0)
    text = fmt::format("changes of {} local steps by {}", config.local.steps, g.codec);
  if (g.late > 0) text += fmt::format(", a step late after {} steps", g.late_after);
  if (config.train.update == UpdateBy::block) text += ", updates block by block";
  return text;
}

// Collects the lines.
class Introduction {
 public:
  explicit Introduction(const IntroducedRun& run)
      : config_(run.config),
        common_(run.common),
        start_(run.common.start),
        reader_(run.reader),
        data_(run.reader.data),
        pipeline_(run.pipeline),
        world_(run.world) {}

  std::vector<std::string> lines() {
    const Family& family = start_.weights.family;
    lines_.push_back(fmt::format(
        "model: {}, {} tokens, vocabulary {}: {} parameters, {} on {}", to_text(family),
        config_.model.context, vocabulary_of(family),
        human_count(static_cast<double>(parameter_count(start_.weights.spec))),
        name_in(kRunPrecisionNames, config_.run.precision), to_text(config_.run.device)));
    const double epochs = static_cast<double>(config_.train.steps * config_.train.batch) /
                          static_cast<double>(samples_in(data_));
    lines_.push_back(
        fmt::format("data: {} tokens, {} samples; {} steps of {} are {:.2f} epochs; {} threads",
                    with_commas(static_cast<std::int64_t>(tokens_in(data_).tokens())),
                    with_commas(static_cast<std::int64_t>(samples_in(data_))), config_.train.steps,
                    config_.train.batch, epochs, at::get_num_threads()));
    if (!world_.is_alone())
      lines_.push_back(fmt::format("mesh: {}; {} samples a replica and step{}; over {}",
                                   to_text(world_.mesh()), config_.local_batch(),
                                   config_.mesh.dp > 1 ? "; " + describe_gradients(config_) : "",
                                   world_.engine().transport().name()));
    if (!is_trivial(start_.weights.place.plan)) introduce_grid();
    introduce_rows();
    if (config_.mesh.pp > 1) introduce_pipeline();
    for (const std::string& warning : warnings_of(config_)) lines_.push_back("warning: " + warning);
    if (config_.run.device.is_cuda() && has_hollow_codecs())
      lines_.push_back(
          "warning: LACONIC_DEVICE_CODECS = hollow: messages have their size and nothing in them, "
          "and the run trains nonsense; for measuring what codecs cost");
    for (const std::string& line : common_.gpus) lines_.push_back(line);
    if (world_.is_first())
      for (const std::string& line : describe(common_.estimate, config_)) lines_.push_back(line);
    for (const std::string& note : start_.notes) lines_.push_back("note: " + note);
    if (!start_.from.empty())
      lines_.push_back(fmt::format("{} from {}, step {}",
                                   start_.state.step > 0 ? "continuing" : "starting", start_.from,
                                   start_.state.step));
    return lines_;
  }

 private:
  void introduce_rows() {
    const EmbeddingRowsSection& rows = config_.embedding_rows;
    for (const std::string& reason : rows.reasons) lines_.push_back("rows: " + reason);
    const std::vector<std::size_t> tables = row_tables(config_, start_.weights.spec);
    if (tables.empty()) return;
    std::vector<std::string> texts;
    for (const std::size_t p : tables) {
      const std::string& name = start_.weights.spec.parameters[p].name;
      const ReplicaCut cut = start_.weights.place.tables.of(name);
      texts.push_back(fmt::format(
          "{} by {}{}{}", name, name_in(kRowsMethodNames, method_of_table(config_, name)),
          cut == ReplicaCut::whole
              ? ""
              : fmt::format(", {} on {} ranks", cut == ReplicaCut::rows ? "rows" : "columns",
                            config_.mesh.dp),
          shares_text(start_.weights.spec.parameters[p])));
    }
    lines_.push_back(fmt::format(
        "rows: {}; {}{}{}", join(texts, "; "),
        rows.optimiser == RowsOptimiser::same ? "sgd"
                                              : name_in(kRowsOptimiserNames, rows.optimiser),
        splits_rows(config_) ? "; gradients of rows that the next step does not read come later"
                             : "",
        rows.early ? "; rows that this step does not change leave early" : ""));
  }

  // Rank 0 reads for all.
  std::string shares_text(const ParameterSpec& table) const {
    if (!world_.is_first()) return "";
    const TrainState& state = start_.state;
    const ReadShares shares = read_shares(table, reader_, state.step, state.position);
    return fmt::format(", U/T {:.2f}, p {:.2f}", shares.unique, shares.prior);
  }

  void introduce_grid() {
    const GridPlan& plan = start_.weights.place.plan;
    const auto described = [](const auto& section) {
      return section.codec + (section.sum == SumForm::gathered ? " (sums gathered)" : "");
    };
    lines_.push_back(fmt::format(
        "tensors: {} on {}, table {}; activations by {}, gradients by {}, weights by {}, their "
        "gradients by {}",
        name_of(plan.method), fmt::join(plan.mesh.tp, " x "), name_in(kTableCutNames, plan.table),
        described(config_.tp_activation), described(config_.tp_gradient), config_.tp_weight.codec,
        config_.tp_weight.gradient));
  }

  void introduce_pipeline() {
    std::vector<std::string> layers;
    for (const std::int64_t l : common_.decisions.split) layers.push_back(std::to_string(l));
    const auto described = [](const auto& section, const auto& memories) {
      std::string text = section.codec;
      if (section.memory != LinkMemory::none)
        text += fmt::format(" with {}", name_in(memories, section.memory));
      if (section.boundaries != kAllPlaces)
        text += fmt::format(" (boundaries: {})", section.boundaries);
      return text;
    };
    const PipelineDecisions& decided = common_.decisions;
    if (!decided.why.empty()) lines_.push_back("schedule: " + decided.why);
    lines_.push_back(fmt::format(
        "pipeline: {}, {} microbatches of {}, layers {}; activations by {}, gradients by {}{}",
        decided.kind.empty() ? config_.pipeline.schedule : decided.kind, config_.microbatches(),
        config_.microbatch_size(), join(layers, "+"),
        described(config_.pp_activation, kActivationMemoryNames),
        described(config_.pp_gradient, kLinkMemoryNames),
        config_.pp_gradient.when == When::always
            ? ""
            : fmt::format(" ({})", name_of(config_.pp_gradient.when))));
    introduce_projection();
    introduce_references("pp.activation", pipeline_.activation);
    introduce_references("pp.gradient", pipeline_.gradient);
  }

  // Cuts elsewhere have rows of the whole width.
  void introduce_projection() {
    const ModelSpec& spec = start_.weights.spec;
    if (spec.projections.empty()) return;
    std::size_t projected = 0;
    for (std::size_t s = 0; s + 1 < pipeline_.stages.size(); ++s)
      projected += projection_behind(spec, pipeline_.stages[s].end - 1) != nullptr ? 1 : 0;
    lines_.push_back(
        fmt::format("boundaries: {} of {} between stages are projected: rows of {} "
                    "numbers instead of {}",
                    projected, pipeline_.stages.size() - 1, spec.projections.front().rank,
                    spec.projections.front().width));
  }

  void introduce_references(const char* section, const LinkSpec& link) {
    const auto* delta = std::get_if<Delta>(&link.memory);
    if (delta == nullptr) return;
    const auto replicas = static_cast<std::uint64_t>(config_.mesh.dp);
    const std::uint64_t samples = (samples_in(data_) + replicas - 1) / replicas;
    const std::uint64_t needed = reference_bytes(link, boundary(), samples);
    const auto budget = static_cast<double>(delta->budget_bytes);
    const double room = budget == 0 ? 1 : budget / static_cast<double>(needed);
    lines_.push_back(fmt::format(
        "references of {}: {} for {} samples at each end of a boundary, in {}{}", section,
        human_bytes(static_cast<double>(needed)), with_commas(static_cast<std::int64_t>(samples)),
        delta->folder.empty() ? kInRam : delta->folder,
        room >= 1 ? ""
                  : fmt::format("; {}.budget = {} has room for {:.0f} % of them, the "
                                "others travel as first visits every time",
                                section, human_bytes(budget), 100 * room)));
  }

  // What travels between the first two stages.
  const std::vector<SeamTensor>& boundary() const {
    const BlockRange& first = pipeline_.stages.front();
    return start_.weights.spec.blocks[static_cast<std::size_t>(first.end - 1)].out;
  }

  const RunConfig& config_;
  const CommonStart& common_;
  const Start& start_;
  const RowReader& reader_;
  const Dataset& data_;
  const PipelinePlan& pipeline_;
  World& world_;
  std::vector<std::string> lines_;
};

}  // namespace

std::vector<std::string> introduction(const IntroducedRun& run) {
  return Introduction(run).lines();
}

}  // namespace laconic
