#include "laconic/base/denormals.hpp"
#include "laconic/base/error.hpp"
#include "laconic/reduce/method.hpp"

namespace laconic {

namespace {

SumRequest wholly(SumRequest request) {
  request.first_unit = whole_unit(request.blocks);
  request.policy = {.algorithm = request.policy.whole_algorithm, .seed = request.policy.seed};
  return request;
}

// Two sums that never work in the same step. The encoded one keeps what it remembers while the
// whole one works, but for residuals, which are paid first.
class SteeredSum final : public GradientSum {
 public:
  SteeredSum(const SumRequest& request, std::unique_ptr<GradientSum> encoded)
      : request_(request),
        members_(static_cast<int>(request.group.size())),
        places_(owed_places(request.policy, request.blocks, members_,
                            member_of(request.group, request.progress_thread.engine().rank()))),
        encoded_(std::move(encoded)) {}

  void begin(std::uint64_t step) override {
    is_shadow_ = false;
    now().begin(step);
  }
  void begin_shadow(std::uint64_t step) override {
    is_shadow_ = true;
    make_whole();
    whole_->begin(step);
  }
  void post(std::size_t block, std::byte* buffer) override {
    if (is_bypassed_ && !is_shadow_) add_owed(block, buffer);
    now().post(block, buffer);
  }
  void wait() override { now().wait(); }
  void commit() override {
    now().commit();
    if (!is_bypassed_ || owed_.empty()) return;
    encoded_->load(without_residuals(encoded_->save()));
    owed_.clear();
  }
  void abandon() override {
    now().abandon();
    is_shadow_ = false;
  }

  void watch(bool looks) override { encoded_->watch(looks); }
  Fidelity seen() const override { return encoded_->seen(); }

  void treat(const Treatment& treatment) override {
    Problems problems = check(treatment, request_.policy, request_.dtype, members_);
    if (!problems.empty()) throw ConfigError(std::move(problems));
    encoded_->treat({.codec = codec_of(treatment)});
    is_bypassed_ = treatment.is_bypassed;
    if (is_bypassed_) make_whole();
    look_for_owed();
  }

  NamedFloats save() const override { return encoded_->save(); }
  void load(const NamedFloats& state) override {
    encoded_->load(state);
    look_for_owed();
  }

 private:
  GradientSum& now() { return is_bypassed_ || is_shadow_ ? *whole_ : *encoded_; }

  void make_whole() {
    if (whole_ == nullptr) whole_ = make_codec_sum(wholly(request_));
  }

  static std::optional<CodecSpec> codec_of(const Treatment& treatment) {
    return treatment.is_bypassed ? std::nullopt : treatment.codec;
  }

  void look_for_owed() { owed_ = is_bypassed_ ? encoded_->save() : NamedFloats(); }

  void add_owed(std::size_t block, std::byte* buffer) const {
    const ScopedDenormals flush(true);  // as sums do
    for (const Place& place : places_)
      if (const auto owed = owed_.find(place.name); place.block == block && owed != owed_.end())
        add_floats(owed->second, request_.dtype, buffer + place.offset * bytes_of(request_.dtype));
  }

  NamedFloats without_residuals(NamedFloats state) const {
    for (const Place& place : places_) state.erase(place.name);
    return state;
  }

  const SumRequest request_;
  const int members_;
  const std::vector<Place> places_;
  const std::unique_ptr<GradientSum> encoded_;
  std::unique_ptr<GradientSum> whole_;  // from the first time on that it is needed
  bool is_bypassed_ = false;
  bool is_shadow_ = false;  // the step under way
  NamedFloats owed_;        // by the state's names; bypassed, until it is paid
};

}  // namespace

// power_sgd has four of each block's, the others fewer.
std::uint32_t whole_unit(const std::vector<BlockLayout>& blocks) {
  return static_cast<std::uint32_t>(4 * blocks.size());
}

std::unique_ptr<GradientSum> make_steered_sum(const SumRequest& request,
                                              std::unique_ptr<GradientSum> encoded) {
  return std::make_unique<SteeredSum>(request, std::move(encoded));
}

}  // namespace laconic
