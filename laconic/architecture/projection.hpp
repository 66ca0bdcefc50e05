// architecture/projection.hpp — boundaries of a model at which the stream is projected.
//
// Behind some blocks the rows x of the stream become coordinates c in a space of few directions,
// and the next block takes what these say:
//
//   c = A (x - s)      x^ = A^T c + r       A: [rank, width], orthonormal rows
//
// With learned maps what decodes is a map of its own, and neither has orthonormal rows: c = E x,
// x^ = D^T c, an auto-encoder that the task's loss trains.
//
// s and r are anchors: rows that both sides find by token (and position), so that c need not
// carry them. What travels between stages is c, and back comes its gradient: rank numbers for each
// token. This is a trait of the model, not of the mesh: boundaries are computed wherever the
// model is, so that every mesh, evaluation and generation compute the same function.
#pragma once

#include <cstdint>
#include <optional>
#include <string>
#include <string_view>
#include <vector>

#include "laconic/base/named.hpp"
#include "laconic/base/problem.hpp"

namespace laconic {

struct ModelSpec;

// Where the directions A come from.
enum class BasisKind : std::uint8_t {
  seed,     // drawn, and never changed: nothing to store or to send
  pca,      // those that most of the first samples' rows lies in; found once, and stored
  learned,  // a parameter, whose rows stay orthonormal
  maps,     // two parameters, E before the boundary and D behind it
  tied,     // one for both, of any rows
};
inline constexpr auto kBasisKindNames =
    std::to_array<Named<BasisKind>>({{BasisKind::seed, "seed"},
                                     {BasisKind::pca, "pca"},
                                     {BasisKind::learned, "learned"},
                                     {BasisKind::maps, "maps"},
                                     {BasisKind::tied, "tied"}});

// Whether they are maps that an auto-encoder learns.
constexpr bool is_code(BasisKind kind) {
  return kind == BasisKind::maps || kind == BasisKind::tied;
}

// What both sides take off and add.
enum class AnchorKind : std::uint8_t {
  none,
  initial,  // what the tables of the embedding begin with, kept as it was: s = r
  learned,  // tables of each side's own, by token and, where the model learns positions, by these
};
inline constexpr auto kAnchorKindNames =
    std::to_array<Named<AnchorKind>>({{AnchorKind::none, "none"},
                                      {AnchorKind::initial, "initial"},
                                      {AnchorKind::learned, "learned"}});

struct Projection {
  // Layers behind which the stream is projected, counted from 1, ascending; empty: nowhere. A layer
  // has the number of its block.
  std::vector<std::int64_t> after;
  std::int64_t rank = 0;
  BasisKind basis = BasisKind::seed;
  AnchorKind anchor = AnchorKind::none;
  std::uint64_t seed = 0;  // BasisKind::seed: what is drawn by; no trait that a run could change
  bool is_drawn = false;   // is_code(): maps begin as noise, not with orthonormal rows; no trait

  bool is_empty() const { return after.empty(); }
  bool operator==(const Projection&) const = default;
};

// "2,4,6", and back; nothing when it is no such list. The empty text is an empty list.
std::string layer_list(const std::vector<std::int64_t>& after);
std::optional<std::vector<std::int64_t>> parse_layer_list(std::string_view text);

// "to 64 of 256 behind layers 2,4,6 (basis seed, anchor learned)"
std::string to_text(const Projection& projection, std::int64_t width);

// Everything that keeps it from being one of a model of so many layers.
Problems check(const Projection& projection, std::int64_t layers, std::int64_t width);

// What the names of all its parameters begin with.
inline constexpr std::string_view kBoundaryPrefix = "project.";

// A boundary of a model's spec that is projected. Parameters by number; none: there is no such.
struct ProjectedSeam {
  std::int64_t block = 0;  // behind this one
  std::int64_t rank = 0;
  std::int64_t width = 0;
  std::uint64_t seed = 0;
  std::optional<std::size_t> basis = {};        // none: drawn; of maps, E
  std::optional<std::size_t> decoder = {};      // D; none: the basis
  std::optional<std::size_t> fixed = {};        // by token, [vocabulary, width]: s and r
  std::optional<std::size_t> fixed_at = {};     // by position, [context, width]
  std::optional<std::size_t> sent = {};         // by token, [vocabulary, rank]: A s
  std::optional<std::size_t> sent_at = {};      // by position, [context, rank]
  std::optional<std::size_t> received = {};     // by token, [vocabulary, width]: r
  std::optional<std::size_t> received_at = {};  // by position, [context, width]
};

// Adds the boundaries to a spec: what crosses there, what it costs, and their parameters, behind
// all others. Requires: check(projection, ...) is empty; every seam is one tensor.
void add_projection(ModelSpec& spec, const Projection& projection, std::int64_t vocabulary,
                    std::int64_t positions);

}  // namespace laconic
