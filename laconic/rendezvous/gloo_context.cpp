#include "laconic/rendezvous/gloo_context.hpp"

#include <fmt/format.h>
#include <gloo/context.h>
#include <gloo/transport/context.h>
#include <gloo/transport/pair.h>
#include <gloo/transport/tcp/device.h>
#include <gloo/transport/unbound_buffer.h>

#include <algorithm>
#include <thread>
#include <utility>
#include <vector>

#include "laconic/base/error.hpp"
#include "laconic/base/host_name.hpp"
#include "laconic/rendezvous/complaint.hpp"
#include "laconic/rendezvous/socket.hpp"

namespace laconic {
namespace {

using std::chrono::milliseconds;

// gloo waits five times its time-out for a connection.
constexpr int kGlooPatience = 5;
constexpr milliseconds kLookForComplaints{100};
// More than kLookForComplaints and what else ranks may be apart.
constexpr milliseconds kTimeToComplain{300};

// What a rank tells the others: the wire first, so that another version can still be named.
struct Card {
  std::string wire;
  std::string host;
  std::string address;                    // of the interface, for messages
  std::vector<std::vector<char>> places;  // where each peer is to connect; its own is empty
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
  put_text(out, card.address);
  for (const std::vector<char>& place : card.places) put_text(out, place);
  return out;
}

Card read_card(ByteView in, int size) {
  std::size_t at = 0;
  Card card;
  card.wire = get_text<std::string>(in, at);
  card.host = get_text<std::string>(in, at);
  card.address = get_text<std::string>(in, at);
  for (Rank r = 0; r < size; ++r) card.places.push_back(get_text<std::vector<char>>(in, at));
  return card;
}

class FullMesh final : public gloo::Context {
 public:
  FullMesh(Rank rank, int size, std::shared_ptr<gloo::transport::Device> device, milliseconds limit)
      : gloo::Context(rank, size) {
    device_ = std::move(device);
    transportContext_ = device_->createContext(rank, size);
    setTimeout(limit / kGlooPatience + milliseconds{1});
    transportContext_->setTimeout(getTimeout());
  }

  std::vector<std::vector<char>> listen() {
    std::vector<std::vector<char>> places(static_cast<std::size_t>(size));
    for (Rank r = 0; r < size; ++r)
      if (r != rank)
        places[static_cast<std::size_t>(r)] = transportContext_->createPair(r)->address().bytes();
    return places;
  }
};

[[noreturn]] void cannot_connect(const Meeting& meeting, const Interface& own, Rank peer,
                                 const Card& card, Deadline deadline, const std::string& why) {
  const std::string text = fmt::format(
      "rank {} (address {} of {}) and rank {} (address {} of host {}) cannot connect: {}; if one "
      "of "
      "the addresses is on the wrong network, set network.interface",
      meeting.rank, own.address, own.name, peer, card.address, card.host, why);
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

std::shared_ptr<gloo::transport::Device> make_gloo_device(const Interface& interface) {
  gloo::transport::tcp::attr attributes;
  attributes.hostname = interface.address;
  try {
    return gloo::transport::tcp::CreateDevice(attributes);
  } catch (const std::exception& error) {
    throw ConfigError(fmt::format("gloo cannot use address {} of {}: {}", interface.address,
                                  interface.name, without_place(error.what())));
  }
}

namespace {

struct Connecting {
  const Meeting& meeting;
  Store& store;
  const Interface& interface;
  const std::string& purpose;
  const std::string& wire;
  Deadline deadline;
};

std::string key_of(const Connecting& c, Rank rank) {
  return fmt::format("laconic/gloo/{}/{}/{}/{}", c.meeting.run_id, c.meeting.attempt, c.purpose,
                     rank);
}

// Not longer than until that rank says that it gave up.
Card card_of(const Connecting& c, Rank rank, Complaints& complaints) {
  const Awaited awaited{rank, fmt::format("the addresses of rank {}", rank)};
  for (;;) {
    const Deadline until = std::min<Deadline>(c.deadline, in(kLookForComplaints));
    try {
      return read_card(c.store.get(key_of(c, rank), until, awaited), c.meeting.size);
    } catch (const Timeout&) {
      if (until == c.deadline) throw;
    }
    if (complaints.of(rank)) throw PeerLost(rank, fmt::format("rank {} gave up", rank));
  }
}

std::shared_ptr<FullMesh> connect_all(const Connecting& c, Complaints& complaints,
                                      std::shared_ptr<gloo::transport::Device> device) {
  const Meeting& meeting = c.meeting;
  const auto left =
      std::chrono::duration_cast<milliseconds>(c.deadline - std::chrono::steady_clock::now());
  auto mesh = std::make_shared<FullMesh>(meeting.rank, meeting.size, std::move(device),
                                         std::max(left, milliseconds{1}));
  c.store.set(key_of(c, meeting.rank),
              to_bytes(Card{c.wire, host_name(), c.interface.address, mesh->listen()}));
  for (Rank r = 0; r < meeting.size; ++r) {
    if (r == meeting.rank) continue;
    const Card card = card_of(c, r, complaints);
    require_same_wire(meeting, c.wire, r, card);
    try {
      mesh->getPair(r)->connect(card.places[static_cast<std::size_t>(meeting.rank)]);
    } catch (const std::exception& error) {
      cannot_connect(meeting, c.interface, r, card, c.deadline, without_place(error.what()));
    }
  }
  return mesh;
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

std::shared_ptr<gloo::Context> connect_gloo(const Meeting& meeting, Store& store,
                                            const Interface& interface,
                                            std::shared_ptr<gloo::transport::Device> device,
                                            const std::string& purpose, const std::string& wire,
                                            Deadline deadline) {
  Complaints complaints(meeting, store);
  try {
    return connect_all({meeting, store, interface, purpose, wire, deadline}, complaints,
                       std::move(device));
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

std::string without_place(std::string text) {
  text = text.substr(0, text.find('\n'));
  const std::size_t end = text.find("] ");
  return !text.empty() && text.front() == '[' && end != std::string::npos ? text.substr(end + 2)
                                                                          : text;
}

}  // namespace laconic
