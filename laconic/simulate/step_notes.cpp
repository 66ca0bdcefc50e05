#include "laconic/simulate/step_notes.hpp"

#include "laconic/base/index.hpp"
#include "laconic/simulate/held_model.hpp"

namespace laconic {

namespace {

constexpr std::uint64_t kShareBytes = 40, kSquareBytes = 16;

CollectiveSpec gathering() {
  return {.kind = CollectiveKind::all_gather, .dtype = Dtype::u8, .offsets = {0}};
}

Group everybody(const Mesh& mesh) {
  Group group;
  for (Rank rank = 0; rank < size(mesh); ++rank) group.push_back(rank);
  return group;
}

}  // namespace

StepNotes::StepNotes(ProgramBuilder& builder, const SimulationRequest& request)
    : builder_(builder), request_(request), mesh_(request.mesh) {}

ExchangeStrands StepNotes::among_all(Squares squares) {
  return add_notes(everybody(mesh_), squares);
}

ExchangeStrands StepNotes::among_all_of(std::uint64_t bytes) {
  CollectiveSpec spec = gathering();
  spec.group = everybody(mesh_);
  if (spec.group.size() == 1) return {};
  for (const Rank rank : spec.group)
    spec.offsets.push_back(bytes * (static_cast<std::uint64_t>(rank) + 1));
  return add_collective(builder_, spec, 0);
}

// Once for replicas that are alike.
ExchangeStrands StepNotes::in_replicas() {
  ExchangeStrands all;
  if (mesh_.pp * tp_size(mesh_) == 1) return all;
  for (const Rank rank : builder_.classes().first)
    if (!all.contains(builder_.class_of(rank)))
      all.merge(add_notes(group_of(mesh_, rank, {Axis::pp, Axis::tp0, Axis::tp1, Axis::tp2}),
                          Squares::all));
  return all;
}

ExchangeStrands StepNotes::add_notes(const Group& group, Squares squares) {
  if (group.size() == 1) return {};
  CollectiveSpec spec = gathering();
  spec.group = group;
  for (const Rank rank : group)
    spec.offsets.push_back(spec.offsets.back() + note_bytes(rank, squares));
  return add_collective(builder_, spec, 0);
}

std::uint64_t StepNotes::note_bytes(Rank rank, Squares squares) {
  const Coord place = coord_of(mesh_, rank);
  if (squares == Squares::none || (squares == Squares::first_replica && place.dp > 0))
    return kShareBytes;
  auto& known = spoken_for_[{place.pp, place.tp}];
  if (!known) known = static_cast<std::uint64_t>(HeldModel(request_, rank, false).spoken_for());
  return kShareBytes + kSquareBytes * *known;
}

}  // namespace laconic
