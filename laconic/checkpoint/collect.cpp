#include "laconic/checkpoint/collect.hpp"

#include <ATen/ops/empty.h>
#include <c10/core/GradMode.h>
#include <fmt/format.h>

#include <algorithm>
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

// Who gives a part of a parameter.
struct Giver {
  Rank rank = 0;
  GridPlace place;
};

bool is_cut_by_dp(const Layout& layout) {
  const Axes axes = axes_of(layout);
  return std::ranges::find(axes, Axis::dp) != axes.end();
}

// By parameter. One for each part: the ranks of the first replica that speak for it, or of all
// replicas where these have different parts.
std::vector<std::vector<Giver>> givers_of(const World& world, const PipelinePlan& plan,
                                          const Weights& weights) {
  const std::vector<int> of_block = ranks_of_blocks(plan);
  std::vector<std::vector<Giver>> givers;
  for (std::size_t p = 0; p < weights.spec.parameters.size(); ++p) {
    const int pp = of_block[static_cast<std::size_t>(first_user(weights.spec, p))];
    const Layout layout = layout_at(weights.place, weights.spec.parameters[p]);
    givers.emplace_back();
    for (Rank r = 0; r < world.size(); ++r) {
      const Coord coord = coord_of(world.mesh(), r);
      const bool speaks = coord.dp == 0 || is_cut_by_dp(layout);
      if (coord.pp == pp && speaks && speaks_for(layout, world.mesh(), coord))
        givers.back().push_back({r, {weights.place.plan, coord, weights.place.table_ranks}});
    }
  }
  return givers;
}

// Puts a part where it belongs.
void put(const at::Tensor& part, const GridPlace& place, const ParameterSpec& p,
         const at::Tensor& whole) {
  at::Tensor into = whole.view(cut_sizes(p.sizes, p.parts, p.is_out_in));
  const std::vector<Range> shard = shard_at(place, p);
  for (std::size_t d = 0; d < shard.size(); ++d)
    into = into.narrow(static_cast<std::int64_t>(d), shard[d].begin, shard[d].size());
  into.copy_(part.view(into.sizes()));
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
        givers_(givers_of(world, plan, weights)),
        specs_(weights.spec.parameters) {}

  at::Tensor tensor(Part part, std::size_t p) {
    ask_until(static_cast<std::size_t>(part) * specs_.size() + p);
    if (givers_[p].size() == 1) return part_of(part, p, givers_[p].front());
    const at::NoGradGuard no_grad;
    const at::Tensor whole = at::empty(specs_[p].sizes, scalar_type_of(dtype_));
    for (const Giver& giver : givers_[p])
      put(on_host(part_of(part, p, giver)), giver.place, specs_[p], whole);
    return whole;
  }

 private:
  at::Tensor part_of(Part part, std::size_t p, const Giver& giver) {
    if (giver.rank == 0) return held(weights_, optimiser_, part, weights_.places[p]);
    const Bytes bytes = world_.engine().recv(giver.rank, tag_of(CollectMessage::tensor, number_));
    under_way_ -= bytes.size();
    return tensor_from_bytes(bytes, dtype_, sizes_at(giver.place, specs_[p]));
  }
  bool is_here(std::size_t p) const {
    return givers_[p].size() == 1 && givers_[p].front().rank == 0;
  }
  static std::uint64_t elements(const std::vector<std::int64_t>& sizes) {
    std::uint64_t product = 1;
    for (const std::int64_t size : sizes) product *= static_cast<std::uint64_t>(size);
    return product;
  }
  std::uint64_t bytes_of_parameter(std::size_t p) const {
    return bytes_of(dtype_) * elements(specs_[p].sizes);
  }

  // Asks for everything up to `at`; beyond that for one tensor, and for more as long as there is
  // room for them.
  void ask_until(std::size_t at) {
    for (; next_ < std::size(kParts) * specs_.size(); ++next_) {
      const std::size_t p = next_ % specs_.size();
      if (is_here(p) || !has_part(kind_, weights_.spec, kParts[next_ / specs_.size()], p)) continue;
      const bool has_more = last_asked_ > at;
      if (has_more && under_way_ + bytes_of_parameter(p) > kMostAhead) return;
      ask(next_, p);
      last_asked_ = next_;
    }
  }

  void ask(std::size_t at, std::size_t p) {
    const auto which = static_cast<std::uint64_t>(at);
    for (const Giver& giver : givers_[p]) {
      if (giver.rank == 0) continue;
      world_.engine().send(
          {.to = giver.rank,
           .tag = tag_of(CollectMessage::request, number_),
           .raw_bytes = sizeof which,
           .message = std::make_shared<const Bytes>(copy_of(as_bytes(std::span(&which, 1))))});
      under_way_ += bytes_of(dtype_) * elements(sizes_at(giver.place, specs_[p]));
    }
  }

  World& world_;
  const Weights& weights_;
  const OptimiserState& optimiser_;
  const OptimiserKind kind_;
  const std::uint64_t number_;
  const Dtype dtype_;
  const std::vector<std::vector<Giver>> givers_;  // by parameter
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
          .codes = codes_of(weights.spec),
          .tensor = [collector](Part part, std::size_t p) { return collector->tensor(part, p); }};
}

void give(World& world, const Weights& weights, const OptimiserState& optimiser,
          std::uint64_t number) {
  std::size_t left = 0;
  for (std::size_t p = 0; p < weights.parameters.size(); ++p)
    if ((world.dp_member() == 0 || is_cut_by_replicas(weights, weights.parameters[p])) &&
        speaks_for(weights, weights.parameters[p]))
      left += optimiser.moment2[p].defined() ? std::size(kParts) : std::size(kParts) - 1;
  for (; left > 0; --left) {
    const Bytes request = world.recv_from_decider(tag_of(CollectMessage::request, number));
    const auto [part, place] = parse_tensor_request(request, weights);
    const at::Tensor tensor = on_host(held(weights, optimiser, part, place)).contiguous();
    const ByteView bytes = bytes_of_tensor(tensor);
    world.engine().send({.to = 0,
                         .tag = tag_of(CollectMessage::tensor, number),
                         .raw_bytes = bytes.size(),
                         .message = std::make_shared<const Bytes>(copy_of(bytes))});
  }
  world.engine().flush();
}

}  // namespace laconic
