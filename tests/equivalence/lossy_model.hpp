// tests/equivalence/lossy_model.hpp — a run in one process that loses what the links of a pipeline
// lose.
//
// Stage after stage, with the two ends of each link between. That a pipeline trains the same bits
// is a test of its own (PipelineParallel.ALossyPipelineIsAModelOfTheSameLossInOneProcess); with it,
// what a test sees at a boundary here is what happens at a boundary there.
#pragma once

#include <ATen/ops/empty.h>
#include <ATen/ops/empty_like.h>
#include <ATen/ops/scalar_tensor.h>
#include <fmt/format.h>

#include <deque>
#include <functional>
#include <optional>

#include "laconic/checkpoint/resume.hpp"
#include "laconic/store/reference_record.hpp"
#include "laconic/tensor/host.hpp"
#include "laconic/tensor/tensor_link.hpp"
#include "laconic/train/batch.hpp"
#include "laconic/train/pipeline_plan.hpp"
#include "laconic/update/learning_rate.hpp"
#include "laconic/update/update_rule.hpp"

namespace laconic {

// One message over a boundary, once it has arrived.
struct Passage {
  bool is_gradient = false;
  std::size_t edge = 0;
  std::int64_t microbatch = 0;
  at::Tensor given, arrived;
  // What the sender held of these samples before. Undefined if it keeps none, or not of all.
  at::Tensor reference;
  std::span<const float> residual;  // of the sender, after this message
};
using Watch = std::function<void(const Passage&)>;

class LossyModel {
 public:
  LossyModel(const RunConfig& config, const Dataset& data, Watch watch = {})
      : config_(config),
        data_(data),
        watch_(std::move(watch)),
        start_(start_run(config, {.resume = "none", .follows = true}, {.vocabulary = 257})),
        decisions_(decide_pipeline(config, start_.weights.family, {}, tensor_options(config))),
        plan_(plan_of(config, decisions_)) {
    for (std::size_t s = 0; s < plan_.stages.size(); ++s)
      stages_.emplace_back(start_.weights, plan_.stages[s], StageOptions{});
    for (std::size_t e = 0; e + 1 < plan_.stages.size(); ++e) {
      up_.emplace_back(numbered(Traffic::pp_activation, e));
      down_.emplace_back(numbered(Traffic::pp_gradient, e));
    }
  }

  // Returns the mean loss.
  double step(std::int64_t number) {
    for (std::vector<Link>* links : {&up_, &down_})
      for (Link& link : *links) link.begin(static_cast<std::uint64_t>(number));
    double loss = 0;
    for (std::int64_t m = 0; m < config_.microbatches(); ++m) loss += pass(number, m);
    for (std::size_t p = 0; p < start_.weights.parameters.size(); ++p)
      complete_gradient(start_.weights, p);
    const double norm = global_norm(start_.weights.parameters);
    apply(optimiser_spec(config_.optimiser), start_.state.optimiser, start_.weights.parameters,
          learning_rate(config_.optimiser, config_.train.steps, number),
          norm > config_.train.clip ? config_.train.clip / norm : 1);
    clear_gradients(start_.weights);
    for (std::vector<Link>* links : {&up_, &down_})
      for (Link& link : *links) link.commit();
    return loss / static_cast<double>(config_.microbatches());
  }

  // As LinkRegistry::override_codec().
  void override_codec(Traffic traffic, const CodecOverride& codec_override) {
    const bool is_up = traffic == Traffic::pp_activation;
    (is_up ? is_up_whole_ : is_down_whole_) = codec_override.is_bypassed;
    for (std::size_t e = 0; e < up_.size(); ++e) {
      const LinkSpec configured = link_at(plan_, traffic, static_cast<int>(e));
      if (!is_lossy(configured)) continue;
      const CodecSpec codec = effective_codec(codec_override, configured.codec);
      Link& link = (is_up ? up_ : down_)[e];
      link.sender.set_codec(codec);
      link.receiver.set_codec(codec);
    }
  }

  const Weights& weights() const { return start_.weights; }

 private:
  struct Link {
    explicit Link(const LinkSpec& spec) : sender(spec), receiver(spec) {}
    void begin(std::uint64_t step) {
      sender.begin(step);
      receiver.begin(step);
    }
    void commit() {
      sender.commit();
      receiver.commit();
    }
    Sender sender;
    Receiver receiver;
  };

  LinkSpec numbered(Traffic traffic, std::size_t edge) const {
    LinkSpec link = link_at(plan_, traffic, static_cast<int>(edge));
    link.name = fmt::format("{}.{}", name_of(traffic), edge);
    link.numbering = edge_numbering(static_cast<int>(config_.microbatches()));
    return link;
  }

  struct Route {
    bool is_gradient = false;
    std::size_t edge = 0;
    Use use = Use::train;
    std::int64_t microbatch = 0;
  };

  // `of_samples` is [samples, tokens, width]; links see its rows.
  at::Tensor over(const Route& route, const at::Tensor& of_samples,
                  const std::vector<std::uint64_t>& ids) {
    const at::Tensor x = of_samples.reshape({-1, of_samples.size(-1)});
    Link& link = (route.is_gradient ? down_ : up_)[route.edge];
    const bool by_sample =
        std::holds_alternative<Delta>(link.sender.spec().memory) && route.use == Use::train;
    const auto samples = static_cast<std::int64_t>(ids.size());
    const at::Tensor viewed = by_sample ? x.reshape({samples, -1, x.size(1)}) : x;
    const MessageSpec message{.number = static_cast<int>(route.microbatch),
                              .use = route.use,
                              .samples = by_sample ? std::span<const std::uint64_t>(ids)
                                                   : std::span<const std::uint64_t>()};
    const at::Tensor reference = watch_ ? held(link.sender, x, message.samples) : at::Tensor();
    const SharedBytes bytes = pack(link.sender, viewed, message);
    const at::Tensor arrived =
        unpack(link.receiver, bytes, spec_of(viewed), at::kCPU, message).tensor.view(x.sizes());
    if (watch_)
      watch_({.is_gradient = route.is_gradient,
              .edge = route.edge,
              .microbatch = route.microbatch,
              .given = x,
              .arrived = arrived,
              .reference = reference,
              .residual = link.sender.residual()});
    return arrived.view(of_samples.sizes());
  }

  // The references of these samples, as one tensor like `x`. Requires: `x` is f32.
  static at::Tensor held(Sender& sender, const at::Tensor& x, std::span<const std::uint64_t> keys) {
    DeltaStore* store = sender.references();
    if (store == nullptr || keys.empty()) return {};
    const at::Tensor found = at::empty(x.sizes(), x.options());
    const std::size_t count = static_cast<std::size_t>(x.numel()) / keys.size();
    const Reference kind = std::get<Delta>(sender.spec().memory).reference;
    for (std::size_t k = 0; k < keys.size(); ++k) {
      const auto record = store->find(keys[k]);
      if (!record) return {};
      read_record(kind, record->bytes, count, found.data_ptr<float>() + k * count);
    }
    return found;
  }

  // Returns the loss of the microbatch.
  double pass(std::int64_t step, std::int64_t microbatch) {
    const std::int64_t micro = config_.microbatch_size();
    const SampleOrder order = sample_order(config_, samples_in(data_), 0);
    std::vector<std::int64_t> ids;
    for (std::int64_t s = 0; s < micro; ++s)
      ids.push_back(static_cast<std::int64_t>(sample_at(
          order, static_cast<std::uint64_t>(step * config_.train.batch + microbatch * micro + s))));
    const std::vector<std::uint64_t> keys(ids.begin(), ids.end());
    const Batch batch = make_batch(task_of(config_), data_, ids, at::kCPU);
    const Pass how{.dropout = config_.model.dropout,
                   .sample_keys = dropout_keys(config_, step, ids)};
    at::Tensor x;
    for (std::size_t s = 0; s < stages_.size(); ++s) {
      x = stages_[s].forward(0, batch, how, s == 0 ? Seam() : Seam{x})[0];
      if (s + 1 < stages_.size())
        x = over({false, s, is_up_whole_ ? Use::bypass : Use::train, microbatch}, x, keys);
    }
    const double loss = x.item<double>();
    const double weight = static_cast<double>(micro) / static_cast<double>(config_.train.batch);
    at::Tensor gradient = at::scalar_tensor(weight, x.options());
    for (std::size_t s = stages_.size(); s-- > 0;) {
      const Seam of_input = stages_[s].backward(0, {gradient}, {});
      if (s == 0) break;
      gradient = of_input[0];
      const bool is_encoded =
          !is_down_whole_ && (decisions_.encoded.empty() ||
                              decisions_.encoded[s - 1][static_cast<std::size_t>(microbatch)]);
      gradient =
          over({true, s - 1, is_encoded ? Use::train : Use::bypass, microbatch}, gradient, keys);
    }
    return loss;
  }

  RunConfig config_;
  const Dataset& data_;
  Watch watch_;
  Start start_;
  PipelineDecisions decisions_;
  PipelinePlan plan_;
  std::deque<Stage> stages_;
  std::vector<Link> up_, down_;
  bool is_up_whole_ = false, is_down_whole_ = false;
};

}  // namespace laconic
