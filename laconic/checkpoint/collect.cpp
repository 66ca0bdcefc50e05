#include "laconic/checkpoint/collect.hpp"

#include <ATen/ops/empty.h>
#include <c10/core/GradMode.h>
#include <fmt/format.h>

#include <algorithm>
#include <iterator>
#include <memory>
#include <utility>

#include "laconic/base/error.hpp"
#include "laconic/layout/box.hpp"
#include "laconic/tensor/host.hpp"
#include "laconic/world/control_unit.hpp"

namespace laconic {

namespace {

// Requests and answers of one collection. A request is the number of a tensor, part and parameter,
// and of a piece of it in the upper half.
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

// A tensor comes in pieces of at most so many bytes: no rank may have room for all of one.
constexpr std::uint64_t kPieceBytes = kMostAhead;

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
        givers.back().push_back({r, {weights.place.plan, coord, weights.place.tables}});
    }
  }
  return givers;
}

// A tensor comes in boxes of the sizes that a grid cuts.
BoxCut pieces_of(const ParameterSpec& p, Dtype dtype) {
  return cut_in_boxes(cut_sizes(p.sizes, p.parts, p.is_out_in),
                      static_cast<std::int64_t>(kPieceBytes / bytes_of(dtype)));
}

// What a rank has of a piece, as a box of its own part; without elements, if nothing.
Box own_part(const Box& piece, const GridPlace& place, const ParameterSpec& p) {
  if (is_dealt(place, p)) {
    const int ranks = place.tables.ranks, member = place.coord.dp;
    return {{dealt_rows(piece[0].begin, ranks, member), dealt_rows(piece[0].end, ranks, member)},
            piece[1]};
  }
  const Box shard = shard_at(place, p);
  return seen_from(intersection(piece, shard), shard);
}

at::Tensor in_box(at::Tensor view, const Box& box) {
  for (std::size_t d = 0; d < box.size(); ++d)
    view = view.narrow(static_cast<std::int64_t>(d), box[d].begin, box[d].size());
  return view;
}

// What a rank gives of a piece.
at::Tensor piece_of(const at::Tensor& held, const Box& piece, const GridPlace& place,
                    const ParameterSpec& p) {
  const at::Tensor cut = is_dealt(place, p) ? held : held.view(sizes_of(shard_at(place, p)));
  return in_box(cut, own_part(piece, place, p));
}

// Where it belongs in the piece.
at::Tensor place_in(const at::Tensor& whole, const Box& piece, const GridPlace& place,
                    const ParameterSpec& p) {
  if (!is_dealt(place, p))
    return in_box(whole, seen_from(intersection(piece, shard_at(place, p)), piece));
  const std::int64_t ranks = place.tables.ranks;
  const std::int64_t first = ((place.coord.dp - piece[0].begin) % ranks + ranks) % ranks;
  return whole.slice(0, std::min(first, piece[0].size()), piece[0].size(), ranks);
}

// Rank 0's end. Items are numbered in the order of the checkpoint, part by part, piece by piece.
class Collector {
 public:
  Collector(World& world, const PipelinePlan& plan, const Weights& weights,
            const OptimiserState& optimiser, OptimiserKind kind, std::uint64_t number)
      : world_(world),
        weights_(weights),
        optimiser_(optimiser),
        number_(number),
        dtype_(dtype_of(weights.precision.master)),
        givers_(givers_of(world, plan, weights)),
        specs_(weights.spec.parameters) {
    for (const Part part : kParts)
      for (std::size_t p = 0; p < specs_.size(); ++p) {
        if (!has_part(kind, weights.spec, part, p)) continue;
        const std::size_t pieces = box_count(pieces_of(specs_[p], dtype_));
        for (std::size_t n = 0; n < pieces; ++n)
          items_.push_back({part, p, static_cast<std::uint32_t>(n)});
      }
  }

  void tensor(Part part, std::size_t p, const TakePiece& take) {
    while (taken_ < items_.size() && (items_[taken_].part != part || items_[taken_].p != p))
      ++taken_;
    LACONIC_ASSERT(taken_ < items_.size(), specs_[p].name + " is asked for out of order");
    for (; taken_ < items_.size() && items_[taken_].part == part && items_[taken_].p == p;
         ++taken_) {
      ask_until(taken_);
      take(whole_of(items_[taken_]));
    }
  }

 private:
  // A piece of a part of a parameter.
  struct Item {
    Part part;
    std::size_t p;
    std::uint32_t number;  // among the pieces of the tensor
  };

  Box box_of(const Item& item) const {
    return box_at(pieces_of(specs_[item.p], dtype_), item.number);
  }
  at::Tensor whole_of(const Item& item) {
    const std::vector<Giver>& givers = givers_[item.p];
    const Box piece = box_of(item);
    if (givers.size() == 1) return given(item, piece, givers.front());
    const at::NoGradGuard no_grad;
    const at::Tensor whole = at::empty(sizes_of(piece), scalar_type_of(dtype_));
    for (const Giver& giver : givers)
      if (bytes_from(item, piece, giver) > 0)
        place_in(whole, piece, giver.place, specs_[item.p]).copy_(given(item, piece, giver));
    return whole;
  }
  at::Tensor given(const Item& item, const Box& piece, const Giver& giver) {
    const ParameterSpec& spec = specs_[item.p];
    if (giver.rank == 0)
      return piece_of(held(weights_, optimiser_, item.part, weights_.places[item.p]), piece,
                      giver.place, spec);
    const Bytes bytes = world_.engine().recv(giver.rank, tag_of(CollectMessage::tensor, number_));
    under_way_ -= bytes.size();
    return tensor_from_bytes(bytes, dtype_, sizes_of(own_part(piece, giver.place, spec)));
  }
  bool is_here(std::size_t p) const {
    return givers_[p].size() == 1 && givers_[p].front().rank == 0;
  }
  std::uint64_t bytes_from(const Item& item, const Box& piece, const Giver& giver) const {
    return bytes_of(dtype_) *
           static_cast<std::uint64_t>(elements_of(own_part(piece, giver.place, specs_[item.p])));
  }

  // Asks for everything up to `at`; beyond that for one item, and for more as long as there is
  // room for them.
  void ask_until(std::size_t at) {
    for (; next_ < items_.size(); ++next_) {
      const Item& item = items_[next_];
      if (is_here(item.p)) continue;
      const Box piece = box_of(item);
      std::uint64_t bytes = 0;
      for (const Giver& giver : givers_[item.p]) bytes += bytes_from(item, piece, giver);
      const bool has_more = last_asked_ > at;
      if (has_more && under_way_ + bytes > kMostAhead) return;
      ask(item, piece);
      last_asked_ = next_;
    }
  }

  void ask(const Item& item, const Box& piece) {
    const std::uint64_t which = static_cast<std::uint64_t>(item.part) * specs_.size() + item.p +
                                (static_cast<std::uint64_t>(item.number) << 32);
    for (const Giver& giver : givers_[item.p]) {
      const std::uint64_t bytes = bytes_from(item, piece, giver);
      if (giver.rank == 0 || bytes == 0) continue;
      world_.engine().send(
          {.to = giver.rank,
           .tag = tag_of(CollectMessage::request, number_),
           .raw_bytes = sizeof which,
           .message = std::make_shared<const Bytes>(copy_of(as_bytes(std::span(&which, 1))))});
      under_way_ += bytes;
    }
  }

  World& world_;
  const Weights& weights_;
  const OptimiserState& optimiser_;
  const std::uint64_t number_;
  const Dtype dtype_;
  const std::vector<std::vector<Giver>> givers_;  // by parameter
  const std::vector<ParameterSpec> specs_;
  std::vector<Item> items_;
  std::size_t taken_ = 0;  // the first that was not taken
  std::size_t next_ = 0;   // the first that was not asked for
  std::size_t last_asked_ = 0;
  std::uint64_t under_way_ = 0;  // bytes that were asked for and have not been taken
};

// What a request asks for, and its place here.
struct TensorRequest {
  Part part = Part::value;
  std::size_t place = 0;
  Box piece;
};
TensorRequest parse_tensor_request(ByteView bytes, const Weights& weights) {
  const std::size_t parameters = weights.places.size();
  const std::uint64_t which =
      bytes.size() == sizeof(std::uint64_t) ? get<std::uint64_t>(bytes, 0) : UINT64_MAX;
  const std::uint64_t at = which & UINT32_MAX, piece = which >> 32;
  const std::size_t p = at % parameters, place = weights.places[p];
  const BoxCut pieces = pieces_of(weights.spec.parameters[p], dtype_of(weights.precision.master));
  if (at >= std::size(kParts) * parameters || place >= weights.parameters.size() ||
      weights.parameters[place].number != p || piece >= box_count(pieces))
    throw WireError(0, "request",
                    fmt::format("rank 0 asks for piece {} of tensor {} of {} parameters, which is "
                                "not here",
                                piece, at, parameters));
  return {kParts[at / parameters], place, box_at(pieces, piece)};
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
          .tensor = [collector](Part part, std::size_t p, const TakePiece& take) {
            collector->tensor(part, p, take);
          }};
}

void give(World& world, const Weights& weights, const OptimiserState& optimiser,
          std::uint64_t number) {
  const auto spec_of = [&](std::size_t place) -> const ParameterSpec& {
    return weights.spec.parameters[weights.parameters[place].number];
  };
  const Dtype dtype = dtype_of(weights.precision.master);
  // Those of which this rank has something.
  const auto pieces_with = [&](const ParameterSpec& spec) {
    const BoxCut pieces = pieces_of(spec, dtype);
    std::size_t count = 0;
    for (std::size_t n = 0; n < box_count(pieces); ++n)
      if (elements_of(own_part(box_at(pieces, n), weights.place, spec)) > 0) ++count;
    return count;
  };
  std::size_t left = 0;
  for (std::size_t p = 0; p < weights.parameters.size(); ++p)
    if ((world.dp_member() == 0 || is_cut_by_replicas(weights, weights.parameters[p])) &&
        speaks_for(weights, weights.parameters[p]))
      left += pieces_with(spec_of(p)) *
              (optimiser.moment2[p].defined() ? std::size(kParts) : std::size(kParts) - 1);
  for (; left > 0; --left) {
    const Bytes request = world.recv_from_decider(tag_of(CollectMessage::request, number));
    const auto [part, place, piece] = parse_tensor_request(request, weights);
    const at::Tensor tensor = on_host(piece_of(held(weights, optimiser, part, place), piece,
                                               weights.place, spec_of(place)))
                                  .contiguous();
    const ByteView bytes = bytes_of_tensor(tensor);
    world.engine().send({.to = 0,
                         .tag = tag_of(CollectMessage::tensor, number),
                         .raw_bytes = bytes.size(),
                         .message = std::make_shared<const Bytes>(copy_of(bytes))});
  }
  world.engine().flush();
}

}  // namespace laconic
