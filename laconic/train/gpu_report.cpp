#include "laconic/train/gpu_report.hpp"

#include <c10/util/Exception.h>
#include <fmt/format.h>

#include <algorithm>
#include <map>
#include <stdexcept>
#include <utility>

#include "laconic/base/error.hpp"
#include "laconic/base/gpu_error.hpp"
#include "laconic/base/text.hpp"
#include "laconic/tensor/gpu.hpp"

namespace laconic {
namespace {

std::string text_of(const Bytes& bytes) {
  return {reinterpret_cast<const char*>(bytes.data()), bytes.size()};
}

std::vector<std::string> lines_about(const GpuFacts& gpu, const RankResources& where) {
  const std::string name = fmt::format("cuda:{} of {}", gpu.index, where.host.data());
  std::vector<std::string> lines = {fmt::format("gpu: {}: {}", name, to_text(gpu))};
  if (const std::string rates = rates_text(gpu); !rates.empty())
    lines.push_back(fmt::format("gpu: {}: {}", name, rates));
  for (const GpuWarning& warning : warnings_of(gpu))
    lines.push_back(fmt::format("warning: {}: {}; {}", name, warning.what, warning.fix));
  return lines;
}

}  // namespace

void refuse_on_all(const Problems& mine, World& world) {
  std::string text;
  for (const Problem& problem : mine) text += problem.where + '\0' + problem.what + '\0';
  const std::vector<Bytes> texts = world.gather(as_bytes(std::span(text.data(), text.size())));
  std::map<std::pair<std::string, std::string>, std::vector<std::string>> ranks_with;
  for (std::size_t rank = 0; rank < texts.size(); ++rank) {
    const std::vector<std::string> words = split(text_of(texts[rank]), '\0');
    for (std::size_t i = 0; i + 1 < words.size(); i += 2)
      ranks_with[{words[i], words[i + 1]}].push_back(std::to_string(rank));
  }
  Problems all;
  for (const auto& [problem, ranks] : ranks_with)
    all.push_back(
        {problem.first, ranks.size() == texts.size()
                            ? problem.second
                            : fmt::format("{} (rank {})", problem.second, join(ranks, ", "))});
  if (all.empty()) return;
  if (!world.is_alone()) {  // nobody leaves while another may still need him
    world.engine().flush();
    world.gather({});
    world.engine().flush();
  }
  refuse(all);
}

std::vector<std::string> describe_gpus(const std::vector<RankResources>& ranks, bool measures,
                                       World& world) {
  // A rank may compute on the CPU beside others that do not.
  if (std::ranges::all_of(ranks, [](const RankResources& rank) { return rank.gpu < 0; })) return {};
  const RankResources& mine = ranks[static_cast<std::size_t>(world.rank())];
  const auto is_mine = [&](const RankResources& other) { return mine.shares_gpu_with(other); };
  std::string text;
  if (mine.gpu >= 0 && std::ranges::find_if(ranks, is_mine) - ranks.begin() == world.rank()) {
    GpuFacts gpu = examine_gpu(mine.gpu);
    gpu.ranks = static_cast<int>(std::ranges::count_if(ranks, is_mine));
    if (measures) measure_rates(gpu);
    text = join(lines_about(gpu, mine), "\n");
  }
  std::vector<std::string> lines;
  for (const Bytes& bytes : world.gather(as_bytes(std::span(text.data(), text.size()))))
    if (!bytes.empty())
      for (std::string& line : split(text_of(bytes), '\n')) lines.push_back(std::move(line));
  return lines;
}

namespace {

std::runtime_error gpu_failure(const std::string& what, bool is_out_of_memory, int gpu,
                               const World& world) {
  return std::runtime_error(describe({.rank = world.is_alone() ? -1 : world.rank(),
                                      .activity = world.activity(),
                                      .is_out_of_memory = is_out_of_memory,
                                      .what = what},
                                     examine_gpu(gpu)));
}

}  // namespace

void rethrow_gpu_failure(int gpu, const World& world) {
  try {
    throw;
  } catch (const c10::OutOfMemoryError& error) {
    throw gpu_failure(error.what_without_backtrace(), true, gpu, world);
  } catch (const c10::Error& error) {
    if (!is_gpu_failure(error.what_without_backtrace())) throw;
    throw gpu_failure(error.what_without_backtrace(), false, gpu, world);
  } catch (const GpuError& error) {
    throw gpu_failure(error.what(), error.is_out_of_memory(), gpu, world);
  }
}

}  // namespace laconic
