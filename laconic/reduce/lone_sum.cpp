#include "laconic/reduce/method.hpp"

namespace laconic {

namespace {

// The sum of one contribution is itself. What a checkpoint of a larger group says is outstanding
// is added to the first step, and then nothing is owed any more.
class LoneSum final : public GradientSum {
 public:
  LoneSum(const GradientPolicy& policy, const std::vector<BlockLayout>& blocks, Dtype dtype,
          bool is_on_device)
      : dtype_(dtype),
        is_on_device_(is_on_device),
        places_(residual_places(policy, blocks)),
        sizes_(state_sizes(policy, blocks, 1, 0)) {}

  void begin(std::uint64_t /*step*/) override { is_shadow_ = false; }
  void begin_shadow(std::uint64_t /*step*/) override { is_shadow_ = true; }

  void post(std::size_t block, std::byte* buffer, const Ready& ready) override {
    if (is_shadow_) return;
    for (const ResidualSlice& place : places_)
      if (const auto owed = owed_.find(place.name); place.block == block && owed != owed_.end()) {
        std::byte* at = buffer + place.offset * bytes_of(dtype_);
        if (is_on_device_)
          add_floats_on_device(owed->second, at, ready);
        else
          add_floats(owed->second, dtype_, at);
      }
  }

  void wait() override {}
  bool has_arrived(std::size_t /*block*/) const override { return true; }
  void wait(std::size_t /*block*/) override {}
  void commit() override { owed_.clear(); }
  void abandon() override {}
  void override_codec(const CodecOverride&) override {}

  NamedFloats save() const override { return owed_; }
  void load(const NamedFloats& state) override {
    require_fit(state, sizes_);
    owed_ = state;
  }

 private:
  const Dtype dtype_;
  const bool is_on_device_;
  const std::vector<ResidualSlice> places_;
  const StateSizes sizes_;
  NamedFloats owed_;
  bool is_shadow_ = false;
};

}  // namespace

std::unique_ptr<GradientSum> make_lone_sum(const GradientPolicy& policy,
                                           const std::vector<BlockLayout>& blocks, Dtype dtype,
                                           bool is_on_device) {
  return std::make_unique<LoneSum>(policy, blocks, dtype, is_on_device);
}

}  // namespace laconic
