#include "laconic/doctor/gpu.hpp"

#include <dlfcn.h>
#include <fmt/format.h>

#include <cstddef>

namespace laconic {

std::vector<std::string> detect_gpus() {
  // The driver's C interface is stable since 2011; declaring four functions spares us its headers.
  void* driver = dlopen("libcuda.so.1", RTLD_NOW | RTLD_LOCAL);  // never closed: it has threads
  if (driver == nullptr) return {};
  const auto init = reinterpret_cast<int (*)(unsigned)>(dlsym(driver, "cuInit"));
  const auto count = reinterpret_cast<int (*)(int*)>(dlsym(driver, "cuDeviceGetCount"));
  const auto name = reinterpret_cast<int (*)(char*, int, int)>(dlsym(driver, "cuDeviceGetName"));
  const auto memory =
      reinterpret_cast<int (*)(std::size_t*, int)>(dlsym(driver, "cuDeviceTotalMem_v2"));
  if (init == nullptr || count == nullptr || name == nullptr || memory == nullptr) return {};
  int devices = 0;
  if (init(0) != 0 || count(&devices) != 0) return {};
  std::vector<std::string> gpus;
  for (int device = 0; device < devices; ++device) {
    char text[128] = "GPU";
    std::size_t bytes = 0;
    name(text, sizeof text, device);
    memory(&bytes, device);
    gpus.push_back(fmt::format("{}, {:.1f} GiB", text, static_cast<double>(bytes) / (1 << 30)));
  }
  return gpus;
}

}  // namespace laconic
