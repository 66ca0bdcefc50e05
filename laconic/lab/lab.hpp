// lab/lab.hpp — labs of this machine: made, found, looked at, changed, removed.
//
// Nothing is kept in files of our own: which labs there are, how many hosts
// they have and how fast their links are is read from the kernel every time,
// so that it is true after a crash too.
//
// A plan is walked step by step. When one fails, or a signal asks us to stop,
// what was made is taken back before the exception leaves. All functions throw
// std::runtime_error with the command and what it said, and SystemError.
#pragma once

#include <cstdint>
#include <optional>
#include <string>
#include <string_view>
#include <vector>

#include "laconic/lab/lab_plan.hpp"

namespace laconic {

// Reasons why a process with this effective user cannot make labs here. Tools that are not found
// have an empty path.
struct LabRights {
  unsigned effective_user = 0;
  std::string ip;
  std::string tc;
};
LabRights detect_lab_rights();
Problems check(const LabRights& rights);

// A lab that is up, perhaps only in part.
struct FoundLab {
  std::string name;
  int hosts = 0;
  std::vector<std::string> namespaces;  // the bridge's first, then by host
  bool is_whole = false;                // the bridge and hosts 0, 1, ... without a gap
  bool operator==(const FoundLab&) const = default;
};
// Pure: the labs among the names of all namespaces.
std::vector<FoundLab> labs_among(const std::vector<std::string>& namespaces);
std::vector<FoundLab> find_labs();
std::optional<FoundLab> find_lab(const std::string& name);

// Requires: check(spec) found nothing. Throws ConfigError when a lab of that name is up.
void bring_up(const LabSpec& spec);
// Changes the links in place. Requires: a whole lab of that name and size is up.
void change_rate(const LabSpec& spec);
// Ends what still runs inside (asks, then kills), and removes the namespaces.
void take_down(const FoundLab& lab);
// Removes labs of runs that are no more; their names.
std::vector<std::string> remove_leftovers();

struct HostStatus {
  std::string name;  // of its namespace
  std::string address;
  std::uint64_t bits_per_second = 0;                 // 0: unshaped
  std::uint64_t sent_bytes = 0, received_bytes = 0;  // at eth0, since it was made
  std::uint64_t sent_packets = 0, received_packets = 0;
  bool operator==(const HostStatus&) const = default;
};

struct LabStatus {
  std::string name;
  std::vector<HostStatus> hosts;
};
LabStatus read_status(const FoundLab& lab);
// Pure: what was counted between the two. Requires: of the same lab.
LabStatus counted_since(const LabStatus& before, LabStatus now);
std::string to_text(const LabStatus& status);
std::string to_json(const std::vector<LabStatus>& labs);

// Pure: what `ip -j -s address show` and `tc -j qdisc show` say of eth0.
void read_counters(std::string_view ip_json, HostStatus& host);
std::uint64_t read_rate(std::string_view tc_json);

// The lab of one run: up while the object lives.
class TemporaryLab {
 public:
  explicit TemporaryLab(const LabSpec& spec);
  ~TemporaryLab();
  TemporaryLab(const TemporaryLab&) = delete;
  TemporaryLab& operator=(const TemporaryLab&) = delete;

 private:
  std::string name_;
};

}  // namespace laconic
