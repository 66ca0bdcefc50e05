// launch/place.hpp — which rank this process is, and where the others are met.
//
// Whoever starts the ranks says so in the environment, each launcher in words
// of its own. find_place() is a pure function of that environment. The
// sources, first found wins:
//
//   torch     RANK, WORLD_SIZE: torchrun, Kubernetes, our own launcher (launch/local.hpp), people
//   OpenMPI   OMPI_COMM_WORLD_RANK and _SIZE
//   MPICH     PMI_RANK, PMI_SIZE with MPI_LOCALRANKID, which only its mpiexec sets
//   Slurm     SLURM_PROCID, SLURM_NTASKS, inside a step of srun
//   PMI       PMI_RANK, PMI_SIZE, when more than one
//
// The launcher nearest to the process wins: mpirun in a Slurm job may start its
// helpers by srun, so that a rank sees numbers of both, and Slurm's are the
// helper's. A batch script and an interactive shell carry Slurm's numbers too,
// but no step: nobody has started other ranks there, and there is no place.
//
// MASTER_ADDR and MASTER_PORT, where they are set, hold for every source.
#pragma once

#include <optional>
#include <string>
#include <string_view>

#include "laconic/machine/environment.hpp"

namespace laconic {

struct Place {
  int rank = 0;
  int size = 1;
  int local_rank = 0;  // among the ranks on this machine
  int local_size = 1;
  std::string host = "127.0.0.1";  // of rank 0, where all meet
  int port = 29500;
  std::string run_id;        // the same on all ranks, another for another run; may be empty
  int attempt = 0;           // starts of this run before this one
  bool agent_store = false;  // torchrun already listens at host:port; nobody else may
  std::string source;        // "torchrun", "Slurm", ...: who said so
  bool operator==(const Place&) const = default;
};

// None when nobody has started us as one of several. Throws ConfigError with everything that is
// missing, malformed or contradictory; an empty variable counts as none.
std::optional<Place> find_place(const Environment& environment);

// "rank 5 of 8, 1 of 4 on this machine, meeting at 10.0.0.1:29500 (torchrun)"
std::string to_text(const Place& place);

// The first host of Slurm's notation: "node003" of "node[003-010,12],x7". Empty when it is none.
std::string first_host(std::string_view nodes);

// A port for a job nobody has given one, the same on all its ranks: below the range from which
// systems give ports to outgoing connections.
int port_of_job(std::string_view job);

}  // namespace laconic
