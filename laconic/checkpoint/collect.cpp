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

// Tables that replicas share come in pieces of rows, so many bytes of whole rows each: no rank may
// have room for all of one.
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

// Rows [begin, end) of a tensor that come together; of most tensors all of them.
std::vector<Range> pieces_of(const GridPlace& place, const ParameterSpec& p, Dtype dtype) {
  if (place.tables.of(p.name) == ReplicaCut::whole) return {{0, p.sizes.empty() ? 1 : p.sizes[0]}};
  const std::uint64_t row_bytes = bytes_of(dtype) * static_cast<std::uint64_t>(p.sizes[1]);
  const auto each = static_cast<std::int64_t>(std::max<std::uint64_t>(1, kPieceBytes / row_bytes));
  std::vector<Range> pieces;
  for (std::int64_t begin = 0; begin < p.sizes[0]; begin += each)
    pieces.push_back({begin, std::min(begin + each, p.sizes[0])});
  return pieces;
}

// Which rows of its own part a rank has of a piece.
Range rows_in(const Range& piece, const GridPlace& place, const ParameterSpec& p) {
  if (place.tables.of(p.name) != ReplicaCut::rows) return piece;
  const int ranks = place.tables.ranks, member = place.coord.dp;
  return {dealt_rows(piece.begin, ranks, member), dealt_rows(piece.end, ranks, member)};
}

// What a rank gives of a piece.
at::Tensor piece_of(const at::Tensor& held, const Range& piece, const GridPlace& place,
                    const ParameterSpec& p) {
  if (place.tables.of(p.name) == ReplicaCut::whole) return held;
  const Range rows = rows_in(piece, place, p);
  return held.narrow(0, rows.begin, rows.size());
}
std::vector<std::int64_t> piece_sizes(const Range& piece, const GridPlace& place,
                                      const ParameterSpec& p) {
  std::vector<std::int64_t> sizes = sizes_at(place, p);
  if (place.tables.of(p.name) != ReplicaCut::whole) sizes[0] = rows_in(piece, place, p).size();
  return sizes;
}

// Puts what a rank gave where it belongs in the piece.
void put(const at::Tensor& part, const GridPlace& place, const ParameterSpec& p, const Range& piece,
         const at::Tensor& whole) {
  at::Tensor into;
  switch (place.tables.of(p.name)) {
    case ReplicaCut::whole: into = part_in(whole, place, p); break;
    case ReplicaCut::columns: {
      const Range columns = shard_at(place, p)[1];
      into = whole.narrow(1, columns.begin, columns.size());
      break;
    }
    case ReplicaCut::rows: {
      const std::int64_t ranks = place.tables.ranks;
      const std::int64_t first = ((place.coord.dp - piece.begin) % ranks + ranks) % ranks;
      into = whole.slice(0, std::min(first, piece.size()), piece.size(), ranks);
    }
  }
  into.copy_(part.view(into.sizes()));
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
        const std::vector<Range> pieces = pieces_of(weights.place, specs_[p], dtype_);
        for (std::size_t n = 0; n < pieces.size(); ++n)
          items_.push_back({part, p, static_cast<std::uint32_t>(n), pieces[n]});
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
    Range rows;
  };

  at::Tensor whole_of(const Item& item) {
    const std::vector<Giver>& givers = givers_[item.p];
    if (givers.size() == 1) return given(item, givers.front());
    const at::NoGradGuard no_grad;
    std::vector<std::int64_t> sizes = specs_[item.p].sizes;
    sizes[0] = item.rows.size();
    const at::Tensor whole = at::empty(sizes, scalar_type_of(dtype_));
    for (const Giver& giver : givers)
      put(on_host(given(item, giver)), giver.place, specs_[item.p], item.rows, whole);
    return whole;
  }
  at::Tensor given(const Item& item, const Giver& giver) {
    const ParameterSpec& spec = specs_[item.p];
    if (giver.rank == 0)
      return piece_of(held(weights_, optimiser_, item.part, weights_.places[item.p]), item.rows,
                      giver.place, spec);
    const Bytes bytes = world_.engine().recv(giver.rank, tag_of(CollectMessage::tensor, number_));
    under_way_ -= bytes.size();
    return tensor_from_bytes(bytes, dtype_, piece_sizes(item.rows, giver.place, spec));
  }
  bool is_here(std::size_t p) const {
    return givers_[p].size() == 1 && givers_[p].front().rank == 0;
  }
  std::uint64_t bytes_from(const Item& item, const Giver& giver) const {
    std::uint64_t product = bytes_of(dtype_);
    for (const std::int64_t size : piece_sizes(item.rows, giver.place, specs_[item.p]))
      product *= static_cast<std::uint64_t>(size);
    return product;
  }

  // Asks for everything up to `at`; beyond that for one item, and for more as long as there is
  // room for them.
  void ask_until(std::size_t at) {
    for (; next_ < items_.size(); ++next_) {
      const Item& item = items_[next_];
      if (is_here(item.p)) continue;
      std::uint64_t bytes = 0;
      for (const Giver& giver : givers_[item.p]) bytes += bytes_from(item, giver);
      const bool has_more = last_asked_ > at;
      if (has_more && under_way_ + bytes > kMostAhead) return;
      ask(item);
      last_asked_ = next_;
    }
  }

  void ask(const Item& item) {
    const std::uint64_t which = static_cast<std::uint64_t>(item.part) * specs_.size() + item.p +
                                (static_cast<std::uint64_t>(item.number) << 32);
    for (const Giver& giver : givers_[item.p]) {
      if (giver.rank == 0) continue;
      world_.engine().send(
          {.to = giver.rank,
           .tag = tag_of(CollectMessage::request, number_),
           .raw_bytes = sizeof which,
           .message = std::make_shared<const Bytes>(copy_of(as_bytes(std::span(&which, 1))))});
      under_way_ += bytes_from(item, giver);
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
  Range rows;
};
TensorRequest parse_tensor_request(ByteView bytes, const Weights& weights) {
  const std::size_t parameters = weights.places.size();
  const std::uint64_t which =
      bytes.size() == sizeof(std::uint64_t) ? get<std::uint64_t>(bytes, 0) : UINT64_MAX;
  const std::uint64_t at = which & UINT32_MAX, piece = which >> 32;
  const std::size_t p = at % parameters, place = weights.places[p];
  const std::vector<Range> pieces =
      pieces_of(weights.place, weights.spec.parameters[p], dtype_of(weights.precision.master));
  if (at >= std::size(kParts) * parameters || place >= weights.parameters.size() ||
      weights.parameters[place].number != p || piece >= pieces.size())
    throw WireError(0, "request",
                    fmt::format("rank 0 asks for piece {} of tensor {} of {} parameters, which is "
                                "not here",
                                piece, at, parameters));
  return {kParts[at / parameters], place, pieces[piece]};
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
  std::size_t left = 0;
  for (std::size_t p = 0; p < weights.parameters.size(); ++p)
    if ((world.dp_member() == 0 || is_cut_by_replicas(weights, weights.parameters[p])) &&
        speaks_for(weights, weights.parameters[p]))
      left += pieces_of(weights.place, spec_of(p), dtype).size() *
              (optimiser.moment2[p].defined() ? std::size(kParts) : std::size(kParts) - 1);
  for (; left > 0; --left) {
    const Bytes request = world.recv_from_decider(tag_of(CollectMessage::request, number));
    const auto [part, place, rows] = parse_tensor_request(request, weights);
    const at::Tensor tensor = on_host(piece_of(held(weights, optimiser, part, place), rows,
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
