// rendezvous/door.hpp — connections between all ranks, each known to lead to its rank.
//
//   Door door(1, "10.0.0.3");      // listens; the store tells the others door.place()
//   door.call(0, 0, its_place);    // line 0 to rank 0
//   door.expect(2, 0);             // line 0 from rank 2
//   while (!door.advance(soon))    // meanwhile one may look who is missing()
//   Socket socket = door.take(2, 0);
//
// Anybody may connect to an open port: a program that looks for one which has ended, a scanner,
// another run. So who connects says which rank it is, and a key that only the store has told it;
// and who listens answers, so that the caller knows as well. Anybody else is hung up on, and the
// door stays open. Whatever breaks on the way is tried again, but for a refusal: a door is open
// before anybody is told of it, and until all have come, so behind a closed one is nobody.
//
// One thread.
#pragma once

#include <cstdint>
#include <deque>
#include <map>
#include <set>
#include <string>
#include <utility>
#include <vector>

#include "laconic/base/bytes.hpp"
#include "laconic/rendezvous/socket.hpp"
#include "laconic/transport/transport.hpp"

namespace laconic {

struct DoorPlace {
  std::string address;  // numeric
  int port = 0;
  std::uint64_t key = 0;  // what a caller must say
  bool operator==(const DoorPlace&) const = default;
};

class Door {
 public:
  // Listens at a free port of `address` (numeric). Throws ConfigError when it cannot.
  Door(Rank self, const std::string& address);

  const DoorPlace& place() const { return place_; }

  // There may be several lines to a rank; it has to expect each that is called.
  void call(Rank peer, int line, const DoorPlace& place);
  void expect(Rank peer, int line);

  // Goes on as far as it can, and waits no longer than until then. True when all lines stand.
  bool advance(Deadline until);

  struct Missing {
    Rank peer = -1;
    bool is_gone = false;  // it will not come any more
    std::string why;       // "connecting to 10.0.0.4:41234: No route to host"
  };
  std::vector<Missing> missing() const;

  Socket take(Rank peer, int line);  // Requires: advance() has returned true.

 private:
  using Line = std::pair<Rank, int>;
  struct Call {
    DoorPlace place;
    Socket socket;
    bool is_connected = false;
    Bytes answer;         // what has come of it
    Deadline again_at{};  // when there is no socket
    std::string why;      // what went wrong last
    bool is_refused = false;
  };
  struct Caller {
    Socket socket;
    Bytes hello;  // what has come of it
  };

  void begin(Call& call);
  void go_on(const Line& line, Call& call);
  void try_again(Call& call, const std::string& why);
  void let_in();
  bool listen_to(Caller& caller);  // false: nothing more to expect of it

  Rank self_;
  DoorPlace place_;
  Socket listener_;
  std::map<Line, Call> calls_;  // until they are answered
  std::set<Line> awaited_;      // until they have called
  std::deque<Caller> callers_;  // who have not said yet who they are
  std::map<Line, Socket> standing_;
};

}  // namespace laconic
