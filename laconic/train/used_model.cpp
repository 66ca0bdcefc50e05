#include "laconic/train/used_model.hpp"

#include "laconic/base/error.hpp"
#include "laconic/checkpoint/resume.hpp"
#include "laconic/config/grid_choice.hpp"
#include "laconic/config/projection_choice.hpp"
#include "laconic/grid/grid.hpp"
#include "laconic/model/hugging_face.hpp"

namespace laconic {

namespace {

Problems check_use(const RunConfig& config, const Family& family) {
  Problems problems = check_grid(config, family);
  append(problems, check_projected(config, family));
  return problems;
}

}  // namespace

UsedModel load_model(const std::string& folder, const RunConfig& config, int local_rank,
                     World& world) {
  const Family family = read_family(folder);
  refuse(check_use(config, family));
  const GridPlace place{grid_plan_of(config, family), world.coord()};
  UsedModel model{.folder = folder,
                  .weights = read_model(folder, tensor_options(config, local_rank), place),
                  .grid = nullptr,
                  .ranks = {.world = &world}};
  if (is_trivial(place.plan)) return model;
  model.grid =
      std::make_shared<TensorGrid>(world.progress_thread(), place.plan, world.mesh(), world.rank());
  model.ranks.grid = model.grid.get();
  return model;
}

}  // namespace laconic
