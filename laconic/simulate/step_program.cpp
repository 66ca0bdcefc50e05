#include "laconic/simulate/step_program.hpp"

#include <algorithm>
#include <map>
#include <optional>

#include "laconic/base/index.hpp"
#include "laconic/config/row_choice.hpp"
#include "laconic/engine/engine.hpp"
#include "laconic/reduce/sparse_change.hpp"
#include "laconic/schedule/lower.hpp"
#include "laconic/simulate/grid_program.hpp"
#include "laconic/simulate/rank_work.hpp"
#include "laconic/simulate/row_program.hpp"
#include "laconic/simulate/seam_program.hpp"
#include "laconic/simulate/step_notes.hpp"
#include "laconic/simulate/step_sums.hpp"

namespace laconic {

namespace {

constexpr double kNormBytes = 8;  // of rows, which all ranks tell each other

struct RankWriter {
  int strand = 0;
  std::vector<bool> is_done, is_announced;  // by block, of the step
  std::vector<bool> is_owed;                // by block: an update of the step before
  std::vector<bool> has_begun;              // by block, of the step
  std::vector<bool> is_under_way;           // by fragment of changes
};

std::vector<HeldModel> held_models(const ProgramBuilder& builder, const SimulationRequest& request,
                                   bool is_fused) {
  std::vector<HeldModel> held;
  for (const Rank first : builder.classes().first) held.emplace_back(request, first, is_fused);
  return held;
}

bool fuses_gradients(const RunConfig& config) {
  return config.embedding_tied.fused ||
         config.dp_gradient.method == GradientMethod::compressed_adam;
}

// Where all sums are late, that of the table is no other.
bool has_late_table(const RunConfig& config) {
  return config.embedding_tied.late > 0 && config.dp_gradient.late == 0;
}

class StepWriter {
 public:
  StepWriter(ProgramBuilder& builder, const SimulationRequest& request)
      : builder_(builder),
        r_(request),
        mesh_(request.mesh),
        schedule_(lowered(request.decisions.schedule)),
        stages_(ranges_of_split(request.decisions.split)),
        grid_(builder, request),
        seams_(builder, request, schedule_),
        notes_(builder, request),
        rows_(builder, request),
        passes_(parameter_passes(request.config.local)),
        fragments_(fragments_of(request.config.local,
                                static_cast<std::int64_t>(request.spec.blocks.size()))),
        sums_(builder, held_models(builder, request, fuses_gradients(request.config)),
              has_late_table(request.config)) {
    for (int rank = 0; rank < builder.classes().count(); ++rank)
      ranks_.push_back({.strand = builder.add_main(rank),
                        .is_owed = std::vector<bool>(request.spec.blocks.size(), false)});
    if (request.config.local.steps == 0) return;
    own_.emplace(builder, held_models(builder, request, false));
    const std::int64_t count = fragment_count(fragments_);
    changes_.reserve(index(static_cast<int>(count)));
    for (std::int64_t f = 0; f < count; ++f)
      changes_.emplace_back(builder, held_models(builder, request, false));
    for (RankWriter& writer : ranks_) writer.is_under_way.assign(changes_.size(), false);
  }

  void write_step(std::uint64_t step, const LocalStep& kind) {
    step_ = step;
    kind_ = kind;
    seams_.begin(step);
    rows_.begin(step);
    if (kind.is_together)
      sums_.begin(step);
    else
      own_->begin(step, StepSums::Which::shared);
    for (std::size_t f = 0; f < changes_.size(); ++f)
      if (leaves(f)) begin_changes(f);
    begin_notes();
    for (int rank = 0; rank < static_cast<int>(ranks_.size()); ++rank) write_rank(rank);
  }

 private:
  RankWriter& at(int rank) { return ranks_[index(rank)]; }
  const HeldModel& held(int rank) const { return sums_.held(rank); }
  Coord coord(int rank) const { return coord_of(mesh_, builder_.classes().first[index(rank)]); }
  bool updates_by_block() const { return r_.config.train.update == UpdateBy::block; }
  bool is_late() const { return r_.config.dp_gradient.late > 0; }
  bool is_local() const { return r_.config.local.steps > 0; }
  bool is_whole() const { return mesh_.pp * tp_size(mesh_) == 1; }
  bool sums_moments() const {
    return r_.config.dp_gradient.method == GradientMethod::compressed_adam;
  }
  // Gradients leave as they come; not beside changes that are under way.
  bool posts_early() const {
    return kind_.is_together && r_.config.dp_gradient.overlap && !sums_moments() && !is_late() &&
           r_.config.local.overlap == 0;
  }

  // --- what ranks tell each other

  // One replica speaks for all; a rank that has the whole gradient tells nothing of its norms,
  // unless it is about to go alone.
  void begin_notes() {
    const bool tells_norms = is_local() || !(is_whole() || sums_moments());
    common_notes_ = own_notes_ = norm_notes_ = {};
    if (kind_.is_together)
      common_notes_ = notes_.among_all(tells_norms ? StepNotes::Squares::first_replica
                                                   : StepNotes::Squares::none);
    else
      own_notes_ = notes_.in_replicas();
    if (!kind_.is_together && kind_.ends_round)
      common_notes_ = notes_.among_all(StepNotes::Squares::none);
    const bool needs_norms = r_.config.embedding_rows.clip == RowsClip::all &&
                             !splits_rows(r_.config) && !updates_by_block();
    if (rows_.is_used() && needs_norms) norm_notes_ = notes_.among_all_of(kNormBytes);
  }

  void tell(int rank, const ExchangeStrands& notes) {
    const auto note = notes.find(rank);
    if (note == notes.end()) return;
    builder_.start(at(rank).strand, note->second);
    builder_.join(at(rank).strand, note->second);
  }

  // --- one rank

  void write_rank(int rank) {
    RankWriter& writer = at(rank);
    const std::size_t blocks = r_.spec.blocks.size();
    writer.is_done.assign(blocks, false);
    writer.is_announced.assign(blocks, false);
    writer.has_begun.assign(blocks, false);
    const int span = builder_.begin_span(writer.strand, {rank, 0, static_cast<int>(step_), 'S'});
    // What was kept of the step before.
    if (is_late()) sums_.post_all(rank, writer.strand);
    if (has_late_table(r_.config)) sums_.post_shared(rank, writer.strand);
    rows_.request(rank, writer.strand);
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
      case Op::send_activation:
      case Op::send_gradient: return seams_.send(rank, at(rank).strand, a);
      case Op::recv_activation:
      case Op::recv_gradient: return seams_.receive(rank, at(rank).strand, a);
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
      if (is_forward) begin_block(rank, b);
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
      const double norms = builder_.element_seconds(
          rank, grid_normed_elements(r_.spec, {}, block, r_.config.microbatch_size()));
      times.forward += norms / 3;
      times.backward += 2 * norms / 3;
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
          builder_.compute(strand, work,
                           builder_.multiply_add_seconds(rank, event.multiply_adds) +
                               builder_.element_seconds(rank, event.elements));
          break;
        case GridEvent::Kind::start:
          builder_.start(strand, grid_.strand_of(rank, event, a.stage, pass));
          break;
        case GridEvent::Kind::wait:
          builder_.join(strand, grid_.strand_of(rank, event, a.stage, pass));
          break;
      }
  }

  // Before a block's first forward: what it waits for.
  void begin_block(int rank, std::size_t block) {
    RankWriter& writer = at(rank);
    if (writer.has_begun[block]) return;
    writer.has_begun[block] = true;
    rows_.look_up(rank, writer.strand, block);
    if (updates_by_block()) update_block(rank, block);
  }

  // --- gradients leave

  // A block that completes a parameter which others use, too, waits for those.
  void complete(int rank, std::size_t block) {
    RankWriter& writer = at(rank);
    if (std::ranges::find(writer.is_done, true) == writer.is_done.end())
      rows_.begin_backward(rank, writer.strand);
    writer.is_done[block] = true;
    announce_if_complete(rank, block);
    for (const std::size_t p : r_.spec.blocks[block].uses)
      announce_if_complete(rank, held(rank).completing_block(p));
  }

  void announce_if_complete(int rank, std::size_t block) {
    RankWriter& writer = at(rank);
    if (writer.is_announced[block] || !writer.is_done[block]) return;
    for (const std::size_t p : held(rank).completed_by(block))
      for (const std::size_t user : held(rank).users_here(p))
        if (!writer.is_done[user]) return;
    writer.is_announced[block] = true;
    rows_.give(rank, writer.strand, block);
    if (size(mesh_) > 1 && kind_.is_together)
      pass(rank, passes_.together, held(rank).elements_completed_by(block));
    if (posts_early()) sums_.post(rank, writer.strand, block);
  }

  void pass(int rank, double copies, double elements) {
    const auto bytes = static_cast<double>(bytes_of(r_.config.run.master_type()));
    builder_.compute(at(rank).strand, WorkKind::handling,
                     builder_.copy_seconds(rank, copies * bytes * elements));
  }

  // --- the end of a step

  void end_step(int rank) {
    RankWriter& writer = at(rank);
    if (updates_by_block()) {
      if (!r_.config.dp_gradient.overlap) sums_.post_all(rank, writer.strand);
      for (const std::size_t block : held(rank).blocks()) writer.is_owed[block] = true;
      // What it amounted to is asked for a step later, when it has long been there.
      if (common_notes_.contains(rank)) builder_.start(writer.strand, common_notes_.at(rank));
      return;
    }
    for (std::size_t f = 0; f < changes_.size(); ++f)
      if (is_linear() && comes(f)) take_changes(rank, f, leaves(f));
    if (kind_.is_together)
      reduce_together(rank);
    else
      reduce_alone(rank);
    rows_.wait(rank, writer.strand);
    tell(rank, norm_notes_);
    const int span = builder_.begin_span(writer.strand, {rank, 0, 0, 'U'});
    update(rank, held(rank).elements());
    rows_.update(rank, writer.strand);
    builder_.end_span(writer.strand, span);
    for (std::size_t f = 0; f < changes_.size(); ++f) {
      if (leaves(f)) send_changes(rank, f);
      if (!is_linear() && comes(f)) take_changes(rank, f, false);
    }
  }

  void update(int rank, double elements) {
    builder_.compute(at(rank).strand, WorkKind::update, builder_.update_seconds(rank, elements));
  }

  void reduce_together(int rank) {
    const int strand = at(rank).strand;
    const bool tells_first = sums_moments() || (is_whole() && !is_local());
    if (!sums_moments() && !posts_early() && !is_late()) sums_.post_all(rank, strand);
    if (tells_first) tell(rank, common_notes_);
    if (sums_moments()) sums_.post_all(rank, strand);
    sums_.wait_for_all(rank, strand);
    if (!tells_first) tell(rank, common_notes_);
  }

  // A replica by itself; at the end of a round all ranks hear of its loss.
  void reduce_alone(int rank) {
    own_->wait_for_all(rank, at(rank).strand);
    tell(rank, own_notes_);
    tell(rank, common_notes_);
  }

  // What forward of a block waits for, of the step before.
  void update_block(int rank, std::size_t block) {
    RankWriter& writer = at(rank);
    if (!sums_.has_before()) return;
    for (const std::size_t p : r_.spec.blocks[block].uses) {
      const std::size_t completing = held(rank).completing_block(p);
      if (!writer.is_owed[completing]) continue;
      writer.is_owed[completing] = false;
      sums_.wait_for_block_before(rank, writer.strand, completing);
      update(rank, held(rank).elements_completed_by(completing));
    }
  }

  // --- the end of a round

  bool is_sparse() const { return r_.config.local.method == LocalMethod::sparse_loco; }
  bool is_linear() const { return r_.config.local.method == LocalMethod::linear; }

  // Fragments leave after an update, and come after one, or before it in linear rounds, whose steps
  // that are taken together take all (fragment_step).
  bool leaves(std::size_t f) const {
    return leaves_after(fragments_, static_cast<std::int64_t>(f), kind_.place + 1);
  }
  bool comes(std::size_t f) const {
    const LocalSection& local = r_.config.local;
    if (local.overlap == 0) return false;
    return kind_.is_together || leaves_after(fragments_, static_cast<std::int64_t>(f),
                                             kind_.place + 1 - local.overlap + local.steps);
  }
  bool is_in(std::size_t f, std::size_t block) const {
    return fragment_of(fragments_, static_cast<std::int64_t>(block)) ==
           static_cast<std::int64_t>(f);
  }
  double elements_of_fragment(int rank, std::size_t f) const {
    double sum = 0;
    for (const std::size_t block : held(rank).blocks())
      if (is_in(f, block)) sum += held(rank).elements_completed_by(block);
    return sum;
  }

  void begin_changes(std::size_t f) {
    if (!is_sparse())
      return changes_[f].begin(step_, StepSums::Which::all,
                               [&](std::size_t block) { return is_in(f, block); });
    sparse_changes_.clear();
    for (int rank = 0; rank < static_cast<int>(ranks_.size()); ++rank) {
      if (sparse_changes_.contains(rank)) continue;
      CollectiveSpec spec{.traffic = Traffic::dp_gradient,
                          .kind = CollectiveKind::all_gather,
                          .group = group_of(mesh_, builder_.classes().first[index(rank)], Axis::dp),
                          .dtype = Dtype::u8,
                          .offsets = {0}};
      for (std::size_t i = 0; i < spec.group.size(); ++i)
        spec.offsets.push_back(spec.offsets.back() +
                               static_cast<std::uint64_t>(held(rank).sparse_change_bytes()));
      sparse_changes_.merge(add_collective(builder_, spec, deadline_key(step_ + 1, 0, 2)));
    }
  }

  // Unless they travel beside the next round, they are taken at once.
  void send_changes(int rank, std::size_t f) {
    const int strand = at(rank).strand;
    const double elements = elements_of_fragment(rank, f);
    pass(rank, passes_.leaving, elements);
    if (is_sparse()) {
      builder_.compute(strand, WorkKind::codec, builder_.encode_seconds(rank, TopK{}, elements));
      tell(rank, sparse_changes_);
      constexpr double kKept = 1.0 * kSparseKept / (kSparseEdge * kSparseEdge);
      builder_.compute(strand, WorkKind::codec,
                       mesh_.dp * builder_.decode_seconds(rank, TopK{}, kKept * elements));
      return pass(rank, passes_.arriving, elements);
    }
    changes_[f].post_all(rank, strand);
    at(rank).is_under_way[f] = true;
    if (r_.config.local.overlap == 0) take_changes(rank, f, false);
  }

  // Those of the round before, where this step has made new ones.
  void take_changes(int rank, std::size_t f, bool are_before) {
    RankWriter& writer = at(rank);
    if (!writer.is_under_way[f]) return;
    writer.is_under_way[f] = false;
    if (are_before)
      changes_[f].wait_for_all_before(rank, writer.strand);
    else
      changes_[f].wait_for_all(rank, writer.strand);
    pass(rank, passes_.arriving, elements_of_fragment(rank, f));
  }

  ProgramBuilder& builder_;
  const SimulationRequest& r_;
  const Mesh mesh_;
  const Schedule schedule_;
  const std::vector<BlockRange> stages_;
  GridProgram grid_;
  SeamProgram seams_;
  StepNotes notes_;
  RowProgram rows_;
  const ParameterPasses passes_;
  const FragmentSpec fragments_;
  StepSums sums_;                  // of gradients, over replicas
  std::optional<StepSums> own_;    // of local updates: gradients of a replica
  std::vector<StepSums> changes_;  // and changes, by fragment
  std::vector<RankWriter> ranks_;
  std::uint64_t step_ = 0;
  LocalStep kind_;
  ExchangeStrands common_notes_, own_notes_, norm_notes_, sparse_changes_;
};

}  // namespace

void add_steps(ProgramBuilder& builder, const SimulationRequest& request,
               const std::vector<LocalStep>& steps) {
  StepWriter writer(builder, request);
  for (std::size_t step = 0; step < steps.size(); ++step) writer.write_step(step, steps[step]);
}

}  // namespace laconic
