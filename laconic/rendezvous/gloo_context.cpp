#include "laconic/rendezvous/gloo_context.hpp"

#include <fcntl.h>
#include <fmt/format.h>
#include <netinet/in.h>
#include <netinet/tcp.h>
#include <unistd.h>

#include <algorithm>
#include <cerrno>
#include <thread>
#include <utility>
#include <vector>

#include "laconic/base/error.hpp"
#include "laconic/base/host_name.hpp"
#include "laconic/base/plugin.hpp"
#include "laconic/rendezvous/complaint.hpp"
#include "laconic/rendezvous/door.hpp"

namespace laconic {
namespace {

using std::chrono::milliseconds;

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

// Where `peer` is connected, gloo has this descriptor for it; from here on it is `socket`.
void replace(GlooMesh& mesh, Rank peer, int descriptor, const Socket& socket) {
  const int on = 1;
  ::setsockopt(*socket, IPPROTO_TCP, TCP_NODELAY, &on, sizeof on);
  if (::dup3(*socket, descriptor, O_CLOEXEC) < 0)
    throw SystemError("a connection", "replace", errno);
  if (const std::string why = mesh.watch(peer, descriptor); !why.empty())
    throw PeerLost(
        peer, fmt::format("gloo did not take a connection to rank {}: {}", peer, readable(why)));
}

// Makes the connection gloo's (gloo_engine.hpp). If a stranger was faster than we, that pair of
// gloo is of no use, and the next may have more luck.
void give(GlooMesh& mesh, const std::string& address, Rank peer, const Socket& socket,
          Deadline deadline) {
  for (;;) {
    std::string error;
    const int port = mesh.listen(peer, error);
    if (port == 0) throw ConfigError(readable(error));
    const Socket own = begin_connecting(address, port);
    if (own && mesh.accept(peer))
      if (const int descriptor = find_other_end(own); descriptor >= 0)
        return replace(mesh, peer, descriptor, socket);
    mesh.drop(peer);
    if (std::chrono::steady_clock::now() >= deadline)
      throw Timeout(peer, fmt::format("gloo did not take a connection to rank {}", peer));
  }
}

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

PluginSpec gloo_plugin() {
  return {kGlooModule, kGlooInterface,
          "it belongs to laconic and needs libgloo: install both again, or choose another "
          "network.transport"};
}

std::unique_ptr<GlooEngine> make_gloo_engine(const Interface& interface) {
  static const auto make = reinterpret_cast<MakeGlooEngine>(open_plugin(gloo_plugin()));
  std::string error;
  std::unique_ptr<GlooEngine> engine(make(interface.address, error));
  if (!engine)
    throw ConfigError(fmt::format("gloo cannot use address {} of {}: {}", interface.address,
                                  interface.name, readable(error)));
  return engine;
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

std::vector<std::unique_ptr<GlooMesh>> connect_all(const Connecting& c, Complaints& complaints,
                                                   GlooEngine& engine) {
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
  std::vector<std::unique_ptr<GlooMesh>> sets;
  for (int line = 0; line < c.sets; ++line) {
    std::string error;
    auto mesh = engine.make_mesh(meeting.rank, meeting.size, kAcceptWithin, error);
    if (!mesh) throw ConfigError(fmt::format("gloo: {}", readable(error)));
    for (Rank r = 0; r < meeting.size; ++r)
      if (r != meeting.rank) give(*mesh, c.interface.address, r, door.take(r, line), c.deadline);
    sets.push_back(std::move(mesh));
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

std::vector<std::unique_ptr<GlooMesh>> connect_gloo(const Meeting& meeting, Store& store,
                                                    const Interface& interface, GlooEngine& engine,
                                                    int sets, const std::string& wire,
                                                    Deadline deadline) {
  Complaints complaints(meeting, store);
  try {
    return connect_all({meeting, store, interface, sets, wire, deadline}, complaints, engine);
  } catch (const PeerLost& lost) {
    give_up(complaints, {lost.peer(), lost.what()});
    throw;
  } catch (const Timeout& late) {
    give_up(complaints, {late.peer(), late.what()});
    throw;
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
