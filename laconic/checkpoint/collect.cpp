#include "laconic/checkpoint/collect.hpp"

#include <fmt/format.h>

#include <iterator>
#include <memory>
#include <utility>

#include "laconic/base/error.hpp"
#include "laconic/tensor/host.hpp"
#include "laconic/world/control_unit.hpp"

namespace laconic {

namespace {

// Requests and answers of one collection. A request is the number of a tensor: part and parameter.
enum class CollectMessage : std::uint32_t { tensor, request };

Tag tag_of(CollectMessage message, std::uint64_t number) {
  return make_tag({.traffic = Traffic::control,
                   .unit = kCollectUnit,
                   .number = number,
                   .part = static_cast<std::uint32_t>(message)});
}

// Small tensors are asked for ahead up to so many bytes: over a link with a latency of 100 ms that
// keeps 300 Mbit/s busy.
constexpr std::uint64_t kMostAhead = std::uint64_t{4} << 20;

constexpr Part kParts[] = {Part::value, Part::moment1, Part::moment2};

at::Tensor held(const Weights& weights, const OptimiserState& optimiser, Part part,
                std::size_t place) {
  if (part == Part::value) return weights.parameters[place].value.detach();
  return (part == Part::moment1 ? optimiser.moment1 : optimiser.moment2)[place];
}

// The place in the pipeline whose rank gives a parameter, by its number.
std::vector<int> givers(const PipelinePlan& plan, const ModelSpec& spec) {
  const std::vector<int> of_block = ranks_of_blocks(plan);
  std::vector<int> givers;
  for (std::size_t p = 0; p < spec.parameters.size(); ++p)
    givers.push_back(of_block[static_cast<std::size_t>(first_user(spec, p))]);
  return givers;
}

// Rank 0's end. Tensors are numbered in the order of the checkpoint, part by part.
class Collector {
 public:
  Collector(World& world, const PipelinePlan& plan, const Weights& weights,
            const OptimiserState& optimiser, OptimiserKind kind, std::uint64_t number)
      : world_(world),
        weights_(weights),
        optimiser_(optimiser),
        kind_(kind),
        number_(number),
        dtype_(dtype_of(weights.precision.master)),
        givers_(givers(plan, weights.spec)),
        specs_(weights.spec.parameters) {}

  at::Tensor tensor(Part part, std::size_t p) {
    ask_until(static_cast<std::size_t>(part) * specs_.size() + p);
    if (givers_[p] == 0) return held(weights_, optimiser_, part, weights_.places[p]);
    const Bytes bytes = world_.engine().recv(giver_of(p), tag_of(CollectMessage::tensor, number_));
    under_way_ -= bytes_of_parameter(p);
    return tensor_from_bytes(bytes, dtype_, specs_[p].sizes);
  }

 private:
  Rank giver_of(std::size_t p) const {
    return world_.pp_group()[static_cast<std::size_t>(givers_[p])];
  }
  std::uint64_t bytes_of_parameter(std::size_t p) const {
    std::uint64_t bytes = bytes_of(dtype_);
    for (const std::int64_t size : specs_[p].sizes) bytes *= static_cast<std::uint64_t>(size);
    return bytes;
  }

  // Asks for everything up to `at`; beyond that for one tensor, and for more as long as there is
  // room for them.
  void ask_until(std::size_t at) {
    for (; next_ < std::size(kParts) * specs_.size(); ++next_) {
      const std::size_t p = next_ % specs_.size();
      if (givers_[p] == 0 || !has_part(kind_, weights_.spec, kParts[next_ / specs_.size()], p))
        continue;
      const bool has_more = last_asked_ > at;
      if (has_more && under_way_ + bytes_of_parameter(p) > kMostAhead) return;
      ask(next_, p);
      last_asked_ = next_;
    }
  }

  void ask(std::size_t at, std::size_t p) {
    const auto which = static_cast<std::uint64_t>(at);
    world_.engine().send(
        {.to = giver_of(p),
         .tag = tag_of(CollectMessage::request, number_),
         .raw_bytes = sizeof which,
         .message = std::make_shared<const Bytes>(copy_of(as_bytes(std::span(&which, 1))))});
    under_way_ += bytes_of_parameter(p);
  }

  World& world_;
  const Weights& weights_;
  const OptimiserState& optimiser_;
  const OptimiserKind kind_;
  const std::uint64_t number_;
  const Dtype dtype_;
  const std::vector<int> givers_;  // by parameter
  const std::vector<ParameterSpec> specs_;
  std::size_t next_ = 0;  // the first that was not asked for
  std::size_t last_asked_ = 0;
  std::uint64_t under_way_ = 0;  // bytes that were asked for and have not been taken
};

// What a request asks for, and its place here.
std::pair<Part, std::size_t> parse_tensor_request(ByteView bytes, const Weights& weights) {
  const std::size_t parameters = weights.places.size();
  const std::uint64_t at =
      bytes.size() == sizeof(std::uint64_t) ? get<std::uint64_t>(bytes, 0) : UINT64_MAX;
  const std::size_t p = at % parameters, place = weights.places[p];
  if (at >= std::size(kParts) * parameters || place >= weights.parameters.size() ||
      weights.parameters[place].number != p)
    throw WireError(0, "request",
                    fmt::format("rank 0 asks for tensor {} of {} parameters, which is not here", at,
                                parameters));
  return {kParts[at / parameters], place};
}

}  // namespace

ModelSource collecting_source(World& world, const PipelinePlan& plan, const Weights& weights,
                              const OptimiserState& optimiser, OptimiserKind kind,
                              std::uint64_t number) {
  const auto collector = std::make_shared<Collector>(world, plan, weights, optimiser, kind, number);
  return {.family = weights.family,
          .dtype = dtype_of(weights.precision.master),
          .optimiser = kind,
          .tensor = [collector](Part part, std::size_t p) { return collector->tensor(part, p); }};
}

void give(World& world, const Weights& weights, const OptimiserState& optimiser,
          std::uint64_t number) {
  if (world.dp_member() != 0) return;
  std::size_t left = 0;
  for (std::size_t p = 0; p < weights.parameters.size(); ++p)
    if (!is_copy(weights, weights.parameters[p]))
      left += optimiser.moment2[p].defined() ? std::size(kParts) : std::size(kParts) - 1;
  for (; left > 0; --left) {
    const Bytes request = world.recv_from_decider(tag_of(CollectMessage::request, number));
    const auto [part, place] = parse_tensor_request(request, weights);
    const at::Tensor tensor = on_host(held(weights, optimiser, part, place)).contiguous();
    const ByteView bytes = bytes_of_tensor(tensor);
    world.engine().send({.to = world.pp_group().front(),
                         .tag = tag_of(CollectMessage::tensor, number),
                         .raw_bytes = bytes.size(),
                         .message = std::make_shared<const Bytes>(copy_of(bytes))});
  }
  world.engine().flush();
}

}  // namespace laconic
