#include <fmt/format.h>

#include <algorithm>
#include <array>

#include "laconic/base/clock.hpp"
#include "laconic/base/error.hpp"
#include "laconic/reduce/placed_low_rank.hpp"

namespace laconic {

namespace {

// Everything that is no factor travels as it is.
SumRequest exactly(SumRequest request) {
  request.policy.up = request.policy.down = Raw{};
  return request;
}

// What a factor loses is in the residual of its matrix already, which is taken from what came out.
SumRequest without_feedback(SumRequest request) {
  request.policy.up_feedback = request.policy.down_feedback = false;
  return request;
}

// Consecutive blocks whose factors travel together.
struct Span {
  std::size_t first = 0;
  std::size_t count = 0;
};

// The gradient of one tensor, where it lies in its block.
struct TensorPlace {
  std::size_t block = 0;
  std::uint64_t offset = 0;
  std::uint64_t elements = 0;
};

// PowerSGD for some blocks, each step as one operation for the progress thread:
//
//   begin ─► raw ────────────────────────────────┐
//        └─► left ─► project ─► right ───────────┴─► finish
class PowerSgd final : public Operation {
 public:
  PowerSgd(const SumRequest& request, Span span)
      : span_(span),
        first_filled_(first_filled(request.blocks, span)),
        tensors_(tensors_of(request.blocks, span)),
        matrices_({.rank = request.policy.rank,
                   .min_ratio = request.policy.min_ratio,
                   .feedback = request.policy.up_feedback,
                   .seed = request.policy.seed},
                  tensors_, static_cast<int>(request.group.size()), request.is_on_device),
        traffic_(request.traffic),
        blocks_(request.blocks.size()),
        raw_(exactly(request), unit(0), matrices_.counts().raw,
             static_cast<double>(matrices_.counts().raw)),
        left_(without_feedback(request), unit(1), matrices_.counts().left,
              elements_in_matrices() / 2),
        right_(without_feedback(request), unit(2), matrices_.counts().right,
               elements_in_matrices() / 2),
        buffers_(blocks_) {
    for (std::size_t b = span.first; b < span.first + span.count; ++b) {
      place_block(request.blocks[b], b);
      if (!request.blocks[b].tensors.empty()) ++filled_;
    }
  }

  void begin(std::uint64_t step) {
    matrices_.abandon();
    matrices_.settle();
    key_ = deadline_key(step + 1, span_.first, 2);
    phase_ = Phase::posted;
    missing_ = filled_;
    std::ranges::fill(buffers_, nullptr);
    readies_.clear();
    for (FlatSum* sum : sums()) sum->begin(step);
  }
  // True with the last block: now the progress thread can have it.
  bool post(std::size_t block, std::byte* buffer, const Ready& ready) {
    LACONIC_ASSERT(buffers_[block] == nullptr, fmt::format("block {}", block));
    if (ready) readies_.push_back(*ready);
    buffers_[block] = reinterpret_cast<float*>(buffer);
    return --missing_ == 0;
  }
  bool is_posted() const { return missing_ == 0; }
  void commit() {
    matrices_.commit();
    for (FlatSum* sum : sums()) sum->commit();
  }
  void abandon() {
    matrices_.abandon();
    for (FlatSum* sum : sums()) sum->abandon();
  }

  // Matrices, and their factors where a codec spoils them further. P is orthonormal, so that the
  // norms of both are of one kind.
  void measure_fidelity(bool is_on) {
    if (is_on) fidelity_ = {};
    matrices_.measure_fidelity(is_on ? &fidelity_ : nullptr);
    for (FlatSum* sum : sums()) sum->measure_fidelity(is_on);
  }
  Fidelity fidelity() const {
    Fidelity all = fidelity_;
    for (const FlatSum* sum : {&raw_, &left_, &right_}) all += sum->fidelity();
    return all;
  }

  void set_codec(const CodecPair& codecs) {
    left_.set_codec(codecs);
    right_.set_codec(codecs);
  }

  NamedFloats save() const { return matrices_.save(); }
  // What it needs of the state of all blocks, which fits.
  void load(const NamedFloats& state) {
    NamedFloats own;
    for (const NamedTensor& tensor : tensors_)
      for (const std::string& name : {residual_name(tensor), basis_name(tensor)})
        if (const auto values = state.find(name); values != state.end()) own.insert(*values);
    matrices_.load(own);
  }

  bool advance(Engine& engine) override {
    if (phase_ == Phase::posted) {
      if (!are_ready()) return false;
      timed(engine, [this] { start(); });
    }
    raw_.advance(engine);
    if (phase_ == Phase::left && left_.advance(engine)) {
      timed(engine, [this] { project(); });
      raw_.advance(engine);  // what came meanwhile
    }
    if (phase_ != Phase::right || !right_.advance(engine) || !raw_.is_done()) return false;
    timed(engine, [this] { matrices_.finish(raw_, right_); });
    return true;
  }

  DeadlineKey key() const override { return key_; }
  Traffic traffic() const override { return traffic_; }
  bool polls() const override {
    return phase_ == Phase::posted || raw_.polls() || left_.polls() || right_.polls();
  }
  std::string describe() const override {
    if (phase_ == Phase::posted) return "power_sgd: waiting for the GPU to finish gradients";
    const FlatSum& slowest = phase_ == Phase::left ? left_ : right_.is_done() ? raw_ : right_;
    return fmt::format("power_sgd: {}", slowest.describe());
  }

 private:
  enum class Phase { posted, left, right };

  template <class Work>
  void timed(Engine& engine, const Work& work) const {
    const Stopwatch clock;
    work();
    engine.meter().spent(traffic_, {.codec = clock.seconds()});
  }

  static std::size_t first_filled(const std::vector<BlockLayout>& blocks, Span span) {
    std::size_t first = span.first;
    while (blocks[first].tensors.empty()) ++first;  // a span without any is never made
    return first;
  }
  static std::vector<NamedTensor> tensors_of(const std::vector<BlockLayout>& blocks, Span span) {
    std::vector<NamedTensor> all;
    for (std::size_t b = span.first; b < span.first + span.count; ++b)
      all.insert(all.end(), blocks[b].tensors.begin(), blocks[b].tensors.end());
    return all;
  }
  double elements_in_matrices() const {
    std::uint64_t elements = 0;
    for (const NamedTensor& tensor : tensors_) elements += elements_of(tensor.tensor);
    return static_cast<double>(elements - matrices_.counts().raw);
  }
  // Units of tags come after those of the blocks, three for every block; those of the first that
  // has tensors, so that sums of other blocks of a model may be under way beside this one.
  std::uint32_t unit(std::size_t number) const {
    return static_cast<std::uint32_t>(blocks_ + 3 * first_filled_ + number);
  }
  bool are_ready() const {
    return std::ranges::all_of(readies_, [](const DeviceEvent& ready) { return ready.is_done(); });
  }
  std::array<FlatSum*, 3> sums() { return {&raw_, &left_, &right_}; }

  void place_block(const BlockLayout& block, std::size_t index) {
    std::uint64_t offset = 0;
    for (const NamedTensor& tensor : block.tensors) {
      places_.push_back({index, offset, elements_of(tensor.tensor)});
      offset += places_.back().elements;
    }
  }

  void start() {
    std::vector<float*> gradients;
    for (const TensorPlace& place : places_)
      gradients.push_back(buffers_[place.block] + place.offset);
    matrices_.begin(gradients, raw_, left_);
    left_.start(key_);
    raw_.start(key_ + 1);  // has until right is there
    phase_ = Phase::left;
  }

  void project() {
    matrices_.project(left_, right_);
    right_.start(key_);
    phase_ = Phase::right;
  }

  const Span span_;
  const std::size_t first_filled_;
  const std::vector<NamedTensor> tensors_;
  PlacedLowRank matrices_;
  const Traffic traffic_;
  const std::size_t blocks_;
  FlatSum raw_, left_, right_;
  std::vector<TensorPlace> places_;  // by tensor
  std::size_t filled_ = 0;           // blocks that have tensors
  // The present step's:
  std::vector<float*> buffers_;       // by block; null: not posted
  std::vector<DeviceEvent> readies_;  // of blocks on a GPU: when their gradients are complete
  std::size_t missing_ = 0;
  DeadlineKey key_ = 0;
  Phase phase_ = Phase::posted;
  Fidelity fidelity_;  // of the matrices; written by the progress thread
};

class PowerSgdSum final : public GradientSum {
 public:
  explicit PowerSgdSum(const SumRequest& request)
      : progress_thread_(request.progress_thread),
        policy_(request.policy),
        warm_up_steps_(static_cast<std::uint64_t>(request.policy.warm_up_steps)),
        exact_(warm_up_steps_ > 0 ? make_codec_sum(exactly(request)) : nullptr),
        sizes_(state_sizes(request.policy, request.blocks, static_cast<int>(request.group.size()),
                           member_of(request.group, progress_thread_.engine().rank()))) {
    const std::size_t blocks = request.blocks.size();
    const std::size_t together = request.policy.by_block ? 1 : blocks;
    part_of_block_.resize(blocks);
    for (std::size_t first = 0; first < blocks; first += together) {
      const auto begin = request.blocks.begin() + static_cast<std::ptrdiff_t>(first);
      if (std::all_of(begin, begin + static_cast<std::ptrdiff_t>(together),
                      [](const BlockLayout& block) { return block.tensors.empty(); }))
        continue;
      parts_.push_back(std::make_shared<PowerSgd>(request, Span{first, together}));
      std::fill_n(part_of_block_.begin() + static_cast<std::ptrdiff_t>(first), together,
                  parts_.back());
    }
  }

  // Buffers may go with the sum, and the progress thread stays.
  ~PowerSgdSum() override {
    for (const auto& part : parts_) progress_thread_.drop(part);
  }
  PowerSgdSum(const PowerSgdSum&) = delete;
  PowerSgdSum& operator=(const PowerSgdSum&) = delete;

  // Blocks of the warm-up travel one by one, while backward goes on.
  void begin(std::uint64_t step) override {
    is_warm_up_ = step < warm_up_steps_;
    if (is_warm_up_) return exact_->begin(step);
    for (const auto& part : parts_) part->begin(step);
  }

  void post(std::size_t block, std::byte* buffer, const Ready& ready) override {
    if (is_warm_up_) return exact_->post(block, buffer, ready);
    const auto& part = part_of_block_[block];
    if (part->post(block, buffer, ready)) progress_thread_.start(part);
  }

  void wait() override {
    if (is_warm_up_) return exact_->wait();
    for (const auto& part : parts_) {
      LACONIC_ASSERT(part->is_posted(), "not all blocks are posted");
      progress_thread_.wait(part);
    }
  }

  bool has_arrived(std::size_t block) const override {
    if (is_warm_up_) return exact_->has_arrived(block);
    const auto& part = part_of_block_[block];
    return part == nullptr || progress_thread_.has_ended(part);
  }
  void wait(std::size_t block) override {
    if (is_warm_up_) return exact_->wait(block);
    const auto& part = part_of_block_[block];
    if (part == nullptr) return;
    LACONIC_ASSERT(part->is_posted(), "not all blocks are posted");
    progress_thread_.wait(part);
  }

  void commit() override {
    if (is_warm_up_) return exact_->commit();
    for (const auto& part : parts_) part->commit();
  }
  void abandon() override {
    if (is_warm_up_) return exact_->abandon();
    for (const auto& part : parts_) part->abandon();
  }

  void measure_fidelity(bool is_on) override {
    for (const auto& part : parts_) part->measure_fidelity(is_on);
  }
  Fidelity fidelity() const override {
    Fidelity all;
    for (const auto& part : parts_) all += part->fidelity();
    return all;
  }

  void override_codec(const CodecOverride& codec_override) override {
    const CodecPair codecs =
        codecs_of(codec_override.codec ? with_codec(policy_, *codec_override.codec) : policy_);
    for (const auto& part : parts_) part->set_codec(codecs);
  }

  NamedFloats save() const override {
    NamedFloats state;
    for (const auto& part : parts_) state.merge(part->save());
    return state;
  }
  void load(const NamedFloats& state) override {
    require_fit(state, sizes_);
    for (const auto& part : parts_) part->load(state);
  }

 private:
  ProgressThread& progress_thread_;
  const GradientPolicy policy_;
  const std::uint64_t warm_up_steps_;
  const std::unique_ptr<GradientSum> exact_;
  const StateSizes sizes_;
  std::vector<std::shared_ptr<PowerSgd>> parts_;
  std::vector<std::shared_ptr<PowerSgd>> part_of_block_;  // null: without tensors
  bool is_warm_up_ = false;
};

}  // namespace

std::unique_ptr<GradientSum> make_power_sgd_sum(const SumRequest& request) {
  return std::make_unique<PowerSgdSum>(request);
}

}  // namespace laconic
