// transport/mpi_wires.hpp — the calls to MPI, for mpi.cpp.
//
// A message travels as its bytes, followed by the eight of its tag: at the end they can be cut
// off without moving the rest. MPI keeps the order of messages between two ranks, but a
// small one may be complete before a large one that came first; so each sender has a queue, and
// only what is complete at its head is delivered.
//
// Not thread-safe: one thread makes, uses and ends it.
#pragma once

#define OMPI_SKIP_MPICXX 1  // we speak the C interface
#define MPICH_SKIP_MPICXX 1
#include <mpi.h>

#include <cstddef>
#include <deque>
#include <functional>
#include <vector>

#include "laconic/transport/inbox.hpp"

namespace laconic {

Bytes with_tag(ByteView message, Tag tag);

class MpiWires {
 public:
  MpiWires(int* argc, char*** argv);  // starts MPI; throws ConfigError
  MpiWires(const MpiWires&) = delete;
  MpiWires& operator=(const MpiWires&) = delete;
  // Collective: waits for all ranks. Requires: !is_busy().
  void finalise();

  Rank rank() const { return rank_; }
  int size() const { return size_; }

  void begin_send(Rank to, Bytes message);  // Requires: made by with_tag()
  void begin_farewell(Rank to);
  void begin_sum(std::vector<float>& values);  // in place. Requires: no other is under way

  // Moves on what can be, without waiting: arrivals into the inbox, ranks that took their leave
  // lost there. True when anything happened.
  bool progress(Inbox& inbox, const std::function<void(Rank to, std::size_t bytes)>& on_sent,
                const std::function<void()>& on_sum);

  bool is_busy() const;        // something is under way
  bool have_all_left() const;  // all other ranks have taken their leave

 private:
  struct Leaving {
    Rank to = 0;
    Bytes message;
  };
  struct Arriving {
    MPI_Request request = MPI_REQUEST_NULL;
    bool is_farewell = false;
    Bytes message;
  };

  void begin(Rank to, int kind, Bytes message);
  bool finish_sends(const std::function<void(Rank, std::size_t)>& on_sent);
  bool begin_arrivals();
  bool finish_arrivals(Inbox& inbox);
  void deliver(Rank from, Arriving arrived, Inbox& inbox);
  bool finish_sum(const std::function<void()>& on_sum);

  MPI_Comm messages_ = MPI_COMM_NULL;
  MPI_Comm sums_ = MPI_COMM_NULL;
  Rank rank_ = 0;
  int size_ = 0;
  std::vector<MPI_Request> requests_;  // requests_[i] belongs to leaving_[i]
  std::vector<Leaving> leaving_;
  std::vector<int> finished_;                   // scratch of finish_sends
  std::vector<std::deque<Arriving>> arriving_;  // by sender
  MPI_Request sum_ = MPI_REQUEST_NULL;
  int left_ = 0;
};

}  // namespace laconic
