#include "laconic/engine/engine.hpp"

#include <fmt/format.h>

#include <atomic>
#include <condition_variable>
#include <map>
#include <mutex>
#include <utility>
#include <vector>

#include "laconic/base/error.hpp"
#include "laconic/base/text.hpp"
#include "laconic/engine/outbox.hpp"
#include "laconic/engine/progress_deadline.hpp"

// Threads, and what each owns
// ---------------------------
// A rank has one thread that computes, one that advances operations (engine/progress_thread.cpp),
// one for every peer that it has sent to (engine/outbox.cpp), and those of its transport. All of
// them meet in Engine::Body.
//
//   computing, progress   send() ──► Outbox of the peer ──► its thread ──► transport.send
//   computing, progress   take() ◄── PeerInbox, Assembly ◄── transport.try_recv
//   transport's own       on_arrival ──► arrivals + 1 ──► whoever is in wait_for_arrival()
//
// A message belongs to the outboxes it was queued in until it has left; it is shared and nobody
// changes it. What has arrived belongs to the transport until somebody asks for it. From the first
// time it is asked for, its segments belong to `incoming` of the peer's PeerInbox, whoever asks;
// the lock of that inbox is held from taking a segment to adding it, so that segments stay in
// order.
//
// Why nothing waits for ever
// --------------------------
// 1. send() only queues. So a rank always comes to its receives, and ranks that all send before
//    they receive do not stop each other.
// 2. A transport takes in whatever arrives, asked for or not. So an outbox waits for the network,
//    never for what its peer is doing. The price is an inbox that grows with what nobody has asked
//    for yet: who sends much to one rank lets that rank ask for it (checkpoint/collect.cpp).
// 3. advance() never waits, so that one thread is enough for all operations.
// 4. No lock is held during a wait, nor during transport.send to another rank. Locks are taken in
//    one order: the progress thread's, a PeerInbox's, an outbox's, the window's, the transport's,
//    the recorder's, the meter's, the observer's. None of these calls back to one before it.
// 5. No wake is lost. Who waits reads the count of arrivals first, looks then, and sleeps only
//    while the count is what it read; a transport puts a message into its inbox before it counts.
// 6. Every wait ends: with what it waits for, with the loss of a peer, which counts as an arrival,
//    or when nothing has moved for the deadline (engine/progress_deadline.hpp).
namespace laconic {

namespace {

// A message that somebody has asked for.
struct Incoming {
  std::optional<std::uint64_t> record;  // none: nothing has come, and nobody owes it
  Assembly assembly;
};

// Those of one peer. The lock is held from taking a segment to adding it, so that the segments of
// a tag are added in order whoever asks.
struct PeerInbox {
  std::mutex mutex;
  std::map<Tag, Incoming> incoming;
};

std::string shortfall(std::uint64_t has, std::uint64_t of) {
  if (has == 0) return "";
  return fmt::format(", of which {} of {} had come", human_bytes(static_cast<double>(has)),
                     human_bytes(static_cast<double>(of)));
}

}  // namespace

struct Engine::Body {
  Body(Transport& its_transport, const EngineOptions& its_options)
      : transport(its_transport),
        options(its_options),
        recorder(its_options.records),
        window([this] { wake(); }),
        inboxes(static_cast<std::size_t>(its_transport.size())),
        outboxes(static_cast<std::size_t>(its_transport.size())) {}

  void wake();
  Outbox& outbox_to(Rank to);
  Outbox* existing_outbox_to(Rank to);
  void throw_failure_to(Rank peer);
  void send_to_self(const SendRequest& request);
  void left(const SendRequest& request, std::uint64_t record);
  void notify(const EngineEvent& event);
  std::optional<Bytes> take(Rank from, Tag tag, bool is_expected);
  std::optional<Bytes> assemble(PeerInbox& inbox, Incoming& incoming, Rank from, Tag tag);
  std::pair<std::uint64_t, std::uint64_t> progress(Rank from, Tag tag);  // bytes here, of

  Transport& transport;
  const EngineOptions options;
  Meter meter;
  FlightRecorder recorder;
  Window window;
  std::atomic<std::uint64_t> moved = 0;

  std::atomic<bool> is_observed = false;
  std::mutex observer_mutex;  // held during a call
  EngineObserver observer;

  std::mutex arrival_mutex;
  std::condition_variable arrival;
  std::uint64_t arrivals = 0;

  std::vector<PeerInbox> inboxes;

  std::mutex self_mutex;  // held during a message to oneself
  std::mutex outbox_mutex;
  std::vector<std::unique_ptr<Outbox>> outboxes;  // last, so that their threads end first
};

void Engine::Body::wake() {
  {
    const std::lock_guard lock(arrival_mutex);
    ++arrivals;
  }
  arrival.notify_all();
}

Outbox* Engine::Body::existing_outbox_to(Rank to) {
  const std::lock_guard lock(outbox_mutex);
  return outboxes.at(static_cast<std::size_t>(to)).get();
}

Outbox& Engine::Body::outbox_to(Rank to) {
  const std::lock_guard lock(outbox_mutex);
  auto& outbox = outboxes.at(static_cast<std::size_t>(to));
  if (outbox == nullptr) {
    Outbox::Events events;
    events.segment_left = [this] { ++moved; };
    events.left = [this](const SendRequest& request, std::uint64_t record) {
      left(request, record);
    };
    events.failed = [this](std::uint64_t record, std::uint64_t bytes) {
      recorder.finish(record, Record::State::failed, bytes);
      wake();
    };
    outbox = std::make_unique<Outbox>(transport, to, options, window, std::move(events));
  }
  return *outbox;
}

void Engine::Body::throw_failure_to(Rank peer) {
  if (const Outbox* outbox = existing_outbox_to(peer)) outbox->throw_failure();
}

void Engine::Body::left(const SendRequest& request, std::uint64_t record) {
  const std::uint64_t bytes = request.message->size();
  const std::uint64_t wire = wire_bytes(bytes, options.segment_bytes);
  const TagFields fields = fields_of(request.tag);
  meter.sent(fields.traffic, request.to, {1, request.raw_bytes, wire}, fields.unit);
  const Record done = recorder.finish(record, Record::State::done, bytes);
  if (is_observed) notify(message_event(done, request.raw_bytes, wire));
}

void Engine::Body::notify(const EngineEvent& event) {
  const std::lock_guard lock(observer_mutex);
  if (observer) observer(event);
}

void Engine::Body::send_to_self(const SendRequest& request) {
  const std::uint64_t bytes = request.message->size();
  const std::uint64_t record = recorder.post(Record::Kind::send, request.to, request.tag, bytes);
  try {
    const std::lock_guard lock(self_mutex);
    Bytes segment;
    std::size_t offset = 0;
    do {
      offset = cut_segment(*request.message, offset, options.segment_bytes, segment);
      transport.send(request.to, request.tag, segment, in(options.deadline));
      ++moved;
    } while (offset < bytes);
  } catch (...) {
    recorder.finish(record, Record::State::failed, bytes);
    throw;
  }
  left(request, record);
}

std::optional<Bytes> Engine::Body::take(Rank from, Tag tag, bool is_expected) {
  PeerInbox& inbox = inboxes.at(static_cast<std::size_t>(from));
  const std::lock_guard lock(inbox.mutex);
  const auto found = inbox.incoming.try_emplace(tag).first;
  Incoming& incoming = found->second;
  if (is_expected && !incoming.record)
    incoming.record = recorder.post(Record::Kind::recv, from, tag, 0);
  try {
    if (std::optional<Bytes> message = assemble(inbox, incoming, from, tag)) return message;
    throw_failure_to(from);
    if (const std::optional<PeerLost> death = transport.death()) throw PeerLost(*death);
  } catch (...) {
    if (incoming.record)
      recorder.finish(*incoming.record, Record::State::failed, incoming.assembly.bytes());
    inbox.incoming.erase(found);
    throw;
  }
  if (!incoming.record) inbox.incoming.erase(found);
  return std::nullopt;
}

// Requires: the inbox's lock.
std::optional<Bytes> Engine::Body::assemble(PeerInbox& inbox, Incoming& incoming, Rank from,
                                            Tag tag) {
  while (std::optional<Bytes> segment = transport.try_recv(from, tag)) {
    if (!incoming.record) incoming.record = recorder.post(Record::Kind::recv, from, tag, 0);
    std::optional<Bytes> message = incoming.assembly.add(std::move(*segment));
    ++moved;
    if (!message) continue;
    const std::uint64_t wire = incoming.assembly.wire_bytes();
    meter.received(fields_of(tag).traffic, from, {1, 0, wire});
    const Record done = recorder.finish(*incoming.record, Record::State::done, message->size());
    if (is_observed) notify(message_event(done, 0, wire));
    inbox.incoming.erase(tag);
    return message;
  }
  return std::nullopt;
}

std::pair<std::uint64_t, std::uint64_t> Engine::Body::progress(Rank from, Tag tag) {
  PeerInbox& inbox = inboxes.at(static_cast<std::size_t>(from));
  const std::lock_guard lock(inbox.mutex);
  const auto found = inbox.incoming.find(tag);
  if (found == inbox.incoming.end()) return {0, 0};
  return {found->second.assembly.bytes(), found->second.assembly.total()};
}

Engine::Engine(Transport& transport, const EngineOptions& options)
    : body_(std::make_unique<Body>(transport, options)) {
  LACONIC_ASSERT(options.segment_bytes > 0, "segment_bytes = 0");
  transport.on_arrival([body = body_.get()] { body->wake(); });
}

Engine::~Engine() {
  body_->transport.on_arrival({});
}

Rank Engine::rank() const {
  return body_->transport.rank();
}
int Engine::size() const {
  return body_->transport.size();
}
const EngineOptions& Engine::options() const {
  return body_->options;
}
Transport& Engine::transport() {
  return body_->transport;
}
Window& Engine::window() {
  return body_->window;
}

Meter& Engine::meter() {
  return body_->meter;
}
FlightRecorder& Engine::recorder() {
  return body_->recorder;
}
std::uint64_t Engine::moved() const {
  return body_->moved;
}
void Engine::wake() {
  body_->wake();
}

// Codec time comes from the meter, which hears of it the moment it has been spent.
void Engine::observe(EngineObserver observer) {
  const bool is_observed = observer != nullptr;
  {
    const std::lock_guard lock(body_->observer_mutex);
    body_->observer = std::move(observer);
  }
  body_->is_observed = is_observed;
  if (!is_observed) return body_->meter.observe({});
  body_->meter.observe([body = body_.get()](Traffic traffic, const Times& times) {
    if (times.codec > 0) body->notify(codec_event(traffic, times.codec));
  });
}
bool Engine::is_observed() const {
  return body_->is_observed;
}
void Engine::notify(const EngineEvent& event) {
  body_->notify(event);
}

void Engine::waited(Rank from, Tag tag, EngineEvent::Time begin, EngineEvent::Time end) {
  const Traffic traffic = fields_of(tag).traffic;
  meter().spent(traffic, {.exposed = std::chrono::duration<double>(end - begin).count()});
  if (is_observed()) notify(wait_event(from, tag, begin, end));
}

void Engine::waited(Traffic traffic, EngineEvent::Time begin, EngineEvent::Time end,
                    std::uint64_t flow, std::uint32_t unit) {
  meter().spent(traffic, unit, {.exposed = std::chrono::duration<double>(end - begin).count()});
  if (is_observed()) notify(wait_event(traffic, begin, end, flow, unit));
}

void Engine::send(SendRequest request) {
  LACONIC_ASSERT(request.message != nullptr, to_text(request.tag));
  if (Footprint* footprint = FootprintScope::current()) {
    footprint->peers.insert(request.to);
    footprint->raw_bytes += request.raw_bytes;
    footprint->wire_bytes += wire_bytes(request.message->size(), body_->options.segment_bytes);
  }
  if (request.to == rank()) return body_->send_to_self(request);
  Outbox& outbox = body_->outbox_to(request.to);
  outbox.throw_failure();
  const std::uint64_t bytes = request.message->size();
  const std::uint64_t record =
      body_->recorder.post(Record::Kind::send, request.to, request.tag, bytes);
  try {
    outbox.push(std::move(request), record);
  } catch (...) {
    body_->recorder.finish(record, Record::State::failed, bytes);
    throw;
  }
}

std::optional<Bytes> Engine::try_recv(Rank from, Tag tag) {
  if (Footprint* footprint = FootprintScope::current()) footprint->peers.insert(from);
  return body_->take(from, tag, true);
}

std::optional<Bytes> Engine::poll(Rank from, Tag tag) {
  return body_->take(from, tag, false);
}

Bytes Engine::recv(Rank from, Tag tag) {
  const EngineEvent::Time begin = std::chrono::steady_clock::now();
  ProgressDeadline deadline(body_->options.deadline);
  std::uint64_t seen = wait_for_arrival(0, {});
  for (;;) {
    if (std::optional<Bytes> message = try_recv(from, tag)) {
      if (is_observed()) notify(wait_event(from, tag, begin, std::chrono::steady_clock::now()));
      return std::move(*message);
    }
    const auto [has, of] = body_->progress(from, tag);
    if (deadline.has_passed(has))
      throw Timeout(from, fmt::format("rank {} waited in vain for {} from rank {}{}", rank(),
                                      to_text(tag), from, shortfall(has, of)));
    seen = wait_for_arrival(seen, deadline.until());
  }
}

void Engine::push() {
  for (Rank to = 0; to < size(); ++to)
    if (Outbox* const outbox = body_->existing_outbox_to(to)) outbox->start();
}

void Engine::flush() {
  for (Rank to = 0; to < size(); ++to)
    if (Outbox* outbox = body_->existing_outbox_to(to)) outbox->flush();
}

std::uint64_t Engine::wait_for_arrival(std::uint64_t seen, Deadline until) {
  std::unique_lock lock(body_->arrival_mutex);
  body_->arrival.wait_until(lock, until, [&] { return body_->arrivals != seen; });
  return body_->arrivals;
}

}  // namespace laconic
