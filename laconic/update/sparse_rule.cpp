// SparseLoCo: at the end of a round every replica sends the largest elements of what it has changed
// and not sent so far (reduce/sparse_change.hpp), and all go along what comes together. What is not
// sent stays, a little less in every round, and is the only momentum.
#include <c10/core/GradMode.h>

#include "laconic/collective/run.hpp"
#include "laconic/reduce/sparse_change.hpp"
#include "laconic/tensor/host.hpp"
#include "laconic/update/local_rule.hpp"

namespace laconic {

namespace {

constexpr char kOwed[] = "owed.";

SparseAggregate aggregate_of(const LocalSection& local) {
  return local.aggregate == ChangeAggregate::mean ? SparseAggregate::mean
                                                  : SparseAggregate::choosers;
}

std::span<float> floats_of(const at::Tensor& tensor) {
  return {tensor.data_ptr<float>(), static_cast<std::size_t>(tensor.numel())};
}

class SparseRule final : public LocalRule {
 public:
  explicit SparseRule(const RuleRequest& request) : LocalRule(request), owed_(request.weights) {}

  void apply(OptimiserState& state, double lr, double scale) override {
    laconic::apply(optimiser_spec(config_.optimiser), state, weights_.parameters, lr, scale);
    finish_step();
  }
  void abandon() override { finish_step(); }  // this replica's inner step alone is left out

  RankTensors save(const OptimiserState& state) const override;
  void load(const std::vector<RankTensors>& saved, OptimiserState& state) override;

 private:
  void finish_step() {
    if (agrees_after(step_ + 1)) end_round();
  }
  TensorSpec spec_of_part(std::size_t p) const {
    return sum_spec_of(weights_, weights_.parameters[p]);
  }
  Bytes encoded_changes();
  void end_round();

  FlatBlocks owed_;  // changes that were not sent
};

Bytes SparseRule::encoded_changes() {
  Bytes mine;
  for (std::size_t p = 0; p < weights_.parameters.size(); ++p) {
    const at::Tensor& owed = owed_.part(p);
    const at::Tensor value = weights_.parameters[p].value.detach().to(at::kCPU);
    owed.mul_(config_.local.memory).add_(start_.part(p)).sub_(value);
    encode_sparse(spec_of_part(p), floats_of(owed), mine);
  }
  return mine;
}

void SparseRule::end_round() {
  const at::NoGradGuard no_grad;
  const std::vector<Bytes> all =
      gather_all(world_.engine(), world_.dp_group(), Traffic::dp_gradient, 0,
                 static_cast<std::uint64_t>(step_), encoded_changes());
  std::vector<ByteView> payloads(all.begin(), all.end());
  const double lr = laconic::outer_step(config_.local).lr;
  for (std::size_t p = 0; p < weights_.parameters.size(); ++p) {
    std::vector<std::vector<SparseElement>> ranks;
    for (ByteView& payload : payloads) ranks.push_back(decode_sparse(spec_of_part(p), payload));
    const at::Tensor value = weights_.parameters[p].value.detach();
    const at::Tensor whole = exchange_.part(p);
    aggregate_sparse(ranks, aggregate_of(config_.local), floats_of(whole));
    start_.part(p).sub_(whole, lr);
    at::Tensor(value).copy_(start_.part(p));
  }
  refresh_copies(weights_.parameters);
}

RankTensors SparseRule::save(const OptimiserState& state) const {
  RankTensors tensors;
  save_updates(state, tensors);
  for (std::size_t p = 0; p < weights_.parameters.size(); ++p) {
    const std::string& name = weights_.parameters[p].name;
    tensors["moment1." + name] = on_host(state.moment1[p]);
    if (state.moment2[p].defined()) tensors["moment2." + name] = on_host(state.moment2[p]);
    tensors[kOwed + name] = owed_.part(p);
  }
  return tensors;
}

// What another number of replicas owed is shared out as moments are: all take the mean, so that the
// mean of what they will send is what it was.
void SparseRule::load(const std::vector<RankTensors>& saved, OptimiserState& state) {
  remember_start();
  if (saved.empty()) return;
  const std::vector<RankTensors> replicas = replicas_of(saved);
  load_updates(replicas, state);
  const at::NoGradGuard no_grad;
  for (std::size_t p = 0; p < weights_.parameters.size(); ++p) {
    const std::string& name = weights_.parameters[p].name;
    load_moment(replicas, "moment1." + name, state.moment1[p]);
    if (state.moment2[p].defined()) load_moment(replicas, "moment2." + name, state.moment2[p]);
    at::Tensor owed = owed_.part(p);
    load_moment(replicas, kOwed + name, owed);
  }
}

}  // namespace

std::unique_ptr<UpdateRule> make_sparse_rule(const RuleRequest& request) {
  return std::make_unique<SparseRule>(request);
}

}  // namespace laconic
