#include "laconic/engine/engine.hpp"

#include <fmt/format.h>

#include <atomic>
#include <condition_variable>
#include <map>
#include <mutex>
#include <vector>

#include "laconic/base/error.hpp"
#include "laconic/base/text.hpp"
#include "laconic/engine/outbox.hpp"

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
        inboxes(static_cast<std::size_t>(its_transport.size())),
        outboxes(static_cast<std::size_t>(its_transport.size())) {}

  void wake();
  Outbox& outbox_to(Rank to);
  Outbox* existing_outbox_to(Rank to);
  void throw_failure_to(Rank peer);
  void send_to_self(const Parcel& parcel);
  void left(const Parcel& parcel, std::uint64_t record);
  std::optional<Bytes> take(Rank from, Tag tag, bool is_owed);
  std::optional<Bytes> assemble(PeerInbox& inbox, Incoming& incoming, Rank from, Tag tag);
  std::pair<std::uint64_t, std::uint64_t> progress(Rank from, Tag tag);  // bytes here, of

  Transport& transport;
  const EngineOptions options;
  Meter meter;
  FlightRecorder recorder;
  std::atomic<std::uint64_t> moved = 0;

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
    events.left = [this](const Parcel& parcel, std::uint64_t record) { left(parcel, record); };
    events.failed = [this](std::uint64_t record, std::uint64_t bytes) {
      recorder.finish(record, Record::State::failed, bytes);
      wake();
    };
    outbox = std::make_unique<Outbox>(transport, to, options, std::move(events));
  }
  return *outbox;
}

void Engine::Body::throw_failure_to(Rank peer) {
  if (const Outbox* outbox = existing_outbox_to(peer)) outbox->throw_failure();
}

void Engine::Body::left(const Parcel& parcel, std::uint64_t record) {
  const std::uint64_t bytes = parcel.message->size();
  meter.sent(fields_of(parcel.tag).traffic, parcel.to,
             {1, parcel.raw_bytes, wire_bytes(bytes, options.segment_bytes)});
  recorder.finish(record, Record::State::done, bytes);
}

void Engine::Body::send_to_self(const Parcel& parcel) {
  const std::uint64_t bytes = parcel.message->size();
  const std::uint64_t record = recorder.post(Record::Kind::send, parcel.to, parcel.tag, bytes);
  try {
    const std::lock_guard lock(self_mutex);
    Bytes segment;
    std::size_t offset = 0;
    do {
      offset = cut_segment(*parcel.message, offset, options.segment_bytes, segment);
      transport.send(parcel.to, parcel.tag, segment, in(options.deadline));
      ++moved;
    } while (offset < bytes);
  } catch (...) {
    recorder.finish(record, Record::State::failed, bytes);
    throw;
  }
  left(parcel, record);
}

std::optional<Bytes> Engine::Body::take(Rank from, Tag tag, bool is_owed) {
  PeerInbox& inbox = inboxes.at(static_cast<std::size_t>(from));
  const std::lock_guard lock(inbox.mutex);
  const auto found = inbox.incoming.try_emplace(tag).first;
  Incoming& incoming = found->second;
  if (is_owed && !incoming.record)
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
    meter.received(fields_of(tag).traffic, from, {1, 0, incoming.assembly.wire_bytes()});
    recorder.finish(*incoming.record, Record::State::done, message->size());
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

void Engine::send(Parcel parcel) {
  LACONIC_ASSERT(parcel.message != nullptr, to_text(parcel.tag));
  if (parcel.to == rank()) return body_->send_to_self(parcel);
  Outbox& outbox = body_->outbox_to(parcel.to);
  outbox.throw_failure();
  const std::uint64_t bytes = parcel.message->size();
  const std::uint64_t record =
      body_->recorder.post(Record::Kind::send, parcel.to, parcel.tag, bytes);
  try {
    outbox.push(std::move(parcel), record);
  } catch (...) {
    body_->recorder.finish(record, Record::State::failed, bytes);
    throw;
  }
}

std::optional<Bytes> Engine::try_recv(Rank from, Tag tag) {
  return body_->take(from, tag, true);
}

std::optional<Bytes> Engine::poll(Rank from, Tag tag) {
  return body_->take(from, tag, false);
}

Bytes Engine::recv(Rank from, Tag tag) {
  Deadline until = in(body_->options.deadline);
  std::uint64_t seen = wait_for_arrival(0, {});
  for (std::uint64_t had = 0;;) {
    if (std::optional<Bytes> message = try_recv(from, tag)) return std::move(*message);
    const auto [has, of] = body_->progress(from, tag);
    if (has != had) until = in(body_->options.deadline);
    had = has;
    if (std::chrono::steady_clock::now() >= until)
      throw Timeout(from, fmt::format("rank {} waited in vain for {} from rank {}{}", rank(),
                                      to_text(tag), from, shortfall(has, of)));
    seen = wait_for_arrival(seen, until);
  }
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
