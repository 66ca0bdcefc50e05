// What trials inherit, and what the peer is given so that both programs compute alike.
#include <algorithm>
#include <string>
#include <vector>

#include "laconic/study/work.hpp"

namespace laconic {

namespace {

const std::vector<std::string> kAllocatorNames = {"MALLOC", "GLIBC"};

bool begins_with_any(const std::string& text, const std::vector<std::string>& beginnings) {
  return std::any_of(beginnings.begin(), beginnings.end(),
                     [&](const std::string& beginning) { return text.starts_with(beginning); });
}

}  // namespace

Environment quiet_environment(Environment environment) {
  static const std::vector<std::string> loud = {
      "OMP_",    "GOMP_",  "OPENBLAS_",  "MKL_",    "KMP_",     "ONEDNN_",   "DNNL_",
      "MALLOC_", "GLIBC_", "LOCAL_",     "MASTER_", "GLOO_",    "TP_SOCKET", "NCCL_",
      "TORCH",   "SLURM_", "OMPI_COMM_", "PMI",     "LACONIC_", "LD_PRELOAD"};
  std::erase_if(environment, [](const auto& setting) {
    const std::string& name = setting.first;
    return begins_with_any(name, loud) || name == "RANK" || name == "WORLD_SIZE";
  });
  return environment;
}

Environment peer_setting(const std::vector<EnvironmentSetting>& advised, const std::string& blas) {
  Environment setting;
  for (const EnvironmentSetting& s : advised)  // threads are the lab's business
    if (!begins_with_any(s.name, kAllocatorNames) && !s.name.starts_with("GOMP") &&
        !s.name.ends_with("_NUM_THREADS"))
      setting[s.name] = s.value;
  if (!blas.empty()) setting["LD_LIBRARY_PATH"] = blas;
  return setting;
}

Environment allocator_setting(const std::vector<EnvironmentSetting>& advised) {
  Environment setting;
  for (const EnvironmentSetting& s : advised)
    if (begins_with_any(s.name, kAllocatorNames)) setting[s.name] = s.value;
  return setting;
}

}  // namespace laconic
