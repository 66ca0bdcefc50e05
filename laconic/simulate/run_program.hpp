// simulate/run_program.hpp — what the ranks of a run do, as plain data.
//
// A strand is a list of acts that happen one after the other: a rank's computing thread, or one
// lane of a collective. Strands compute on workers (threads): a worker does one thing at a time,
// the most urgent first. Workers of a processor share its cores. Messages leave through an outbox
// for each pair of ranks, and way between them, and flow over links (fair_share.hpp).
//
// What one could get wrong: a rank here may stand for several that do the same at the same time
// (their class). A message between two of them then is all messages of these, `flows` many,
// and has the bytes of all together.
#pragma once

#include <cstdint>
#include <stdexcept>
#include <string>
#include <vector>

#include "laconic/simulate/fair_share.hpp"
#include "laconic/transport/tag.hpp"

namespace laconic {

// How large a program may become.
struct ProgramBounds {
  std::uint64_t messages = 0;  // 0: any number
  // Of one collective. More become so many, with all their bytes, so that there are fewer messages,
  // which are longer; 0: as a run has them.
  std::uint64_t lanes = 0;
};

class ProgramTooLarge : public std::runtime_error {
 public:
  explicit ProgramTooLarge(std::uint64_t messages);  // more than these
};

enum class StrandOp : std::uint8_t {
  compute,  // `seconds` on the strand's worker, booked as `work`
  send,     // message `index` goes into its outbox
  wait,     // for message `index`
  start,    // strand `index`
  join,     // waits for the end of strand `index`
  begin,    // of span `index`, for pictures: takes no time
  end,
};

enum class WorkKind : std::uint8_t { forward, backward, codec, handling, update };
inline constexpr int kWorkKinds = 5;

struct StrandAct {
  StrandOp op = StrandOp::compute;
  WorkKind work = WorkKind::forward;
  int index = 0;
  double seconds = 0;
};

struct Strand {
  int worker = 0;
  std::uint64_t key = 0;               // of its computations: smaller is sooner
  Traffic traffic = Traffic::control;  // that a join is exposed to
  bool starts_alone = false;           // at time 0; others wait for `start`
  std::vector<StrandAct> acts;
};

// A thread of a rank.
struct Worker {
  int rank = 0;
  int processor = -1;    // whose cores it shares; -1: it has a core of its own
  bool is_main = false;  // it computes the model, and what it waits for is exposed
};

struct ProgramMessage {
  int from = 0, to = 0;  // ranks
  int way = 0;           // of several outboxes between two that stand for many (rank_class.hpp)
  Traffic traffic = Traffic::control;
  std::uint64_t key = 0;  // of the outbox: smaller leaves first
  double bytes = 0;       // on the wire
  double flows = 1;       // that share links
  // What processors of a sender and of a receiver are busy with because of it.
  double send_seconds = 0, receive_seconds = 0;
  int edge = -1, microbatch = 0;  // of what goes between stages, for pictures
};

// What a picture shows: from the begin to the end of something on a rank.
struct SpanName {
  int rank = 0;
  int stage = 0, microbatch = 0;
  char kind = 'F';  // F, B, I, W as in schedules; U: update, S: waiting for sums
};

// Links of a network: every host has an outlet and an inlet (the same one, when it is half duplex),
// and a group of hosts may have an uplink, which all that leaves or enters the group takes too.
struct NetworkMap {
  struct Port {
    int out = kNoLink, in = kNoLink;
    double latency = 0;
  };
  static constexpr int kNoLink = -1;
  std::vector<int> host_of_rank;
  std::vector<int> group_of_host;
  std::vector<Port> hosts, groups;
  std::vector<Port> inside;              // by host, between its own ranks: `out` alone
  std::vector<double> bytes_per_second;  // by link
  std::vector<double> burst_bytes;       // by link: what passes at once after a pause
  std::vector<std::string> names;        // by link
};

// Where messages between two ranks go, and how long they are on their way: the latency of the
// sender's port, and of both uplinks between groups. Ranks of one host need no link, unless they
// are one, which stands for several.
struct Route {
  FlowPath path;
  double latency = 0;
};
Route route_between(const NetworkMap& network, int from, int to);

struct RunProgram {
  int ranks = 0;
  std::vector<double> cores;  // by processor: how many
  std::vector<Worker> workers;
  std::vector<int> handlers;  // by rank: the worker that handles messages
  std::vector<Strand> strands;
  std::vector<ProgramMessage> messages;
  std::vector<SpanName> spans;
  NetworkMap network;
  double segment_bytes = 256 << 10;  // after which a more urgent message may overtake
};

}  // namespace laconic
