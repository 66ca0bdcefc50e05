// runtime/pipeline_edge.hpp — one rank's ends of all links between two stages.
//
// What crosses from a stage to the next is a seam, a short list of tensors
// (model/model.hpp). Each of them has a link of its own in both directions,
// whose messages have a tag unit of their own, so that what one link remembers
// or asks for again does not concern the others.
#pragma once

#include <functional>
#include <memory>
#include <vector>

#include "laconic/link/codec_override.hpp"
#include "laconic/model/model.hpp"
#include "laconic/runtime/edge.hpp"

namespace laconic {

struct PipelinePlan;

struct PipelineEdge {
  // One tensor's.
  struct Ends {
    Ends(Engine& engine, const EdgeSpec& sent, const EdgeSpec& received)
        : sender(engine, sent), receiver(engine, received) {}
    EdgeSender sender;
    EdgeReceiver receiver;
  };

  // `is_upper`: the stage behind the edge is here, and the one before it at `peer`. Throws
  // ConfigError.
  PipelineEdge(Engine& engine, const PipelinePlan& plan, const std::vector<SeamTensor>& seam,
               int number, Rank peer, bool is_upper);

  void begin(std::uint64_t step);
  void post(int microbatch);
  // Requires: a tensor for each link, as [samples, per_sample...].
  void send(const Seam& tensors, const MessageSpec& message, DeadlineKey key);
  // Waits for the tensors of so many samples, each as `expected` says; the rest is as with
  // EdgeReceiver::recv(). Requires: one for each link.
  Seam recv(const std::vector<SeamTensor>& expected, std::int64_t samples,
            const at::TensorOptions& options, const MessageSpec& message,
            const std::function<void()>& serve);

  Traffic sent() const { return sends_activations ? Traffic::pp_activation : Traffic::pp_gradient; }
  CodecOverride& override_of(Traffic traffic) {
    return traffic == Traffic::pp_activation ? activation : gradient;
  }

  Rank peer;
  bool sends_activations;  // and receives gradients
  bool has_gradient_delta;
  CodecOverride activation, gradient;  // what a run has changed about them
  TagFields tag;
  std::vector<int> awaited;  // microbatches, in the order in which the list takes them
  std::vector<std::unique_ptr<Ends>> ends;  // by tensor of the seam
};

}  // namespace laconic
