// bench/simgrid/rerun.hpp — runs a RunProgram once more by SimGrid, somebody else's simulator.
//
// Strands, workers and outboxes are its actors, messages its communications, cores its hosts: who
// gets how much of a link or a core, and when, is SimGrid's own answer. Only what a program means
// is told here a second time: the order in an outbox and on a worker, and the waits between
// strands.
//
// What one could get wrong: SimGrid has one engine for a process, so that a process can rerun one
// program.
#pragma once

#include "laconic/simulate/run_program.hpp"

namespace laconic {

// What a wire is like, in SimGrid's settings.
struct SimgridWire {
  // Of a link's rate, what payloads get (network/bandwidth-factor).
  double bandwidth_factor = 1;
  // Messages of a pair follow each other on one connection, as here: each arrives a latency after
  // its last byte, and the next is on its way meanwhile; between two segments a more urgent one
  // overtakes. Otherwise latency is SimGrid's own: every message waits for it before its first
  // byte, and nobody overtakes.
  bool is_stream = true;
  double latency_factor = 1;  // of SimGrid's own latency
  // A flow also takes 5 % of its rate on the way back, for acknowledgements.
  bool has_crosstraffic = false;
};

// Seconds. Rates of the program's links are taken for what `payload_share` leaves of the wire.
// Requires: every rank stands for itself alone (Folding::never); the first call in this process.
double seconds_by_simgrid(const RunProgram& program, const SimgridWire& wire, double payload_share);

}  // namespace laconic
