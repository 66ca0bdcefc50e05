#include "laconic/store/delta_store.hpp"

#include <fmt/format.h>

#include <algorithm>
#include <cstring>
#include <utility>

#include "laconic/base/clock.hpp"
#include "laconic/base/error.hpp"
#include "laconic/codec/device_memory.hpp"

namespace laconic {

// Why no reader ever meets a writer in a buffer. (The artefact of the paper lets write(current
// batch) and read(next batch) run at once on the same buffers, and loses references that way.)
//
//   1. Only the calling thread moves buffers: between the pool, staged_, Entry::value and retired_.
//      The I/O thread sees a pointer and a slot, and no table.
//   2. A buffer is written by a codec while it is staged, and by nobody once it is committed; the
//      next value of the key is staged in another one. So a write job reads bytes at rest, and
//      find() may read them too.
//   3. A read job fills a buffer fresh from the pool, and find() waits for its ticket.
//   4. A buffer goes back to the pool only when its ticket is done; until then it is in retired_.
//   5. A GPU reads and writes buffers in the order of one stream. Its own are used by nothing else.
//      Pinned ones of a step are left alone by the host until the stream's last work on them is
//      done (await_device): find() waits for it if the value was staged in this step, commit()
//      and abandon() before they pass buffers on, and forget() leaves them in retired_ till then.
//
// Nor do jobs meet in a slot: they are done in order by one thread, so the newest value of a key is
// what remains, and a slot that changes hands is written by its new key after all jobs of the old.
// find() reads by itself only when `value` is null, hence after the last write to the slot is done.

namespace {

constexpr std::uint64_t kUnlimited = std::numeric_limits<std::uint64_t>::max();
constexpr std::uint64_t kMaxRecordBytes = std::uint64_t{1} << 48;

std::uint64_t records_within(const DeltaStoreSpec& spec) {
  LACONIC_ASSERT(spec.record_bytes <= kMaxRecordBytes,
                 fmt::format("record_bytes = {}", spec.record_bytes));
  const std::uint64_t slot_bytes = slot_bytes_of(spec.record_bytes);
  return spec.budget_bytes == 0 || slot_bytes == 0 ? kUnlimited : spec.budget_bytes / slot_bytes;
}

}  // namespace

DeltaStore::DeltaStore(DeltaStoreSpec spec)
    : spec_(std::move(spec)), max_records_(records_within(spec_)), pool_(spec_.record_bytes) {
  if (spec_.path.empty()) return;
  file_ = std::make_unique<RecordFile>(spec_.path, spec_.record_bytes, max_records_);
  queue_ = std::make_unique<RecordQueue>(*file_, spec_.asynchronous, spec_.before_io);
}

// What a GPU still has to do with pinned memory must be done before others get it; one that has
// failed will not do it.
DeltaStore::~DeltaStore() {
  try {
    await_device();
  } catch (const std::exception&) {
  }
}

std::optional<DeltaStore::Record> DeltaStore::find(std::uint64_t key) {
  const Newest found = newest(key);
  if (found.bytes == nullptr) return std::nullopt;
  bring_to_host(found);
  return record_of(*found.bytes, found.visits);
}

DeltaStore::Newest DeltaStore::newest(std::uint64_t key) {
  if (queue_) queue_->rethrow();
  const auto at = entries_.find(key);
  if (at == entries_.end()) return {};
  Entry& entry = at->second;
  if (entry.staged != kNotStaged) {
    Staged& staged = staged_[entry.staged];
    if (!staged.bytes) return {};
    return {&staged.bytes, &*at, staged.visits, /*is_staged=*/true};
  }
  if (queue_) fetch(*at);
  return {&entry.value, &*at, entry.visits, /*is_staged=*/false};
}

// Afterwards the stored value is in RAM, until the step ends at least.
void DeltaStore::fetch(Node& node) {
  Entry& entry = node.second;
  if (!entry.value) {
    const Stopwatch watch;
    RecordBuffer buffer = pool_.take(host_place());
    file_->read(entry.slot, {buffer.get(), spec_.record_bytes});
    entry.value = std::move(buffer);
    ++counts_.prefetch_misses;
    ++counts_.waits;
    counts_.seconds_waited += watch.seconds();
  } else if (std::exchange(entry.is_prefetched, false)) {
    if (queue_->is_done(entry.ticket)) ++counts_.prefetch_hits;
    await(entry.ticket);
  }
  keep(node, step_);
}

void DeltaStore::await(Ticket ticket) {
  if (queue_->is_done(ticket)) return;
  const Stopwatch watch;
  queue_->wait(ticket);
  ++counts_.waits;
  counts_.seconds_waited += watch.seconds();
}

std::optional<std::span<std::byte>> DeltaStore::stage(std::uint64_t key, std::uint32_t visits) {
  const RecordBuffer* const room = stage_at(key, visits, host_place());
  if (room == nullptr) return std::nullopt;
  return std::span(room->get(), spec_.record_bytes);
}

// Null: not admitted.
RecordBuffer* DeltaStore::stage_at(std::uint64_t key, std::uint32_t visits, RecordPlace place) {
  if (queue_) queue_->rethrow();
  auto at = entries_.find(key);
  const bool is_new = at == entries_.end();
  if (is_new && entries_.size() >= max_records_) {
    ++counts_.refused;
    return nullptr;
  }
  // What may throw comes first, so that a key without a place does not become an entry.
  const std::uint64_t slot = is_new && file_ ? file_->take_slot() : 0;
  RecordBuffer buffer = pool_.take(place);
  if (is_new) at = entries_.try_emplace(key).first;
  if (is_new) at->second.slot = slot;
  staged_.push_back({&*at, std::move(buffer), visits, at->second.staged});
  at->second.staged = static_cast<std::uint32_t>(staged_.size() - 1);
  return &staged_.back().bytes;
}

void DeltaStore::commit() {
  await_device();
  if (queue_) {
    queue_->rethrow();
    await(last_commit_);  // at most two steps wait to be written: a bound on RAM
  }
  for (std::size_t i = 0; i < staged_.size(); ++i)
    if (Node* node = staged_[i].node; node != nullptr && node->second.staged == i) {
      if (staged_[i].bytes)
        publish(staged_[i]);
      else
        erase(*node);
    }
  end_step();
  if (!queue_) return;
  last_commit_ = queue_->last();
  queue_->rethrow();
}

void DeltaStore::publish(Staged& staged) {
  Entry& entry = staged.node->second;
  if (entry.value) retire(std::move(entry.value), entry.ticket);
  entry.value = std::move(staged.bytes);
  entry.visits = staged.visits;
  entry.staged = kNotStaged;
  entry.is_prefetched = false;
  if (!std::exchange(entry.is_stored, true)) ++stored_;
  // What the GPU keeps needs no place on the disk. Its slot is there for when it is moved.
  if (!queue_ || entry.value.place() == RecordPlace::device) return;
  entry.ticket = queue_->submit({RecordJob::Kind::write, entry.slot, entry.value.get()});
  keep(*staged.node, step_);
}

void DeltaStore::abandon() {
  await_device();
  for (std::size_t i = 0; i < staged_.size(); ++i) {
    Node* const node = staged_[i].node;
    if (node == nullptr || node->second.staged != i) continue;
    node->second.staged = kNotStaged;
    if (!node->second.is_stored) erase(*node);
  }
  end_step();
}

void DeltaStore::forget(std::uint64_t key) {
  const auto at = entries_.find(key);
  if (at == entries_.end()) return;
  for (std::uint32_t i = at->second.staged; i != kNotStaged; i = staged_[i].below)
    staged_[i].node = nullptr;
  erase(*at);
}

void DeltaStore::stage_forget(std::uint64_t key) {
  const auto at = entries_.find(key);
  if (at == entries_.end()) return;
  if (!at->second.is_stored) return forget(key);
  staged_.push_back({&*at, {}, 0, at->second.staged});
  at->second.staged = static_cast<std::uint32_t>(staged_.size() - 1);
}

std::optional<std::uint32_t> DeltaStore::visits_of(std::uint64_t key) const {
  const auto at = entries_.find(key);
  if (at == entries_.end()) return std::nullopt;
  const Entry& entry = at->second;
  if (entry.staged == kNotStaged) return entry.visits;
  const Staged& staged = staged_[entry.staged];
  return staged.bytes ? std::optional(staged.visits) : std::nullopt;
}

bool DeltaStore::admits(std::uint64_t key) const {
  return entries_.size() < max_records_ || entries_.contains(key);
}

bool DeltaStore::is_stored(std::uint64_t key) const {
  const auto at = entries_.find(key);
  return at != entries_.end() && at->second.is_stored;
}

// Requires: nothing in staged_ points to the node, or will be looked at.
void DeltaStore::erase(Node& node) {
  Entry& entry = node.second;
  if (entry.value) retire(std::move(entry.value), entry.ticket);
  if (file_) file_->give_slot(entry.slot);
  if (entry.is_stored) --stored_;
  entries_.erase(entries_.find(node.first));
}

void DeltaStore::clear() {
  if (queue_) queue_->wait_until_idle();
  await_device();
  staged_.clear();
  resident_.clear();
  while (!entries_.empty()) erase(*entries_.begin());
  retired_.clear();
  pool_ = RecordPool(spec_.record_bytes);
  is_on_device_ = false;
}

void DeltaStore::prefetch(std::span<const std::uint64_t> keys) {
  if (!queue_ || !queue_->has_thread()) return;
  queue_->rethrow();
  const std::uint64_t most =
      spec_.read_ahead_bytes / std::max<std::uint64_t>(1, spec_.record_bytes);
  for (const std::uint64_t key : keys) {
    const auto at = entries_.find(key);
    if (at == entries_.end()) continue;
    Entry& entry = at->second;
    if (!entry.value && entry.is_stored && entry.staged == kNotStaged && in_ram() < most) {
      entry.value = pool_.take(host_place());
      entry.ticket = queue_->submit({RecordJob::Kind::read, entry.slot, entry.value.get()});
      entry.is_prefetched = true;
    }
    keep(*at, step_ + 1);
  }
}

void DeltaStore::set_before_io(std::function<void()> before_io) {
  if (queue_) queue_->set_before_job(std::move(before_io));
}

void DeltaStore::drain() {
  if (queue_) queue_->wait(queue_->last());
}

void DeltaStore::retire(RecordBuffer bytes, Ticket ticket) {
  const bool is_in_stream = has_device_work_ && bytes.place() == RecordPlace::pinned;
  if (!is_in_stream && (!queue_ || queue_->is_done(ticket)))
    pool_.give(std::move(bytes));
  else
    retired_.push_back({std::move(bytes), ticket});
}

void DeltaStore::keep(Node& node, std::uint64_t until) {
  Entry& entry = node.second;
  entry.keep_until = std::max(entry.keep_until, until);
  if (!std::exchange(entry.is_resident, true)) resident_.push_back(node.first);
}

// Buffers are given back here and not before: find() has promised the bytes for the whole step.
void DeltaStore::end_step() {
  for (Staged& staged : staged_)
    if (staged.bytes) pool_.give(std::move(staged.bytes));
  staged_.clear();
  ++step_;
  std::erase_if(retired_, [&](Retired& retired) {
    const bool is_done = !queue_ || queue_->is_done(retired.ticket);
    if (is_done) pool_.give(std::move(retired.bytes));
    return is_done;
  });
  if (!queue_) return;
  std::erase_if(resident_, [&](std::uint64_t key) {
    const auto at = entries_.find(key);
    if (at == entries_.end()) return true;
    Entry& entry = at->second;
    if (entry.keep_until >= step_ || !queue_->is_done(entry.ticket)) return false;
    if (entry.value && entry.value.place() != RecordPlace::device)
      pool_.give(std::move(entry.value));
    entry.is_prefetched = false;
    entry.is_resident = false;
    return true;
  });
}

std::vector<DeltaStore::StoredKey> DeltaStore::stored_keys() const {
  std::vector<StoredKey> keys;
  keys.reserve(stored_);
  for (const auto& [key, entry] : entries_)
    if (entry.is_stored) keys.push_back({key, entry.visits});
  std::ranges::sort(keys, {}, &StoredKey::key);
  return keys;
}

void DeltaStore::read_stored(std::uint64_t key, std::span<std::byte> out) {
  if (queue_) queue_->rethrow();
  const auto at = entries_.find(key);
  LACONIC_ASSERT(at != entries_.end() && at->second.is_stored, fmt::format("key {}", key));
  LACONIC_ASSERT(out.size() == spec_.record_bytes,
                 fmt::format("{} bytes of {}", out.size(), spec_.record_bytes));
  const Entry& entry = at->second;
  if (!entry.value) return file_->read(entry.slot, out);
  if (entry.is_prefetched) await(entry.ticket);
  RecordBuffer copied;
  if (entry.value.place() == RecordPlace::device) copied = copied_to_pinned(entry.value);
  const RecordBuffer& value = copied ? copied : entry.value;
  if (!out.empty()) std::memcpy(out.data(), value.get(), out.size());
  if (copied) pool_.give(std::move(copied));
}

DeltaStoreStats DeltaStore::stats() const {
  DeltaStoreStats stats = counts_;
  stats.records = stored_;
  stats.bytes = stored_ * slot_bytes_of(spec_.record_bytes);
  stats.budget_bytes = spec_.budget_bytes;
  stats.ram_bytes = in_ram() * spec_.record_bytes;
  stats.device_bytes = pool_.in_use(RecordPlace::device) * spec_.record_bytes;
  return stats;
}

}  // namespace laconic
