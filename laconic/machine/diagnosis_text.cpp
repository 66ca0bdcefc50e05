// The report of the doctor, for people and for programs.
#include <fmt/format.h>

#include <nlohmann/json.hpp>

#include "laconic/base/text.hpp"
#include "laconic/machine/diagnosis.hpp"

namespace laconic {
namespace {

void row(std::string& out, std::string_view name, const std::string& value) {
  if (!value.empty()) out += fmt::format("  {:<12}{}\n", name, value);
}

std::string gib(std::int64_t bytes) {
  return fmt::format("{:.1f} GiB", static_cast<double>(bytes) / (1 << 30));
}

std::string memory_text(const MachineMemory& m) {
  std::string text =
      fmt::format("{} total, {} available", gib(m.total_bytes), gib(m.available_bytes));
  if (m.limit_bytes > 0) text += fmt::format(", container limit {}", gib(m.limit_bytes));
  return text;
}

std::string cores_text(const Cpu& cpu) {
  std::string text = fmt::format("{} cores, {} hardware threads", cpu.cores, cpu.hardware_threads);
  if (cpu.quota > 0) text += fmt::format(", quota {:.2f}", cpu.quota);
  return text + fmt::format("; L1 {} KiB, L2 {} KiB, L3 {} MiB", cpu.cache.l1 >> 10,
                            cpu.cache.l2 >> 10, cpu.cache.l3 >> 20);
}

std::string blas_text(const BlasFacts& blas) {
  std::string text = blas.name;
  if (!blas.core.empty()) text += fmt::format(", {} kernels", blas.core);
  if (blas.threading != BlasThreading::unknown)
    text += fmt::format(", {}", to_text(blas.threading));
  if (!blas.path.empty()) text += fmt::format(" ({})", blas.path);
  return text;
}

void speeds(std::string& out, const DoctorFacts& f) {
  out += "Speed\n";
  row(out, "peak",
      fmt::format("{:.0f} GFLOP/s f32, {:.0f} f64 per core at {:.2f} GHz", f.peak.f32_gflops,
                  f.peak.f64_gflops, f.peak.clock_ghz));
  for (const GemmSpeed& g : f.gemm)
    row(out, "product",
        fmt::format("{:>6.0f} GFLOP/s {} {}x{}x{}, {} thread{}", g.gflops, g.dtype, g.m, g.n, g.k,
                    g.threads, g.threads == 1 ? "" : "s"));
  row(out, "memory",
      fmt::format("copy {:.1f}, triad {:.1f} GB/s on one thread; {:.1f}, {:.1f} on "
                  "all",
                  f.bandwidth_one.copy, f.bandwidth_one.triad, f.bandwidth_all.copy,
                  f.bandwidth_all.triad));
  row(out, "allocation",
      fmt::format("{:.1f} GB/s for 64 MB again and again", f.reallocation_gb_per_second));
  row(out, "denormals",
      fmt::format("{:.1f} times the time, {}", f.denormal_slowdown,
                  f.is_flushing_denormals ? "flushed" : "not flushed"));
}

// A variable that is as advised needs no words.
std::string variable_text(const EnvironmentSetting& wanted, const Environment& environment) {
  const auto found = environment.find(wanted.name);
  if (found == environment.end())
    return fmt::format("{} is not set; advised {}: {}", wanted.name, wanted.value, wanted.why);
  if (found->second == wanted.value) return fmt::format("{}={}", wanted.name, wanted.value);
  return fmt::format("{}={}; advised {}: {}", wanted.name, found->second, wanted.value, wanted.why);
}

void variables(std::string& out, const DoctorFacts& f) {
  out += "Environment\n";
  for (const EnvironmentSetting& wanted : f.advised)
    out += fmt::format("  {}\n", variable_text(wanted, f.environment));
}

nlohmann::json bandwidth_json(const Bandwidth& b) {
  return {{"copy", b.copy}, {"triad", b.triad}};
}

nlohmann::json gemm_json(const std::vector<GemmSpeed>& gemm) {
  nlohmann::json list = nlohmann::json::array();
  for (const GemmSpeed& g : gemm)
    list.push_back({{"dtype", g.dtype},
                    {"m", g.m},
                    {"n", g.n},
                    {"k", g.k},
                    {"threads", g.threads},
                    {"gflops", g.gflops}});
  return list;
}

nlohmann::json gpu_json(const std::vector<GpuFacts>& gpus) {
  nlohmann::json list = nlohmann::json::array();
  for (const GpuFacts& gpu : gpus)
    list.push_back({{"index", gpu.index},
                    {"name", gpu.name},
                    {"bus", gpu.bus},
                    {"total_bytes", gpu.total_bytes},
                    {"free_bytes", gpu.free_bytes},
                    {"compute_capability", fmt::format("{}.{}", gpu.major, gpu.minor)},
                    {"copy_gb_per_second", gpu.copy_gb_per_second},
                    {"to_device_gb_per_second", gpu.to_device_gb_per_second},
                    {"to_host_gb_per_second", gpu.to_host_gb_per_second},
                    {"bf16_tflops", gpu.bf16_tflops},
                    {"pcie",
                     {{"generation", gpu.pcie_generation},
                      {"most_generation", gpu.most_pcie_generation},
                      {"width", gpu.pcie_width},
                      {"most_width", gpu.most_pcie_width}}},
                    {"slowed_by", gpu.slowed_by},
                    {"memory_errors", gpu.memory_errors}});
  return list;
}

nlohmann::json cpu_json(const Cpu& cpu) {
  return {{"vendor", cpu.vendor},
          {"model", cpu.model},
          {"features", features_in_short(cpu)},
          {"cores", cpu.cores},
          {"hardware_threads", cpu.hardware_threads},
          {"quota", cpu.quota},
          {"usable_threads", usable_threads(cpu)},
          {"l1_bytes", cpu.cache.l1},
          {"l2_bytes", cpu.cache.l2},
          {"l3_bytes", cpu.cache.l3}};
}

nlohmann::json environment_json(const DoctorFacts& f) {
  nlohmann::json list = nlohmann::json::array();
  for (const EnvironmentSetting& wanted : f.advised) {
    const auto found = f.environment.find(wanted.name);
    nlohmann::json current;  // null when not set
    if (found != f.environment.end()) current = found->second;
    list.push_back({{"name", wanted.name},
                    {"advised", wanted.value},
                    {"value", current},
                    {"why", wanted.why}});
  }
  return list;
}

}  // namespace

std::string_view to_text(Severity severity) {
  switch (severity) {
    case Severity::ok: return "ok";
    case Severity::warn: return "warn";
    case Severity::bad: return "bad";
  }
  return "?";
}

std::string_view to_text(BlasThreading threading) {
  switch (threading) {
    case BlasThreading::unknown: return "unknown";
    case BlasThreading::sequential: return "sequential";
    case BlasThreading::pthreads: return "pthreads";
    case BlasThreading::openmp: return "openmp";
  }
  return "?";
}

std::string to_text(const DoctorFacts& facts, const std::vector<Finding>& findings) {
  std::string out = "Machine\n";
  row(out, "processor", facts.cpu.model);
  row(out, "", cores_text(facts.cpu));
  row(out, "", features_in_short(facts.cpu));
  row(out, "memory", memory_text(facts.memory));
  if (facts.gpu_facts.empty())
    for (const std::string& gpu : facts.gpus) row(out, "gpu", gpu);
  for (const GpuFacts& gpu : facts.gpu_facts) {
    row(out, fmt::format("cuda:{}", gpu.index).c_str(), to_text(gpu));
    if (const std::string rates = rates_text(gpu); !rates.empty()) row(out, "", rates);
  }
  row(out, "libtorch", fmt::format("{}, {} threads", facts.torch_version, facts.threads));
  row(out, "blas", blas_text(facts.blas));
  speeds(out, facts);
  variables(out, facts);
  out += "Findings\n";
  for (const Finding& finding : findings) {
    out += fmt::format("  {:<5} {}\n", to_text(finding.severity), finding.what);
    if (!finding.fix.empty()) out += fmt::format("        fix: {}\n", finding.fix);
  }
  return out;
}

std::string to_json(const DoctorFacts& facts, const std::vector<Finding>& findings) {
  nlohmann::json list = nlohmann::json::array();
  for (const Finding& finding : findings)
    list.push_back(
        {{"severity", to_text(finding.severity)}, {"what", finding.what}, {"fix", finding.fix}});
  const nlohmann::json report = {
      {"cpu", cpu_json(facts.cpu)},
      {"memory",
       {{"total_bytes", facts.memory.total_bytes},
        {"available_bytes", facts.memory.available_bytes},
        {"limit_bytes", facts.memory.limit_bytes}}},
      {"torch",
       {{"version", facts.torch_version},
        {"threads", facts.threads},
        {"cuda", facts.torch_has_cuda}}},
      {"gpus", facts.gpus},
      {"gpu", gpu_json(facts.gpu_facts)},
      {"cuda",
       {{"driver", facts.cuda.driver},
        {"driver_version", facts.cuda.driver_version},
        {"runtime", facts.cuda.runtime}}},
      {"blas",
       {{"name", facts.blas.name},
        {"path", facts.blas.path},
        {"core", facts.blas.core},
        {"version", facts.blas.version},
        {"threads", facts.blas.threads},
        {"threading", to_text(facts.blas.threading)}}},
      {"peak",
       {{"f32_gflops", facts.peak.f32_gflops},
        {"f64_gflops", facts.peak.f64_gflops},
        {"clock_ghz", facts.peak.clock_ghz}}},
      {"gemm", gemm_json(facts.gemm)},
      {"core_share", facts.core_share},
      {"bandwidth_gb_per_second",
       {{"one", bandwidth_json(facts.bandwidth_one)},
        {"all", bandwidth_json(facts.bandwidth_all)}}},
      {"reallocation_gb_per_second", facts.reallocation_gb_per_second},
      {"denormals",
       {{"flushed", facts.is_flushing_denormals}, {"slowdown", facts.denormal_slowdown}}},
      {"environment", environment_json(facts)},
      {"findings", list}};
  // A processor's name may hold any bytes.
  return report.dump(2, ' ', false, nlohmann::json::error_handler_t::replace) + "\n";
}

}  // namespace laconic
