#include "laconic/cli/train_argument.hpp"

#include <fmt/format.h>

#include <CLI/CLI.hpp>

#include "laconic/base/text.hpp"
#include "laconic/cli/config_argument.hpp"
#include "laconic/cli/summary_argument.hpp"
#include "laconic/config/option.hpp"

namespace laconic {

void add_words(CLI::App& verb, TrainCommand& command) {
  add_config(verb, command.config);
  verb.add_option("--resume", command.resume,
                  "none: begin anew; auto: continue from the newest good checkpoint, if any; "
                  "best: from the one with the least validation loss; or a checkpoint, or the "
                  "folder of a run: its newest good one")
      ->type_name("none|auto|best|FOLDER")
      ->capture_default_str();
  verb.add_flag("--overwrite", command.overwrite, "throw away an older run in the same folder");
  verb.add_option("--ranks", command.ranks,
                  "processes to start on this machine, which must be as many as the mesh has; "
                  "default: that many, or those that torchrun, mpirun or srun has started")
      ->check(CLI::Range(1, 4096))
      ->type_name("N");
  verb.add_option("--max-restarts", command.max_restarts,
                  "when a rank fails, start all again from the last good checkpoint, at most N "
                  "times")
      ->check(CLI::Range(0, 1000000))
      ->type_name("N")
      ->capture_default_str();
  add_summary(verb, command.json);
}

void add_words(CLI::App& verb, MeasureCommand& command) {
  add_config(verb, command.config);
  verb.add_option("--ranks", command.ranks,
                  "processes to start on this machine, which must be as many as the mesh has; "
                  "default: that many, or those that torchrun, mpirun or srun has started")
      ->check(CLI::Range(1, 4096))
      ->type_name("N");
  verb.add_option("--families", command.families,
                  fmt::format("measure small models of other families, too: all, or some of {}; "
                              "default: the configuration's model alone",
                              join(names_in(kModelKindNames), ",")))
      ->type_name("LIST");
  verb.add_option("-o,--output", command.output,
                  "the hosts file to write, for plan and simulate (docs/plan.md)")
      ->type_name("FILE")
      ->capture_default_str();
}

void add_words(CLI::App& verb, ConfigCommand& command) {
  add_config(verb, command.config, !command.show);
  if (!command.show) verb.add_flag("--no-data", command.skips_data, "do not look at the data");
}

}  // namespace laconic
