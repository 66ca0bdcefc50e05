#include "laconic/runtime/pipeline.hpp"

#include <fmt/format.h>

#include <filesystem>

#include "laconic/base/clock.hpp"
#include "laconic/base/error.hpp"
#include "laconic/runtime/pipeline_walk.hpp"
#include "laconic/schedule/lower.hpp"
#include "laconic/tensor/host.hpp"

namespace laconic {

namespace {

constexpr std::uint32_t kAllReceived = 0xFFF;  // tag part: the receiver will not ask any more
constexpr std::uint64_t kEvaluationsInFlight = 4;
constexpr std::uint64_t kEvaluationNumbers = 1 << 24;  // see EdgeMessage

// Low rank starts each power step from the last one, also where nothing else is remembered.
bool remembers(const LinkSpec& link) {
  return !std::holds_alternative<NoMemory>(link.memory) ||
         std::holds_alternative<LowRank>(link.codec);
}

// The link of one edge. Ranks of one machine may be given the same folder.
LinkSpec named(LinkSpec link, const char* traffic, int edge, Rank rank) {
  link.name = fmt::format("{}.{}", traffic, edge);
  if (auto* delta = std::get_if<Delta>(&link.memory); delta != nullptr && !delta->folder.empty()) {
    delta->folder += fmt::format("/rank-{:05}", rank);
    std::error_code error;
    std::filesystem::create_directories(delta->folder, error);
    if (error)
      throw ConfigError(
          {{fmt::format("{}.store", traffic), fmt::format("rank {} cannot make the folder {}: {}",
                                                          rank, delta->folder, error.message())}});
  }
  return link;
}

}  // namespace

EdgeSpec Pipeline::Edge::spec(const Engine& engine, const PipelinePlan& plan, int number, Rank peer,
                              bool is_activation) {
  return {.link = is_activation ? named(plan.activation, "pp.activation", number, engine.rank())
                                : named(plan.gradient, "pp.gradient", number, engine.rank()),
          .traffic = is_activation ? Traffic::pp_activation : Traffic::pp_gradient,
          .edge = static_cast<std::uint32_t>(number),
          .peer = peer,
          .microbatches = plan.schedule.shape.microbatches};
}

PipelinePlan plan_for_one(const GptShape& shape, int microbatches) {
  return {.schedule = lowered(one_forward_one_backward({1, 1, microbatches})),
          .stages = {{0, block_count(shape)}},
          .encoded = {},
          .activation = {},
          .gradient = {}};
}

HeldBlocks held_blocks(const PipelinePlan& plan, std::int64_t blocks, int rank) {
  HeldBlocks held(static_cast<std::size_t>(blocks), false);
  for (std::size_t s = 0; s < plan.stages.size(); ++s)
    if (rank_of_stage(plan.schedule, static_cast<int>(s)) == rank)
      for (std::int64_t b = plan.stages[s].begin; b < plan.stages[s].end; ++b)
        held[static_cast<std::size_t>(b)] = true;
  return held;
}

Pipeline::Pipeline(const Gpt& gpt, PipelinePlan plan, Engine* engine, const Group& ranks, int rank,
                   const PipelineOptions& options)
    : gpt_(gpt), plan_(std::move(plan)), engine_(engine), rank_(rank) {
  const PipelineShape& shape = plan_.schedule.shape;
  const std::vector<Action>& list = plan_.schedule.by_rank[static_cast<std::size_t>(rank)];
  StageOptions stage_options{.recompute = options.recompute, .trace = options.trace};
  for (const Action& a : list) stage_options.is_split |= a.op == Op::backward_weight;
  stages_.resize(static_cast<std::size_t>(shape.stages));
  last_gradient_.resize(stages_.size());
  for (const int s : stages_of_rank(plan_.schedule, rank))
    stages_[static_cast<std::size_t>(s)] =
        std::make_unique<Stage>(gpt, plan_.stages[static_cast<std::size_t>(s)], stage_options);
  for (std::size_t i = 0; i < list.size(); ++i)
    if (list[i].op == Op::backward || list[i].op == Op::backward_weight)
      last_gradient_[static_cast<std::size_t>(list[i].stage)] = i;
  for (int e = 0; e < edge_count(shape); ++e) {
    const int lower = rank_of_stage(plan_.schedule, e),
              upper = rank_of_stage(plan_.schedule, e + 1);
    if (lower == upper || (lower != rank && upper != rank)) continue;
    const bool is_upper = upper == rank;
    edges_[e] = std::make_unique<Edge>(
        *engine, plan_, e, ranks[static_cast<std::size_t>(is_upper ? lower : upper)], is_upper);
  }
  for (const Action& a : list) {
    if (a.op == Op::recv_activation) edge_at(a.stage - 1)->awaited.push_back(a.microbatch);
    if (a.op == Op::recv_gradient) edge_at(a.stage)->awaited.push_back(a.microbatch);
  }
}

Pipeline::~Pipeline() = default;

Stage& Pipeline::stage_of(int stage) {
  return *stages_[static_cast<std::size_t>(stage)];
}

Pipeline::Edge* Pipeline::edge_at(int edge) {
  return edges_.at(edge).get();
}

void Pipeline::serve() {
  for (const auto& [number, edge] : edges_) edge->sender.serve();
}

double Pipeline::run(const PipelineStep& step) {
  LACONIC_ASSERT(static_cast<int>(step.inputs.size()) == plan_.schedule.shape.microbatches,
                 fmt::format("{} microbatches", step.inputs.size()));
  for (const auto& [number, edge] : edges_) {
    edge->sender.begin(step.step);
    edge->receiver.begin(step.step);
    edge->receiver.post(edge->awaited.front());
  }
  const ComputeTimes before = times_;
  Walk walk{.pipeline = *this,
            .step = step,
            .inputs = {},
            .outputs = {},
            .above = {},
            .below = {},
            .taken = {}};
  const std::vector<Action>& list = plan_.schedule.by_rank[static_cast<std::size_t>(rank_)];
  for (std::size_t i = 0; i < list.size(); ++i)
    walk.act(list[i], i == last_gradient_[static_cast<std::size_t>(list[i].stage)]);
  // Whole gradients are not asked for again.
  if (!step.is_shadow && !treatment_of(Traffic::pp_gradient).is_bypassed) settle(step.step);
  if (step.is_shadow) times_ = before;
  return walk.loss;
}

// Of activations the sender knows that they were understood, since their gradients came back. Of
// gradients it must be told, if it may be asked for them again.
void Pipeline::settle(std::uint64_t step) {
  for (const auto& [number, edge] : edges_) {
    if (!edge->has_gradient_delta) continue;
    TagFields fields = edge->tag;
    fields.number = step;
    fields.part = kAllReceived;
    const Rank peer = edge->sender.spec().peer;
    if (edge->sends_activations)
      engine_->send({.to = peer,
                     .tag = make_tag(fields),
                     .key = deadline_key(step, 0, 0),
                     .message = std::make_shared<const Bytes>()});
  }
  for (const auto& [number, edge] : edges_) {
    if (!edge->has_gradient_delta || edge->sends_activations) continue;
    TagFields fields = edge->tag;
    fields.number = step;
    fields.part = kAllReceived;
    try {
      wait_for(*engine_, edge->sender.spec().peer, make_tag(fields), [this] { serve(); });
    } catch (const WireError&) {
      // Damaged on the way, but here: that it has come is all it says.
    }
  }
}

void Pipeline::commit() {
  for (const auto& [number, edge] : edges_) {
    edge->sender.commit();
    edge->receiver.commit();
  }
}

void Pipeline::abandon() {
  for (const auto& [number, edge] : edges_) {
    edge->sender.abandon();
    edge->receiver.abandon();
  }
  for (const auto& stage : stages_)
    if (stage != nullptr) stage->clear();
}

double Pipeline::evaluate(const Microbatch& microbatch, std::uint64_t number) {
  const at::Tensor& like = gpt_.parameters.front().value;
  const TensorSpec boundary{.dtype = dtype_of(like.scalar_type()),
                            .shape = {microbatch.ids.numel(), gpt_.shape.width}};
  const EdgeMessage message{.microbatch = static_cast<int>(number % kEvaluationNumbers),
                            .use = Use::bypass,
                            .is_evaluation = true};
  at::Tensor x;
  for (const int s : stages_of_rank(plan_.schedule, rank_)) {
    if (s > 0 && edges_.contains(s - 1))
      x = edge_at(s - 1)->receiver.recv(boundary, like.device(), message, [this] { serve(); });
    x = stage_of(s).forward_only(microbatch, x);
    if (edges_.contains(s)) edge_at(s)->sender.send(x, message, 0);
  }
  // What has not left yet is in memory: let it not be everything.
  if (engine_ != nullptr && number % kEvaluationsInFlight == 0) engine_->flush();
  return stages_.back() != nullptr ? x.item<double>() : 0;
}

void Pipeline::watch(bool looks) {
  for (const auto& [number, edge] : edges_) edge->sender.watch(looks);
}

std::map<Traffic, Fidelity> Pipeline::seen() const {
  std::map<Traffic, Fidelity> all;
  for (const auto& [number, edge] : edges_)
    if (edge->sender.seen().messages > 0) all[edge->sender.spec().traffic] += edge->sender.seen();
  return all;
}

Treatment Pipeline::treatment_of(Traffic traffic) const {
  const auto found = treatments_.find(traffic);
  return found == treatments_.end() ? Treatment{} : found->second;
}

void Pipeline::treat(Traffic traffic, const Treatment& treatment) {
  const bool is_activation = traffic == Traffic::pp_activation;
  if (!is_activation && traffic != Traffic::pp_gradient) return;
  const CodecSpec codec =
      codec_under(treatment, is_activation ? plan_.activation.codec : plan_.gradient.codec);
  for (const auto& [number, edge] : edges_) {
    if (edge->sends_activations == is_activation)
      edge->sender.recode(codec);
    else
      edge->receiver.recode(codec);
  }
  treatments_[traffic] = treatment;
}

// A treatment may bring a codec that remembers, or take it away for a while.
bool Pipeline::has_memory() const {
  const auto remembers_now = [&](LinkSpec link, Traffic traffic) {
    if (remembers(link)) return true;
    link.codec = codec_under(treatment_of(traffic), link.codec);
    return remembers(link);
  };
  return !edges_.empty() && (remembers_now(plan_.activation, Traffic::pp_activation) ||
                             remembers_now(plan_.gradient, Traffic::pp_gradient));
}

void Pipeline::save(const std::string& prefix) {
  for (const auto& [number, edge] : edges_) {
    edge->sender.link().save(prefix + edge->sender.spec().link.name + ".sender");
    edge->receiver.link().save(prefix + edge->receiver.spec().link.name + ".receiver");
  }
}

void Pipeline::load(const std::string& prefix) {
  for (const auto& [number, edge] : edges_) {
    edge->sender.link().load(prefix + edge->sender.spec().link.name + ".sender");
    edge->receiver.link().load(prefix + edge->receiver.spec().link.name + ".receiver");
  }
}

std::uint64_t Pipeline::repaired() const {
  std::uint64_t samples = 0;
  for (const auto& [number, edge] : edges_) samples += edge->receiver.refused();
  return samples;
}

DeltaStoreStats Pipeline::references() {
  DeltaStoreStats total;
  const auto add = [&](DeltaStore* store) {
    if (store == nullptr) return;
    const DeltaStoreStats stats = store->stats();
    total.records += stats.records;
    total.bytes += stats.bytes;
    total.ram_bytes += stats.ram_bytes;
    total.refused += stats.refused;
    total.prefetch_hits += stats.prefetch_hits;
    total.waits += stats.waits;
    total.seconds_waited += stats.seconds_waited;
  };
  for (const auto& [number, edge] : edges_) {
    add(edge->sender.link().references());
    add(edge->receiver.link().references());
  }
  return total;
}

}  // namespace laconic
