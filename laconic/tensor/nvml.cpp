#include "laconic/tensor/nvml.hpp"

#include <dlfcn.h>

#include <cstdint>

namespace laconic {
namespace {

// The part of NVML that is used here. Its functions return 0 when all is well; its interface is
// stable, and declaring them spares us a header that few machines have.
class Nvml {
 public:
  static const Nvml& get() {
    static const Nvml nvml;
    return nvml;
  }

  bool is_there() const { return is_there_; }

  using Device = void*;
  int (*driver)(char*, unsigned) = nullptr;
  int (*device_at)(const char*, Device*) = nullptr;
  int (*generation)(Device, unsigned*) = nullptr;
  int (*most_generation)(Device, unsigned*) = nullptr;
  int (*width)(Device, unsigned*) = nullptr;
  int (*most_width)(Device, unsigned*) = nullptr;
  int (*slowed_by)(Device, unsigned long long*) = nullptr;
  int (*errors)(Device, int, int, unsigned long long*) = nullptr;

 private:
  Nvml() {
    void* const library = ::dlopen("libnvidia-ml.so.1", RTLD_NOW | RTLD_LOCAL);  // never closed
    if (library == nullptr) return;
    int (*init)() = nullptr;
    is_there_ = find(library, "nvmlInit_v2", init) &&
                find(library, "nvmlSystemGetDriverVersion", driver) &&
                find(library, "nvmlDeviceGetHandleByPciBusId_v2", device_at) &&
                find(library, "nvmlDeviceGetCurrPcieLinkGeneration", generation) &&
                find(library, "nvmlDeviceGetMaxPcieLinkGeneration", most_generation) &&
                find(library, "nvmlDeviceGetCurrPcieLinkWidth", width) &&
                find(library, "nvmlDeviceGetMaxPcieLinkWidth", most_width) &&
                find(library, "nvmlDeviceGetCurrentClocksThrottleReasons", slowed_by) &&
                find(library, "nvmlDeviceGetTotalEccErrors", errors) && init() == 0;
  }

  template <class Function>
  static bool find(void* library, const char* name, Function& function) {
    function = reinterpret_cast<Function>(::dlsym(library, name));
    return function != nullptr;
  }

  bool is_there_ = false;
};

void read_number(int (*ask)(Nvml::Device, unsigned*), Nvml::Device device, int& out) {
  unsigned value = 0;
  if (ask(device, &value) == 0) out = static_cast<int>(value);
}

// Bits that mean less speed than there could be; idle clocks and clocks that somebody has chosen
// are none.
std::vector<std::string> reasons_in(unsigned long long bits) {
  const struct {
    unsigned long long bit;
    const char* text;
  } rows[] = {{0x4, "power limit"},
              {0x8, "hardware slowdown"},
              {0x20, "temperature"},
              {0x40, "temperature (hardware)"},
              {0x80, "power brake"}};
  std::vector<std::string> reasons;
  for (const auto& row : rows)
    if ((bits & row.bit) != 0) reasons.emplace_back(row.text);
  return reasons;
}

}  // namespace

std::string driver_version() {
  const Nvml& nvml = Nvml::get();
  char text[96] = "";
  return nvml.is_there() && nvml.driver(text, sizeof text) == 0 ? text : "";
}

void examine_with_nvml(GpuFacts& gpu) {
  const Nvml& nvml = Nvml::get();
  Nvml::Device device = nullptr;
  if (gpu.bus.empty() || !nvml.is_there() || nvml.device_at(gpu.bus.c_str(), &device) != 0) return;
  read_number(nvml.generation, device, gpu.pcie_generation);
  read_number(nvml.most_generation, device, gpu.most_pcie_generation);
  read_number(nvml.width, device, gpu.pcie_width);
  read_number(nvml.most_width, device, gpu.most_pcie_width);
  unsigned long long bits = 0, errors = 0;
  if (nvml.slowed_by(device, &bits) == 0) gpu.slowed_by = reasons_in(bits);
  // 1: uncorrected; 0: since the driver was loaded.
  if (nvml.errors(device, 1, 0, &errors) == 0) gpu.memory_errors = errors;
}

}  // namespace laconic
