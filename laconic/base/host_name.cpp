#include "laconic/base/host_name.hpp"

#include <unistd.h>

#include <array>
#include <filesystem>
#include <system_error>

namespace laconic {

std::string host_name() {
  std::array<char, 256> name{};
  return ::gethostname(name.data(), name.size() - 1) == 0 ? name.data() : "unknown-host";
}

std::string network_name() {
  std::error_code error;  // no /proc, or not ours: one network for each machine
  return host_name() + " " + std::filesystem::read_symlink("/proc/self/ns/net", error).string();
}

bool is_loopback(std::string_view host) {
  return host == "localhost" || host == "::1" || host.starts_with("127.");
}

}  // namespace laconic
