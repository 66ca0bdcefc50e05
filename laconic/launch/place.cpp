#include "laconic/launch/place.hpp"

#include <fmt/format.h>

#include <charconv>
#include <cstdint>
#include <limits>

#include "laconic/base/error.hpp"
#include "laconic/base/host_name.hpp"

namespace laconic {

namespace {

constexpr int kMost = std::numeric_limits<int>::max();

// The environment with a notebook for what is wrong in it.
class Variables {
 public:
  explicit Variables(const Environment& environment) : environment_(environment) {}

  std::string text(const std::string& name) const {
    const auto found = environment_.find(name);
    return found == environment_.end() ? "" : found->second;
  }

  bool has(const std::string& name) const { return !text(name).empty(); }

  // None when it is not set, and when it is no number in [least, most]: that is noted.
  std::optional<int> number(const std::string& name, int least = 0, int most = kMost) {
    const std::string value = text(name);
    if (value.empty()) return std::nullopt;
    int number = 0;
    const auto [end, error] = std::from_chars(value.data(), value.data() + value.size(), number);
    if (error != std::errc() || end != value.data() + value.size())
      add_problem(fmt::format("{}={} is not a number", name, value));
    else if (number < least || number > most)
      add_problem(fmt::format("{}={} is not {}", name, value,
                              most == kMost ? fmt::format("at least {}", least)
                                            : fmt::format("between {} and {}", least, most)));
    else
      return number;
    return std::nullopt;
  }

  void add_problem(std::string what) { problems_.push_back({"", std::move(what)}); }
  const Problems& problems() const { return problems_; }

 private:
  const Environment& environment_;
  Problems problems_;
};

// A number of ranks and one of them, under the names that a launcher gives them. False when
// neither is there or usable; one without the other is a problem.
bool read_pair(Variables& variables, const std::string& rank, const std::string& size,
               int& rank_out, int& size_out) {
  for (const auto& [one, other] : {std::pair(rank, size), std::pair(size, rank)})
    if (variables.has(one) && !variables.has(other))
      variables.add_problem(
          fmt::format("{}={} but {} is not set", one, variables.text(one), other));
  const std::optional<int> r = variables.number(rank);
  const std::optional<int> s = variables.number(size, 1);
  if (!r || !s) return false;
  if (*r >= *s)
    variables.add_problem(fmt::format("{}={} but {}={}: ranks count from 0", rank, *r, size, *s));
  rank_out = *r;
  size_out = *s;
  return true;
}

void check_local(Variables& variables, const Place& place, const std::string& local_size) {
  if (place.local_size > place.size)
    variables.add_problem(fmt::format("{}={} but there are {} ranks in all", local_size,
                                      place.local_size, place.size));
}

// MASTER_ADDR and MASTER_PORT over what the source itself gave (an empty host: nothing).
void read_meeting_point(Variables& variables, Place& place) {
  if (variables.has("MASTER_ADDR")) place.host = variables.text("MASTER_ADDR");
  if (const auto port = variables.number("MASTER_PORT", 1, 65535)) place.port = *port;
  if (!place.host.empty()) return;
  place.host = "127.0.0.1";
  if (place.local_size < place.size)
    variables.add_problem(fmt::format(
        "{} ranks, {} of them on this machine, but MASTER_ADDR is not set: set it to the host of "
        "rank 0, and MASTER_PORT to a port that is free there",
        place.size, place.local_size));
}

void read_run(Variables& variables, Place& place, const std::string& id,
              const std::string& attempt) {
  if (variables.has(id)) place.run_id = variables.text(id);
  if (const auto number = variables.number(attempt)) place.attempt = *number;
}

std::string name_torch_source(const Variables& variables) {
  if (variables.has("LACONIC_RUN_ID")) return "laconic";
  return variables.has("TORCHELASTIC_RUN_ID") ? "torchrun" : "RANK and WORLD_SIZE";
}

// Without LOCAL_*: Kubernetes starts one rank on each machine; on loopback all ranks are here.
void read_torch_local(Variables& variables, Place& place) {
  const bool has_any = variables.has("LOCAL_RANK") || variables.has("LOCAL_WORLD_SIZE");
  if (has_any) {
    read_pair(variables, "LOCAL_RANK", "LOCAL_WORLD_SIZE", place.local_rank, place.local_size);
    check_local(variables, place, "LOCAL_WORLD_SIZE");
  } else if (is_loopback(variables.text("MASTER_ADDR"))) {
    place.local_rank = place.rank;
    place.local_size = place.size;
  }
}

std::optional<Place> find_torch(Variables& variables) {
  if (!variables.has("RANK")) return std::nullopt;
  Place place{.host = "", .source = name_torch_source(variables)};
  if (read_pair(variables, "RANK", "WORLD_SIZE", place.rank, place.size)) {
    read_torch_local(variables, place);
    read_meeting_point(variables, place);
  }
  read_run(variables, place, "TORCHELASTIC_RUN_ID", "TORCHELASTIC_RESTART_COUNT");
  read_run(variables, place, "LACONIC_RUN_ID", "LACONIC_ATTEMPT");
  const std::string store = variables.text("TORCHELASTIC_USE_AGENT_STORE");
  place.agent_store = store == "True" || store == "true" || store == "1";
  return place;
}

// Rank and size of MPI, by the names of one implementation; `job` tells one mpirun from another.
std::optional<Place> read_mpi(Variables& variables, const std::string& source,
                              const std::string (&names)[4], const std::string& job) {
  Place place{.host = "", .run_id = job, .source = source};
  if (!job.empty()) place.port = port_of_job(job);
  if (!read_pair(variables, names[0], names[1], place.rank, place.size)) return place;
  if (variables.has(names[2]) || variables.has(names[3])) {
    read_pair(variables, names[2], names[3], place.local_rank, place.local_size);
    check_local(variables, place, names[3]);
  }
  read_meeting_point(variables, place);
  return place;
}

std::optional<Place> find_openmpi(Variables& variables) {
  if (!variables.has("OMPI_COMM_WORLD_RANK")) return std::nullopt;
  const std::string space = variables.text("PMIX_NAMESPACE");
  return read_mpi(variables, "OpenMPI",
                  {"OMPI_COMM_WORLD_RANK", "OMPI_COMM_WORLD_SIZE", "OMPI_COMM_WORLD_LOCAL_RANK",
                   "OMPI_COMM_WORLD_LOCAL_SIZE"},
                  space.empty() ? variables.text("OMPI_MCA_ess_base_jobid") : space);
}

std::optional<Place> find_pmi(Variables& variables, const std::string& source) {
  return read_mpi(variables, source, {"PMI_RANK", "PMI_SIZE", "MPI_LOCALRANKID", "MPI_LOCALNRANKS"},
                  "");
}

std::optional<Place> find_mpich(Variables& variables) {
  if (!variables.has("PMI_RANK") || !variables.has("MPI_LOCALRANKID")) return std::nullopt;
  return find_pmi(variables, "MPICH");
}

// A shell that was itself started as the one task of something keeps PMI_RANK=0, PMI_SIZE=1.
std::optional<Place> find_plain_pmi(Variables& variables) {
  if (!variables.has("PMI_RANK") || variables.text("PMI_SIZE") == "1") return std::nullopt;
  return find_pmi(variables, "PMI");
}

// Numbers at the top of 32 bits are Slurm's names for batch scripts, interactive shells and such.
bool is_step_of_srun(const Variables& variables) {
  const std::string step = variables.text("SLURM_STEP_ID");
  std::uint64_t number = 0;
  const auto [end, error] = std::from_chars(step.data(), step.data() + step.size(), number);
  return error == std::errc() && end == step.data() + step.size() && number < 0xfffffff0;
}

// How many tasks are on node `node`, of "2(x3),1": two on each of three nodes, one on the next.
std::optional<int> tasks_on_node(std::string_view text, int node) {
  const char* at = text.data();
  const char* end = at + text.size();
  while (at != end) {
    int tasks = 0, times = 1;
    auto read = std::from_chars(at, end, tasks);
    if (read.ec != std::errc()) return std::nullopt;
    at = read.ptr;
    if (std::string_view(at, static_cast<std::size_t>(end - at)).starts_with("(x")) {
      read = std::from_chars(at + 2, end, times);
      if (read.ec != std::errc() || read.ptr == end || *read.ptr != ')') return std::nullopt;
      at = read.ptr + 1;
    }
    if ((node -= times) < 0) return tasks;
    if (at != end && *at++ != ',') return std::nullopt;
  }
  return std::nullopt;
}

std::string first_of(const Variables& variables, const std::string& name,
                     const std::string& other) {
  return variables.has(name) ? name : other;
}

void read_slurm_local(Variables& variables, Place& place) {
  const std::string tasks =
      first_of(variables, "SLURM_STEP_TASKS_PER_NODE", "SLURM_TASKS_PER_NODE");
  place.local_rank = variables.number("SLURM_LOCALID").value_or(0);
  const int node = variables.number("SLURM_NODEID").value_or(0);
  place.local_size = tasks_on_node(variables.text(tasks), node).value_or(place.local_rank + 1);
  if (place.local_rank >= place.local_size)
    variables.add_problem(fmt::format("SLURM_LOCALID={} but {}={} has {} on node {}",
                                      place.local_rank, tasks, variables.text(tasks),
                                      place.local_size, node));
  check_local(variables, place, tasks);
}

std::optional<Place> find_slurm(Variables& variables) {
  if (!variables.has("SLURM_PROCID") || !is_step_of_srun(variables)) return std::nullopt;
  const std::string size = first_of(variables, "SLURM_STEP_NUM_TASKS", "SLURM_NTASKS");
  if (variables.text(size) == "1") return std::nullopt;  // the shell of srun --pty bash
  const std::string nodes = first_of(variables, "SLURM_STEP_NODELIST", "SLURM_JOB_NODELIST");
  const std::string job =
      fmt::format("slurm-{}.{}", variables.text("SLURM_JOB_ID"), variables.text("SLURM_STEP_ID"));
  Place place{
      .host = first_host(variables.text(nodes)), .port = port_of_job(job), .source = "Slurm"};
  place.run_id = job;
  place.attempt = variables.number("SLURM_RESTART_COUNT").value_or(0);
  if (!read_pair(variables, "SLURM_PROCID", size, place.rank, place.size)) return place;
  read_slurm_local(variables, place);
  if (place.host.empty() && variables.has(nodes) && !variables.has("MASTER_ADDR"))
    variables.add_problem(
        fmt::format("{}={} is not a list of hosts", nodes, variables.text(nodes)));
  else
    read_meeting_point(variables, place);
  return place;
}

// Scripts for other launchers often export WORLD_SIZE for everybody and leave RANK to the launcher.
void check_lone_size(Variables& variables, const std::optional<Place>& place) {
  if (variables.has("RANK")) return;
  const auto size = variables.number("WORLD_SIZE", 1);
  if (!size || *size == 1) return;
  if (!place)
    variables.add_problem(fmt::format("WORLD_SIZE={} but RANK is not set", *size));
  else if (*size != place->size)
    variables.add_problem(
        fmt::format("WORLD_SIZE={} but {} started {} ranks", *size, place->source, place->size));
}

std::optional<Place> find_any(Variables& variables) {
  if (auto place = find_torch(variables)) return place;
  if (auto place = find_openmpi(variables)) return place;
  if (auto place = find_mpich(variables)) return place;
  if (auto place = find_slurm(variables)) return place;
  return find_plain_pmi(variables);
}

}  // namespace

std::optional<Place> find_place(const Environment& environment) {
  Variables variables(environment);
  std::optional<Place> place = find_any(variables);
  check_lone_size(variables, place);
  refuse(variables.problems());
  return place;
}

std::string to_text(const Place& place) {
  return fmt::format("rank {} of {}, {} of {} on this machine, meeting at {}:{} ({})", place.rank,
                     place.size, place.local_rank, place.local_size, place.host, place.port,
                     place.source);
}

std::string first_host(std::string_view nodes) {
  std::string host;
  while (!nodes.empty() && nodes.front() != ',') {
    if (nodes.front() != '[') {
      host += nodes.front();
      nodes.remove_prefix(1);
      continue;
    }
    const std::size_t close = nodes.find(']');
    if (close == std::string_view::npos) return "";
    const std::string_view inside = nodes.substr(1, close - 1);
    host += inside.substr(0, inside.find_first_of("-,"));
    nodes.remove_prefix(close + 1);
  }
  return host.find(']') == std::string::npos ? host : "";
}

int port_of_job(std::string_view job) {
  std::uint32_t hash = 2166136261;  // FNV-1a
  for (const char letter : job) hash = (hash ^ static_cast<unsigned char>(letter)) * 16777619;
  return 20000 + static_cast<int>(hash % 12000);
}

}  // namespace laconic
