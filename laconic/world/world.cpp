#include "laconic/world/world.hpp"

#include <fmt/format.h>

#include <condition_variable>
#include <memory>
#include <mutex>
#include <numeric>
#include <thread>

#include "laconic/base/error.hpp"
#include "laconic/collective/run.hpp"
#include "laconic/engine/progress_deadline.hpp"
#include "laconic/world/control_unit.hpp"

namespace laconic {

namespace {

constexpr char kDecided = '=', kRefused = '!', kFailed = '?';  // what an answer begins with

Bytes bytes_of(std::string_view text) {
  const ByteView view = as_bytes(std::span(text.data(), text.size()));
  return {view.begin(), view.end()};
}

std::string text_of(ByteView bytes) {
  return {reinterpret_cast<const char*>(bytes.data()), bytes.size()};
}

Tag decision_tag() {
  return make_tag({.traffic = Traffic::control, .unit = kDecisionUnit});
}

Tag note_tag(std::uint64_t number) {
  return make_tag({.traffic = Traffic::control, .unit = kNoteUnit, .number = number});
}

void throw_if_refused(const std::string& answer) {
  if (answer.starts_with(kRefused)) throw ConfigError(answer.substr(1));
  if (answer.starts_with(kFailed)) throw PeerLost(0, "rank 0 failed: " + answer.substr(1));
}

}  // namespace

World::World(const Mesh& mesh, ProgressThread& progress_thread)
    : progress_thread_(&progress_thread), rank_(progress_thread.engine().rank()), mesh_(mesh) {
  everybody_.resize(static_cast<std::size_t>(laconic::size(mesh)));
  std::iota(everybody_.begin(), everybody_.end(), 0);
  coord_ = coord_of(mesh, rank_);
  dp_group_ = group_of(mesh, rank_, Axis::dp);
  pp_group_ = group_of(mesh, rank_, Axis::pp);
  replica_ = group_of(mesh, rank_, {Axis::pp, Axis::tp0, Axis::tp1, Axis::tp2});
}

std::vector<Bytes> World::gather(ByteView mine) {
  if (is_alone()) return {Bytes(mine.begin(), mine.end())};
  return gather_all(engine(), everybody_, Traffic::control, kExchangeUnit, exchanges_++, mine);
}

void World::post_note(ByteView mine) {
  const auto message = std::make_shared<const Bytes>(mine.begin(), mine.end());
  for (const Rank to : everybody_)
    if (to != rank_)
      engine().send({.to = to,
                     .tag = note_tag(notes_taken_ + notes_.size()),
                     .raw_bytes = message->size(),
                     .message = message});
  notes_.push_back(*message);
}

std::vector<Bytes> World::take_notes() {
  LACONIC_ASSERT(!notes_.empty(), "this rank has posted none");
  std::vector<Bytes> all;
  for (const Rank from : everybody_)
    all.push_back(from == rank_ ? notes_.front() : engine().recv(from, note_tag(notes_taken_)));
  notes_.pop_front();
  ++notes_taken_;
  return all;
}

// The count of exchanges is the same everywhere, so that replicas may use it side by side.
std::vector<Bytes> World::gather_replica(ByteView mine) {
  const std::uint64_t number = exchanges_++;
  if (replica_.size() == 1) return {Bytes(mine.begin(), mine.end())};
  return gather_all(engine(), replica_, Traffic::control, kExchangeUnit, number, mine);
}

// All decisions have one tag: they are made one after the other, and messages of a tag keep their
// order, so that an answer is never taken for that of an outer decision.
void World::tell_all(ByteView message) {
  if (is_alone()) return;
  const auto shared = std::make_shared<const Bytes>(message.begin(), message.end());
  for (Rank to = 1; to < size(); ++to)
    engine().send(
        {.to = to, .tag = decision_tag(), .raw_bytes = message.size(), .message = shared});
}

// While it lives, the others get an empty message several times in every deadline.
class World::StillDeciding {
 public:
  explicit StillDeciding(World& world) {
    if (!world.is_alone()) thread_ = std::thread([this, &world] { tell(world); });
  }
  StillDeciding(const StillDeciding&) = delete;
  StillDeciding& operator=(const StillDeciding&) = delete;
  ~StillDeciding() {
    {
      const std::lock_guard lock(mutex_);
      is_over_ = true;
    }
    over_.notify_all();
    if (thread_.joinable()) thread_.join();
  }

 private:
  void tell(World& world) {
    const auto pause = world.engine().options().deadline / 4;
    std::unique_lock lock(mutex_);
    while (!over_.wait_for(lock, pause, [this] { return is_over_; })) {
      try {
        world.tell_all({});
      } catch (const std::exception&) {
        return;  // somebody is lost: whoever decides will hear of it, too
      }
    }
  }

  std::mutex mutex_;
  std::condition_variable over_;
  bool is_over_ = false;
  std::thread thread_;
};

std::string World::decided_by_first() {
  std::string answer;
  while (answer.empty()) answer = text_of(engine().recv(0, decision_tag()));
  throw_if_refused(answer);
  return answer.substr(1);
}

Bytes World::recv_from_decider(Tag tag) {
  ProgressDeadline deadline(engine().options().deadline);
  for (std::uint64_t signs = 0;;) {
    const std::uint64_t seen = engine().wait_for_arrival(0, {});
    if (std::optional<Bytes> message = engine().try_recv(0, tag)) return std::move(*message);
    while (const std::optional<Bytes> sign = engine().poll(0, decision_tag())) {
      ++signs;
      if (sign->empty()) continue;
      throw_if_refused(text_of(*sign));
      LACONIC_ASSERT(false, "rank 0 has decided without " + to_text(tag));
    }
    if (deadline.has_passed(signs))
      throw Timeout(0,
                    fmt::format("rank {} waited in vain for {} from rank 0", rank_, to_text(tag)));
    engine().wait_for_arrival(seen, deadline.until());
  }
}

std::string World::decide_on_rank_0(const std::function<std::string()>& decide) {
  if (!is_first()) return decided_by_first();
  // This rank is about to go: whoever waits must know before.
  const auto tell = [&](char kind, const std::exception& error) {
    tell_all(bytes_of(kind + std::string(error.what())));
    if (!is_alone()) engine().flush();
  };
  std::string answer;
  try {
    const StillDeciding still(*this);
    answer = decide();
  } catch (const PeerLost&) {  // nobody listens any more
    throw;
  } catch (const Timeout&) {
    throw;
  } catch (const ConfigError& error) {
    tell(kRefused, error);
    throw;
  } catch (const FileError& error) {
    tell(kRefused, error);
    throw;
  } catch (const std::exception& error) {
    tell(kFailed, error);
    throw;
  }
  tell_all(bytes_of(kDecided + answer));
  return answer;
}

}  // namespace laconic
