// world/world.hpp — the other ranks, as training sees them.
//
// A run in one process has a world of one, in which every exchange is the
// identity: training code asks no questions about it. Exchanges are collective:
// all ranks make the same calls in the same order.
//
// One thread only; operations in the background go through progress_thread().
#pragma once

#include <cstdint>
#include <cstring>
#include <deque>
#include <functional>
#include <string>
#include <vector>

#include "laconic/base/bytes.hpp"
#include "laconic/engine/progress_thread.hpp"
#include "laconic/mesh/mesh.hpp"

namespace laconic {

class World {
 public:
  World() = default;  // alone
  // Requires: the progress thread outlives the world; size(mesh) ranks.
  World(const Mesh& mesh, ProgressThread& progress_thread);

  Rank rank() const { return rank_; }
  int size() const { return static_cast<int>(everybody_.size()); }
  bool is_first() const { return rank_ == 0; }  // the one that writes files and talks to people
  bool is_alone() const { return size() == 1; }

  const Mesh& mesh() const { return mesh_; }
  const Coord& coord() const { return coord_; }
  // Ranks with the same part of the model.
  const Group& dp_group() const { return dp_group_; }
  int dp_member() const { return coord_.dp; }
  // Ranks that make up one model, first part to last.
  const Group& pp_group() const { return pp_group_; }
  int pp_member() const { return coord_.pp; }
  // Ranks that hold parts of the same replica, in rank order.
  const Group& replica() const { return replica_; }
  bool is_first_of_replica() const { return replica_.front() == rank_; }

  // Requires, for both: not alone.
  ProgressThread& progress_thread() const { return *progress_thread_; }
  Engine& engine() const { return progress_thread_->engine(); }

  // What this rank is at, in words, for whoever reads about its end: "step 17".
  void set_activity(std::string what) { activity_ = std::move(what); }
  const std::string& activity() const { return activity_; }

  // What every rank brought, by rank. Throws PeerLost, Timeout.
  std::vector<Bytes> gather(ByteView mine);
  // The same in two calls: post_note() waits for nobody, and take_notes() is what every rank
  // brought to the first that was not taken yet.
  void post_note(ByteView mine);
  std::vector<Bytes> take_notes();
  // What every rank of the same replica brought, in rank order. Collective:
  // the other replicas gather, too, each by itself.
  std::vector<Bytes> gather_replica(ByteView mine);
  // Runs `decide` on rank 0 and gives its answer to all. What it throws is thrown there; every
  // other rank refuses with the same words, or, if rank 0 has failed, has lost it. However long it
  // takes (a checkpoint that is collected over a slow network), rank 0 lets the others know that it
  // is still at it, and their deadlines begin anew. `decide` may be collective itself, also by
  // decide_on_rank_0().
  std::string decide_on_rank_0(const std::function<std::string()>& decide);

  // Waits for a message from rank 0 while that is inside decide_on_rank_0(), whose signs of life
  // begin the deadline anew. Throws what decide_on_rank_0() would, when rank 0 ends it without such
  // a message; PeerLost, Timeout. Requires: not rank 0.
  Bytes recv_from_decider(Tag tag);

  template <class T>
  std::vector<T> gather_values(const T& mine) {
    std::vector<T> all;
    for (const Bytes& bytes : gather(as_bytes(std::span(&mine, 1))))
      all.push_back(get<T>(bytes, 0));
    return all;
  }

 private:
  class StillDeciding;

  std::string decided_by_first();
  void tell_all(ByteView message);

  ProgressThread* progress_thread_ = nullptr;
  Rank rank_ = 0;
  Group everybody_ = {0};
  Mesh mesh_;
  Coord coord_;
  Group dp_group_ = {0};
  Group pp_group_ = {0};
  Group replica_ = {0};
  std::uint64_t exchanges_ = 0;
  std::deque<Bytes> notes_;  // this rank's, posted and not taken
  std::uint64_t notes_taken_ = 0;
  std::string activity_ = "beginning";
};

}  // namespace laconic
