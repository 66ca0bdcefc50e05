// rendezvous/complaint.hpp — why ranks gave up connecting, so that all name the same culprit.
//
// When a rank dies while the others connect, one of them notices and ends, another waits for that
// one in vain, and so on: each would name its neighbour. So who gives up says in the store whom it
// missed, and who misses somebody looks there whom that one missed.
#pragma once

#include <optional>
#include <string>

#include "laconic/rendezvous/open.hpp"

namespace laconic {

struct Complaint {
  Rank about = -1;
  std::string why;
};

// Nothing here throws: the store may be what is gone.
class Complaints {
 public:
  Complaints(const Meeting& meeting, Store& store) : meeting_(meeting), store_(store) {}

  void tell(const Complaint& mine);
  std::optional<Complaint> of(Rank rank);
  // What is behind it: the complaint of whom it is about, if there is one, and so on.
  Complaint cause_of(Complaint complaint);

 private:
  std::string key_of(Rank rank) const;

  const Meeting& meeting_;
  Store& store_;
};

}  // namespace laconic
