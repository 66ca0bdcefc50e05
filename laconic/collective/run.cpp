#include "laconic/collective/run.hpp"

#include <fmt/format.h>

#include <algorithm>
#include <utility>

#include "laconic/base/error.hpp"
#include "laconic/base/index.hpp"
#include "laconic/base/philox.hpp"
#include "laconic/collective/walk.hpp"

namespace laconic {

namespace {

// What a chunk has in a lane. Small enough that one lane is added while the next comes, and that a
// raw message is one segment of the engine, which then need not put it together.
constexpr std::uint64_t kSliceBytes = std::uint64_t{248} << 10;
// What the others together send to whoever adds a slice, where it is encoded and they meet there:
// small enough that two lanes fit into the queue in front of a slow link (engine/window.hpp). But a
// message has some 100 bytes around it.
constexpr std::uint64_t kMeetingBytes = std::uint64_t{72} << 10;
constexpr std::uint64_t kLeastMessage = std::uint64_t{4} << 10;
constexpr std::uint64_t kMostLanes = 1 << 12;  // a tag has so many parts
constexpr int kAskedLanes = 4;                 // that wait, before the rest is not asked
// Where no window says how many: 8 MB of messages, which keeps a link of 1 Gbit/s busy for 60 ms.
constexpr int kLanesUnderWay = 32;
constexpr std::uint64_t kGrain = 1024;  // blocks of codecs should not be cut

bool is_sum(CollectiveKind kind) {
  return kind == CollectiveKind::all_reduce || kind == CollectiveKind::reduce_scatter;
}

std::string name_of(const CollectiveSpec& spec) {
  return fmt::format("{} {}", name_of(spec.traffic), unit_text(spec.traffic, spec.unit));
}

// Whether encoded contributions of several members meet at whoever adds them.
bool has_meetings(const CollectiveSpec& spec) {
  const bool is_met = spec.algorithm == Algorithm::direct || spec.algorithm == Algorithm::gathered;
  return is_sum(spec.kind) && is_met && spec.group.size() > 2 && is_lossy(spec.up);
}

// A slice as codecs see it.
TensorSpec tensor_of(const CollectiveSpec& spec, std::uint64_t elements) {
  if (spec.columns == 0) return {spec.dtype, {static_cast<std::int64_t>(elements)}};
  return {spec.dtype,
          {static_cast<std::int64_t>(elements / spec.columns),
           static_cast<std::int64_t>(spec.columns)}};
}

// Roughly: there are codecs that cannot tell before.
std::uint64_t encoded_bytes(const CollectiveSpec& spec, std::uint64_t elements) {
  return max_payload_bytes(spec.up, tensor_of(spec, elements));
}

std::uint64_t slice_elements(const CollectiveSpec& spec) {
  const std::uint64_t most = kSliceBytes / bytes_of(spec.dtype);
  if (!has_meetings(spec)) return most;
  const std::uint64_t message = std::max(kLeastMessage, kMeetingBytes / (spec.group.size() - 1));
  const std::uint64_t fitting =
      most * message / std::max<std::uint64_t>(1, encoded_bytes(spec, most));
  return std::clamp(fitting / kGrain * kGrain, kGrain, most);
}

std::uint64_t lane_count(const CollectiveSpec& spec) {
  if (spec.kind == CollectiveKind::all_to_all || spec.offsets.empty()) return 1;
  const std::uint64_t elements = spec.offsets.back();
  const std::uint64_t chosen = (spec.offsets.size() - 1) * slice_elements(spec);
  const std::uint64_t most = spec.lane_elements > 0 ? spec.lane_elements : std::max(chosen, kGrain);
  return std::clamp<std::uint64_t>(elements / most + (elements % most > 0 ? 1 : 0), 1, kMostLanes);
}

// Lanes of a matrix have whole rows.
std::uint64_t grain_of(const CollectiveSpec& spec) {
  if (spec.columns == 0) return kGrain;
  return (kGrain + spec.columns - 1) / spec.columns * spec.columns;
}

LinkSpec make_link(std::string name, const CollectiveSpec& spec, const CodecSpec& codec,
                   bool has_feedback, Key key) {
  LinkSpec link{.name = std::move(name), .codec = codec, .has_warm_start = spec.has_warm_start};
  if (has_feedback && is_lossy(codec)) link.memory = ErrorFeedback{};
  link.seed = std::uint64_t{key.hi} << 32 | key.lo;
  return link;
}

// --- check

void check_group(const CollectiveSpec& spec, Problems& problems) {
  if (spec.group.empty()) problems.push_back({"group", "has no members"});
  Group sorted = spec.group;
  std::ranges::sort(sorted);
  if (!sorted.empty() && sorted.front() < 0)
    problems.push_back({"group", fmt::format("{} is no rank", sorted.front())});
  const auto twice = std::ranges::adjacent_find(sorted);
  if (twice != sorted.end())
    problems.push_back({"group", fmt::format("rank {} is there twice", *twice)});
}

void check_offsets(const CollectiveSpec& spec, Problems& problems) {
  const int members = static_cast<int>(spec.group.size());
  const int chunks = chunks_of(spec.kind, spec.algorithm, members);
  if (chunks == 0) return;
  if (spec.offsets.size() != index(chunks) + 1)
    return problems.push_back({"offsets", fmt::format("{} of them for {} chunks of {} members",
                                                      spec.offsets.size(), chunks, members)});
  if (spec.columns > 0 &&
      std::ranges::any_of(spec.offsets, [&](std::uint64_t at) { return at % spec.columns != 0; }))
    problems.push_back({"offsets", fmt::format("{} do not cut a matrix of {} columns between rows",
                                               fmt::join(spec.offsets, ", "), spec.columns)});
  if (spec.offsets.front() != 0 || !std::ranges::is_sorted(spec.offsets) ||
      spec.offsets.back() > kMaxElements)
    problems.push_back(
        {"offsets", fmt::format("{} do not cut a buffer in order", fmt::join(spec.offsets, ", "))});
}

void check_codec(const CollectiveSpec& spec, const char* where, const CodecSpec& codec,
                 Problems& problems) {
  for (const Problem& problem :
       check(codec, tensor_of(spec, 1024 * std::max<std::uint64_t>(1, spec.columns))))
    problems.push_back({where, fmt::format("{}: {}", problem.where, problem.what)});
  if (spec.columns == 0 &&
      (std::holds_alternative<LowRank>(codec) || std::holds_alternative<AutoEncoder>(codec)))
    problems.push_back(
        {where, fmt::format("{} encodes matrices, and chunks are none", laconic::name_of(codec))});
  if (std::holds_alternative<Transform>(codec))
    problems.push_back(
        {where, "transform needs a basis that the two ends of a link have learned together"});
}

void check_gathered(const CollectiveSpec& spec, Problems& problems) {
  if (is_lossy(spec.up) && is_summable(spec.up))
    problems.push_back({"up", fmt::format("{} is added without decoding, which moves less than "
                                          "gathering it; use direct",
                                          to_text(spec.up))});
  if (!is_lossy(spec.up) && is_lossy(spec.down))
    problems.push_back(
        {"down", fmt::format("{}, but gathered has no way down; use direct", to_text(spec.down))});
}

void check_sum(const CollectiveSpec& spec, Problems& problems) {
  if (spec.dtype == Dtype::f16 || spec.dtype == Dtype::bf16 || spec.dtype == Dtype::boolean)
    problems.push_back({"dtype", fmt::format("there are no sums of {}, which would be rounded at "
                                             "every addition: use f32, f64 or integers",
                                             laconic::name_of(spec.dtype))});
  if (spec.is_on_device && spec.dtype != Dtype::f32)
    problems.push_back({"dtype", fmt::format("GPUs add f32 alone, not {}: use host memory",
                                             laconic::name_of(spec.dtype))});
  if (spec.algorithm == Algorithm::direct) return;
  if (spec.algorithm == Algorithm::gathered) return check_gathered(spec, problems);
  if (!is_summable(spec.up))
    problems.push_back({"up", fmt::format("{} cannot be added without decoding, so {} would encode "
                                          "it at every hop; use direct",
                                          to_text(spec.up), name_of(spec.algorithm))});
  if (spec.algorithm == Algorithm::doubling && !is_lossy(spec.up) && is_lossy(spec.down))
    problems.push_back(
        {"down", fmt::format("{}, but doubling has no way down; use direct", to_text(spec.down))});
}

}  // namespace

Problems check(const CollectiveSpec& spec) {
  Problems problems;
  check_group(spec, problems);
  if (spec.unit >= 1U << 16)
    problems.push_back({"unit", fmt::format("{} is not below 65536", spec.unit)});
  const auto known = algorithms_of(spec.kind);
  if (std::ranges::find(known, spec.algorithm) == known.end())
    problems.push_back(
        {"algorithm", fmt::format("{} has no {}", name_of(spec.kind), name_of(spec.algorithm))});
  else
    check_offsets(spec, problems);
  check_codec(spec, "up", spec.up, problems);
  check_codec(spec, "down", spec.down, problems);
  if (is_sum(spec.kind)) check_sum(spec, problems);
  return problems;
}

std::vector<std::vector<Slice>> lanes_of(const CollectiveSpec& spec) {
  const std::uint64_t count = lane_count(spec);
  std::vector<std::vector<Slice>> lanes(count);
  for (std::size_t chunk = 0; chunk + 1 < spec.offsets.size(); ++chunk) {
    const std::uint64_t start = spec.offsets[chunk];
    const auto cuts = cut(spec.offsets[chunk + 1] - start, static_cast<int>(count), grain_of(spec));
    for (std::size_t lane = 0; lane < count; ++lane)
      lanes[lane].push_back({start + cuts[lane], cuts[lane + 1] - cuts[lane]});
  }
  return lanes;
}

bool adds_payloads(const CollectiveSpec& spec) {
  return is_sum(spec.kind) && is_summable(spec.up) && is_lossy(spec.up);
}

// Payloads are only added when all members drew the same elements; elsewhere each draws its own.
LinkSpec up_link(const CollectiveSpec& spec, int member, int lane, int chunk) {
  const int drawn_by = adds_payloads(spec) ? 0 : 1 + member;
  const Key key = derive(derive(key_of(spec.seed), index(lane), index(chunk)), index(drawn_by), 0);
  return make_link(fmt::format("{} up lane {} chunk {}", name_of(spec), lane, chunk), spec, spec.up,
                   spec.up_feedback, key);
}

LinkSpec down_link(const CollectiveSpec& spec, int lane, int chunk) {
  const Key key = derive(derive(key_of(spec.seed), index(lane), index(chunk)), 0, 1);
  return make_link(fmt::format("{} down lane {} chunk {}", name_of(spec), lane, chunk), spec,
                   spec.down, spec.down_feedback, key);
}

// --- one operation

namespace {

std::uint64_t lane_elements(const std::vector<Slice>& slices) {
  std::uint64_t sum = 0;
  for (const Slice& slice : slices) sum += slice.elements;
  return sum;
}

class CollectiveOperation final : public Operation {
 public:
  // `owner` keeps everything that is only referred to.
  CollectiveOperation(std::shared_ptr<void> owner, bool& is_under_way, OperationState state,
                      std::vector<Lane>& lanes, Ready ready)
      : owner_(std::move(owner)),
        is_under_way_(is_under_way),
        ready_(std::move(ready)),
        state_(std::move(state)),
        lanes_(lanes) {
    walks_.reserve(lanes.size());
    for (Lane& lane : lanes)
      walks_.emplace_back(state_, lane, static_cast<std::uint32_t>(walks_.size()));
    ended_.resize(walks_.size(), false);
    pieces_.resize(has_meetings(state_.spec) ? walks_.size() : 0);
    is_under_way_ = true;
  }
  ~CollectiveOperation() override {
    if (!is_done_) is_under_way_ = false;
  }

  bool advance(Engine& engine) override;
  DeadlineKey key() const override { return state_.key; }
  Traffic traffic() const override { return state_.spec.traffic; }
  std::uint32_t unit() const override { return state_.spec.unit; }
  bool polls() const override { return ready_.has_value() || waits_for_gpu_; }
  std::string describe() const override;

 private:
  bool advance_lane(Engine& engine, std::size_t lane);
  bool may_begin(Engine& engine, std::size_t lane);
  std::uint64_t bytes_sent(std::size_t lane) const;

  std::shared_ptr<void> owner_;
  bool& is_under_way_;
  Ready ready_;  // nothing any more, when it is done
  OperationState state_;
  const std::vector<Lane>& lanes_;
  std::vector<LaneWalk> walks_;
  std::vector<bool> ended_;
  std::size_t first_ = 0;                             // lane that has not ended
  std::size_t begun_ = 0;                             // lanes
  int under_way_ = 0;                                 // of these, those that have not ended
  bool waits_for_gpu_ = false;                        // one of these does
  std::vector<std::optional<Window::Piece>> pieces_;  // lanes under way; empty: they need no window
  bool is_done_ = false;
};

// Lanes begin in order, at all members alike, and the first lane that has not ended at some member
// is asked at all of them, and can go on: nothing waits for ever.
//
// Without a window few lanes are under way, and every message that comes finds its lane asked. If
// all began at once their messages would come round by round of the plan: of a ring the first
// messages of all lanes would come before the second one of any, and behind lanes that wait for
// their second nobody would ask for a first. (So it was: then some lanes at a time went round
// alone, and rings of 64 MB used 60 % of a link.) Within a window they come in the order of lanes,
// so that behind some lanes that wait others wait too, and asking them all, which may be thousands,
// would cost more than the messages. Lanes that wait for the GPU of this member say nothing of
// those behind them, and do not count.
bool CollectiveOperation::advance(Engine& engine) {
  if (ready_ && !ready_->is_done()) return false;
  ready_.reset();
  waits_for_gpu_ = false;
  const int asked = pieces_.empty() ? kLanesUnderWay : kAskedLanes;
  int waiting = 0;
  for (std::size_t i = first_; i < begun_ && waiting < asked; ++i)
    if (!ended_[i] && !advance_lane(engine, i) && !walks_[i].waits_for_gpu()) ++waiting;
  for (; begun_ < walks_.size() && may_begin(engine, begun_); ++begun_) {
    ++under_way_;
    advance_lane(engine, begun_);
  }
  engine.push();
  while (first_ < begun_ && ended_[first_]) ++first_;
  is_done_ = first_ == walks_.size();
  engine.meter().spent(traffic(), unit(), std::exchange(state_.spent, {}));
  if (is_done_) is_under_way_ = false;
  return is_done_;
}

// Returns whether it moved.
bool CollectiveOperation::advance_lane(Engine& engine, std::size_t lane) {
  const std::size_t before = walks_[lane].at();
  ended_[lane] = walks_[lane].advance(engine);
  if (walks_[lane].waits_for_gpu()) waits_for_gpu_ = true;
  if (ended_[lane]) --under_way_;
  if (ended_[lane] && !pieces_.empty()) pieces_[lane]->end();
  return ended_[lane] || walks_[lane].at() != before;
}

bool CollectiveOperation::may_begin(Engine& engine, std::size_t lane) {
  if (!state_.may_pack()) return false;
  if (pieces_.empty()) return under_way_ < kLanesUnderWay;
  auto piece = engine.window().begin(state_.key, bytes_sent(lane));
  if (piece) pieces_[lane].emplace(std::move(*piece));
  return piece.has_value();
}

// By this member, roughly: a slice of every chunk up and, of one, a result to as many; gathered,
// all that it has to everybody.
std::uint64_t CollectiveOperation::bytes_sent(std::size_t lane) const {
  const std::uint64_t elements = lane_elements(lanes_[lane].slices);
  const std::uint64_t members = state_.spec.group.size();
  const std::uint64_t bytes =
      state_.exact ? elements * bytes_of(state_.spec.dtype) : encoded_bytes(state_.spec, elements);
  if (state_.spec.algorithm == Algorithm::gathered) return bytes * (members - 1);
  return 2 * bytes * (members - 1) / members;
}

std::string CollectiveOperation::describe() const {
  const std::string text = fmt::format("{} of {} #{}", name_of(state_.spec.kind),
                                       name_of(state_.spec), state_.operation);
  if (is_done_) return text;
  if (ready_) return text + ", waiting for the GPU to compute what is summed";
  if (first_ < begun_ && walks_[first_].waits_for_gpu())
    return fmt::format("{}, waiting for the GPU to encode lane {} of {}", text, first_,
                       walks_.size());
  if (first_ == begun_)
    return fmt::format("{}, lane {} of {} not begun: others are more urgent", text, first_,
                       walks_.size());
  return fmt::format("{}, waiting for rank {} in lane {} of {}", text, walks_[first_].waits_for(),
                     first_, walks_.size());
}

}  // namespace

// --- the collective

struct Collective::Body {
  Body(Engine& its_engine, const CollectiveSpec& its_spec);

  const std::vector<Hop>& hops() const { return plan.by_member[index(self)]; }
  std::uint64_t elements() const { return spec.offsets.empty() ? 0 : spec.offsets.back(); }
  Slice result_slice() const;
  std::uint64_t basis_of(const Slice& slice, bool is_up) const;
  Lane make_lane(int lane, const std::vector<Slice>& slices) const;
  void require_idle(const char* what) const;

  // act(sender, slice, is_up) for every link of this member.
  template <class Act>
  void for_each_link(const Act& act);

  Engine& engine;
  CollectiveSpec spec;  // constant but for the codecs
  const int self;
  const Plan plan;
  int result_chunk = kNoChunk;  // the one whose result this member encodes
  std::vector<Lane> lanes;
  std::uint64_t step = 0;
  std::uint32_t in_step = 0;     // operations made in the step
  std::uint64_t operations = 0;  // and in all
  bool is_begun = false;
  bool is_under_way = false;
  PayloadObserver observer;
  Fidelity fidelity;  // written by the thread that walks; nobody reads it while an operation is
                      // under way
};

Collective::Body::Body(Engine& its_engine, const CollectiveSpec& its_spec)
    : engine(its_engine),
      spec(its_spec),
      self(member_of(its_spec.group, its_engine.rank())),
      plan(make_plan(its_spec.kind, its_spec.algorithm, static_cast<int>(its_spec.group.size()))) {
  const auto result = std::ranges::find(hops(), Act::encode_result, &Hop::act);
  if (result != hops().end()) result_chunk = result->chunk;
  for (const auto& slices : lanes_of(spec))
    lanes.push_back(make_lane(static_cast<int>(lanes.size()), slices));
}

Lane Collective::Body::make_lane(int lane, const std::vector<Slice>& slices) const {
  Lane made;
  made.slices = slices;
  for (const Slice& slice : slices) made.tensors.push_back(tensor_of(spec, slice.elements));
  made.up.resize(slices.size());
  for (const Hop& hop : hops()) {
    const bool is_encoded = hop.act == Act::encode || hop.act == Act::encode_for_all;
    if (!is_encoded && !(hop.act == Act::add_own && adds_payloads(spec))) continue;
    auto& sender = made.up[index(hop.chunk)];
    if (!sender) sender.emplace(up_link(spec, self, lane, hop.chunk));
  }
  if (result_chunk != kNoChunk) made.down.emplace(down_link(spec, lane, result_chunk));
  return made;
}

Slice Collective::Body::result_slice() const {
  if (result_chunk == kNoChunk) return {};
  const std::uint64_t start = spec.offsets[index(result_chunk)];
  return {start, spec.offsets[index(result_chunk) + 1] - start};
}

void Collective::Body::require_idle(const char* what) const {
  LACONIC_ASSERT(!is_under_way, fmt::format("{} of {}: an operation is under way at {}",
                                            name_of(spec.kind), name_of(spec), what));
}

template <class Act>
void Collective::Body::for_each_link(const Act& act) {
  for (Lane& lane : lanes) {
    for (std::size_t chunk = 0; chunk < lane.up.size(); ++chunk)
      if (lane.up[chunk]) act(*lane.up[chunk], lane.slices[chunk], true);
    if (lane.down) act(*lane.down, lane.slices[index(result_chunk)], false);
  }
}

Collective::Collective(Engine& engine, const CollectiveSpec& spec) {
  const Problems problems = check(spec);
  LACONIC_ASSERT(problems.empty(), to_text(problems));
  body_ = std::make_shared<Body>(engine, spec);
}

Collective::~Collective() = default;

const CollectiveSpec& Collective::spec() const {
  return body_->spec;
}

void Collective::begin(std::uint64_t step) {
  body_->require_idle("begin");
  body_->step = step;
  body_->in_step = 0;
  body_->is_begun = true;
  body_->for_each_link([&](Sender& sender, const Slice&, bool) { sender.begin(step); });
}

std::shared_ptr<Operation> Collective::operation(std::byte* buffer, DeadlineKey key, bool exact,
                                                 Ready ready, std::optional<std::uint64_t> number) {
  body_->require_idle("operation");
  LACONIC_ASSERT(body_->is_begun, fmt::format("{}: no step is open", name_of(body_->spec)));
  OperationState state{.spec = body_->spec,
                       .hops = body_->hops(),
                       .buffer = buffer,
                       .key = key,
                       .operation = number.value_or(body_->operations),
                       .sequence = make_sequence(body_->step, body_->in_step++),
                       .exact = exact,
                       .observer = body_->observer};
  ++body_->operations;
  return std::make_shared<CollectiveOperation>(body_, body_->is_under_way, std::move(state),
                                               body_->lanes, std::move(ready));
}

void Collective::commit() {
  body_->require_idle("commit");
  body_->is_begun = false;
  body_->for_each_link([](Sender& sender, const Slice&, bool) { sender.commit(); });
}

// Also after a failure, when an operation may never end.
void Collective::abandon() {
  body_->is_begun = false;
  body_->for_each_link([](Sender& sender, const Slice&, bool) { sender.abandon(); });
}

void Collective::observe(PayloadObserver observer) {
  body_->require_idle("observe");
  body_->observer = std::move(observer);
}

void Collective::measure_fidelity(bool is_on) {
  body_->require_idle("measure_fidelity");
  if (is_on) body_->fidelity = {};
  Fidelity* const into = is_on ? &body_->fidelity : nullptr;
  body_->for_each_link([&](Sender& sender, const Slice&, bool) { sender.measure_fidelity(into); });
}

Fidelity Collective::fidelity() const {
  body_->require_idle("fidelity");
  return body_->fidelity;
}

void Collective::set_codec(const CodecSpec& up, const CodecSpec& down) {
  LACONIC_ASSERT(!body_->is_begun, fmt::format("{}: a step is open", name_of(body_->spec)));
  CollectiveSpec changed = body_->spec;
  changed.up = up;
  changed.down = down;
  refuse(check(changed));
  LACONIC_ASSERT(adds_payloads(changed) == adds_payloads(body_->spec) &&
                     is_lossy(up) == is_lossy(body_->spec.up) &&
                     is_lossy(down) == is_lossy(body_->spec.down),
                 fmt::format("{}: {} and {}", name_of(changed), to_text(up), to_text(down)));
  body_->for_each_link(
      [&](Sender& sender, const Slice&, bool is_up) { sender.set_codec(is_up ? up : down); });
  body_->spec = std::move(changed);
}

// Of a contribution's warm start; 0 where there is none.
std::uint64_t Collective::Body::basis_of(const Slice& slice, bool is_up) const {
  if (!is_up || !spec.has_warm_start || slice.elements == 0) return 0;
  return basis_size(spec.up, tensor_of(spec, slice.elements));
}

CollectiveState Collective::save() const {
  LACONIC_ASSERT(!body_->is_begun, fmt::format("{}: a step is open", name_of(body_->spec)));
  CollectiveState state;
  const Slice result = body_->result_slice();
  bool is_warm = true;
  body_->for_each_link([&](Sender& sender, const Slice& slice, bool is_up) {
    if (const std::uint64_t size = body_->basis_of(slice, is_up); size > 0) {
      is_warm = is_warm && sender.basis().size() == size;
      state.basis.insert(state.basis.end(), sender.basis().begin(), sender.basis().end());
    }
    const std::span<const float> residual = sender.residual();
    if (residual.empty()) return;
    std::vector<float>& all = is_up ? state.up : state.down;
    all.resize(is_up ? body_->elements() : result.elements, 0.0F);
    const std::uint64_t start = is_up ? slice.offset : slice.offset - result.offset;
    std::ranges::copy(residual, all.begin() + static_cast<std::ptrdiff_t>(start));
  });
  if (!is_warm) state.basis.clear();
  return state;
}

void Collective::load(const CollectiveState& state) {
  LACONIC_ASSERT(!body_->is_begun, fmt::format("{}: a step is open", name_of(body_->spec)));
  const Slice result = body_->result_slice();
  Problems problems;
  const auto check_size = [&](const char* way, std::size_t got, std::uint64_t wanted) {
    if (got != 0 && got != wanted)
      problems.push_back(
          {name_of(body_->spec), fmt::format("{} residuals {}, expected {}", got, way, wanted)});
  };
  check_size("up", state.up.size(), body_->elements());
  check_size("down", state.down.size(), result.elements);
  refuse(problems);
  std::uint64_t bases = 0;
  body_->for_each_link(
      [&](Sender&, const Slice& slice, bool is_up) { bases += body_->basis_of(slice, is_up); });
  std::span<const float> basis = state.basis;
  if (basis.size() != bases) basis = {};
  body_->for_each_link([&](Sender& sender, const Slice& slice, bool is_up) {
    const std::span<const float> all = is_up ? state.up : state.down;
    const std::uint64_t start = is_up ? slice.offset : slice.offset - result.offset;
    if (!has_memory(sender.spec())) return;
    sender.set_residual(tensor_of(body_->spec, slice.elements).shape,
                        all.empty() ? all : all.subspan(start, slice.elements));
    const std::uint64_t size = basis.empty() ? 0 : body_->basis_of(slice, is_up);
    sender.set_basis(basis.first(size));
    basis = basis.subspan(size);
  });
}

}  // namespace laconic
