#include "laconic/cli/layout_argument.hpp"

#include <CLI/CLI.hpp>

#include "laconic/cli/config_argument.hpp"
#include "laconic/cli/summary_argument.hpp"
#include "laconic/layout/grid_plan.hpp"

namespace laconic {

namespace {

void add_machine(CLI::App& verb, LayoutCommand& command) {
  auto* rate = verb.add_option("--rate", command.rate,
                               "predict a step with links of this rate: 100mbit, unshaped");
  verb.add_option("--latency", command.latency, "of a message on its way: 1ms")
      ->type_name("TIME")
      ->needs(rate);
  verb.add_option("--gflops", command.gflops, "that a rank reaches; default: no time to compute")
      ->check(CLI::Range(1e-3, 1e9))
      ->needs(rate);
  verb.add_option("--handling", command.handling,
                  "rate at which a rank's processor packs and unpacks messages, as 4gbit")
      ->type_name("RATE")
      ->needs(rate);
  verb.add_option("--overhead", command.overhead,
                  "what the processor takes for each message besides: 50us")
      ->type_name("TIME")
      ->needs(rate);
  verb.add_option("--waking", command.waking,
                  "and for each collective, until its ranks are awake: 1ms")
      ->type_name("TIME")
      ->needs(rate);
  auto* loss = verb.add_option("--loss", command.loss,
                               "time lost where more than --queue comes from several ranks: 50ms")
                   ->type_name("TIME")
                   ->needs(rate);
  verb.add_option("--queue", command.queue, "bytes that wait at a switch before packets are lost")
      ->check(CLI::Range(1.0, 1e12))
      ->type_name("BYTES")
      ->needs(loss);
  verb.add_option("--updates", command.updates,
                  "millions of parameters that a rank's optimiser changes in a second")
      ->check(CLI::Range(1e-3, 1e9))
      ->needs(rate);
  verb.add_option("--search", command.search,
                  "compare all methods and grids of so many ranks, the fastest first")
      ->check(CLI::Range(2, 4096))
      ->type_name("RANKS")
      ->needs(rate);
}

}  // namespace

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
  add_machine(verb, command);
  verb.add_option("--svg", command.svg, "also draw the pictures into FILE")->type_name("FILE");
  add_summary(verb, command.json);
}

}  // namespace laconic
