#include <fmt/format.h>

#include <algorithm>
#include <optional>

#include "laconic/base/error.hpp"
#include "laconic/reduce/method.hpp"

namespace laconic {

namespace {

class CodecSum final : public GradientSum {
 public:
  explicit CodecSum(const SumRequest& request)
      : progress_thread_(request.progress_thread),
        policy_(request.policy),
        warm_up_steps_(static_cast<std::uint64_t>(request.policy.warm_up_steps)),
        blocks_(request.blocks),
        sizes_(state_sizes(request.policy, blocks_, static_cast<int>(request.group.size()),
                           member_of(request.group, progress_thread_.engine().rank()))),
        sums_(request.blocks.size()),
        under_way_(request.blocks.size()) {
    for (std::size_t b = 0; b < blocks_.size(); ++b) {
      const std::uint64_t elements = elements_of(blocks_[b]);
      if (elements > 0)
        sums_[b].emplace(
            progress_thread_.engine(),
            collective_of(request, request.first_unit + static_cast<std::uint32_t>(b), elements));
    }
  }

  // Buffers may go with the sum, and the progress thread stays.
  ~CodecSum() override {
    for (const auto& operation : under_way_)
      if (operation != nullptr) progress_thread_.drop(operation);
  }
  CodecSum(const CodecSum&) = delete;
  CodecSum& operator=(const CodecSum&) = delete;

  void begin(std::uint64_t step) override {
    step_ = step;
    std::ranges::fill(under_way_, nullptr);
    for (auto& sum : sums_)
      if (sum) sum->begin(step);
  }

  // The next forward wants the first block first, though backward makes it last: with this key
  // it overtakes what is still queued of the others.
  void post(std::size_t block, std::byte* buffer, const Ready& ready) override {
    LACONIC_ASSERT(sums_[block] && under_way_[block] == nullptr, blocks_[block].name);
    under_way_[block] = sums_[block]->operation(buffer, deadline_key(step_ + 1, block, 2),
                                                step_ < warm_up_steps_, ready);
    progress_thread_.start(under_way_[block]);
  }

  void wait() override {
    for (const auto& operation : under_way_)
      if (operation != nullptr) progress_thread_.wait(operation);
  }

  bool has_arrived(std::size_t block) const override {
    return under_way_[block] == nullptr || progress_thread_.has_ended(under_way_[block]);
  }
  void wait(std::size_t block) override {
    if (under_way_[block] != nullptr) progress_thread_.wait(under_way_[block]);
  }

  void commit() override {
    for (auto& sum : sums_)
      if (sum) sum->commit();
  }
  void abandon() override {
    for (auto& sum : sums_)
      if (sum) sum->abandon();
  }

  void measure_fidelity(bool is_on) override {
    for (auto& sum : sums_)
      if (sum) sum->measure_fidelity(is_on);
  }
  Fidelity fidelity() const override {
    Fidelity all;
    for (const auto& sum : sums_)
      if (sum) all += sum->fidelity();
    return all;
  }

  // Where chunks begin and end stays, so that residuals lie where they did.
  void override_codec(const CodecOverride& codec_override) override {
    const auto [up, down] =
        codecs_of(codec_override.codec ? with_codec(policy_, *codec_override.codec) : policy_);
    for (auto& sum : sums_)
      if (sum) sum->set_codec(up, down);
  }

  NamedFloats save() const override {
    NamedFloats state;
    for (std::size_t b = 0; b < blocks_.size(); ++b) {
      if (!sums_[b]) continue;
      CollectiveState kept = sums_[b]->save();
      if (!kept.up.empty()) state[up_name(blocks_[b])] = std::move(kept.up);
      if (!kept.down.empty()) state[down_name(blocks_[b])] = std::move(kept.down);
    }
    return state;
  }

  void load(const NamedFloats& state) override {
    require_fit(state, sizes_);
    const auto found = [&](const std::string& name) {
      const auto values = state.find(name);
      return values == state.end() ? std::vector<float>() : values->second;
    };
    for (std::size_t b = 0; b < blocks_.size(); ++b)
      if (sums_[b]) sums_[b]->load({found(up_name(blocks_[b])), found(down_name(blocks_[b]))});
  }

 private:
  ProgressThread& progress_thread_;
  const GradientPolicy policy_;
  const std::uint64_t warm_up_steps_;
  const std::vector<BlockLayout> blocks_;
  const StateSizes sizes_;
  std::vector<std::optional<Collective>> sums_;        // by block; nothing: without elements
  std::vector<std::shared_ptr<Operation>> under_way_;  // by block; null: not posted
  std::uint64_t step_ = 0;
};

}  // namespace

std::unique_ptr<GradientSum> make_codec_sum(const SumRequest& request) {
  return std::make_unique<CodecSum>(request);
}

}  // namespace laconic
