#include "laconic/rendezvous/open.hpp"

#include <fmt/format.h>

#include <charconv>
#include <string_view>
#include <thread>
#include <vector>

#include "laconic/base/error.hpp"
#include "laconic/base/text.hpp"

namespace laconic {
namespace {

constexpr char kRunKey[] = "laconic/run";
constexpr std::chrono::milliseconds kPause{20};

// What rank 0 writes and the others compare. The run id comes last: it may hold spaces.
struct RunNote {
  int attempt = 0;
  int size = 0;
  std::string run_id;
};

Bytes to_bytes(std::string_view text) {
  const ByteView view = as_bytes(std::span<const char>(text.data(), text.size()));
  return Bytes(view.begin(), view.end());
}

Bytes to_bytes(const RunNote& note) {
  return to_bytes(fmt::format("{} {} {}", note.attempt, note.size, note.run_id));
}

RunNote run_note(ByteView bytes, const std::string& where) {
  const std::string_view text(reinterpret_cast<const char*>(bytes.data()), bytes.size());
  RunNote note;
  const char* const end = text.data() + text.size();
  const auto attempt = std::from_chars(text.data(), end, note.attempt);
  if (attempt.ec == std::errc() && attempt.ptr != end) {
    const auto size = std::from_chars(attempt.ptr + 1, end, note.size);
    if (size.ec == std::errc() && size.ptr != end) {
      note.run_id.assign(size.ptr + 1, end);
      return note;
    }
  }
  throw ConfigError(
      fmt::format("{} is the rendezvous of something else than Laconic, or of another "
                  "version: it says '{}'",
                  where, printable(text)));
}

Problems differences(const Meeting& meeting, const RunNote& note, const std::string& where) {
  Problems problems;
  if (note.run_id != meeting.run_id)
    problems.push_back(
        {"", fmt::format("rank {} belongs to run '{}', but rank 0 at {} to run '{}': "
                         "is another run using {}?",
                         meeting.rank, meeting.run_id, where, note.run_id, where)});
  if (note.size != meeting.size)
    problems.push_back({"", fmt::format("rank {} expects {} ranks, but rank 0 at {} expects {}",
                                        meeting.rank, meeting.size, where, note.size)});
  if (note.attempt > meeting.attempt)
    problems.push_back({"", fmt::format("rank {} is of attempt {}, but rank 0 at {} of attempt {}",
                                        meeting.rank, meeting.attempt, where, note.attempt)});
  return problems;
}

// A note of an earlier attempt is what an agent's table still holds: rank 0 will write a new one.
void agree(const Meeting& meeting, Store& store, Deadline deadline) {
  const Awaited awaited{0, "rank 0 to say which run this is"};
  for (;;) {
    const RunNote note = run_note(store.get(kRunKey, deadline, awaited), store.where());
    const bool is_stale = note.attempt < meeting.attempt && note.run_id == meeting.run_id;
    if (!is_stale) {
      if (Problems problems = differences(meeting, note, store.where()); !problems.empty())
        throw ConfigError(std::move(problems));
      return;
    }
    if (std::chrono::steady_clock::now() >= deadline)
      throw Timeout(0, fmt::format("rank 0 has not come to attempt {} at {}; the last was {}",
                                   meeting.attempt, store.where(), note.attempt));
    std::this_thread::sleep_for(kPause);
  }
}

void claim_rank(const Meeting& meeting, Store& store) {
  const std::string key =
      fmt::format("laconic/joined/{}/{}/{}", meeting.run_id, meeting.attempt, meeting.rank);
  if (store.add(key, 1) == 1) return;
  throw ConfigError(fmt::format("two processes claim rank {}: is another run using {}?",
                                meeting.rank, store.where()));
}

Problems check(const Meeting& meeting) {
  Problems problems;
  if (meeting.size < 1)
    problems.push_back({"", fmt::format("a run of {} ranks cannot be", meeting.size)});
  if (meeting.rank < 0 || meeting.rank >= meeting.size)
    problems.push_back({"", fmt::format("rank {} is not one of {}", meeting.rank, meeting.size)});
  if (meeting.host.empty()) problems.push_back({"", "MASTER_ADDR is empty"});
  if (meeting.port < 1 || meeting.port > 65535)
    problems.push_back(
        {"", fmt::format("MASTER_PORT = {} is not a port: 1 to 65535 are", meeting.port)});
  return problems;
}

}  // namespace

std::unique_ptr<Store> meet(const Meeting& meeting) {
  refuse(check(meeting));
  const Deadline deadline = in(meeting.deadline);
  const StoreAddress address{meeting.host, meeting.port, meeting.rank == 0 && !meeting.agent_store,
                             meeting.size};
  auto store = std::make_unique<Store>(address, deadline);
  if (meeting.rank == 0)
    store->set(kRunKey, to_bytes(RunNote{meeting.attempt, meeting.size, meeting.run_id}));
  else
    agree(meeting, *store, deadline);
  claim_rank(meeting, *store);
  return store;
}

}  // namespace laconic
