#include "laconic/rendezvous/gloo_context.hpp"

#include <fcntl.h>
#include <fmt/format.h>
#include <gloo/context.h>
#include <gloo/transport/context.h>
#include <gloo/transport/pair.h>
#include <gloo/transport/tcp/address.h>
#include <gloo/transport/tcp/device.h>
#include <gloo/transport/unbound_buffer.h>
#include <netinet/in.h>
#include <netinet/tcp.h>
#include <sys/epoll.h>
#include <unistd.h>

#include <algorithm>
#include <cerrno>
#include <cstring>
#include <thread>
#include <utility>
#include <vector>

#include "laconic/base/error.hpp"
#include "laconic/base/host_name.hpp"
#include "laconic/rendezvous/complaint.hpp"
#include "laconic/rendezvous/door.hpp"

namespace laconic {
namespace {

using std::chrono::milliseconds;

// gloo waits five times its time-out for a connection.
constexpr int kGlooPatience = 5;
// For a connection within this process, on a machine that is very busy.
constexpr milliseconds kAcceptWithin{20'000};
constexpr milliseconds kLookForComplaints{100};
// More than kLookForComplaints and what else ranks may be apart.
constexpr milliseconds kTimeToComplain{300};

// What a rank tells the others: the wire first, so that another version can still be named.
struct Card {
  std::string wire;
  std::string host;
  DoorPlace door;
};

template <class Text>
void put_text(Bytes& out, const Text& text) {
  put(out, static_cast<std::uint32_t>(text.size()));
  const ByteView view = as_bytes(std::span<const char>(text.data(), text.size()));
  out.insert(out.end(), view.begin(), view.end());
}

template <class Text>
Text get_text(ByteView in, std::size_t& at) {
  const auto size = at + 4 <= in.size() ? get<std::uint32_t>(in, at) : 0;
  if (at + 4 + size > in.size()) throw WireError(at, "gloo.card", "ends too early");
  const char* const begin = reinterpret_cast<const char*>(in.data()) + at + 4;
  at += 4 + size;
  return Text(begin, begin + size);
}

Bytes to_bytes(const Card& card) {
  Bytes out;
  put_text(out, card.wire);
  put_text(out, card.host);
  put_text(out, card.door.address);
  put(out, static_cast<std::uint32_t>(card.door.port));
  put(out, card.door.key);
  return out;
}

// Of one that speaks another wire only what all versions have.
Card read_card(ByteView in, const std::string& wire) {
  std::size_t at = 0;
  Card card;
  card.wire = get_text<std::string>(in, at);
  card.host = get_text<std::string>(in, at);
  if (card.wire != wire) return card;
  card.door.address = get_text<std::string>(in, at);
  if (at + 12 > in.size()) throw WireError(at, "gloo.card", "ends too early");
  card.door.port = static_cast<int>(get<std::uint32_t>(in, at));
  card.door.key = get<std::uint64_t>(in, at + 4);
  return card;
}

// Where a pair of gloo listens.
int port_of(const gloo::transport::Pair& pair) {
  const auto& address = dynamic_cast<const gloo::transport::tcp::Address&>(pair.address());
  if (address.getSeq() != gloo::transport::tcp::Address::kSequenceNumberUnset)
    throw ConfigError("this gloo is newer than what Laconic knows, that of Debian 12: use MPI");
  const sockaddr_storage& name = address.getSockaddr();
  return ntohs(name.ss_family == AF_INET6 ? reinterpret_cast<const sockaddr_in6&>(name).sin6_port
                                          : reinterpret_cast<const sockaddr_in&>(name).sin_port);
}

// An address that comes after all others: gloo's end with the lower one waits for the other.
std::vector<char> last_address(const std::string& like) {
  sockaddr_storage last{};
  if (like.find(':') != std::string::npos) {
    auto& six = reinterpret_cast<sockaddr_in6&>(last);
    six.sin6_family = AF_INET6;
    std::memset(&six.sin6_addr, 0xff, sizeof six.sin6_addr);
    six.sin6_port = 0xffff;
  } else {
    auto& four = reinterpret_cast<sockaddr_in&>(last);
    four.sin_family = AF_INET;
    four.sin_addr.s_addr = INADDR_BROADCAST;
    four.sin_port = 0xffff;
  }
  return gloo::transport::tcp::Address(last).bytes();
}

class FullMesh final : public gloo::Context {
 public:
  FullMesh(Rank rank, int size, std::shared_ptr<gloo::transport::tcp::Device> device,
           std::string address)
      : gloo::Context(rank, size), tcp_device_(std::move(device)), address_(std::move(address)) {
    device_ = tcp_device_;
    transportContext_ = device_->createContext(rank, size);
    transportContext_->setTimeout(kAcceptWithin / kGlooPatience);
  }

  // Makes the connection gloo's. A pair of gloo has no way to take one: it listens, and takes the
  // first that comes. So we come ourselves, and then put `socket` where it has that connection. If
  // a stranger was faster, that pair is of no use, and the next may have more luck.
  void add(Rank peer, Socket socket, Deadline deadline) {
    for (;;) {
      auto& pair = transportContext_->createPair(peer);
      const Socket own = begin_connecting(address_, port_of(*pair));
      if (own && accepts(*pair))
        if (const int descriptor = find_other_end(own); descriptor >= 0)
          return replace(*pair, descriptor, std::move(socket));
      pair.reset();
      if (std::chrono::steady_clock::now() >= deadline)
        throw Timeout(peer, fmt::format("gloo did not take a connection to rank {}", peer));
    }
  }

 private:
  bool accepts(gloo::transport::Pair& pair) const {
    try {
      pair.connect(last_address(address_));
      return true;
    } catch (const std::exception&) {  // a stranger who has left again, or nobody in time
      return false;
    }
  }

  void replace(gloo::transport::Pair& pair, int descriptor, Socket socket) {
    const int on = 1;
    ::setsockopt(*socket, IPPROTO_TCP, TCP_NODELAY, &on, sizeof on);
    if (::dup3(*socket, descriptor, O_CLOEXEC) < 0)
      throw SystemError("a connection", "replace", errno);
    tcp_device_->registerDescriptor(descriptor, EPOLLIN,
                                    &dynamic_cast<gloo::transport::tcp::Handler&>(pair));
  }

  std::shared_ptr<gloo::transport::tcp::Device> tcp_device_;
  std::string address_;
};

[[noreturn]] void cannot_connect(const Meeting& meeting, const Interface& own, Rank peer,
                                 const Card& card, Deadline deadline, const std::string& why) {
  const std::string text = fmt::format(
      "rank {} (address {} of {}) and rank {} (address {} of host {}) cannot connect: {}; if one "
      "of the addresses is on the wrong network, set network.interface",
      meeting.rank, own.address, own.name, peer, card.door.address, card.host, why);
  if (std::chrono::steady_clock::now() >= deadline) throw Timeout(peer, text);
  throw PeerLost(peer, text);
}

void require_same_wire(const Meeting& meeting, const std::string& wire, Rank peer,
                       const Card& card) {
  if (card.wire == wire) return;
  throw ConfigError(
      fmt::format("rank {} speaks '{}', but rank {} on {} speaks '{}': run the same "
                  "version everywhere",
                  meeting.rank, wire, peer, card.host, card.wire));
}

}  // namespace

std::shared_ptr<gloo::transport::tcp::Device> make_gloo_device(const Interface& interface) {
  gloo::transport::tcp::attr attributes;
  attributes.hostname = interface.address;
  try {
    return std::make_shared<gloo::transport::tcp::Device>(
        gloo::transport::tcp::CreateDeviceAttr(attributes));
  } catch (const std::exception& error) {
    throw ConfigError(fmt::format("gloo cannot use address {} of {}: {}", interface.address,
                                  interface.name, readable(error.what())));
  }
}

namespace {

struct Connecting {
  const Meeting& meeting;
  Store& store;
  const Interface& interface;
  int sets;
  const std::string& wire;
  Deadline deadline;
};

std::string key_of(const Connecting& c, Rank rank) {
  return fmt::format("laconic/gloo/{}/{}/{}", c.meeting.run_id, c.meeting.attempt, rank);
}

// Not longer than until that rank says that it gave up.
Card card_of(const Connecting& c, Rank rank, Complaints& complaints) {
  const Awaited awaited{rank, fmt::format("the addresses of rank {}", rank)};
  for (;;) {
    const Deadline until = std::min<Deadline>(c.deadline, in(kLookForComplaints));
    try {
      return read_card(c.store.get(key_of(c, rank), until, awaited), c.wire);
    } catch (const Timeout&) {
      if (until == c.deadline || c.store.is_silent()) throw;
    }
    if (complaints.of(rank)) throw PeerLost(rank, fmt::format("rank {} gave up", rank));
  }
}

// An address that holds on one link only ("fe80::1%eth0") names the interface as its machine calls
// it; here it is ours.
DoorPlace as_seen_here(DoorPlace place, const Interface& own) {
  if (const std::size_t scope = place.address.find('%'); scope != std::string::npos)
    place.address.replace(scope + 1, std::string::npos, own.name);
  return place;
}

// Higher ranks call lower ones.
std::vector<Card> call_all(const Connecting& c, Complaints& complaints, Door& door) {
  const Meeting& meeting = c.meeting;
  c.store.set(key_of(c, meeting.rank), to_bytes(Card{c.wire, host_name(), door.place()}));
  std::vector<Card> cards(static_cast<std::size_t>(meeting.size));
  for (Rank r = 0; r < meeting.size; ++r) {
    if (r == meeting.rank) continue;
    Card& card = cards[static_cast<std::size_t>(r)];
    card = card_of(c, r, complaints);
    require_same_wire(meeting, c.wire, r, card);
    for (int line = 0; line < c.sets; ++line)
      if (r < meeting.rank)
        door.call(r, line, as_seen_here(card.door, c.interface));
      else
        door.expect(r, line);
  }
  return cards;
}

std::vector<std::shared_ptr<gloo::Context>> connect_all(
    const Connecting& c, Complaints& complaints,
    const std::shared_ptr<gloo::transport::tcp::Device>& device) {
  const Meeting& meeting = c.meeting;
  Door door(meeting.rank, c.interface.address);
  const std::vector<Card> cards = call_all(c, complaints, door);
  for (std::size_t turn = 0;
       !door.advance(std::min<Deadline>(c.deadline, in(kLookForComplaints)));) {
    const std::vector<Door::Missing> missing = door.missing();
    const bool is_late = std::chrono::steady_clock::now() >= c.deadline;
    for (const Door::Missing& one : missing)
      if (one.is_gone || is_late)
        cannot_connect(meeting, c.interface, one.peer, cards[static_cast<std::size_t>(one.peer)],
                       c.deadline, one.why);
    const Rank asked = missing[turn++ % missing.size()].peer;
    if (complaints.of(asked)) throw PeerLost(asked, fmt::format("rank {} gave up", asked));
  }
  std::vector<std::shared_ptr<gloo::Context>> sets;
  for (int line = 0; line < c.sets; ++line) {
    const auto mesh =
        std::make_shared<FullMesh>(meeting.rank, meeting.size, device, c.interface.address);
    for (Rank r = 0; r < meeting.size; ++r)
      if (r != meeting.rank) mesh->add(r, door.take(r, line), c.deadline);
    sets.push_back(mesh);
  }
  return sets;
}

// Others come to their end at about the same time; whoever is missing behind them is named. The
// store, if it is here, stays that long for them. Returns when `mine` is the whole story.
void give_up(Complaints& complaints, const Complaint& mine) {
  complaints.tell(mine);
  const Complaint before = complaints.cause_of(mine);  // now: the store may go meanwhile
  std::this_thread::sleep_for(kTimeToComplain);
  const Complaint cause = complaints.cause_of(before);
  if (cause.about == mine.about) return;
  throw PeerLost(cause.about, fmt::format("{}; which gave up because: {}", mine.why, cause.why));
}

}  // namespace

std::vector<std::shared_ptr<gloo::Context>> connect_gloo(
    const Meeting& meeting, Store& store, const Interface& interface,
    const std::shared_ptr<gloo::transport::tcp::Device>& device, int sets, const std::string& wire,
    Deadline deadline) {
  Complaints complaints(meeting, store);
  try {
    return connect_all({meeting, store, interface, sets, wire, deadline}, complaints, device);
  } catch (const PeerLost& lost) {
    give_up(complaints, {lost.peer(), lost.what()});
    throw;
  } catch (const Timeout& late) {
    give_up(complaints, {late.peer(), late.what()});
    throw;
  }
}

void abandon(gloo::Context& context) {
  // There is no function for it, but a wait that times out does just this.
  char byte = 0;
  const auto buffer = context.createUnboundBuffer(&byte, 1);
  try {
    buffer->waitRecv(milliseconds{1});
  } catch (const std::exception&) {
  }
}

std::string readable(std::string text) {
  text = text.substr(0, text.find('\n'));
  const std::size_t end = text.find("] ");
  if (!text.empty() && text.front() == '[' && end != std::string::npos) text.erase(0, end + 2);
  // " [127.0.0.1]:4660"
  for (std::size_t at = 0; (at = text.find(" [", at)) != std::string::npos;) {
    const std::size_t port = text.find("]:", at);
    if (port == std::string::npos) break;
    text.erase(at, std::min(text.find_first_not_of("0123456789", port + 2), text.size()) - at);
  }
  return text;
}

}  // namespace laconic
