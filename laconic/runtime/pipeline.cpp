#include "laconic/runtime/pipeline.hpp"

#include <ATen/ops/scalar_tensor.h>
#include <fmt/format.h>

#include <filesystem>

#include "laconic/base/clock.hpp"
#include "laconic/base/error.hpp"
#include "laconic/report/trace.hpp"
#include "laconic/schedule/lower.hpp"
#include "laconic/tensor/host.hpp"

namespace laconic {

namespace {

constexpr std::uint32_t kAllReceived = 0xFFF;  // tag part: the receiver will not ask any more
constexpr std::uint64_t kEvaluationsInFlight = 4;
constexpr std::uint64_t kEvaluationNumbers = 1 << 24;  // see EdgeMessage

bool is_delta(const LinkSpec& link) {
  return std::holds_alternative<Delta>(link.memory);
}

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

// This rank's ends of the two links between stage `edge` and the next.
struct Pipeline::Edge {
  Edge(Engine& engine, const PipelinePlan& plan, int number, Rank peer, bool is_upper)
      : sends_activations(!is_upper),
        has_gradient_delta(is_delta(plan.gradient)),
        tag{.traffic = Traffic::pp_gradient, .unit = static_cast<std::uint32_t>(number)},
        sender(engine, spec(engine, plan, number, peer, !is_upper)),
        receiver(engine, spec(engine, plan, number, peer, is_upper)) {}

  static EdgeSpec spec(const Engine& engine, const PipelinePlan& plan, int number, Rank peer,
                       bool is_activation) {
    return {.link = is_activation ? named(plan.activation, "pp.activation", number, engine.rank())
                                  : named(plan.gradient, "pp.gradient", number, engine.rank()),
            .traffic = is_activation ? Traffic::pp_activation : Traffic::pp_gradient,
            .edge = static_cast<std::uint32_t>(number),
            .peer = peer,
            .microbatches = plan.schedule.shape.microbatches};
  }

  bool sends_activations;  // and receives gradients
  bool has_gradient_delta;
  TagFields tag;
  std::vector<int> awaited;  // microbatches, in the order in which the list takes them
  EdgeSender sender;
  EdgeReceiver receiver;
};

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
    if (rank_of_stage(plan.schedule.shape, static_cast<int>(s)) == rank)
      for (std::int64_t b = plan.stages[s].begin; b < plan.stages[s].end; ++b)
        held[static_cast<std::size_t>(b)] = true;
  return held;
}

// What is under way in one step.
struct Pipeline::Walk {
  using Place = std::pair<int, int>;  // stage, microbatch

  Pipeline& pipeline;
  const PipelineStep& step;
  std::map<Place, at::Tensor> inputs;   // of forward: received or handed over
  std::map<Place, at::Tensor> outputs;  // to be sent
  std::map<Place, at::Tensor> above;    // gradients of outputs: received or handed over
  std::map<Place, at::Tensor> below;    // gradients of inputs: to be sent
  std::map<int, std::size_t> taken;     // by edge: messages received
  bool is_embedding_done = false, is_head_done = false;
  double loss = 0;

  const PipelineShape& shape() const { return pipeline.plan_.schedule.shape; }
  bool is_neighbour_here(int stage) const {
    return stage >= 0 && stage < shape().stages && rank_of_stage(shape(), stage) == pipeline.rank_;
  }
  static at::Tensor take(std::map<Place, at::Tensor>& from, Place place) {
    auto node = from.extract(place);
    return node.empty() ? at::Tensor() : std::move(node.mapped());
  }

  void act(const Action& action, bool completes_stage);
  void forward(const Action& a);
  void backward(const Action& a, bool completes_stage);
  void pass_down(const Action& a, at::Tensor gradient);
  Stage::AfterBlock hook(bool completes_stage);
  void complete(std::int64_t block);
  void announce(std::int64_t block) const;
  at::Tensor gradient_of_output(const Action& a);
  EdgeMessage message(const Action& a, int edge, bool is_activation) const;
  void send(const Action& a, bool is_activation);
  at::Tensor recv(const Action& a, bool is_activation);
  void prefetch();
};

void Pipeline::Walk::act(const Action& a, bool completes_stage) {
  const Place place{a.stage, a.microbatch};
  switch (a.op) {
    case Op::forward: return forward(a);
    case Op::backward: return backward(a, completes_stage);
    case Op::backward_input: {
      const Stopwatch watch;
      at::Tensor gradient =
          pipeline.stage_of(a.stage).backward_input(a.microbatch, gradient_of_output(a));
      pipeline.times_.backward_input.add(watch.seconds());
      return pass_down(a, std::move(gradient));
    }
    case Op::backward_weight: {
      const Stopwatch watch;
      pipeline.stage_of(a.stage).backward_weight(a.microbatch, hook(completes_stage));
      pipeline.times_.backward_weight.add(watch.seconds());
      return;
    }
    case Op::send_activation: return send(a, true);
    case Op::recv_activation: inputs[place] = recv(a, true); return;
    case Op::send_gradient: return send(a, false);
    case Op::recv_gradient: above[place] = recv(a, false); return;
    case Op::reduce_gradients: return;  // every block's has been announced by then
    case Op::prefetch: return prefetch();
  }
}

void Pipeline::Walk::forward(const Action& a) {
  const Place place{a.stage, a.microbatch};
  Stage& stage = pipeline.stage_of(a.stage);
  const Stopwatch watch;
  at::Tensor output =
      stage.forward(a.microbatch, step.inputs[static_cast<std::size_t>(a.microbatch)].microbatch,
                    take(inputs, place));
  if (stage.is_last()) loss += step.weight * output.item<double>();
  pipeline.times_.forward.add(watch.seconds());
  if (stage.is_last()) return;
  if (is_neighbour_here(a.stage + 1))
    inputs[{a.stage + 1, a.microbatch}] = std::move(output);
  else
    outputs[place] = std::move(output);
}

at::Tensor Pipeline::Walk::gradient_of_output(const Action& a) {
  if (a.stage + 1 < shape().stages) return take(above, {a.stage, a.microbatch});
  const at::Tensor& like = pipeline.gpt_.parameters.front().value;
  return at::scalar_tensor(step.weight, like.options().requires_grad(false));
}

Stage::AfterBlock Pipeline::Walk::hook(bool completes_stage) {
  if (!completes_stage) return {};
  return [this](std::int64_t block) { complete(block); };
}

// A rank that holds both ends has not got the tied gradient before both have added to it, and a
// schedule may put the head's W last.
void Pipeline::Walk::complete(std::int64_t block) {
  const std::int64_t head = block_count(pipeline.gpt_.shape) - 1;
  is_embedding_done |= block == 0;
  is_head_done |= block == head;
  if (block != 0) announce(block);
  const bool is_end = block == 0 || block == head;
  if (!is_end || !is_embedding_done || (!is_head_done && pipeline.gpt_.holds(head))) return;
  fold_tied_gradient(pipeline.gpt_);
  announce(0);
}

void Pipeline::Walk::announce(std::int64_t block) const {
  if (step.block_done) step.block_done(block);
}

void Pipeline::Walk::backward(const Action& a, bool completes_stage) {
  const Stopwatch watch;
  at::Tensor gradient = pipeline.stage_of(a.stage).backward(a.microbatch, gradient_of_output(a),
                                                            hook(completes_stage));
  pipeline.times_.backward.add(watch.seconds());
  pass_down(a, std::move(gradient));
}

void Pipeline::Walk::pass_down(const Action& a, at::Tensor gradient) {
  if (a.stage == 0) return;
  if (is_neighbour_here(a.stage - 1))
    above[{a.stage - 1, a.microbatch}] = std::move(gradient);
  else
    below[{a.stage, a.microbatch}] = std::move(gradient);
}

// Both ends evaluate this for the same message, from the same plan.
EdgeMessage Pipeline::Walk::message(const Action& a, int edge, bool is_activation) const {
  const GradientSends& encoded = pipeline.plan_.encoded;
  const bool is_whole =
      !is_activation && !encoded.empty() &&
      !encoded[static_cast<std::size_t>(edge)][static_cast<std::size_t>(a.microbatch)];
  return {.microbatch = a.microbatch,
          .use = is_whole ? Use::bypass : Use::train,
          .samples = step.inputs[static_cast<std::size_t>(a.microbatch)].samples};
}

void Pipeline::Walk::send(const Action& a, bool is_activation) {
  const int edge = is_activation ? a.stage : a.stage - 1;
  Edge& at = *pipeline.edge_at(edge);
  const at::Tensor tensor = take(is_activation ? outputs : below, {a.stage, a.microbatch});
  // Before all that only the next step waits for.
  const DeadlineKey key = deadline_key(step.step, 0, 0);
  at.sender.send(tensor, message(a, edge, is_activation), key);
}

at::Tensor Pipeline::Walk::recv(const Action& a, bool is_activation) {
  const int edge = is_activation ? a.stage - 1 : a.stage;
  Edge& at = *pipeline.edge_at(edge);
  const at::Tensor& like = pipeline.gpt_.parameters.front().value;
  const auto& input = step.inputs[static_cast<std::size_t>(a.microbatch)].microbatch;
  const TensorSpec expected{.dtype = dtype_of(like.scalar_type()),
                            .shape = {input.ids.numel(), pipeline.gpt_.shape.width}};
  const Stopwatch watch;
  at::Tensor tensor = at.receiver.recv(expected, like.device(), message(a, edge, is_activation),
                                       [this] { pipeline.serve(); });
  pipeline.times_.waiting += watch.seconds();
  if (!is_activation) at.sender.release(a.microbatch);  // its activation has been understood
  const std::size_t next = ++taken[edge];
  if (next < at.awaited.size()) at.receiver.post(at.awaited[next]);
  return tensor;
}

void Pipeline::Walk::prefetch() {
  for (const auto& [number, edge] : pipeline.edges_)
    for (const std::vector<std::uint64_t>& samples : step.next_samples) {
      edge->sender.link().prefetch(samples);
      edge->receiver.link().prefetch(samples);
    }
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
  for (int s = rank; s < shape.stages; s += shape.ranks)
    stages_[static_cast<std::size_t>(s)] =
        std::make_unique<Stage>(gpt, plan_.stages[static_cast<std::size_t>(s)], stage_options);
  for (std::size_t i = 0; i < list.size(); ++i)
    if (list[i].op == Op::backward || list[i].op == Op::backward_weight)
      last_gradient_[static_cast<std::size_t>(list[i].stage)] = i;
  for (int e = 0; e < edge_count(shape); ++e) {
    const int lower = rank_of_stage(shape, e), upper = rank_of_stage(shape, e + 1);
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
  settle(step.step);
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
  const PipelineShape& shape = plan_.schedule.shape;
  const at::Tensor& like = gpt_.parameters.front().value;
  const TensorSpec boundary{.dtype = dtype_of(like.scalar_type()),
                            .shape = {microbatch.ids.numel(), gpt_.shape.width}};
  const EdgeMessage message{.microbatch = static_cast<int>(number % kEvaluationNumbers),
                            .use = Use::bypass,
                            .is_evaluation = true};
  at::Tensor x;
  for (int s = rank_; s < shape.stages; s += shape.ranks) {
    if (s > 0 && edges_.contains(s - 1))
      x = edge_at(s - 1)->receiver.recv(boundary, like.device(), message, [this] { serve(); });
    x = stage_of(s).forward_only(microbatch, x);
    if (edges_.contains(s)) edge_at(s)->sender.send(x, message, 0);
  }
  // What has not left yet is in memory: let it not be everything.
  if (engine_ != nullptr && number % kEvaluationsInFlight == 0) engine_->flush();
  return stages_.back() != nullptr ? x.item<double>() : 0;
}

bool Pipeline::has_memory() const {
  return !edges_.empty() && (remembers(plan_.activation) || remembers(plan_.gradient));
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

std::vector<std::pair<int, double>> Pipeline::residual_norms() const {
  std::vector<std::pair<int, double>> norms;
  if (!std::holds_alternative<ErrorFeedback>(plan_.gradient.memory)) return norms;
  for (const auto& [number, edge] : edges_)
    if (!edge->sends_activations) norms.emplace_back(number, edge->sender.link().residual_norm());
  return norms;
}

}  // namespace laconic
