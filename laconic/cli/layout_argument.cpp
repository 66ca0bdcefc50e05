#include "laconic/cli/layout_argument.hpp"

#include <CLI/CLI.hpp>

#include "laconic/cli/config_argument.hpp"
#include "laconic/cli/summary_argument.hpp"
#include "laconic/layout/grid_plan.hpp"

namespace laconic {

void add_words(CLI::App& verb, LayoutCommand& command) {
  add_config(verb, command.config);
  verb.add_option("--tp", command.tp,
                  "ranks, or the sizes of the three axes of their grid, as 2,2,2; default: mesh.tp")
      ->type_name("N|I,J,L");
  verb.add_option("--method", command.method, "default: tensor.method")
      ->check(CLI::IsMember(names_in(kTensorMethodNames)));
  verb.add_option("--batch", command.batch, "samples of a microbatch; default: the configuration's")
      ->check(CLI::Range(1, 1'000'000))
      ->type_name("N");
  verb.add_option("--svg", command.svg, "also draw the pictures into FILE")->type_name("FILE");
  add_summary(verb, command.json);
}

}  // namespace laconic
