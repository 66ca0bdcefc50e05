#include "laconic/runtime/pipeline_edge.hpp"

#include <fmt/format.h>

#include <filesystem>

#include "laconic/base/error.hpp"
#include "laconic/runtime/pipeline.hpp"
#include "laconic/tensor/host.hpp"

namespace laconic {

namespace {

// Tag units of an edge's tensors: the edge's number, and so much more for each further one.
constexpr std::uint32_t kUnitsOfATensor = 0x1000;

// The link of one edge. Ranks of one machine may be given the same folder.
LinkSpec named(LinkSpec link, const std::string& traffic, const std::string& place, Rank rank) {
  link.name = fmt::format("{}.{}", traffic, place);
  if (auto* delta = std::get_if<Delta>(&link.memory); delta != nullptr && !delta->folder.empty()) {
    delta->folder += fmt::format("/rank-{:05}", rank);
    std::error_code error;
    std::filesystem::create_directories(delta->folder, error);
    if (error)
      throw ConfigError(
          {{fmt::format("{}.store", traffic), fmt::format("rank {} cannot make the folder {}: {}",
                                                          rank, delta->folder, error.message())}});
  }
  return link;
}

// One tensor of a seam on its way over an edge. The first has the name of the edge alone.
EdgeSpec edge_spec(const Engine& engine, const PipelinePlan& plan, int number, Rank peer,
                   const std::vector<SeamTensor>& seam, std::size_t tensor, bool is_activation) {
  const Traffic traffic = is_activation ? Traffic::pp_activation : Traffic::pp_gradient;
  const std::string place =
      tensor == 0 ? std::to_string(number) : fmt::format("{}.{}", number, seam[tensor].name);
  return {.link = named(link_at(plan, traffic, number), std::string(name_of(traffic)), place,
                        engine.rank()),
          .traffic = traffic,
          .edge = static_cast<std::uint32_t>(number) +
                  static_cast<std::uint32_t>(tensor) * kUnitsOfATensor,
          .peer = peer,
          .microbatches = plan.schedule.shape.microbatches};
}

// A tensor of a seam as links see it: a matrix of rows, each sample the same number of them.
at::Tensor as_rows(const at::Tensor& tensor) {
  return tensor.dim() == 2 ? tensor : tensor.reshape({-1, tensor.size(-1)});
}

// And back. Requires: it is of so many samples.
at::Tensor as_samples(const at::Tensor& rows, const SeamTensor& tensor) {
  std::vector<std::int64_t> sizes = {-1};
  sizes.insert(sizes.end(), tensor.per_sample.begin(), tensor.per_sample.end());
  return rows.view(sizes);
}

// What a receiver expects of a tensor, for so many samples.
TensorSpec rows_of(const SeamTensor& tensor, std::int64_t samples, at::ScalarType dtype) {
  const std::int64_t width = tensor.per_sample.back();
  return {.dtype = dtype_of(dtype), .shape = {samples * elements_of(tensor) / width, width}};
}

}  // namespace

PipelineEdge::PipelineEdge(Engine& engine, const PipelinePlan& plan,
                           const std::vector<SeamTensor>& seam, int number, Rank other,
                           bool is_upper)
    : peer(other),
      sends_activations(!is_upper),
      has_gradient_delta(
          std::holds_alternative<Delta>(link_at(plan, Traffic::pp_gradient, number).memory)),
      tag{.traffic = Traffic::pp_gradient, .unit = static_cast<std::uint32_t>(number)} {
  for (std::size_t t = 0; t < seam.size(); ++t)
    ends.push_back(
        std::make_unique<Ends>(engine, edge_spec(engine, plan, number, peer, seam, t, !is_upper),
                               edge_spec(engine, plan, number, peer, seam, t, is_upper)));
}

void PipelineEdge::begin(std::uint64_t step) {
  for (const auto& end : ends) {
    end->sender.begin(step);
    end->receiver.begin(step);
  }
  post(awaited.front());
}

void PipelineEdge::post(int microbatch) {
  for (const auto& end : ends) end->receiver.post(microbatch);
}

void PipelineEdge::send(const Seam& tensors, const MessageSpec& message, DeadlineKey key) {
  LACONIC_ASSERT(tensors.size() == ends.size(),
                 fmt::format("{} tensors for {} links", tensors.size(), ends.size()));
  for (std::size_t t = 0; t < tensors.size(); ++t)
    ends[t]->sender.send(as_rows(tensors[t]), message, key);
}

Seam PipelineEdge::recv(const std::vector<SeamTensor>& expected, std::int64_t samples,
                        const at::TensorOptions& options, const MessageSpec& message,
                        const std::function<void()>& serve) {
  LACONIC_ASSERT(expected.size() == ends.size(),
                 fmt::format("{} tensors for {} links", expected.size(), ends.size()));
  const at::ScalarType dtype = c10::typeMetaToScalarType(options.dtype());
  Seam tensors;
  for (std::size_t t = 0; t < ends.size(); ++t)
    tensors.push_back(as_samples(ends[t]->receiver.recv(rows_of(expected[t], samples, dtype),
                                                        options.device(), message, serve),
                                 expected[t]));
  return tensors;
}

}  // namespace laconic
