#include <fmt/format.h>

#include <atomic>
#include <csignal>
#include <cstdlib>
#include <memory>
#include <mutex>
#include <thread>
#include <utility>
#include <vector>

#include "laconic/base/error.hpp"
#include "laconic/rendezvous/gloo_context.hpp"
#include "laconic/rendezvous/gloo_peer.hpp"
#include "laconic/rendezvous/open.hpp"
#include "laconic/rendezvous/route.hpp"

namespace laconic {
namespace {

using std::chrono::milliseconds;

// How long the end waits for peers to see the goodbye, and with it everything sent before. One that
// is stopped or cut off does not get more.
constexpr milliseconds kLinger{2000};
// A sum that breaks may notice before the thread that learns who is lost.
constexpr milliseconds kTimeToLearnWho{200};

class GlooTransport final : public Transport {
 public:
  GlooTransport(const Meeting& meeting, Store& store, const Interface& interface);
  ~GlooTransport() override;

  Rank rank() const override { return rank_; }
  int size() const override { return size_; }
  std::string_view name() const override { return "gloo"; }

  void send(Rank to, Tag tag, ByteView message, Deadline deadline) override {
    const TaggedMessage one{tag, message};
    send_all(to, {&one, 1}, deadline);
  }
  void send_all(Rank to, std::span<const TaggedMessage> messages, Deadline deadline) override {
    inbox_.require_present(to);
    if (to != rank_) return peer(to).send(messages, deadline);
    for (const auto& [tag, message] : messages)
      inbox_.put(to, tag, Bytes(message.begin(), message.end()));
  }
  Bytes recv(Rank from, Tag tag, Deadline deadline) override {
    return inbox_.take(from, tag, deadline);
  }
  std::optional<Bytes> try_recv(Rank from, Tag tag) override { return inbox_.try_take(from, tag); }
  std::optional<PeerLost> death() const override { return inbox_.death(); }
  std::uint64_t most_held_bytes() const override { return inbox_.most_held_bytes(); }
  void on_arrival(std::function<void()> wake) override { inbox_.on_arrival(std::move(wake)); }

  bool has_sum() const override { return true; }
  void sum(std::span<float> values, Deadline deadline) override;

  void close() override;

 private:
  GlooPeer& peer(Rank rank) { return *peers_.at(static_cast<std::size_t>(rank)); }
  void connect(const Meeting& meeting, Store& store, const Interface& interface);
  [[noreturn]] void sum_failed(const std::string& why, Deadline deadline);
  void crashed();

  const Rank rank_;
  const int size_;
  Inbox inbox_;
  Watchdog watchdog_;
  std::atomic<int> warm_slots_ = kWarmSlots;
  std::unique_ptr<GlooMesh> messages_;  // before the peers, whose buffers belong to it
  std::unique_ptr<GlooMesh> sums_;      // apart: a sum that fails takes its connections along
  std::mutex sum_mutex_;
  std::atomic<bool> is_summing_ = false;
  std::vector<std::unique_ptr<GlooPeer>> peers_;  // by rank; none for this one
};

GlooTransport::GlooTransport(const Meeting& meeting, Store& store, const Interface& interface)
    : rank_(meeting.rank), size_(meeting.size), inbox_(meeting.rank, meeting.size) {
  peers_.resize(static_cast<std::size_t>(size_));
  if (size_ > 1) connect(meeting, store, interface);
}

void GlooTransport::connect(const Meeting& meeting, Store& store, const Interface& interface) {
  const Deadline deadline = in(meeting.deadline);
  const auto engine = make_gloo_engine(interface);
  auto sets = connect_gloo(meeting, store, interface, *engine, 2, gloo_wire(), deadline);
  messages_ = std::move(sets[0]);
  sums_ = std::move(sets[1]);
  for (Rank r = 0; r < size_; ++r)
    if (r != rank_)
      peers_[static_cast<std::size_t>(r)] = std::make_unique<GlooPeer>(
          *messages_, rank_, r, inbox_, watchdog_, warm_slots_, [this] { crashed(); });
}

GlooTransport::~GlooTransport() {
  close();
  const Deadline deadline = in(kLinger);
  for (const auto& peer : peers_)
    if (peer) peer->wait_until_seen(deadline);
  for (const auto& peer : peers_)
    if (peer) peer->stop();
  // The connections end before the buffers: gloo would look for those again and again.
  for (GlooMesh* const mesh : {messages_.get(), sums_.get()})
    for (Rank r = 0; mesh != nullptr && r < size_; ++r)
      if (r != rank_) mesh->drop(r);
}

void GlooTransport::close() {
  inbox_.close();
  for (const auto& peer : peers_)
    if (peer) peer->leave();
  // The last bytes of a sum that has ended here may still be on their way to others.
  if (is_summing_) sums_->abandon();
}

// A sum cannot end without everybody. What a peer gave to a sum before it said goodbye may still
// be on its way, so only a crash ends the sums.
void GlooTransport::crashed() {
  sums_->abandon();
}

void GlooTransport::sum(std::span<float> values, Deadline deadline) {
  const std::lock_guard lock(sum_mutex_);
  inbox_.require_present(rank_);
  if (size_ == 1 || values.empty()) return;
  const auto left =
      std::chrono::duration_cast<milliseconds>(deadline - std::chrono::steady_clock::now());
  if (left <= milliseconds::zero()) throw Timeout(-1, "no time is left for a sum over all ranks");
  is_summing_ = true;
  std::string error;
  try {
    inbox_.require_present(rank_);  // after the line above: either this sees close(), or that us
    error = sums_->sum(values, left);
    is_summing_ = false;
  } catch (const std::exception& gone) {
    is_summing_ = false;
    error = gone.what();
  }
  if (!error.empty()) sum_failed(readable(error), deadline);
}

void GlooTransport::sum_failed(const std::string& why, Deadline deadline) {
  const Deadline patience = in(kTimeToLearnWho);
  do {
    for (Rank r = 0; r < size_; ++r)
      if (r != rank_) inbox_.require_present(r);
    std::this_thread::sleep_for(milliseconds{5});
  } while (std::chrono::steady_clock::now() < patience);
  const std::string text = fmt::format("a sum over all ranks failed at rank {}: {}", rank_, why);
  if (std::chrono::steady_clock::now() >= deadline) throw Timeout(-1, text);
  throw PeerLost(-1, text);
}

RouteWish wish_of(const Meeting& meeting) {
  if (!meeting.interface.empty()) return {"network.interface", meeting.interface};
  const char* const name = std::getenv("GLOO_SOCKET_IFNAME");
  return {"GLOO_SOCKET_IFNAME", name == nullptr ? "" : name};
}

// A handler of the program's own is left alone: it gets EPIPE as well.
void ignore_broken_pipes() {
  struct sigaction current {};
  if (::sigaction(SIGPIPE, nullptr, &current) == 0 && current.sa_handler == SIG_DFL)
    std::signal(SIGPIPE, SIG_IGN);
}

}  // namespace

bool has_gloo() {
  return find_plugin(kGlooModule).has_value();
}

std::unique_ptr<Transport> make_gloo(const Meeting& meeting, Store& store) {
  ignore_broken_pipes();
  const Interface interface = choose_route(meeting.host, meeting.port, wish_of(meeting));
  return std::make_unique<GlooTransport>(meeting, store, interface);
}

}  // namespace laconic
