#include "laconic/study/report_case.hpp"

#include <algorithm>
#include <charconv>
#include <cmath>
#include <limits>

#include "laconic/lab/lab_spec.hpp"

namespace laconic {

namespace {

// A full packet of a lab carries 1448 bytes of payload in 1514 (docs/lab.md).
constexpr double kPayloadShare = 1448.0 / 1514.0;
constexpr double kUnshapedOrder = 1e18;  // before every rate
constexpr std::size_t kLossSteps = 5;

double rank_of_rate(const std::string& rate) {
  if (rate == "none") return 2 * kUnshapedOrder;
  const auto bits = parse_rate(rate);
  if (!bits) return 0;
  return *bits == 0 ? kUnshapedOrder : static_cast<double>(*bits);
}

std::optional<double> number_in(const std::optional<std::string>& text) {
  if (!text) return {};
  double value = 0;
  const auto [end, error] = std::from_chars(text->data(), text->data() + text->size(), value);
  if (error != std::errc() || end != text->data() + text->size()) return {};
  return std::isfinite(value) && value > 0 ? std::optional<double>(value) : std::nullopt;
}

double either(const Outcome& outcome, const std::string& ours, const std::string& peers) {
  const auto own = number_in(setting_of(outcome, ours));
  return own ? *own : number_in(setting_of(outcome, peers)).value_or(0);
}

// Over rounds; none of those for which it is not known.
Spread over_rounds(const Case& one,
                   const std::function<std::optional<double>(const Outcome&)>& value) {
  std::vector<double> values;
  for (const Outcome& outcome : one.rounds) {
    if (const auto found = value(outcome)) values.push_back(*found);
  }
  return spread_of(values);
}

// Averages the losses of rows `begin` to `end` - 1. Requires: begin < end.
std::optional<double> mean_loss(const Outcome& outcome, std::size_t begin, std::size_t end) {
  std::vector<double> losses;
  for (std::size_t i = begin; i < end; ++i) losses.push_back(outcome.steps[i].loss);
  const double mean = mean_of(losses);
  return std::isfinite(mean) ? std::optional<double>(mean) : std::nullopt;
}

void add_once(std::vector<std::string>& list, const std::string& text) {
  if (std::find(list.begin(), list.end(), text) == list.end()) list.push_back(text);
}

}  // namespace

std::vector<Case> cases_of(const std::vector<Outcome>& outcomes, const std::string& part) {
  std::vector<Case> cases;
  for (const Outcome& outcome : outcomes) {
    const Trial& trial = outcome.trial;
    if (trial.part != part || !outcome.failure.empty()) continue;
    const auto same = std::find_if(cases.begin(), cases.end(), [&](const Case& one) {
      return one.method == trial.method && one.rate == trial.rate;
    });
    if (same != cases.end()) {
      same->rounds.push_back(outcome);
    } else {
      cases.push_back({part, trial.method, trial.rate, {outcome}});
    }
  }
  return cases;
}

const Case* find_case(const std::vector<Case>& cases, const std::string& method,
                      const std::string& rate) {
  for (const Case& one : cases) {
    if (one.method == method && one.rate == rate) return &one;
  }
  return nullptr;
}

std::vector<std::string> methods_of(const std::vector<Case>& cases) {
  std::vector<std::string> methods;
  for (const Case& one : cases) add_once(methods, one.method);
  return methods;
}

std::vector<std::string> rates_of(const std::vector<Case>& cases) {
  std::vector<std::string> rates;
  for (const Case& one : cases) add_once(rates, one.rate);
  return sorted_rates(std::move(rates));
}

std::vector<std::string> sorted_rates(std::vector<std::string> rates) {
  std::stable_sort(rates.begin(), rates.end(),
                   [](const auto& a, const auto& b) { return rank_of_rate(a) > rank_of_rate(b); });
  return rates;
}

std::optional<double> payload_bits(const std::string& rate) {
  const auto bits = parse_rate(rate);
  if (!bits || *bits == 0) return {};
  return kPayloadShare * static_cast<double>(*bits);
}

std::optional<std::string> setting_of(const Outcome& outcome, const std::string& key) {
  if (const auto found = outcome.trial.set.find(key); found != outcome.trial.set.end()) {
    return found->second;
  }
  const std::vector<std::string>& words = outcome.command;
  std::optional<std::string> value;  // of the last, which wins
  for (std::size_t i = 0; i + 1 < words.size(); ++i) {
    if (words[i] == "--set" && words[i + 1].starts_with(key + "=")) {
      value = words[i + 1].substr(key.size() + 1);
    } else if (words[i] == "--" + key) {
      value = words[i + 1];
    }
  }
  return value;
}

RunShape shape_of(const Outcome& outcome) {
  const auto whole = [&](const char* key, int otherwise) {
    const auto found = number_in(setting_of(outcome, key));
    return found ? static_cast<int>(*found) : otherwise;
  };
  RunShape shape;
  if (outcome.trial.program == Program::ddp) {
    shape.dp = outcome.trial.hosts;
  } else {
    shape.dp = whole("mesh.dp", 1);
    shape.pp = whole("mesh.pp", std::max(1, outcome.trial.hosts / shape.dp));
    shape.chunks = whole("pipeline.chunks", 1);
  }
  shape.batch = either(outcome, "train.batch", "batch");
  shape.microbatch = either(outcome, "train.microbatch", "microbatch");
  shape.context = either(outcome, "model.context", "context");
  return shape;
}

int microbatches_of(const RunShape& shape) {
  if (shape.batch <= 0 || shape.microbatch <= 0) return 0;
  return static_cast<int>(shape.batch / shape.dp / shape.microbatch);
}

bool has_memory(const Trial& trial) {
  const auto memory = trial.set.find("pp.activation.memory");
  if (memory != trial.set.end()) return memory->second == "delta";
  return trial.preset == "ac-sgd";
}

bool bypasses(const Trial& trial) {
  return trial.set.contains("steering.bypass");
}

// Every replica goes through a shard of its own, as many samples of each step as of the others'.
std::vector<StepRow> steps_of(const Outcome& outcome, Which which) {
  const bool remembers = has_memory(outcome.trial);
  const RunShape shape = shape_of(outcome);
  const double shard = std::floor(outcome.samples / shape.dp);
  const double share = shape.batch / shape.dp;
  std::vector<StepRow> steps;
  for (const StepRow& row : outcome.steps) {
    const auto step = static_cast<double>(row.step);
    const bool is_first = remembers && share > 0 && row.step > 1 && step * share <= shard;
    const bool is_later = !remembers || (share > 0 && shard > 0 && (step - 1) * share >= shard);
    const bool is_counted = is_later && row.step > outcome.trial.warmup;
    if (which == Which::first_epoch ? is_first : is_counted) steps.push_back(row);
  }
  return steps;
}

Spread over_steps(const Case& one, Which which,
                  const std::function<double(const StepRow&)>& value) {
  Spread steps;  // of the last round
  Spread rounds = over_rounds(one, [&](const Outcome& outcome) -> std::optional<double> {
    std::vector<double> values;
    for (const StepRow& row : steps_of(outcome, which)) values.push_back(value(row));
    steps = spread_of(values);
    return is_known(steps) ? std::optional<double>(steps.median) : std::nullopt;
  });
  if (one.rounds.size() == 1) rounds.least_step = steps.least, rounds.most_step = steps.most;
  return rounds;
}

Spread seconds_of(const Case& one, Which which) {
  return over_steps(one, which, [](const StepRow& row) {
    return row.seconds > 0 ? row.seconds : std::numeric_limits<double>::quiet_NaN();
  });
}

Spread exposed_share(const Case& one, Which which) {
  if (one.rounds.front().trial.program == Program::ddp) return {};
  return over_steps(one, which,
                    [](const StepRow& row) { return row.exposed_seconds / row.seconds; });
}

std::optional<double> communication_share(const std::vector<Case>& part, const std::string& method,
                                          const std::string& rate) {
  const Case* fast = find_case(part, method, "unshaped");
  const Case* slow = find_case(part, method, rate);
  const Spread ratio = fast && slow ? ratio_of(seconds_of(*fast), seconds_of(*slow)) : Spread{};
  return is_known(ratio) ? std::optional<double>(1 - ratio.median) : std::nullopt;
}

Spread first_rank_bytes(const Case& one, Which which) {
  if (one.rounds.front().trial.program == Program::ddp) return {};
  return over_steps(one, which, [](const StepRow& row) { return row.wire_bytes; });
}

Spread samples_per_second(const Case& one, Which which) {
  const double batch = shape_of(one.rounds.front()).batch;
  if (batch <= 0) return {};
  Spread rounds = over_rounds(one, [&](const Outcome& outcome) -> std::optional<double> {
    const Spread seconds = seconds_of({one.part, one.method, one.rate, {outcome}}, which);
    if (!is_known(seconds) || seconds.median <= 0) return {};
    return batch / seconds.median;
  });
  if (const Spread seconds = seconds_of(one, which); seconds.least_step > 0) {
    rounds.least_step = batch / seconds.most_step;
    rounds.most_step = batch / seconds.least_step;
  }
  return rounds;
}

Spread tokens_per_second(const Case& one, const std::vector<Case>& part) {
  double context = shape_of(one.rounds.front()).context;
  for (const Case& other : part) {
    if (context > 0) break;
    const Outcome& outcome = other.rounds.front();
    if (outcome.trial.model == one.rounds.front().trial.model) context = shape_of(outcome).context;
  }
  return context > 0 ? scaled(samples_per_second(one), context) : Spread{};
}

bool is_training(const ClassTotal& total) {
  return total.traffic != "control" && total.traffic != "preflight";
}

Spread wire_bytes_per_step(const Case& one) {
  return over_rounds(one, [](const Outcome& outcome) -> std::optional<double> {
    if (outcome.traffic.empty() || outcome.steps.empty()) return {};
    double bytes = 0;
    for (const ClassTotal& total : outcome.traffic)
      bytes += is_training(total) ? total.wire_bytes : 0;
    return bytes / static_cast<double>(outcome.steps.size());
  });
}

Spread saved_bytes_per_step(const Case& one) {
  return over_rounds(one, [](const Outcome& outcome) -> std::optional<double> {
    if (outcome.traffic.empty() || outcome.steps.empty()) return {};
    double bytes = 0;
    for (const ClassTotal& total : outcome.traffic)
      bytes += is_training(total) ? total.raw_bytes - total.wire_bytes : 0;
    return bytes / std::max(1, outcome.trial.hosts) / static_cast<double>(outcome.steps.size());
  });
}

Spread codec_seconds_per_step(const Case& one) {
  return over_rounds(one, [](const Outcome& outcome) -> std::optional<double> {
    if (outcome.traffic.empty() || outcome.steps.empty()) return {};
    double seconds = 0;
    for (const ClassTotal& total : outcome.traffic) seconds += total.codec_seconds;
    return seconds / static_cast<double>(outcome.steps.size());
  });
}

// Rows are of rank 0, totals of all ranks.
Spread network_bytes_per_step(const Case& one) {
  return over_rounds(one, [](const Outcome& outcome) -> std::optional<double> {
    if (outcome.trial.program == Program::ddp) {
      if (!(outcome.counted_sent_bytes > 0)) return {};
      return outcome.counted_sent_bytes;
    }
    double metered = 0, trained = 0, first_rank = 0;
    for (const ClassTotal& total : outcome.traffic) {
      metered += total.wire_bytes;
      trained += is_training(total) ? total.wire_bytes : 0;
    }
    for (const StepRow& row : outcome.steps) first_rank += row.wire_bytes;
    const Spread step =
        first_rank_bytes({outcome.trial.part, outcome.trial.method, outcome.trial.rate, {outcome}});
    if (!is_known(step) || !(metered > 0) || !(first_rank > 0)) return {};
    if (!(outcome.interface_sent_bytes > 0)) return {};
    return step.median * trained / first_rank * outcome.interface_sent_bytes / metered;
  });
}

// Totals are of all ranks, so what one rank sends is worked out from its place: activations leave
// all stages but the last, gradients all but the first, the tied embedding's gradient the first
// and the last; sums between replicas load all ranks alike. The busiest is chosen by raw bytes.
OutletBytes busiest_outlet(const Outcome& outcome) {
  const RunShape shape = shape_of(outcome);
  const double steps = std::max<double>(1, static_cast<double>(outcome.steps.size()));
  const auto share = [&](int rank, const std::string& traffic) {
    const double inner = 1.0 / std::max(1, shape.pp - 1) / shape.dp;
    if (traffic == "pp.activation") return rank + 1 < shape.pp ? inner : 0.0;
    if (traffic == "pp.gradient") return rank > 0 ? inner : 0.0;
    const bool is_end = rank == 0 || rank + 1 == shape.pp;
    if (traffic == "embedding.tied") return is_end ? 1.0 / std::min(2, shape.pp) / shape.dp : 0.0;
    return 1.0 / shape.pp / shape.dp;
  };
  OutletBytes busiest;
  for (int rank = 0; rank < shape.pp; ++rank) {
    OutletBytes bytes;
    for (const ClassTotal& total : outcome.traffic) {
      if (!is_training(total)) continue;
      bytes.raw += share(rank, total.traffic) * total.raw_bytes / steps;
      bytes.wire += share(rank, total.traffic) * total.wire_bytes / steps;
    }
    if (bytes.raw > busiest.raw) busiest = bytes;
  }
  return busiest;
}

std::optional<double> loss_at(const Outcome& outcome, std::size_t step) {
  if (step == 0 || step > outcome.steps.size()) return {};
  return mean_loss(outcome, step - std::min(step, kLossSteps), step);
}

Spread final_loss(const Case& one, std::size_t step) {
  return over_rounds(one, [&](const Outcome& outcome) { return loss_at(outcome, step); });
}

std::optional<double> centred_loss_at(const Outcome& outcome, std::size_t step) {
  const std::size_t all = outcome.steps.size();
  if (step == 0 || step > all) return {};
  const std::size_t reach = std::min({kLossReach, step - 1, all - step});
  return mean_loss(outcome, step - 1 - reach, step + reach);
}

std::size_t common_steps(const std::vector<Case>& cases) {
  std::size_t least = 0;
  for (const Case& one : cases) {
    for (const Outcome& outcome : one.rounds) {
      least = least == 0 ? outcome.steps.size() : std::min(least, outcome.steps.size());
    }
  }
  return least;
}

}  // namespace laconic
