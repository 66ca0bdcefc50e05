#include "laconic/steer/bypass_judge.hpp"

#include <ATen/Parallel.h>
#include <fmt/format.h>

#include <algorithm>
#include <array>
#include <nlohmann/json.hpp>
#include <thread>

#include "laconic/base/clock.hpp"
#include "laconic/base/host_name.hpp"
#include "laconic/link/link.hpp"
#include "laconic/policy/class_policy.hpp"

namespace laconic {

namespace {

constexpr std::uint64_t kMostTried = std::uint64_t{16} << 20;  // bytes

// Seconds that a raw message of so many bytes takes to pack and to unpack, a byte: the best of a
// few.
double raw_seconds_per_byte(std::uint64_t bytes) {
  const std::uint64_t elements = std::clamp<std::uint64_t>(bytes, 4, kMostTried) / sizeof(float);
  const TensorSpec tensor{Dtype::f32, {static_cast<std::int64_t>(elements)}};
  std::vector<float> from(elements, 1.0F), to(elements);
  Sender sender({.name = "trial"});
  Receiver receiver({.name = "trial"});
  double best = 0;
  for (std::uint64_t round = 0; round < 4; ++round) {
    sender.begin(round);
    receiver.begin(round);
    const Stopwatch clock;
    receiver.unpack(sender.pack({tensor, from.data()}), {tensor, to.data()});
    if (round == 1 || (round > 1 && clock.seconds() < best)) best = clock.seconds();
  }
  return best / static_cast<double>(elements * sizeof(float));
}

bool is_between_stages(Traffic traffic) {
  return traffic == Traffic::pp_activation || traffic == Traffic::pp_gradient;
}

// Bytes of a sample at the first boundary of a pipeline, as they would be and as a difference to
// its reference is: what is left of a byte once samples come again.
double share_of_difference(const LinkSpec& link, const RunConfig& config, const ModelSpec& spec,
                           const PipelinePlan& plan) {
  const auto last = static_cast<std::size_t>(plan.stages.front().end - 1);
  double frames = 0, raw = 0;
  for (const SeamTensor& tensor : spec.blocks[last].out) {
    const TensorSpec sample{.dtype = config.run.compute_type(), .shape = tensor.per_sample};
    const FrameHeader header{
        .codec = link.codec, .tensor = sample, .visit = Visit::difference, .visits = 1};
    frames += static_cast<double>(max_frame_bytes(header));
    raw += static_cast<double>(elements_of(sample) * bytes_of(sample.dtype));
  }
  return frames / raw;
}

// Ranks of one machine share its cores. What a second of codec time costs a computation that wants
// all of them.
double background_cost(World& world) {
  const std::string host = host_name();
  const ByteView mine = as_bytes(std::span(host.data(), host.size()));
  int here = 0;
  for (const Bytes& name : world.gather(mine)) here += std::ranges::equal(name, mine) ? 1 : 0;
  const int threads = at::get_num_threads();
  const bool has_free_core = here * threads < static_cast<int>(std::thread::hardware_concurrency());
  const double cost = has_free_core ? 0 : 1.0 / threads;
  double most = 0;
  for (const double of_rank : world.gather_values(cost)) most = std::max(most, of_rank);
  return most;
}

}  // namespace

double encoded_share(const PipelinePlan& plan, Traffic traffic, int pp) {
  const bool goes_back = traffic == Traffic::pp_gradient;
  const std::vector<bool>& edges = goes_back ? plan.encodes_gradient : plan.encodes_activation;
  const bool is_selected = goes_back && !plan.encoded.empty();
  if (!is_selected && std::ranges::find(edges, false) == edges.end()) return 1;
  const PipelineShape& shape = plan.schedule.shape;
  double all = 0, encoded = 0;
  for (int e = 0; e < edge_count(shape); ++e) {
    const int from = rank_of_stage(plan.schedule, goes_back ? e + 1 : e),
              to = rank_of_stage(plan.schedule, goes_back ? e : e + 1);
    if (from != pp || to == pp) continue;
    const auto edge = static_cast<std::size_t>(e);
    all += shape.microbatches;
    if (!edges.empty() && !edges[edge]) continue;
    encoded += is_selected ? static_cast<double>(std::ranges::count(plan.encoded[edge], true))
                           : shape.microbatches;
  }
  return all > 0 ? encoded / all : 0;
}

BypassJudge::BypassJudge(const Parts& parts, std::int64_t first_step) : parts_(parts) {
  const RunConfig& config = parts_.config;
  begin_ = std::max(first_step, config.dp_gradient.warmup) + 1;
  end_ = begin_ + std::max(config.steering.after, 2 * config.local.steps);
  const bool is_asked = config.steering.bypass == BypassMode::automatic &&
                        !parts_.world.is_alone() && !parts_.steering.state().is_bypass_decided;
  is_waiting_ = is_asked && end_ <= config.train.steps;
  const bool is_any_encoded = std::ranges::any_of(kClassesWithPolicy, [&](Traffic traffic) {
    return is_encoded(traffic, config, {0, parts_.encoded});
  });
  if (is_asked && is_any_encoded && !is_waiting_)
    note_ = fmt::format(
        "steering.bypass = \"auto\" will not decide anything: it measures until step {}, and "
        "train.steps = {}; lower steering.after ({})",
        end_, config.train.steps, config.steering.after);
}

std::vector<std::string> BypassJudge::step_done(std::int64_t step, const MeterReading& spent) {
  if (!is_waiting_ || step <= begin_) return {};
  add(spent);
  if (step < end_) return {};
  is_waiting_ = false;
  return decide();
}

void BypassJudge::add(const MeterReading& spent) {
  for (const Traffic traffic : kClassesWithPolicy) {
    counts_[traffic] += sent(spent, traffic);
    if (const auto found = spent.times.find(traffic); found != spent.times.end())
      times_[traffic] += found->second;
  }
}

// Sums of other places may be exact, and those of this one not.
bool BypassJudge::is_encoded_here(Traffic traffic) const {
  return is_encoded(traffic, parts_.config, {parts_.world.pp_member(), parts_.encoded});
}

// As they will be once samples come again.
double BypassJudge::wire_bytes(Traffic traffic) const {
  const Count& count = counts_.at(traffic);
  const auto wire = static_cast<double>(count.wire_bytes);
  if (!is_between_stages(traffic)) return wire;
  const bool is_activation = traffic == Traffic::pp_activation;
  LinkSpec link = is_activation ? activation_link(parts_.config) : gradient_link(parts_.config);
  if (!std::holds_alternative<Delta>(link.memory)) return wire;
  link.codec = effective_codec(parts_.steering.override_of(traffic), link.codec);
  const double encoded = encoded_share(parts_.plan, traffic, parts_.world.pp_member());
  const double left =
      1 - encoded + encoded * share_of_difference(link, parts_.config, parts_.spec, parts_.plan);
  return std::min(wire, left * static_cast<double>(count.raw_bytes));
}

// A step of this rank, on average.
ClassCosts BypassJudge::costs_of(Traffic traffic) const {
  const auto steps = static_cast<double>(end_ - begin_);
  const Count& count = counts_.at(traffic);
  const auto found = times_.find(traffic);
  const Times times = found == times_.end() ? Times() : found->second;
  const auto raw = static_cast<double>(count.raw_bytes);
  const double a_byte =
      count.messages > 0 ? raw_seconds_per_byte(count.raw_bytes / count.messages) : 0;
  const ClassCosts measured{.messages = static_cast<double>(count.messages) / steps,
                            .raw_bytes = raw / steps,
                            .wire_bytes = wire_bytes(traffic) / steps,
                            .codec_seconds = times.codec / steps,
                            .raw_seconds = raw * a_byte / steps,
                            .exposed_seconds = times.exposed / steps,
                            .active_seconds = times.active / steps};
  return parts_.costs ? parts_.costs(traffic, measured) : measured;
}

BypassQuestion BypassJudge::question(Traffic traffic, const std::vector<Bytes>& costs,
                                     double background_cost) const {
  BypassQuestion question{.traffic = traffic, .background_cost = background_cost};
  question.bytes_per_second = is_between_stages(traffic) ? parts_.link.bytes_per_second
                                                         : parts_.link.slowest_bytes_per_second;
  const auto at = static_cast<std::size_t>(std::ranges::find(kClassesWithPolicy, traffic) -
                                           kClassesWithPolicy.begin());
  for (const Bytes& bytes : costs)
    question.ranks.push_back(get<ClassCosts>(bytes, at * sizeof(ClassCosts)));
  return question;
}

std::vector<std::string> BypassJudge::decide() {
  std::vector<ClassCosts> mine;
  for (const Traffic traffic : kClassesWithPolicy)
    mine.push_back(is_encoded_here(traffic) ? costs_of(traffic) : ClassCosts());
  World& world = parts_.world;
  const std::vector<Bytes> costs = world.gather(as_bytes(std::span<const ClassCosts>(mine)));
  const double background = background_cost(world);
  const std::string decided = world.decide_on_rank_0([&] {
    nlohmann::json json = {{"bypassed", nlohmann::json::array()},
                           {"lines", nlohmann::json::array()}};
    for (std::size_t t = 0; t < std::size(kClassesWithPolicy); ++t) {
      const Traffic traffic = kClassesWithPolicy[t];
      // The first rank of a pipeline encodes if any does.
      if (!is_encoded(traffic, parts_.config, {0, parts_.encoded}) ||
          parts_.steering.override_of(traffic).is_bypassed)
        continue;
      const BypassAnswer found = answer(question(traffic, costs, background));
      if (found.is_bypassed) json["bypassed"].push_back(t);
      json["lines"].push_back(found.line);
    }
    return json.dump();
  });
  const nlohmann::json json = nlohmann::json::parse(decided);
  for (const std::size_t t : json["bypassed"].get<std::vector<std::size_t>>())
    parts_.steering.override_codec(kClassesWithPolicy[t], {.is_bypassed = true});
  parts_.steering.set_bypass_decided();
  return json["lines"].get<std::vector<std::string>>();
}

}  // namespace laconic
