// machine/cgroup.hpp — what a container lets us use.
//
// Containers cut processors and memory by control groups, version 1 (one tree
// for each resource) or 2 (one tree), and some systems mount both. A group is
// bound by the limits of all its ancestors, so we walk from ours to the root
// and take the least. Inside a container the path the kernel tells may not
// exist in the mount; the walk then finds nothing until it reaches the root,
// which is where the container's own limits appear.
#pragma once

#include <cstdint>
#include <functional>
#include <string>
#include <string_view>

namespace laconic {

struct CgroupLimits {
  double processors = 0;               // 0: no quota
  std::int64_t memory_bytes = 0;       // 0: no limit
  std::int64_t memory_used_bytes = 0;  // of the group that has the least limit
};

// A file's text, or empty when it cannot be read.
using ReadText = std::function<std::string(const std::string& path)>;

// Pure but for `read`; `membership` is the text of /proc/self/cgroup.
CgroupLimits cgroup_limits(std::string_view membership, const ReadText& read);

// For files of /proc and /sys, whose size is not known before they are read.
std::string read_system_text(const std::string& path);

}  // namespace laconic
