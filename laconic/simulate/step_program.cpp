#include "laconic/simulate/step_program.hpp"

#include <algorithm>
#include <map>
#include <optional>

#include "laconic/base/index.hpp"
#include "laconic/engine/engine.hpp"
#include "laconic/policy/class_policy.hpp"
#include "laconic/schedule/lower.hpp"
#include "laconic/simulate/grid_program.hpp"
#include "laconic/simulate/held_model.hpp"
#include "laconic/simulate/seam_program.hpp"

namespace laconic {

namespace {

// What ranks tell each other of a step (update/step_reduction.hpp): a share, and squares of norms.
constexpr std::uint64_t kShareBytes = 40, kSquareBytes = 16;

// The sums of a step that a rank takes part in.
struct SumsOfStep {
  struct Part {
    std::vector<std::size_t> blocks;
    int strand = 0;
    std::size_t missing = 0;  // blocks that are not posted
  };
  std::vector<Part> parts;
  std::vector<int> shared;                // strands, as HeldModel::shared_sums()
  std::vector<std::size_t> shared_ready;  // parameters that are complete
};

struct RankWriter {
  int strand = 0;
  HeldModel held;
  std::vector<bool> is_done, is_announced;  // by block, of the step
  std::optional<SumsOfStep> sums, before;   // of this step, and of the one before
  std::vector<bool> is_owed;                // by block: an update of the step before
};

class StepWriter {
 public:
  StepWriter(ProgramBuilder& builder, const SimulationRequest& request)
      : builder_(builder),
        r_(request),
        mesh_(mesh_of(request.config)),
        schedule_(lowered(request.decisions.schedule)),
        stages_(ranges_of_split(request.decisions.split)),
        grid_(builder, request) {
    for (int rank = 0; rank < builder.classes().count(); ++rank)
      ranks_.push_back({.strand = builder.add_main(rank),
                        .held = HeldModel(request, builder.classes().first[index(rank)]),
                        .is_owed = std::vector<bool>(request.spec.blocks.size(), false)});
  }

  void write_step(std::uint64_t step) {
    step_ = step;
    messages_.clear();
    add_sums_of_step();
    add_control();
    for (int rank = 0; rank < static_cast<int>(ranks_.size()); ++rank) write_rank(rank);
  }

 private:
  RankWriter& at(int rank) { return ranks_[index(rank)]; }
  Coord coord(int rank) const { return coord_of(mesh_, builder_.classes().first[index(rank)]); }
  bool updates_by_block() const { return r_.config.train.update == UpdateBy::block; }
  bool is_late() const { return r_.config.dp_gradient.late > 0; }
  bool sums_moments() const {
    return r_.config.dp_gradient.method == GradientMethod::compressed_adam;
  }

  // --- sums, made for all members by the first of them

  bool is_first_of(const Group& group, int rank) const {
    return std::ranges::all_of(group,
                               [&](Rank member) { return builder_.class_of(member) >= rank; });
  }

  void add_sums_of_step() {
    for (RankWriter& writer : ranks_) {
      writer.before = std::move(writer.sums);
      writer.sums.emplace();
      writer.sums->shared.resize(writer.held.shared_sums().size());
      writer.sums->shared_ready.resize(writer.held.shared_sums().size());
    }
    for (int rank = 0; rank < static_cast<int>(ranks_.size()); ++rank) {
      const SumSetting setting = at(rank).held.replica_sums();
      if (is_first_of(setting.group, rank))
        for (const SumOperation& operation : add_sums(builder_, setting, step_))
          for (const auto& [member, strand] : operation.strands)
            at(member).sums->parts.push_back({operation.blocks, strand, operation.blocks.size()});
      add_shared_sums(rank);
    }
  }

  void add_shared_sums(int rank) {
    const auto& sets = at(rank).held.shared_sums();
    for (const HeldModel::SharedSum& set : sets) {
      if (!is_first_of(set.setting.group, rank)) continue;
      for (const SumOperation& operation : add_sums(builder_, set.setting, step_))
        for (const auto& [member, strand] : operation.strands) {
          const auto& theirs = at(member).held.shared_sums();
          for (std::size_t i = 0; i < theirs.size(); ++i)
            if (theirs[i].slot == set.slot) at(member).sums->shared[i] = strand;
        }
    }
  }

  // --- what all ranks tell all

  void add_control() {
    control_.clear();
    if (size(mesh_) == 1) return;
    CollectiveSpec spec{.kind = CollectiveKind::all_gather, .dtype = Dtype::u8, .offsets = {0}};
    for (Rank rank = 0; rank < size(mesh_); ++rank) {
      spec.group.push_back(rank);
      spec.offsets.push_back(spec.offsets.back() + note_bytes(rank));
    }
    control_ = add_collective(builder_, spec, 0);
  }

  // One replica speaks for all; a rank that has the whole gradient tells nothing of its norms.
  std::uint64_t note_bytes(Rank rank) {
    const Coord place = coord_of(mesh_, rank);
    const bool is_whole = mesh_.pp * tp_size(mesh_) == 1;
    if (is_whole || place.dp > 0 || sums_moments()) return kShareBytes;
    auto& known = spoken_for_[{place.pp, place.tp}];
    if (!known) known = static_cast<std::uint64_t>(HeldModel(r_, rank).spoken_for());
    return kShareBytes + kSquareBytes * *known;
  }

  // --- one rank

  void write_rank(int rank) {
    RankWriter& writer = at(rank);
    const std::size_t blocks = r_.spec.blocks.size();
    writer.is_done.assign(blocks, false);
    writer.is_announced.assign(blocks, false);
    const int span = builder_.begin_span(writer.strand, {rank, 0, static_cast<int>(step_), 'S'});
    if (is_late()) post_all(rank);  // what was kept of the step before
    const std::vector<Action>& list = schedule_.by_rank[index(coord(rank).pp)];
    std::map<int, std::size_t> last;  // by stage: its last B or W
    for (std::size_t i = 0; i < list.size(); ++i)
      if (list[i].op == Op::backward || list[i].op == Op::backward_weight) last[list[i].stage] = i;
    for (std::size_t i = 0; i < list.size(); ++i) {
      const auto found = last.find(list[i].stage);
      act(rank, list[i], found != last.end() && found->second == i);
    }
    end_step(rank);
    builder_.end_span(writer.strand, span);
  }

  void act(int rank, const Action& a, bool completes_stage) {
    switch (a.op) {
      case Op::forward:
      case Op::backward:
      case Op::backward_input:
      case Op::backward_weight: return compute(rank, a, completes_stage);
      case Op::send_activation: return send(rank, a, true);
      case Op::recv_activation: return receive(rank, a, true);
      case Op::send_gradient: return send(rank, a, false);
      case Op::recv_gradient: return receive(rank, a, false);
      case Op::prefetch: return;
    }
  }

  // --- computing

  void compute(int rank, const Action& a, bool completes_stage) {
    RankWriter& writer = at(rank);
    const char kinds[] = {'F', 'B', 'I', 'W'};
    const int span = builder_.begin_span(
        writer.strand, {rank, a.stage, a.microbatch, kinds[static_cast<std::size_t>(a.op)]});
    const BlockRange& range = stages_[index(a.stage)];
    const bool is_forward = a.op == Op::forward;
    for (std::int64_t i = 0; i < range.end - range.begin; ++i) {
      const std::int64_t block = is_forward ? range.begin + i : range.end - 1 - i;
      const auto b = static_cast<std::size_t>(block);
      if (is_forward && updates_by_block()) update_block(rank, b);
      compute_block(rank, a, block);
      if (completes_stage) complete(rank, b);
    }
    builder_.end_span(writer.strand, span);
  }

  void compute_block(int rank, const Action& a, std::int64_t block) {
    const int strand = at(rank).strand;
    const bool is_forward = a.op == Op::forward;
    const WorkKind work = is_forward ? WorkKind::forward : WorkKind::backward;
    if (!grid_.is_trivial()) return walk_grid(rank, a, block);
    const BlockTimes times = times_of(rank, static_cast<std::size_t>(block));
    const double share = a.op == Op::backward_input || a.op == Op::backward_weight ? 0.5 : 1;
    builder_.compute(strand, work, is_forward ? times.forward : share * times.backward);
  }

  BlockTimes times_of(int rank, std::size_t block) const {
    const BlockSpec& spec = r_.spec.blocks[block];
    const bool recomputes = r_.config.model.recompute && !spec.out.empty();
    BlockTimes times;
    if (r_.blocks.empty()) {
      const double samples =
          static_cast<double>(r_.config.microbatch_size()) + builder_.pass_samples(rank);
      times.forward = builder_.multiply_add_seconds(rank, spec.multiply_adds * samples);
      times.backward = 2 * times.forward;
    } else {
      times = r_.blocks[block];
    }
    if (recomputes) times.backward += times.forward;
    return times;
  }

  // Collectives start and are waited for as grid_time.hpp says.
  void walk_grid(int rank, const Action& a, std::int64_t block) {
    const int strand = at(rank).strand;
    const bool is_backward = a.op != Op::forward;
    const WorkKind work = is_backward ? WorkKind::backward : WorkKind::forward;
    const auto pass = step_ << 32 | static_cast<std::uint64_t>(a.microbatch);
    for (const GridEvent& event : grid_.events(a.stage, block, is_backward)) switch (event.kind) {
        case GridEvent::Kind::product:
        case GridEvent::Kind::other:
          builder_.compute(strand, work, builder_.multiply_add_seconds(rank, event.multiply_adds));
          break;
        case GridEvent::Kind::start:
          builder_.start(strand, grid_.strand_of(rank, event, a.stage, pass));
          break;
        case GridEvent::Kind::wait:
          builder_.join(strand, grid_.strand_of(rank, event, a.stage, pass));
          break;
      }
  }

  // --- between stages

  struct SeamKey {
    int replica;  // the class of the sender
    int edge, microbatch;
    bool is_activation;
    auto operator<=>(const SeamKey&) const = default;
  };

  bool is_raw(int edge, int microbatch, bool is_activation) const {
    const GradientSends& encoded = r_.decisions.encoded;
    return !is_activation && !encoded.empty() && !encoded[index(edge)][index(microbatch)];
  }

  // The class at another place of the same pipeline.
  int neighbour_class(int rank, int stage) const {
    Coord other = coord(rank);
    other.pp = rank_of_stage(schedule_, stage);
    return builder_.class_of(rank_of(mesh_, other));
  }

  // Whichever end comes first makes the messages.
  const std::vector<int>& seam(int from, int to, int edge, int microbatch, bool is_activation) {
    auto [found, is_new] = messages_.try_emplace({from, edge, microbatch, is_activation});
    if (is_new)
      for (const SeamMessage& message :
           seam_messages(r_, builder_.classes().first[index(from)], edge, is_activation,
                         is_raw(edge, microbatch, is_activation)))
        found->second.push_back(builder_.add_message(
            from, to,
            {.traffic = is_activation ? Traffic::pp_activation : Traffic::pp_gradient,
             .key = deadline_key(step_, 0, 0),
             .message_bytes = message.bytes,
             .edge = edge,
             .microbatch = microbatch}));
    return found->second;
  }

  void send(int rank, const Action& a, bool is_activation) {
    const int edge = is_activation ? a.stage : a.stage - 1;
    const int to = neighbour_class(rank, is_activation ? a.stage + 1 : a.stage - 1);
    const std::vector<int>& messages = seam(rank, to, edge, a.microbatch, is_activation);
    const auto costs = seam_messages(r_, builder_.classes().first[index(rank)], edge, is_activation,
                                     is_raw(edge, a.microbatch, is_activation));
    for (std::size_t i = 0; i < messages.size(); ++i) {
      builder_.compute(at(rank).strand, WorkKind::codec,
                       builder_.encode_seconds(rank, costs[i].codec, costs[i].elements));
      builder_.send(at(rank).strand, messages[i]);
    }
  }

  void receive(int rank, const Action& a, bool is_activation) {
    const int edge = is_activation ? a.stage - 1 : a.stage;
    const int from = neighbour_class(rank, is_activation ? a.stage - 1 : a.stage + 1);
    const std::vector<int>& messages = seam(from, rank, edge, a.microbatch, is_activation);
    const auto costs = seam_messages(r_, builder_.classes().first[index(from)], edge, is_activation,
                                     is_raw(edge, a.microbatch, is_activation));
    for (std::size_t i = 0; i < messages.size(); ++i) {
      builder_.wait(at(rank).strand, messages[i]);
      builder_.compute(at(rank).strand, WorkKind::codec,
                       builder_.decode_seconds(rank, costs[i].codec, costs[i].elements));
    }
  }

  // --- gradients leave

  // A block that completes a parameter which others use, too, waits for those.
  void complete(int rank, std::size_t block) {
    RankWriter& writer = at(rank);
    writer.is_done[block] = true;
    announce_if_complete(rank, block);
    for (const std::size_t p : r_.spec.blocks[block].uses)
      announce_if_complete(rank, writer.held.completing_block(p));
  }

  void announce_if_complete(int rank, std::size_t block) {
    RankWriter& writer = at(rank);
    if (writer.is_announced[block] || !writer.is_done[block]) return;
    for (const std::size_t p : writer.held.completed_by(block))
      for (const std::size_t user : writer.held.users_here(p))
        if (!writer.is_done[user]) return;
    writer.is_announced[block] = true;
    const auto bytes = static_cast<double>(bytes_of(r_.config.run.master_type()));
    if (size(mesh_) > 1)
      builder_.compute(
          writer.strand, WorkKind::handling,
          builder_.copy_seconds(rank, bytes * writer.held.elements_completed_by(block)));
    if (r_.config.dp_gradient.overlap && !sums_moments() && !is_late()) post(rank, block);
  }

  void post(int rank, std::size_t block) {
    RankWriter& writer = at(rank);
    if (writer.held.is_fused()) post_shared_of(rank, block);
    for (SumsOfStep::Part& part : writer.sums->parts)
      if (std::ranges::find(part.blocks, block) != part.blocks.end() && --part.missing == 0)
        builder_.start(writer.strand, part.strand);
  }

  void post_shared_of(int rank, std::size_t block) {
    RankWriter& writer = at(rank);
    const auto& sets = writer.held.shared_sums();
    for (std::size_t i = 0; i < sets.size(); ++i) {
      std::size_t& ready = writer.sums->shared_ready[i];
      const std::size_t before = ready;
      for (const std::size_t p : sets[i].parameters)
        ready += writer.held.completing_block(p) == block ? 1 : 0;
      if (ready > before && ready == sets[i].parameters.size())
        builder_.start(writer.strand, writer.sums->shared[i]);
    }
  }

  void post_all(int rank) {
    const std::vector<std::size_t>& blocks = at(rank).held.blocks();
    for (auto block = blocks.rbegin(); block != blocks.rend(); ++block) post(rank, *block);
  }

  // --- the end of a step

  void end_step(int rank) {
    RankWriter& writer = at(rank);
    if (updates_by_block()) {
      if (!r_.config.dp_gradient.overlap) post_all(rank);
      for (const std::size_t block : writer.held.blocks()) writer.is_owed[block] = true;
      // What it amounted to is asked for a step later, when it has long been there.
      if (!control_.empty()) builder_.start(writer.strand, control_.at(rank));
      return;
    }
    if (sums_moments()) {
      tell(rank);
      post_all(rank);
      wait_for_sums(rank);
    } else {
      if (!r_.config.dp_gradient.overlap && !is_late()) post_all(rank);
      const bool is_whole = mesh_.pp * tp_size(mesh_) == 1;
      if (is_whole) tell(rank);
      wait_for_sums(rank);
      if (!is_whole) tell(rank);
    }
    const int span = builder_.begin_span(writer.strand, {rank, 0, 0, 'U'});
    builder_.compute(writer.strand, WorkKind::update,
                     builder_.update_seconds(rank, writer.held.elements()));
    builder_.end_span(writer.strand, span);
  }

  void tell(int rank) {
    if (control_.empty()) return;
    builder_.start(at(rank).strand, control_.at(rank));
    builder_.join(at(rank).strand, control_.at(rank));
  }

  void wait_for_sums(int rank) {
    RankWriter& writer = at(rank);
    for (const SumsOfStep::Part& part : writer.sums->parts)
      builder_.join(writer.strand, part.strand);
    for (const int strand : writer.sums->shared) {
      if (!writer.held.is_fused()) builder_.start(writer.strand, strand);
      builder_.join(writer.strand, strand);
    }
  }

  // What forward of a block waits for, of the step before.
  void update_block(int rank, std::size_t block) {
    RankWriter& writer = at(rank);
    if (!writer.before) return;
    for (const std::size_t p : r_.spec.blocks[block].uses) {
      const std::size_t completing = writer.held.completing_block(p);
      if (!writer.is_owed[completing]) continue;
      writer.is_owed[completing] = false;
      for (const SumsOfStep::Part& part : writer.before->parts)
        if (std::ranges::find(part.blocks, completing) != part.blocks.end())
          builder_.join(writer.strand, part.strand);
      join_shared_of(rank, completing);
      builder_.compute(
          writer.strand, WorkKind::update,
          builder_.update_seconds(rank, writer.held.elements_completed_by(completing)));
    }
  }

  void join_shared_of(int rank, std::size_t block) {
    RankWriter& writer = at(rank);
    const auto& sets = writer.held.shared_sums();
    for (std::size_t i = 0; i < sets.size(); ++i)
      if (std::ranges::any_of(sets[i].parameters, [&](std::size_t p) {
            return writer.held.completing_block(p) == block;
          }))
        builder_.join(writer.strand, writer.before->shared[i]);
  }

  ProgramBuilder& builder_;
  const SimulationRequest& r_;
  const Mesh mesh_;
  const Schedule schedule_;
  const std::vector<BlockRange> stages_;
  GridProgram grid_;
  std::vector<RankWriter> ranks_;
  std::uint64_t step_ = 0;
  ExchangeStrands control_;
  std::map<SeamKey, std::vector<int>> messages_;
  std::map<std::pair<int, std::array<int, 3>>, std::optional<std::uint64_t>> spoken_for_;
};

}  // namespace

void add_steps(ProgramBuilder& builder, const SimulationRequest& request, int steps) {
  StepWriter writer(builder, request);
  for (int step = 0; step < steps; ++step) writer.write_step(static_cast<std::uint64_t>(step));
}

}  // namespace laconic
