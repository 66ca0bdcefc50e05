#include "laconic/cli/train_plan.hpp"

#include <fmt/format.h>

#include <algorithm>

#include "laconic/base/error.hpp"
#include "laconic/mesh/mesh.hpp"
#include "laconic/transport/transport_kind.hpp"

namespace laconic {

namespace {

std::string needs(const Mesh& mesh) {
  const int ranks = size(mesh);
  return ranks == 1 ? "one rank is all it has"
                    : fmt::format("{} needs {} ranks", to_text(mesh), ranks);
}

void check_place(const TrainCommand& command, const RunConfig& config, const Place& place,
                 Problems& problems) {
  if (command.ranks > 0 && command.ranks != place.size)
    problems.push_back({"--ranks", fmt::format("says {}, but {} has started {}: leave it out",
                                               command.ranks, place.source, place.size)});
  if (command.max_restarts > 0)
    problems.push_back(
        {"--max-restarts", fmt::format("is for ranks that we start ourselves; these were started "
                                       "by {}, which would have to start them again",
                                       place.source)});
  const Mesh mesh = mesh_of(config);
  if (is_one_process(config.network.transport)) {
    if (place.size > 1)
      problems.push_back({"network.transport",
                          fmt::format("{} keeps all ranks in one process, but {} has started {}",
                                      name_in(kTransportKindNames, config.network.transport),
                                      place.source, place.size)});
  } else if (size(mesh) != place.size && place.size == 1) {  // several compare what they were told
    problems.push_back(
        {"mesh", fmt::format("{}, {} has started {}", needs(mesh), place.source, place.size)});
  }
}

void check_ranks(const TrainCommand& command, const RunConfig& config, Problems& problems) {
  const Mesh mesh = mesh_of(config);
  if (needs_own_launcher(config.network.transport) && size(mesh) > 1)
    problems.push_back(
        {"network.transport",
         fmt::format("{} needs ranks that MPI has started: `mpirun -np {} laconic "
                     "train ...`",
                     name_in(kTransportKindNames, config.network.transport), size(mesh))});
  if (command.ranks == 0 || command.ranks == size(mesh)) return;
  problems.push_back(
      {"mesh",
       fmt::format("{}, --ranks says {}{}", needs(mesh), command.ranks,
                   size(mesh) == 1 ? fmt::format(": add --set mesh.dp={}", command.ranks) : "")});
}

}  // namespace

TrainPlan plan_train(const TrainCommand& command, const RunConfig& config,
                     const std::optional<Place>& place) {
  Problems problems;
  if (place)
    check_place(command, config, *place, problems);
  else
    check_ranks(command, config, problems);
  refuse(problems);
  if (place) return {.sharing = place->local_size};
  const int workers = is_one_process(config.network.transport) ? 1 : size(mesh_of(config));
  // A single one needs nobody to watch it, unless it is to be started again.
  return {.workers = workers > 1 || command.max_restarts > 0 ? workers : 0, .sharing = workers};
}

int threads_per_worker(int usable, int sharing, int mask, int parents_mask) {
  const bool is_bound = mask > 0 && mask < parents_mask;
  // This worker's share of all processors: mpirun may bind two workers to the same half of a
  // machine.
  const double share =
      is_bound ? static_cast<double>(parents_mask) / mask / sharing : 1.0 / sharing;
  return std::max(1, static_cast<int>(usable * std::min(1.0, share)));
}

}  // namespace laconic
