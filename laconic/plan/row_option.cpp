#include "laconic/plan/row_option.hpp"

#include <algorithm>
#include <map>
#include <optional>
#include <string>
#include <tuple>
#include <utility>

#include "laconic/base/text.hpp"
#include "laconic/config/read.hpp"
#include "laconic/config/row_choice.hpp"

namespace laconic {

namespace {

std::vector<PolicyOption>& row_policies(PlanSpace& space) {
  return space.policies[static_cast<std::size_t>(PolicyClass::rows)];
}

bool is_about_rows(const Problem& problem) {
  return problem.where.starts_with("embedding.rows") || problem.where == "train.update";
}

bool has_tables(const ModelSpec& spec) {
  return std::ranges::any_of(spec.parameters,
                             [](const ParameterSpec& p) { return !p.looked_up_by.empty(); });
}

// What is the same for all policies in few words, and else the configuration's own check: once for
// what is alike to it.
class Refusals {
 public:
  explicit Refusals(PlanSpace& space) : space_(space), has_tables_(has_tables(space.spec)) {}

  // Empty: the arrangement can have it.
  const std::string& why_not(const Arrangement& a, std::size_t policy) {
    const bool is_on_gpu = first_group(space_, a).device.is_gpu;
    const auto [known, is_new] =
        known_.try_emplace(std::tuple(a.dp, a.pp > 1, a.tp() > 1, is_on_gpu, policy));
    if (is_new) known->second = ask(a, policy, is_on_gpu);
    return known->second;
  }

 private:
  std::string ask(const Arrangement& a, std::size_t policy, bool is_on_gpu) const {
    RunConfig config = row_policies(space_)[policy].applied;
    if (config.embedding_rows.method == RowsMethod::automatic)
      return "a run decides what \"auto\" is when it begins: name the ways one by one";
    if (!may_move_rows(config)) return "";
    if (!has_tables_)
      return "the model has no table that is only looked up: it multiplies with it in the end, too";
    if (is_on_gpu)
      return "what rows cost between a GPU and its host is not predicted, and these hosts have "
             "GPUs";
    if (a.tp() > 1) return "a tensor grid cuts tables in its own way";
    if (config.train.update == UpdateBy::block && a.pp > 1)
      return "train.update = \"block\" is not timed in a pipeline";
    config.mesh = {.pp = a.pp, .dp = a.dp};
    config.run.device = {.kind = DeviceKind::cpu};
    std::vector<std::string> reasons;
    for (const Problem& problem : check(config))
      if (is_about_rows(problem)) reasons.push_back(problem.what);
    return join(reasons, "; ");
  }

  PlanSpace& space_;
  const bool has_tables_;
  std::map<std::tuple<int, bool, bool, bool, std::size_t>, std::string> known_;
};

// Another name of one before it, where the configuration says itself what the policy would.
bool says_nothing_new(const std::vector<PolicyOption>& policies, std::size_t policy) {
  for (std::size_t i = 0; i < policy; ++i)
    if (differences(policies[i].applied, policies[policy].applied).empty()) return true;
  return false;
}

void remove_repeated(std::vector<PolicyOption>& policies) {
  for (std::size_t i = policies.size(); i-- > 1;)
    if (says_nothing_new(policies, i))
      policies.erase(policies.begin() + static_cast<std::ptrdiff_t>(i));
}

// Of a policy that no arrangement can have: why not, as the first says that has replicas at all.
std::optional<std::string> refusal_of(const PlanSpace& space, Refusals& refusals,
                                      std::size_t policy) {
  std::string why = "no mesh of these hosts has replicas";
  bool has_replicas = false;
  for (const Arrangement& a : space.arrangements) {
    if (a.dp == 1) continue;
    const std::string& reason = refusals.why_not(a, policy);
    if (reason.empty()) return std::nullopt;
    if (!std::exchange(has_replicas, true)) why = reason;
  }
  return why;
}

void add_loads(PlanSpace& space) {
  for (std::size_t i = 0; i < space.arrangements.size(); ++i) {
    const int dp = space.arrangements[i].dp;
    if (dp == 1 || space.row_loads.contains(dp)) continue;
    for (const int option : space.row_options[i]) {
      RunConfig config = row_policies(space)[static_cast<std::size_t>(option)].applied;
      if (!may_move_rows(config)) continue;
      config.mesh.dp = dp;
      space.row_loads[dp] = row_loads(config, space.spec, 0);
      break;
    }
  }
}

}  // namespace

void add_row_options(PlanSpace& space) {
  std::vector<PolicyOption>& policies = row_policies(space);
  remove_repeated(policies);
  std::vector<PolicyOption> left = {policies.front()};
  {
    Refusals refusals(space);
    for (std::size_t i = 1; i < policies.size(); ++i) {
      if (const auto why = refusal_of(space, refusals, i))
        space.refused.push_back({policies[i].choice, *why});
      else
        left.push_back(policies[i]);
    }
  }
  policies = std::move(left);
  Refusals refusals(space);
  for (const Arrangement& a : space.arrangements) {
    std::vector<int>& numbers = space.row_options.emplace_back();
    for (std::size_t i = 0; i < (a.dp > 1 ? policies.size() : 1); ++i)
      if (refusals.why_not(a, i).empty()) numbers.push_back(static_cast<int>(i));
  }
  add_loads(space);
}

bool may_move_beside(const RunConfig& sums) {
  return sums.local.steps == 0 && sums.dp_gradient.late == 0 &&
         sums.dp_gradient.method != GradientMethod::compressed_adam;
}

std::vector<int> row_options_beside(const PlanSpace& space, const Candidate& candidate) {
  const auto applied = [&](PolicyClass of) -> const RunConfig& {
    const auto number = static_cast<std::size_t>(of);
    return space.policies[number][static_cast<std::size_t>(candidate.at(kPolicyDims[number]))]
        .applied;
  };
  std::vector<int> numbers =
      space.row_options[static_cast<std::size_t>(candidate.at(PlanDim::arrangement))];
  if (may_move_beside(applied(PolicyClass::dp)) &&
      applied(PolicyClass::pp).embedding_tied.late == 0)
    return numbers;
  std::erase_if(numbers, [&](int i) {
    return may_move_rows(
        space.policies[static_cast<std::size_t>(PolicyClass::rows)][static_cast<std::size_t>(i)]
            .applied);
  });
  return numbers;
}

}  // namespace laconic
