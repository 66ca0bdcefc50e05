#include "laconic/simulate/stretch.hpp"

namespace laconic {

namespace {

constexpr int kStepsThatOverlap = 3;

// A round without those of its steps that are like any other.
std::vector<LocalStep> steps_of_round(const LocalSection& local, bool begins_together) {
  std::vector<LocalStep> steps;
  if (local.overlap > 0) steps.push_back({.ends_round = true, .place = local.steps - 1});
  const std::int64_t beside = begins_together ? 1 : local.overlap;
  for (std::int64_t place = 0; place < local.steps; ++place) {
    const bool is_last = place + 1 == local.steps;
    if (place >= beside && !is_last) continue;
    steps.push_back({.is_together = begins_together && place == 0,
                     .takes_changes = begins_together ? place == 0 : place + 1 == local.overlap,
                     .ends_round = is_last,
                     .place = place});
  }
  return steps;
}

std::vector<LocalStep> whole_round(const LocalSection& local, bool begins_together) {
  std::vector<LocalStep> steps;
  for (std::int64_t place = 0; place < local.steps; ++place)
    steps.push_back({.is_together = begins_together && place == 0,
                     .ends_round = place + 1 == local.steps,
                     .place = place});
  return steps;
}

std::vector<LocalStep> behind_a_round(const LocalSection& local, std::vector<LocalStep> round) {
  std::vector<LocalStep> steps = whole_round(local, false);
  steps.insert(steps.end(), round.begin(), round.end());
  return steps;
}

}  // namespace

double Stretches::counted() const {
  double steps = 0;
  for (const Stretch& stretch : all)
    steps += stretch.times * static_cast<double>(stretch.steps.size());
  return steps;
}

// In the long run one round of `refresh` renews the second moment.
Stretches stretches_of(const LocalSection& local, bool reaches_further) {
  if (local.steps == 0)
    return {{{std::vector<LocalStep>(reaches_further ? kStepsThatOverlap : 1,
                                     LocalStep{.is_together = true})}}};
  const bool is_linear = local.method == LocalMethod::linear;
  const double rounds = is_linear ? static_cast<double>(local.refresh) : 1;
  Stretches stretches;
  double left = rounds * static_cast<double>(local.steps);
  const auto add = [&](std::vector<LocalStep> steps, double times) {
    left -= times * static_cast<double>(steps.size());
    if (times != 0) stretches.all.push_back({std::move(steps), times});
  };
  const double plain = is_linear ? rounds - 1 : rounds;
  if (local.has_parts()) {
    add(behind_a_round(local, whole_round(local, false)), plain);
    if (is_linear) add(behind_a_round(local, whole_round(local, true)), 1);
    add(whole_round(local, false), -rounds);
    return stretches;
  }
  add(steps_of_round(local, false), plain);
  if (is_linear) add(steps_of_round(local, true), 1);
  if (local.overlap > 0) add({{.ends_round = true, .place = local.steps - 1}}, -rounds);
  add({LocalStep{.place = local.overlap}}, left);  // neither the end, nor the step that takes
  return stretches;
}

}  // namespace laconic
