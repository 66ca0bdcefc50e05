#include "laconic/cli/lab_argument.hpp"

#include <CLI/CLI.hpp>

#include "laconic/cli/number_check.hpp"

namespace laconic {

namespace {

constexpr const char* kRateHelp =
    "of each host's link, in each direction: 20mbit, 1.5gbit, unshaped";

void add_name(CLI::App& verb, std::string& name) {
  verb.add_option("--name", name, "of the lab")->capture_default_str();
}

void add_queue(CLI::App& verb, double& queue_ms) {
  verb.add_option("--queue", queue_ms, "milliseconds of data that may wait at the slow end")
      ->capture_default_str()
      ->type_name("MS");
}

}  // namespace

void add_words(CLI::App& verb, LabUpCommand& command) {
  verb.add_option("--hosts", command.hosts, "how many")->capture_default_str();
  verb.add_option("--rate", command.rate, kRateHelp)->capture_default_str();
  add_queue(verb, command.queue_ms);
  add_name(verb, command.name);
}

void add_words(CLI::App& verb, LabDownCommand& command) {
  add_name(verb, command.name);
}

void add_words(CLI::App& verb, LabRateCommand& command) {
  verb.add_option("RATE", command.rate, kRateHelp)->required();
  add_queue(verb, command.queue_ms);
  add_name(verb, command.name);
}

void add_words(CLI::App& verb, LabStatusCommand& command) {
  verb.add_option("--name", command.name, "of the lab; default: all that are up");
  verb.add_option("--json", command.json, "also write it to FILE; -: write only that, here")
      ->type_name("FILE");
}

void add_words(CLI::App& verb, LabRunCommand& command) {
  verb.add_option("COMMAND", command.words,
                  "what every rank runs; put -- before it, so that its options stay its own")
      ->required();
  add_name(verb, command.name);
  verb.add_flag("--ephemeral", command.ephemeral,
                "a lab of its own, even when one of that name is up; removed at the end");
  verb.add_option_function<int>(
      "--hosts", [&command](int hosts) { command.hosts = hosts; },
      "of the lab that is made when none is up; default: 4");
  verb.add_option_function<std::string>(
      "--rate", [&command](const std::string& rate) { command.rate = rate; },
      "of the lab that is made when none is up; default: 100mbit");
  verb.add_option("--ranks-per-host", command.ranks_per_host, "ranks that share a host's link")
      ->check(CLI::Range(1, 1024))
      ->capture_default_str();
  verb.add_option("--threads", command.threads,
                  "compute threads of each rank; 0: the machine's cores, divided")
      ->check(CLI::Range(0, 4096))
      ->capture_default_str();
  verb.add_option("--grace", command.grace_seconds,
                  "after a rank has failed, before the others are made to stop")
      ->check(refuse_negative)
      ->capture_default_str()
      ->type_name("SECONDS");
  verb.add_option("--port", command.port, "where ranks meet, on host 0")
      ->check(CLI::Range(1, 65535))
      ->capture_default_str();
  verb.add_option("--json", command.json,
                  "write to FILE what each host sent and received during the run")
      ->type_name("FILE");
}

void add_words(CLI::App& verb, LabReportCommand& command) {
  verb.add_option(
          "--size", command.size,
          "short takes less than ten minutes, full takes hours; quality, hours too, compares "
          "losses alone and needs no root")
      ->check(CLI::IsMember({"short", "full", "quality"}))
      ->capture_default_str();
  verb.add_option("--out", command.out, "where to; default: docs/results/DATE, of short DATE-short")
      ->type_name("FOLDER");
  verb.add_option("--part", command.parts, "only this part (may be repeated)")
      ->allow_extra_args(false)
      ->type_name("NAME");
  verb.add_option("--rate", command.rates, "only links of this rate (may be repeated)")
      ->allow_extra_args(false)
      ->type_name("RATE");
  verb.add_option("--method", command.method, "only methods whose name contains TEXT")
      ->type_name("TEXT");
  verb.add_option("--deadline", command.deadline_seconds, "after which a trial has failed")
      ->check(refuse_not_positive)
      ->capture_default_str()
      ->type_name("SECONDS");
  verb.add_flag("--list", command.list, "only list the trials, and how long they may take");
  verb.add_flag("--commands", command.commands,
                "only print what would be run, as lines for a shell");
  verb.add_flag("--retry", command.retry, "run those again that have failed");
  verb.add_flag("--pages-only", command.pages_only, "run nothing, and write the pages anew");
}

void add_words(CLI::App& verb, StudyCommand& command) {
  verb.add_option("FILE", command.file, "the study, a TOML file")->required()->type_name("FILE");
  verb.add_option("--out", command.out, "where to; default: runs/NAME, of the file")
      ->type_name("FOLDER");
  verb.add_option("--only", command.only,
                  "only trials that fit: AXIS=SETTING,..., part=NAME, rate=RATE, or letters of a "
                  "trial's name "
                  "(may be repeated, and then all must fit)")
      ->allow_extra_args(false)
      ->type_name("TEXT");
  verb.add_option("--jobs", command.jobs, "trials at once; none of them may be timed in a lab")
      ->check(CLI::Range(1, 64))
      ->capture_default_str();
  verb.add_option("--deadline", command.deadline_seconds, "after which a trial has failed")
      ->check(refuse_not_positive)
      ->capture_default_str()
      ->type_name("SECONDS");
  verb.add_flag("--list", command.list, "only list the trials, and how long they may take");
  verb.add_flag("--commands", command.commands,
                "only print what would be run, as lines for a shell");
  verb.add_flag("--retry", command.retry, "run those again that have failed");
  verb.add_flag("--pages-only", command.pages_only, "run nothing, and write the page anew");
}

}  // namespace laconic
