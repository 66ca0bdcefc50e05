#include "laconic/cli/schedule_argument.hpp"

#include <CLI/CLI.hpp>

namespace laconic {

namespace {

void add_number(CLI::App& verb, const char* name, std::optional<int>& number, const char* help) {
  verb.add_option_function<int>(
          name, [&number](int value) { number = value; }, help)
      ->type_name("N");
}

CLI::Option* add_seconds(CLI::App& verb, const char* name, double& seconds, const char* help) {
  return verb.add_option(name, seconds, help)->capture_default_str()->type_name("SECONDS");
}

CLI::Option* add_seconds(CLI::App& verb, const char* name, std::optional<double>& seconds,
                         const char* help) {
  return verb
      .add_option_function<double>(
          name, [&seconds](double value) { seconds = value; }, help)
      ->type_name("SECONDS");
}

void add_seconds(CLI::App& verb, const char* name, std::vector<double>& seconds, const char* help) {
  verb.add_option(name, seconds, help)
      ->capture_default_str()
      ->delimiter(',')
      ->allow_extra_args(false)
      ->type_name("SECONDS");
}

void add_shape(CLI::App& verb, ScheduleCommand& command) {
  add_number(verb, "--ranks", command.ranks, "of the pipeline; default: 4, or the file's");
  add_number(verb, "--microbatches", command.microbatches,
             "of a step; default: twice the ranks, or the file's");
  add_number(
      verb, "--chunks", command.chunks,
      "stages of each rank; default: 2 for interleaved and zb_v, 1 for all others, or the file's");
}

void add_costs(CLI::App& verb, ScheduleCommand& command) {
  add_seconds(verb, "--forward", command.forward,
              "of a microbatch on a rank, all its chunks; as 1,1,1,2 by rank");
  add_seconds(verb, "--backward", command.backward, "the same, both halves");
  verb.add_option("--weight-share", command.weight_share,
                  "of backward that is the weights' half, where a schedule splits it")
      ->capture_default_str()
      ->type_name("SHARE");
  auto* activation =
      add_seconds(verb, "--activation", command.activation, "that a message occupies its wire");
  auto* gradient = add_seconds(verb, "--gradient", command.gradient,
                               "the same on the way back; default: as an activation");
  auto* bytes = verb.add_option_function<double>(
                        "--bytes", [&command](double value) { command.bytes = value; },
                        "of a message, instead of its seconds; needs --rate")
                    ->type_name("BYTES")
                    ->excludes(activation)
                    ->excludes(gradient);
  verb.add_option("--rate", command.rate, "of a wire: 20mbit, 1.5gbit")->needs(bytes);
  add_seconds(verb, "--latency", command.latency, "of a message, on top, occupying nothing");
  add_seconds(verb, "--reduction", command.reduction, "of a rank's sums over other ranks");
  add_seconds(verb, "--step", command.step, "after everything: the update");
}

void add_engine(CLI::App& verb, ScheduleCommand& command) {
  verb.add_option(
          "--wiring", command.wiring,
          "pairs: ranks have a wire each; hosts: one outlet for all that a rank sends; switched: "
          "an outlet and an inlet, shared evenly by what goes through at once")
      ->check(CLI::IsMember({"pairs", "hosts", "switched"}))
      ->capture_default_str();
  verb.add_flag("--half-duplex", command.half_duplex, "a wire carries one way at a time");
  verb.add_flag("--paired", command.paired,
                "sends block until they are received; neighbours are exchanged at once");
  verb.add_option("--when", command.when,
                  "which gradients travel encoded: never, epilogue, critical, always")
      ->type_name("never|epilogue|critical|always")
      ->capture_default_str();
  verb.add_option("--ratio", command.ratio, "how many times shorter an encoded gradient is")
      ->capture_default_str();
}

void add_choice(CLI::App& verb, ScheduleCommand& command) {
  verb.add_option("--finer", command.finer,
                  "auto: also microbatches of a half, a quarter ... down to one of so many parts")
      ->check(CLI::Range(1, 64))
      ->capture_default_str()
      ->type_name("N");
  add_seconds(verb, "--overhead", command.overhead,
              "auto: of forward and of backward, what a smaller microbatch takes as well");
  verb.add_option_function<double>(
          "--most-live", [&command](double value) { command.most_live = value; },
          "auto: live activations that a rank has room for, in microbatches as given")
      ->type_name("N");
}

void add_fragments(CLI::App& verb, ScheduleCommand& command) {
  FragmentSpec& spec = command.fragments;
  const auto add = [&](const char* name, auto& number, const char* help) {
    verb.add_option(name, number, help)->capture_default_str()->type_name("N");
  };
  add("--layers", command.layers, "streaming: of the model");
  add("--fragment", spec.layers, "streaming: layers of a fragment; 0: the whole model is one");
  add("--steps", spec.steps, "streaming: of a round");
  add("--overlap", spec.overlap, "streaming: steps that changes travel beside");
  verb.add_option_function<std::string>(
          "--order",
          [&spec](const std::string& name) {
            spec.order = name == "strided" ? FragmentOrder::strided : FragmentOrder::sequential;
          },
          "streaming: strided (default): layers of every depth in each fragment; or sequential")
      ->check(CLI::IsMember({"strided", "sequential"}));
}

void add_output(CLI::App& verb, ScheduleCommand& command) {
  verb.add_flag("--compare", command.compare, "a table of all kinds for these costs");
  verb.add_flag("--text", command.text, "print the schedule itself, as a file would hold it");
  verb.add_flag("--lowered", command.lowered, "the same with messages and P");
  verb.add_flag("--gantt", command.gantt, "draw it in time, also with --text and --lowered");
  verb.add_flag("--messages", command.messages, "draw wires, too");
  verb.add_option("--columns", command.columns, "of the drawing; default: the terminal's, or 100")
      ->check(CLI::Range(40, 10000))
      ->type_name("N");
  verb.add_option("--svg", command.svg, "also draw it into FILE")->type_name("FILE");
  verb.add_option("--json", command.json, "also write the numbers to FILE")->type_name("FILE");
}

}  // namespace

void add_words(CLI::App& verb, ScheduleCommand& command) {
  verb.add_option(
      "KIND|FILE", command.what,
      "gpipe, 1f1b, interleaved, zero_bubble, zb_v, a file that holds one, or auto: which of "
      "them, and in how many microbatches; default: 1f1b. streaming: which fragment of a model "
      "travels when (local.method)");
  add_shape(verb, command);
  add_costs(verb, command);
  add_engine(verb, command);
  add_choice(verb, command);
  add_fragments(verb, command);
  add_output(verb, command);
}

}  // namespace laconic
