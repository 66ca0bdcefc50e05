#include "laconic/cli/simulate_argument.hpp"

#include <CLI/CLI.hpp>

#include "laconic/cli/config_argument.hpp"
#include "laconic/cli/summary_argument.hpp"

namespace laconic {

void add_words(CLI::App& verb, SimulateCommand& command) {
  add_config(verb, command.config);
  verb.add_option("--hosts", command.hosts,
                  "machines and links: a hosts file (docs/plan.md), which `laconic measure` "
                  "writes, or a preset: "
                  "home-fibre, campus, two-sites, ...")
      ->type_name("FILE")
      ->required();
  verb.add_flag("--first-epoch", command.first_epoch,
                "samples come for the first time: links that remember them have nothing yet");
  verb.add_flag("--full", command.full, "simulate every rank by itself, also where many are alike");
  verb.add_option("--lanes", command.lanes,
                  "sums in at most so many lanes: fewer and longer messages, for large models")
      ->check(CLI::PositiveNumber)
      ->type_name("N");
  verb.add_option("--rows-read", command.rows_read,
                  "different rows of an embedding table that a rank reads in a step, where rows "
                  "travel; default: as words come in a large corpus")
      ->type_name("ROWS");
  verb.add_option("--jitter", command.scenario.jitter,
                  "computations take this share longer, more or less, at random")
      ->type_name("SHARE");
  verb.add_option("--seed", command.scenario.seed, "of the jitter: the same number, the same step")
      ->capture_default_str();
  verb.add_option("--straggler", command.scenario.stragglers,
                  "a rank that computes so many times longer (may be repeated)")
      ->allow_extra_args(false)
      ->type_name("RANK=FACTOR");
  verb.add_option("--lose", command.scenario.lose,
                  "a rank that is lost in that step: what it costs")
      ->type_name("RANK@STEP");
  verb.add_flag("--gantt", command.gantt, "draw the pipeline in time");
  verb.add_option("--columns", command.columns, "of the drawing; default: the terminal's, or 100")
      ->check(CLI::Range(40, 10000))
      ->type_name("N");
  verb.add_option("--svg", command.svg, "also draw it into FILE")->type_name("FILE");
  verb.add_option("--trace", command.trace,
                  "also write a trace of each rank into FOLDER, for chrome://tracing")
      ->type_name("FOLDER");
  add_summary(verb, command.json);
}

}  // namespace laconic
