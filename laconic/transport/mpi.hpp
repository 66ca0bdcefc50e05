// transport/mpi.hpp — ranks that mpirun or srun has started, over MPI's own network.
//
// One thread makes all calls to MPI, from init to finalise, so any MPI will do,
// whatever it says of threads. Sends wait for it in a queue; what arrives goes
// to the inbox at once, asked for or not. When nothing moves the thread sleeps,
// 20 us at first and up to 1 ms, until it is woken by a send: ranks may outnumber
// cores, which the usual busy wait of MPI does not bear.
//
// What one could get wrong:
// - A process has one MPI, once: make_mpi may be called once.
// - send() copies the message and returns when at most 1 MiB to that rank has not
//   left; a send that timed out may arrive nevertheless.
// - A rank that closes takes leave of the others, who receive what it had sent and
//   then see it lost. A rank that dies without a word is mpirun's business, which
//   ends the job; deadlines hold in the meantime.
// - Destruction waits up to ten seconds for the leave of all others, then
//   finalises. Where one does not come, MPI is left as it is, for finalising could wait for ever:
//   the process should end, and mpirun then ends the rest of the job.
// - When a call to MPI fails, all peers count as lost.
//
// In a build without MPI has_mpi() is false and make_mpi() throws ConfigError.
#pragma once

#include <memory>

#include "laconic/transport/transport.hpp"

namespace laconic {

bool has_mpi();

// Starts MPI, which may take words meant for it out of the arguments. Throws ConfigError.
std::unique_ptr<Transport> make_mpi(int* argc = nullptr, char*** argv = nullptr);

}  // namespace laconic
