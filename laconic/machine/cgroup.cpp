#include "laconic/machine/cgroup.hpp"

#include <algorithm>
#include <charconv>
#include <fstream>
#include <iterator>
#include <vector>

#include "laconic/base/text.hpp"

namespace laconic {
namespace {

// Version 1 writes "no limit" as a number near 2^63, rounded to pages.
constexpr std::int64_t kNoLimit = std::int64_t{1} << 60;

// -1 for "max", for an absent file and for anything that is not a number.
std::int64_t number(std::string_view text) {
  text = trim(text);
  std::int64_t value = -1;
  const auto [end, error] = std::from_chars(text.data(), text.data() + text.size(), value);
  return error == std::errc() ? value : -1;
}

void take_quota(CgroupLimits& limits, std::int64_t quota, std::int64_t period) {
  if (quota <= 0 || period <= 0) return;
  const double processors = static_cast<double>(quota) / static_cast<double>(period);
  if (limits.processors == 0 || processors < limits.processors) limits.processors = processors;
}

void take_memory(CgroupLimits& limits, std::int64_t bytes, std::int64_t used) {
  if (bytes <= 0 || bytes >= kNoLimit) return;
  if (limits.memory_bytes != 0 && bytes >= limits.memory_bytes) return;
  limits.memory_bytes = bytes;
  limits.memory_used_bytes = std::max<std::int64_t>(0, used);
}

// Both versions' files are asked for in every folder: an absent one reads as empty.
void take_folder(CgroupLimits& limits, const std::string& folder, const ReadText& read) {
  const std::vector<std::string> cpu_max = split(trim(read(folder + "/cpu.max")), ' ');
  if (cpu_max.size() == 2) take_quota(limits, number(cpu_max[0]), number(cpu_max[1]));
  take_quota(limits, number(read(folder + "/cpu.cfs_quota_us")),
             number(read(folder + "/cpu.cfs_period_us")));
  take_memory(limits, number(read(folder + "/memory.max")),
              number(read(folder + "/memory.current")));
  take_memory(limits, number(read(folder + "/memory.limit_in_bytes")),
              number(read(folder + "/memory.usage_in_bytes")));
}

void take_ancestors(CgroupLimits& limits, const std::string& mount, std::string path,
                    const ReadText& read) {
  while (!path.empty() && path != "/") {
    take_folder(limits, mount + path, read);
    path.resize(path.rfind('/') == std::string::npos ? 0 : path.rfind('/'));
  }
  take_folder(limits, mount, read);
}

std::vector<std::string> mounts_of(const std::string& controllers) {
  if (controllers.empty()) return {"/sys/fs/cgroup", "/sys/fs/cgroup/unified"};  // version 2
  for (const std::string& controller : split(controllers, ','))
    if (controller == "cpu" || controller == "memory")
      return {"/sys/fs/cgroup/" + controllers, "/sys/fs/cgroup/" + controller};
  return {};
}

}  // namespace

CgroupLimits cgroup_limits(std::string_view membership, const ReadText& read) {
  CgroupLimits limits;
  for (const std::string& line : split(membership, '\n')) {  // "4:memory:/path", "0::/path"
    const std::size_t first = line.find(':');
    if (first == std::string::npos) continue;
    const std::size_t second = line.find(':', first + 1);
    if (second == std::string::npos) continue;
    for (const std::string& mount : mounts_of(line.substr(first + 1, second - first - 1)))
      take_ancestors(limits, mount, line.substr(second + 1), read);
  }
  return limits;
}

std::string read_system_text(const std::string& path) {
  std::ifstream in(path);
  return {std::istreambuf_iterator<char>(in), std::istreambuf_iterator<char>()};
}

}  // namespace laconic
