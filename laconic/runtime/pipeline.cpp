#include "laconic/runtime/pipeline.hpp"

#include <c10/core/GradMode.h>
#include <fmt/format.h>

#include "laconic/base/clock.hpp"
#include "laconic/base/error.hpp"
#include "laconic/grid/grid.hpp"
#include "laconic/grid/overlap.hpp"
#include "laconic/runtime/pipeline_walk.hpp"
#include "laconic/runtime/recorded_step.hpp"
#include "laconic/schedule/lower.hpp"

namespace laconic {

namespace {

constexpr std::uint32_t kAllReceived = 0xFFF;  // tag part: the receiver will not ask any more
constexpr std::uint64_t kEvaluationsInFlight = 4;
constexpr std::uint64_t kEvaluationNumbers = 1 << 24;  // see MessageSpec

// A codec_override may bring a codec that remembers, or take it away for a while.
bool has_memory_with(const CodecOverride& codec_override, LinkSpec link) {
  if (has_memory(link)) return true;
  if (!is_lossy(link)) return false;  // nothing comes there
  link.codec = effective_codec(codec_override, link.codec);
  return has_memory(link);
}

void to_standard_error(const std::string& text) {
  fmt::print(stderr, "laconic: {}\n", text);
}

}  // namespace

Pipeline::Pipeline(Weights& weights, PipelinePlan plan, Engine* engine, const Group& ranks,
                   int rank, const PipelineOptions& options)
    : weights_(weights), plan_(std::move(plan)), engine_(engine), rank_(rank), grid_(options.grid) {
  const PipelineShape& shape = plan_.schedule.shape;
  const std::vector<Action>& list = plan_.schedule.by_rank[static_cast<std::size_t>(rank)];
  StageOptions stage_options{.recompute = options.recompute, .trace = options.trace};
  for (const Action& a : list) stage_options.is_split |= a.op == Op::backward_weight;
  stages_.resize(static_cast<std::size_t>(shape.stages));
  last_gradient_.resize(stages_.size());
  for (const int s : stages_of_rank(plan_.schedule, rank))
    stages_[static_cast<std::size_t>(s)] =
        std::make_unique<Stage>(weights, plan_.stages[static_cast<std::size_t>(s)], stage_options);
  for (std::size_t i = 0; i < list.size(); ++i)
    if (list[i].op == Op::backward || list[i].op == Op::backward_weight)
      last_gradient_[static_cast<std::size_t>(list[i].stage)] = i;
  for (int e = 0; e < edge_count(shape); ++e) {
    const int lower = rank_of_stage(plan_.schedule, e),
              upper = rank_of_stage(plan_.schedule, e + 1);
    if (lower == upper || (lower != rank && upper != rank)) continue;
    const bool is_upper = upper == rank;
    edges_[e] =
        std::make_unique<Edge>(*engine, plan_, seam_at(e), e,
                               ranks[static_cast<std::size_t>(is_upper ? lower : upper)], is_upper);
  }
  for (const Action& a : list) {
    if (a.op == Op::recv_activation) edge_at(a.stage - 1)->awaited.push_back(a.microbatch);
    if (a.op == Op::recv_gradient) edge_at(a.stage)->awaited.push_back(a.microbatch);
  }
  if (options.records && engine == nullptr && shape.stages == 1 &&
      RecordedStep::can_record(weights))
    recorded_ = std::make_unique<RecordedStep>(
        weights, RecordedStep::Options{.trace = options.trace,
                                       .tell = options.tell ? options.tell : to_standard_error});
}

Pipeline::~Pipeline() = default;

Stage& Pipeline::stage_of(int stage) {
  return *stages_[static_cast<std::size_t>(stage)];
}

Pipeline::Edge* Pipeline::edge_at(int edge) {
  return edges_.at(edge).get();
}

Range Pipeline::stream_samples(std::int64_t samples) const {
  const GridPlace& place = weights_.place;
  const Axes rows = stream_of(place.plan).rows;
  return share_of(samples, extent(place.plan.mesh, rows),
                  index_along(place.plan.mesh, place.coord, rows));
}

at::TensorOptions Pipeline::options() const {
  return weights_.compute_options();
}

const std::vector<SeamTensor>& Pipeline::seam_at(int edge) const {
  const BlockRange& below = plan_.stages[static_cast<std::size_t>(edge)];
  return weights_.spec.blocks[static_cast<std::size_t>(below.end - 1)].out;
}

void Pipeline::flush() {
  for (const auto& [number, edge] : edges_)
    for (const auto& ends : edge->ends) ends->sender.drain();
  engine_->flush();
}

void Pipeline::serve() {
  for (const auto& [number, edge] : edges_)
    for (const auto& ends : edge->ends) ends->sender.serve();
}

StepLoss Pipeline::run(const PipelineStep& step) {
  LACONIC_ASSERT(static_cast<int>(step.inputs.size()) == plan_.schedule.shape.microbatches,
                 fmt::format("{} microbatches", step.inputs.size()));
  if (recorded_ == nullptr) return walk(step);
  return recorded_->run(step, [this](const PipelineStep& any) {
    try {
      return walk(any);
    } catch (...) {  // it may be walked again
      for (const auto& stage : stages_) stage->clear();
      throw;
    }
  });
}

std::uint64_t Pipeline::repeated() const {
  return recorded_ != nullptr ? recorded_->repeated() : 0;
}

StepLoss Pipeline::walk(const PipelineStep& step) {
  for (const auto& [number, edge] : edges_) edge->begin(step.step);
  const ComputeTimes before = times_;
  if (grid_ != nullptr) grid_->set_exact(step.is_shadow);
  Walk walk{.pipeline = *this, .step = step};
  walk.is_done.resize(weights_.spec.blocks.size());
  walk.is_announced.resize(weights_.spec.blocks.size());
  const std::vector<Action>& list = plan_.schedule.by_rank[static_cast<std::size_t>(rank_)];
  for (std::size_t i = 0; i < list.size(); ++i)
    walk.act(list[i], i == last_gradient_[static_cast<std::size_t>(list[i].stage)]);
  if (!step.is_shadow) settle(step.step);
  if (grid_ != nullptr) grid_->set_exact(false);
  if (step.is_shadow) times_ = before;
  return walk.loss;
}

// A sender of activations knows that they were understood, since their gradients came back. A
// sender of gradients must be told, if it may be asked for them again; bypassed ones never are.
void Pipeline::settle(std::uint64_t step) {
  const auto tag_of = [&](const Edge& edge) {
    TagFields fields = edge.tag;
    fields.number = step;
    fields.part = kAllReceived;
    return make_tag(fields);
  };
  const auto is_told = [](const Edge& edge) {
    return edge.has_gradient_delta && !edge.gradient.is_bypassed;
  };
  for (const auto& [number, edge] : edges_)
    if (is_told(*edge) && edge->sends_activations)
      engine_->send({.to = edge->peer,
                     .tag = tag_of(*edge),
                     .key = deadline_key(step, 0, 0),
                     .message = std::make_shared<const Bytes>()});
  for (const auto& [number, edge] : edges_) {
    if (!is_told(*edge) || edge->sends_activations) continue;
    try {
      wait_for(*engine_, edge->peer, tag_of(*edge), [this] { serve(); });
    } catch (const WireError&) {
      // Damaged on the way, but here: that it has come is all it says.
    }
  }
}

void Pipeline::commit() {
  if (grid_ != nullptr) grid_->commit();
  for (const auto& [number, edge] : edges_)
    for (const auto& ends : edge->ends) {
      ends->sender.commit();
      ends->receiver.commit();
    }
}

void Pipeline::abandon() {
  if (grid_ != nullptr) grid_->abandon();
  for (const auto& [number, edge] : edges_)
    for (const auto& ends : edge->ends) {
      ends->sender.abandon();
      ends->receiver.abandon();
    }
  for (const auto& stage : stages_)
    if (stage != nullptr) stage->clear();
}

Seam Pipeline::forward(const Batch& batch, std::uint64_t number, const BlockVisit& visit,
                       bool is_encoded) {
  const auto message = [&](const CodecOverride& codec_override) {
    const bool is_raw = !is_encoded || codec_override.is_bypassed;
    return MessageSpec{.number = static_cast<int>(number % kEvaluationNumbers),
                       .use = is_raw ? Use::evaluation : Use::encoded_evaluation};
  };
  Seam seam;
  for (const int s : stages_of_rank(plan_.schedule, rank_)) {
    if (edges_.contains(s - 1)) {
      Edge& edge = *edge_at(s - 1);
      seam = edge.recv(sized_for(batch, seam_at(s - 1)), stream_samples(batch.samples()).size(),
                       options(), message(edge.activation), [this] { serve(); });
    }
    const BlockRange& blocks = stage_of(s).blocks();
    GridPass on_grid(grid_, {PassKind::evaluation, blocks.begin});
    for (std::int64_t b = blocks.begin; b < blocks.end; ++b) seam = visit(b, seam);
    on_grid.end();
    if (edges_.contains(s)) edge_at(s)->send(seam, message(edge_at(s)->activation), 0);
  }
  // What has not left yet is in memory: let it not be everything.
  if (engine_ != nullptr && number % kEvaluationsInFlight == 0) flush();
  return stages_.back() != nullptr ? seam : Seam();
}

double Pipeline::evaluate(const Batch& batch, std::uint64_t number, const Pass& pass,
                          bool is_encoded) {
  const at::NoGradGuard no_grad;
  Pass on_grid = pass;
  on_grid.grid = grid_;
  if (grid_ != nullptr) {
    grid_->begin(0, number);  // what it draws is the same whenever it is made
    grid_->set_exact(!is_encoded);
  }
  const Seam loss = forward(
      batch, number,
      [&](std::int64_t block, const Seam& in) {
        return forward_block(weights_, block, in, batch, on_grid);
      },
      is_encoded);
  if (grid_ != nullptr) grid_->set_exact(false);
  return loss.empty() ? 0 : loss[0].item<double>();
}

void Pipeline::add_links(LinkRegistry& registry) {
  for (const auto& [number, edge] : edges_)
    for (const auto& ends : edge->ends) {
      const auto add = [&, number = number, edge = edge.get()](auto& end, const char* role,
                                                               LinkControl control) {
        const Traffic traffic = end.spec().traffic;
        const LinkSpec configured = link_at(plan_, traffic, number);
        control.traffic = traffic;
        control.name = end.spec().link.name + role;
        control.override_codec = [&end, configured, edge,
                                  traffic](const CodecOverride& codec_override) {
          if (is_lossy(configured))  // elsewhere raw stays raw
            end.set_codec(effective_codec(codec_override, configured.codec));
          edge->override_of(traffic) = codec_override;
        };
        control.has_memory = [configured, edge, traffic] {
          return has_memory_with(edge->override_of(traffic), configured);
        };
        control.save = [&end](const std::string& path) { end.link().save(path); };
        control.load = [&end](const std::string& path) { end.link().load(path); };
        registry.add(std::move(control));
      };
      EdgeSender& sender = ends->sender;
      add(sender, ".sender",
          {.measure_fidelity = [&sender](bool measures) { sender.measure_fidelity(measures); },
           .fidelity = [&sender] { return sender.fidelity(); }});
      add(ends->receiver, ".receiver", {});
    }
}

std::uint64_t Pipeline::repaired() const {
  std::uint64_t samples = 0;
  for (const auto& [number, edge] : edges_)
    for (const auto& ends : edge->ends) samples += ends->receiver.refused();
  return samples;
}

std::size_t Pipeline::kept() const {
  std::size_t messages = 0;
  for (const auto& [number, edge] : edges_)
    for (const auto& ends : edge->ends) messages += ends->sender.kept();
  return messages;
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
    total.prefetch_misses += stats.prefetch_misses;
    total.waits += stats.waits;
    total.seconds_waited += stats.seconds_waited;
  };
  for (const auto& [number, edge] : edges_)
    for (const auto& ends : edge->ends) {
      add(ends->sender.link().references());
      add(ends->receiver.link().references());
    }
  return total;
}

}  // namespace laconic
