// store/delta_store.hpp — the references of one end of a delta link, one record per key.
//
// A key is a sample (at a boundary); its record is what the receiver saw of it
// last, and `visits` counts how often. Both ends keep a store and must agree bit
// by bit, therefore:
//
//   - New values are staged and become visible to other steps only at commit():
//     a skipped or failed step ends in abandon() and leaves no trace. Within the
//     step find() does return what was staged, so a key may repeat in it.
//   - When the budget is full, new keys are not admitted, and nothing is evicted.
//     Samples come back once an epoch; evicting the least recently used would drop
//     each one just before its next visit, and hit nothing at all.
//   - What is admitted depends on the calls and on the budget alone: not on time,
//     nor on RAM, GPU or file. Equal budgets and equal calls admit equal keys.
//
// Records lie in RAM, or in a scratch file (store/record_file.hpp) with some of
// them in RAM. The file is never trusted after a crash: what must survive is saved
// by store/delta_checkpoint.hpp.
//
// An end whose tensors are on a GPU asks with find_for_device() and stage_for_device().
// Records are then in the GPU's memory while its budget lasts, then in pinned memory of
// the host, then in the file; the bytes are the same, and so are all answers. Both ways of
// asking may be mixed: what is asked for on the other side moves there. Work of the
// GPU on records may still be queued when calls return. commit() and abandon() wait for
// it, which takes no time where somebody has waited for the step's results before.
//
// Thread safety: one thread calls; a store on a file has an I/O thread of its own
// besides. An error of that thread (disk full, disk broken) ends the store: find(),
// stage(), commit(), prefetch() and drain() throw it from then on.
#pragma once

#include <cstddef>
#include <cstdint>
#include <functional>
#include <limits>
#include <memory>
#include <optional>
#include <span>
#include <string>
#include <unordered_map>
#include <vector>

#include "laconic/base/bytes.hpp"
#include "laconic/store/record_pool.hpp"
#include "laconic/store/record_queue.hpp"

namespace laconic {

class DeviceEvent;

struct DeltaStoreSpec {
  std::string path;                // of the scratch file; empty: RAM
  std::uint64_t budget_bytes = 0;  // for records, each rounded up to 4096 bytes; 0: no limit
  std::uint64_t record_bytes = 0;
  // Of the GPU's memory, for records that are staged for it; the others go to pinned memory.
  std::uint64_t device_bytes = 0;
  bool asynchronous = true;  // false: a file without I/O thread, and prefetch() does nothing
  // prefetch() reads no further while the buffers in RAM hold this much. Speed only.
  std::uint64_t read_ahead_bytes = std::uint64_t{1} << 30;
  std::function<void()> before_io;  // for tests: runs before each job of the I/O thread
};

struct DeltaStoreStats {
  std::uint64_t records = 0;        // committed
  std::uint64_t bytes = 0;          // of the budget, for these records
  std::uint64_t budget_bytes = 0;   // 0: no limit
  std::uint64_t ram_bytes = 0;      // of buffers in use: values in RAM, staged, on their way
  std::uint64_t device_bytes = 0;   // likewise, of the GPU's memory
  std::uint64_t refused = 0;        // stage() calls whose key was not admitted
  std::uint64_t prefetch_hits = 0;  // find() came when the read ahead was done
  std::uint64_t prefetch_misses =
      0;                    // find() had to read by itself: no prefetch() had named the key
  std::uint64_t waits = 0;  // find() or commit() stood still for the disk
  double seconds_waited = 0;
};

class DeltaStore {
 public:
  struct Record {
    ByteView bytes;
    std::uint32_t visits = 0;
    RecordPlace place = RecordPlace::host;
  };
  struct Room {
    std::span<std::byte> bytes;
    RecordPlace place = RecordPlace::host;
  };
  struct StoredKey {
    std::uint64_t key = 0;
    std::uint32_t visits = 0;
    bool operator==(const StoredKey&) const = default;
  };

  // Throws SystemError when the scratch file cannot be made or exists.
  explicit DeltaStore(DeltaStoreSpec spec);
  ~DeltaStore();
  DeltaStore(const DeltaStore&) = delete;
  DeltaStore& operator=(const DeltaStore&) = delete;

  // Returns the newest value, of this step or stored, in host memory. Reads, or waits for a read
  // under way, or for the GPU that makes it. The bytes stay where they are until commit(),
  // abandon(), clear(), forget() of the key, and find_for_device() of it.
  std::optional<Record> find(std::uint64_t key);

  // Returns room for the new value, aligned to 64 bytes, uninitialised, never where find() has
  // pointed in this step: a codec may read the old while it writes the new. Staged at once, so fill
  // it before the next find(). Empty when the budget does not admit the key; a known key always is.
  // Throws SystemError when the disk is full, and the key is then as before.
  std::optional<std::span<std::byte>> stage(std::uint64_t key, std::uint32_t visits);

  // The same for work in the codec stream, in the GPU's or in pinned memory as `place` says. What
  // find_for_device() returns must be used by that stream only: it may still be on its way.
  std::optional<Record> find_for_device(std::uint64_t key);
  // `is_compared`: the host will look at the value when it is found next, so it must not lie in
  // the GPU's memory.
  std::optional<Room> stage_for_device(std::uint64_t key, std::uint32_t visits, bool is_compared);
  // Says that all work on what was found and staged for a device is in the codec stream.
  void mark_queued();

  void commit();   // the end of a step: the staged values are the stored ones
  void abandon();  // the end of a step: they never were, nor the keys staged for the first time
  void forget(std::uint64_t key);  // at once: as never seen, staged or stored
  // Forgets within the step: find() no longer sees the key, and commit() forgets it, but abandon()
  // brings back what was stored.
  void stage_forget(std::uint64_t key);
  void clear();  // forgets all, and gives memory back

  // Hints that these keys are found in this step or the next. Never blocks.
  void prefetch(std::span<const std::uint64_t> keys);
  void drain();  // until all that was committed is in the file
  void set_before_io(std::function<void()> before_io);  // DeltaStoreSpec's, from now on; for tests

  // Committed records. Not what this step has staged.
  std::size_t size() const { return stored_; }
  std::vector<StoredKey> stored_keys() const;  // sorted by key
  // Requires: the key is stored, and `out` has record_bytes. Keeps nothing in RAM.
  void read_stored(std::uint64_t key, std::span<std::byte> out);

  bool contains(std::uint64_t key) const { return visits_of(key).has_value(); }
  std::optional<std::uint32_t> visits_of(std::uint64_t key) const;  // as find() would say
  bool admits(std::uint64_t key) const;                             // as stage() would say
  bool is_stored(std::uint64_t key) const;
  bool has_staged() const { return !staged_.empty(); }  // a step is under way
  std::uint64_t record_bytes() const { return spec_.record_bytes; }
  std::uint64_t max_records() const { return max_records_; }
  DeltaStoreStats stats() const;

 private:
  using Ticket = RecordQueue::Ticket;
  static constexpr std::uint32_t kNotStaged = std::numeric_limits<std::uint32_t>::max();

  // A key that is stored, staged or both.
  struct Entry {
    RecordBuffer value;            // the stored value; on a file only while it is wanted in RAM
    Ticket ticket = 0;             // of the last job on `value`
    std::uint64_t slot = 0;        // in the file
    std::uint64_t keep_until = 0;  // the last step that wants `value` in RAM
    std::uint32_t visits = 0;      // of the stored value
    std::uint32_t staged = kNotStaged;  // the newest in staged_
    bool is_stored = false;
    bool is_prefetched = false;  // and not found since
    bool is_resident = false;    // in resident_
  };
  using Entries = std::unordered_map<std::uint64_t, Entry>;
  using Node = Entries::value_type;

  struct Staged {
    Node* node = nullptr;  // null: forgotten
    RecordBuffer bytes;    // null: stage_forget()
    std::uint32_t visits = 0;
    std::uint32_t below = kNotStaged;  // what the same key staged before, in this step
  };
  struct Retired {
    RecordBuffer bytes;
    Ticket ticket = 0;
  };

  // The newest value of a key; null: there is none.
  struct Newest {
    RecordBuffer* bytes = nullptr;
    Node* node = nullptr;
    std::uint32_t visits = 0;
    bool is_staged = false;
  };

  Newest newest(std::uint64_t key);
  void bring_to_host(const Newest& newest);
  void bring_to_pinned(const Newest& newest);
  RecordBuffer copied_to_pinned(const RecordBuffer& device);
  RecordBuffer* stage_at(std::uint64_t key, std::uint32_t visits, RecordPlace place);
  void use_device();
  void await_device();
  // Where records are that the host makes, or reads from a file.
  RecordPlace host_place() const { return is_on_device_ ? RecordPlace::pinned : RecordPlace::host; }
  std::uint64_t in_ram() const {
    return pool_.in_use(RecordPlace::host) + pool_.in_use(RecordPlace::pinned);
  }
  void publish(Staged& staged);
  void erase(Node& node);
  void fetch(Node& node);
  void await(Ticket ticket);
  void retire(RecordBuffer bytes, Ticket ticket);
  void keep(Node& node, std::uint64_t until);
  void end_step();
  Record record_of(const RecordBuffer& bytes, std::uint32_t visits) const {
    return {{bytes.get(), spec_.record_bytes}, visits, bytes.place()};
  }

  DeltaStoreSpec spec_;
  std::uint64_t max_records_;
  std::uint64_t step_ = 0;  // ended so far
  std::size_t stored_ = 0;  // entries with is_stored
  Ticket last_commit_ = 0;  // the last job of the last commit
  DeltaStoreStats counts_;  // what is counted, not computed
  RecordPool pool_;
  Entries entries_;
  std::vector<Staged> staged_;
  std::vector<Retired> retired_;  // buffers that a job or a GPU may still use, and nobody else
  std::vector<std::uint64_t> resident_;  // keys whose `value` may be dropped from RAM
  bool is_on_device_ = false;            // somebody has asked for a device
  bool has_device_work_ = false;         // with records, and nobody has waited for it
  std::unique_ptr<DeviceEvent> queued_;  // the end of that work, if it is all queued
  // Null in RAM. Last, so that the I/O thread ends before the buffers do.
  std::unique_ptr<RecordFile> file_;
  std::unique_ptr<RecordQueue> queue_;
};

}  // namespace laconic
