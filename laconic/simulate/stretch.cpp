#include "laconic/simulate/stretch.hpp"

namespace laconic {

namespace {

constexpr int kStepsThatOverlap = 3;

// A round without those of its steps that are like any other.
std::vector<LocalStep> steps_of_round(const LocalSection& local, bool begins_together) {
  std::vector<LocalStep> steps;
  if (local.overlap > 0) steps.push_back({.ends_round = true});
  const std::int64_t beside = begins_together ? 1 : local.overlap;
  for (std::int64_t place = 0; place < local.steps; ++place) {
    const bool is_last = place + 1 == local.steps;
    if (place >= beside && !is_last) continue;
    steps.push_back({.is_together = begins_together && place == 0,
                     .takes_changes = begins_together ? place == 0 : place + 1 == local.overlap,
                     .ends_round = is_last});
  }
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
  add(steps_of_round(local, false), is_linear ? rounds - 1 : rounds);
  if (is_linear) add(steps_of_round(local, true), 1);
  if (local.overlap > 0) add({{.ends_round = true}}, -rounds);
  add({LocalStep{}}, left);
  return stretches;
}

}  // namespace laconic
