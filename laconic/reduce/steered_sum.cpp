#include "laconic/base/denormals.hpp"
#include "laconic/base/error.hpp"
#include "laconic/reduce/method.hpp"

namespace laconic {

namespace {

SumRequest raw_request(SumRequest request) {
  request.first_unit = raw_unit(request.blocks);
  request.policy = {.algorithm = request.policy.raw_algorithm, .seed = request.policy.seed};
  return request;
}

// Two sums that never work in the same step. The encoded one keeps what it remembers while the
// raw one works, but for residuals, which are paid first.
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
    make_raw();
    raw_->begin(step);
  }
  void post(std::size_t block, std::byte* buffer, const Ready& ready) override {
    if (is_bypassed_ && !is_shadow_) add_owed(block, buffer, ready);
    now().post(block, buffer, ready);
  }
  void wait() override { now().wait(); }
  bool has_arrived(std::size_t block) const override { return now().has_arrived(block); }
  void wait(std::size_t block) override { now().wait(block); }
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

  void measure_fidelity(bool is_on) override { encoded_->measure_fidelity(is_on); }
  Fidelity fidelity() const override { return encoded_->fidelity(); }

  void override_codec(const CodecOverride& codec_override) override {
    refuse(check(codec_override, request_.policy, request_.dtype, members_));
    encoded_->override_codec({.codec = codec_of(codec_override)});
    is_bypassed_ = codec_override.is_bypassed;
    if (is_bypassed_) make_raw();
    look_for_owed();
  }

  NamedFloats save() const override { return encoded_->save(); }
  void load(const NamedFloats& state) override {
    encoded_->load(state);
    look_for_owed();
  }

 private:
  GradientSum& now() const { return is_bypassed_ || is_shadow_ ? *raw_ : *encoded_; }

  void make_raw() {
    if (raw_ == nullptr) raw_ = make_codec_sum(raw_request(request_));
  }

  static std::optional<CodecSpec> codec_of(const CodecOverride& codec_override) {
    return codec_override.is_bypassed ? std::nullopt : codec_override.codec;
  }

  void look_for_owed() { owed_ = is_bypassed_ ? encoded_->save() : NamedFloats(); }

  void add_owed(std::size_t block, std::byte* buffer, const Ready& ready) const {
    const ScopedDenormals flush(true);  // as sums do
    for (const ResidualSlice& place : places_)
      if (const auto owed = owed_.find(place.name); place.block == block && owed != owed_.end()) {
        std::byte* at = buffer + place.offset * bytes_of(request_.dtype);
        if (request_.is_on_device)
          add_floats_on_device(owed->second, at, ready);
        else
          add_floats(owed->second, request_.dtype, at);
      }
  }

  NamedFloats without_residuals(NamedFloats state) const {
    for (const ResidualSlice& place : places_) state.erase(place.name);
    return state;
  }

  const SumRequest request_;
  const int members_;
  const std::vector<ResidualSlice> places_;
  const std::unique_ptr<GradientSum> encoded_;
  std::unique_ptr<GradientSum> raw_;  // from the first time on that it is needed
  bool is_bypassed_ = false;
  bool is_shadow_ = false;  // the step under way
  NamedFloats owed_;        // by the state's names; bypassed, until it is paid
};

}  // namespace

// power_sgd has four of each block's, the others fewer.
std::uint32_t raw_unit(const std::vector<BlockLayout>& blocks) {
  return static_cast<std::uint32_t>(4 * blocks.size());
}

std::unique_ptr<GradientSum> make_steered_sum(const SumRequest& request,
                                              std::unique_ptr<GradientSum> encoded) {
  return std::make_unique<SteeredSum>(request, std::move(encoded));
}

}  // namespace laconic
