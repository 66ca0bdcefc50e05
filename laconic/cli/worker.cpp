// laconic-worker — one rank: everything that needs a tensor. Started by laconic, which sets the
// environment; started by hand it works too, perhaps slower (`laconic doctor` tells).
#include <ATen/Parallel.h>
#include <fmt/format.h>
#include <sys/prctl.h>
#include <unistd.h>

#include <algorithm>
#include <cstdio>
#include <cstdlib>
#include <memory>
#include <nlohmann/json.hpp>

#include "laconic/base/denormals.hpp"
#include "laconic/base/error.hpp"
#include "laconic/cli/arguments.hpp"
#include "laconic/cli/commit.hpp"
#include "laconic/cli/guard.hpp"
#include "laconic/cli/interruption.hpp"
#include "laconic/cli/lock_owner.hpp"
#include "laconic/cli/measured_config.hpp"
#include "laconic/cli/model_command.hpp"
#include "laconic/cli/rank.hpp"
#include "laconic/cli/subject_config.hpp"
#include "laconic/cli/transport_table.hpp"
#include "laconic/config/model_family.hpp"
#include "laconic/config/read.hpp"
#include "laconic/doctor/measure.hpp"
#include "laconic/file/atomic_file.hpp"
#include "laconic/hosts/hosts_file.hpp"
#include "laconic/hosts/known_device.hpp"
#include "laconic/launch/fork_server.hpp"
#include "laconic/launch/place.hpp"
#include "laconic/machine/cpu.hpp"
#include "laconic/machine/environment.hpp"
#include "laconic/run/run_lock.hpp"
#include "laconic/train/common_start.hpp"
#include "laconic/train/host_measure.hpp"
#include "laconic/train/loop.hpp"

namespace laconic {

namespace {

std::int64_t usable_memory() {
  const MachineMemory memory = detect_memory();
  return memory.limit_bytes > 0 ? memory.limit_bytes : memory.total_bytes;
}

// Alone, as one rank of those that somebody has started, or with all ranks as threads.
TrainSummary train_somehow(const TrainOptions& options, const std::optional<Place>& place) {
  if (place && place->size > 1) return train_as_rank(options, *place);
  if (size(mesh_of(options.config)) > 1 && is_one_process(options.config.network.transport))
    return train_in_threads(options);
  return train(options);
}

// A summary, and what has made it.
std::string with_build(const std::string& summary) {
  auto json = nlohmann::ordered_json::parse(summary);
  json["version"] = version_text();
  json["commit"] = build_commit();
  return json.dump(2) + "\n";
}

// The lock of the run's folder, held here or by the launcher that has started us.
std::unique_ptr<RunLock> lock_folder(const std::string& folder, const std::optional<Place>& place) {
  const char* token = std::getenv(kLockVariable);
  if (token != nullptr && holds_lock_for(folder, token)) return nullptr;
  auto lock = std::make_unique<RunLock>(folder, lock_owner(place));
  if (!lock->note().empty()) fmt::print(stderr, "laconic: {}\n", lock->note());
  return lock;
}

// In `top` and its kin, which show fifteen characters of it.
void name_process(int rank) {
  ::prctl(PR_SET_NAME, fmt::format("laconic-rank-{}", rank).c_str());
}

int run_train(const TrainCommand& command) {
  const RunConfig config =
      read_config({command.config.path, command.config.sets, presets_folder()});
  if (config.run.threads > 0) at::set_num_threads(static_cast<int>(config.run.threads));
  const std::optional<Place> place = find_place(current_environment());
  if (place) name_process(place->rank);
  const bool is_first = !place || place->rank == 0;
  const auto lock = is_first ? lock_folder(config.run.folder, place) : nullptr;
  catch_interruptions({.speaks = is_first,
                       .steps = config.train.steps,
                       .round_steps = std::max<std::int64_t>(config.local.steps, 1)});
  const TrainOptions options{.config = config,
                             .start = {.resume = command.resume, .overwrite = command.overwrite},
                             .memory_bytes = usable_memory(),
                             .stop_signal = pending_interruption,
                             .step_begins = note_step};
  const TrainSummary summary = train_somehow(options, place);
  if (is_first) fmt::print("\n{}", to_text(summary));
  if (is_first && !command.json.empty())
    write_atomically(command.json, with_build(to_json(summary, config)));
  if (summary.signal == 0) return 0;
  if (is_first)
    fmt::print("\nstopped by signal {} at step {} of {}; continue with --resume auto\n",
               summary.signal, summary.step, summary.steps);
  return 128 + summary.signal;
}

// Times in seconds, rates in bits per second.
MeasuredLinks links_of(const PreflightReport& network) {
  MeasuredLinks links{network.latency_ms, network.mbit_per_s};
  for (std::vector<double>& row : links.latency_seconds)
    for (double& latency : row) latency /= 1e3;
  for (std::vector<double>& row : links.bits_per_second)
    for (double& rate : row) rate *= 1e6;
  return links;
}

// Which models rates are of, for whoever reads the file.
std::string measured_text(const std::vector<RunConfig>& models, bool has_links) {
  std::string text = fmt::format("# Measured by `laconic measure` ({}).\n", version_text());
  for (const RunConfig& model : models)
    text += fmt::format("# {}: {}, samples of {} tokens\n",
                        &model == &models.front()
                            ? "flops"
                            : fmt::format("family.{}", name_in(kModelKindNames, model.model.kind)),
                        to_text(family_of(model, {})), model.model.context);
  if (!has_links) text += "# One rank has no link that could be measured: the card is a guess.\n";
  return text + "\n";
}

int run_measure(const MeasureCommand& command) {
  RunConfig config =
      read_config({command.config.path, command.config.sets, presets_folder(), false});
  Problems problems = check_subject(config);
  const std::vector<ModelKind> families =
      parse_families(command.families, config.model.kind, problems);
  refuse(problems);
  config.network.preflight = true;  // which is what measures links
  if (config.run.threads > 0) at::set_num_threads(static_cast<int>(config.run.threads));
  const std::optional<Place> place = find_place(current_environment());
  HostMeasure asked{.models = {config},
                    .memory_bytes = usable_memory(),
                    .cores = usable_threads(detect_cpu()),
                    .tell = [](const std::string& line) {
                      fmt::print("{}\n", line);
                      std::fflush(stdout);
                    }};
  for (const ModelKind kind : families)
    asked.models.push_back(small_config(kind, config.run, presets_folder()));
  const RankWork work = [&](const TrainOptions& options, const PreflightReport& network) {
    asked.local_rank = options.start.local_rank;
    const std::vector<MeasuredRank> ranks = measure_for_hosts(*options.world, asked);
    if (options.world->is_first()) {
      const HostDevice like = *known_device(ranks[0].is_gpu ? "h100" : "core");
      const Hosts hosts = hosts_from(ranks, links_of(network), like);
      write_atomically(command.output,
                       measured_text(asked.models, ranks.size() > 1) + to_toml(hosts));
      fmt::print("{}: {} rank{} on {} host{}\n", command.output, ranks.size(),
                 ranks.size() == 1 ? "" : "s", host_count(hosts),
                 host_count(hosts) == 1 ? "" : "s");
    }
    return TrainSummary();
  };
  World alone;
  const TrainOptions options{.config = config,
                             .memory_bytes = asked.memory_bytes,
                             .world = place && place->size > 1 ? nullptr : &alone};
  if (options.world == nullptr)
    train_as_rank(options, *place, work);
  else
    work(options, {});
  return 0;
}

int run_doctor(const DoctorCommand& command) {
  const DoctorFacts facts = measure_doctor_facts();
  const std::vector<Finding> findings = diagnose(facts);
  fmt::print("{}\nlaconic {}\ntransports: {}\n", to_text(facts, findings), version_text(),
             describe_transports());
  if (command.json.empty()) return 0;
  auto json = nlohmann::ordered_json::parse(to_json(facts, findings));
  for (const TransportRow& row : transport_table())
    json["transports"].push_back(
        {{"name", row.traits.name}, {"what", row.traits.what}, {"available", row.is_available}});
  write_atomically(command.json, with_build(json.dump()));
  return 0;
}

int dispatch(const Command& command) {
  if (const auto* c = std::get_if<NoCommand>(&command)) return c->exit_code;
  if (const auto* c = std::get_if<TrainCommand>(&command)) return run_train(*c);
  if (const auto* c = std::get_if<MeasureCommand>(&command)) return run_measure(*c);
  if (const auto* c = std::get_if<GenerateCommand>(&command)) return run_generate(*c);
  if (const auto* c = std::get_if<EvaluateCommand>(&command)) return run_evaluate(*c);
  if (const auto* c = std::get_if<PredictCommand>(&command)) return run_predict(*c);
  if (const auto* c = std::get_if<ExportCommand>(&command)) return run_export(*c);
  if (const auto* c = std::get_if<DoctorCommand>(&command)) return run_doctor(*c);
  throw ConfigError("laconic-worker does not have this verb: start laconic instead");
}

}  // namespace
}  // namespace laconic

int main(int argc, char** argv) {
  laconic::serve_forks();
  laconic::flush_denormals();  // before anything starts the thread pool
  const int code =
      laconic::guarded([&] { return laconic::dispatch(laconic::parse_arguments(argc, argv)); });
  // Everything of ours has ended with dispatch(). What libtorch would still take apart, its tables
  // of operators, goes with the process, and takes an eighth of the time of a start.
  std::fflush(nullptr);
  ::_exit(code);
}
