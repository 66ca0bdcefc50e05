#include "laconic/cli/plan_argument.hpp"

#include <CLI/CLI.hpp>

#include "laconic/cli/config_argument.hpp"
#include "laconic/cli/summary_argument.hpp"

namespace laconic {

void add_words(CLI::App& verb, PlanCommand& command) {
  add_config(verb, command.config);
  verb.add_option("--hosts", command.hosts,
                  "machines and links: a hosts file (docs/plan.md), which `laconic measure` "
                  "writes, or a preset: "
                  "home-fibre, campus, two-sites, ...")
      ->required()
      ->type_name("FILE");
  verb.add_option(
          "--loss-budget", command.loss_budget,
          "how much higher the loss may be because of short messages, by what --losses says")
      ->capture_default_str()
      ->type_name("PERCENT");
  verb.add_option("--batch", command.batch, "samples of a step; default: the configuration's")
      ->check(CLI::Range(1, 1 << 24))
      ->type_name("N");
  verb.add_option("--top", command.top, "how many plans to print, best first")
      ->check(CLI::Range(1, 1000))
      ->capture_default_str()
      ->type_name("N");
  verb.add_flag("--unproven", command.unproven,
                "also messages whose loss nobody has measured; on GPUs also bfloat16");
  verb.add_flag(
      "--trained", command.trained,
      "the run begins from a trained model: losses of such runs count where they are known");
  verb.add_flag("--quick", command.is_quick,
                "leave out what faster links and more hosts would buy");
  verb.add_option("--losses", command.losses,
                  "what short messages cost in loss: a table; default: presets/plan/losses.toml")
      ->type_name("FILE");
  verb.add_option("-o,--output", command.output, "write the best plan as a configuration")
      ->type_name("FILE");
  verb.add_option("--html", command.html, "also write a page with curves and pictures")
      ->type_name("FILE");
  add_summary(verb, command.json);
}

}  // namespace laconic
