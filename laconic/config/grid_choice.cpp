#include "laconic/config/grid_choice.hpp"

#include <fmt/format.h>

#include <algorithm>
#include <charconv>
#include <cmath>
#include <optional>
#include <set>
#include <tuple>

#include "laconic/architecture/grid_codes.hpp"
#include "laconic/architecture/map_chain.hpp"
#include "laconic/base/error.hpp"
#include "laconic/base/text.hpp"
#include "laconic/codec/spec.hpp"
#include "laconic/config/checker.hpp"
#include "laconic/config/model_family.hpp"
#include "laconic/config/place_choice.hpp"
#include "laconic/config/projection_choice.hpp"

namespace laconic {

namespace {

constexpr int kMostTensorRanks = 4096;  // of one grid
constexpr std::size_t kMostAdvised = 3;

// Throws ConfigError unless all of them are whole numbers.
std::vector<int> numbers_in(std::string_view text, const char* key) {
  std::vector<int> numbers;
  for (const std::string& word : split(text, ',')) {
    const std::string_view digits = trim(word);
    int number = 0;
    const char* end = digits.data() + digits.size();
    const auto [stop, error] = std::from_chars(digits.data(), end, number);
    if (error != std::errc() || stop != end || digits.empty())
      throw ConfigError(
          fmt::format("{} = \"{}\": '{}' is no whole number", key, text, printable(digits)));
    numbers.push_back(number);
  }
  return numbers;
}

// The nearest numbers below and above that are a grid to the method.
std::string nearest_numbers(TensorMethod method, int ranks) {
  int below = ranks, above = ranks;
  while (below > 1 && !grid_of(method, below)) --below;
  while (!grid_of(method, above)) ++above;
  return below > 1 ? fmt::format("{} and {} are", below, above) : fmt::format("{} is", above);
}

std::string to_list(const std::array<int, 3>& grid) {
  return fmt::format("[{}]", fmt::join(grid, ", "));
}

}  // namespace

std::array<int, 3> parse_grid(std::string_view text, TensorMethod method) {
  const std::vector<int> sizes = numbers_in(text, "tp");
  if (sizes.size() != 1 && sizes.size() != 3)
    throw ConfigError(
        fmt::format("tp = \"{}\" has {} numbers; a grid has 3 axes: [2, 2, 2], or "
                    "write how many ranks it has",
                    text, sizes.size()));
  double ranks = 1;  // a product of ints may not be an int
  for (const int size : sizes) {
    if (size < 1) throw ConfigError(fmt::format("tp = \"{}\": {} is below 1", text, size));
    ranks *= size;
  }
  if (ranks > kMostTensorRanks)
    throw ConfigError(
        fmt::format("tp = \"{}\" makes {} ranks; at most {}", text, ranks, kMostTensorRanks));
  if (sizes.size() == 3) return {sizes[0], sizes[1], sizes[2]};
  if (sizes[0] == 1) return {1, 1, 1};
  const std::optional<std::array<int, 3>> grid = grid_of(method, sizes[0]);
  if (!grid)
    throw ConfigError(
        fmt::format("tp = {} is no grid of tensor.method = \"{}\": {}; or give the "
                    "sizes of the axes, as [pi, pj, pl]",
                    sizes[0], name_of(method), nearest_numbers(method, sizes[0])));
  return *grid;
}

std::array<int, 3> parse_order(std::string_view text) {
  const std::vector<int> axes = numbers_in(text, "order");
  std::vector<int> sorted = axes;
  std::ranges::sort(sorted);
  if (sorted != std::vector<int>{0, 1, 2})
    throw ConfigError(fmt::format("order = \"{}\" does not have each of 0, 1 and 2 once", text));
  return {axes[0], axes[1], axes[2]};
}

std::array<int, 3> grid_of(const RunConfig& config) {
  return parse_grid(config.mesh.tp, config.tensor.method);
}

bool has_grid(const RunConfig& config) {
  try {
    return grid_of(config) != std::array{1, 1, 1};
  } catch (const ConfigError&) {
    return true;
  }
}

namespace {

// What a microbatch of the run is to a grid.
GridLoad load_of(const RunConfig& config) {
  return {.samples = config.microbatch_size(), .has_smoothing = config.task.label_smoothing > 0};
}

// The axes from the one that carries least in the layers' forward to the one with most.
std::array<int, 3> by_load(const RunConfig& config) {
  const Family family = family_of(config, {});
  const ModelSpec spec = model_spec(family, context_of(family));
  const GridPlan plan = grid_plan_of(config, family);
  const std::array<double, 3> loads =
      carried(forward_of_layers(spec, grid_traffic(spec, plan, load_of(config))), plan.mesh);
  std::array<int, 3> order = {0, 1, 2};
  std::ranges::stable_sort(order, {},
                           [&](int axis) { return loads.at(static_cast<std::size_t>(axis)); });
  return order;
}

}  // namespace

std::array<int, 3> order_of(const RunConfig& config) {
  if (config.mesh.order != kOrderAuto) return parse_order(config.mesh.order);
  const bool is_trivial_grid = grid_of(config) == std::array{1, 1, 1};
  return is_trivial_grid || !config.model.start.empty() ? std::array{0, 1, 2} : by_load(config);
}

namespace {

// What tp.activation asks for; none where it names layers that the model has not.
GridCodes codes_of(const RunConfig& config, const ModelSpec& spec) {
  const TpActivationSection& activation = config.tp_activation;
  const std::optional<AutoEncoder> learned = learned_codec(activation.codec);
  const auto layers = static_cast<std::int64_t>(layer_blocks(spec).size());
  if (!learned || !check_places(activation.layers, layers).empty()) return {};
  GridCodes codes{.size = learned->code,
                  .is_tied = activation.tied,
                  .is_drawn = activation.start == CodeBegin::noise,
                  .blocks = std::vector<bool>(spec.blocks.size(), false)};
  const std::vector<std::size_t> blocks = layer_blocks(spec);
  const std::vector<bool> chosen = chosen_places(activation.layers, layers);
  for (std::size_t i = 0; i < blocks.size(); ++i) codes.blocks[blocks[i]] = chosen[i];
  return codes;
}

}  // namespace

Dtype message_dtype(const RunConfig& config, const GridTraffic& t) {
  const bool is_long = t.collective != GridCollective::all_gather || t.use == CollectiveUse::loss;
  return is_long ? config.run.master_type() : config.run.compute_type();
}

GridPlan grid_plan_of(const RunConfig& config, const Family& family) {
  GridPlan split{.method = config.tensor.method, .mesh = {.tp = grid_of(config)}};
  split.keep = config.tensor.keep;
  if (!is_trivial(split)) split.codes = codes_of(config, model_spec(family, context_of(family)));
  GridPlan gathered = split;
  gathered.table = TableCut::gathered;
  if (config.tensor.table == TableChoice::gathered) return gathered;
  if (config.tensor.table == TableChoice::split || is_trivial(split)) return split;
  // The table, what it is multiplied with and what comes of it travel raw.
  const ModelSpec spec = model_spec(family, context_of(family));
  const auto received = [&](const GridPlan& plan) {
    double bytes = 0;
    for (const GridTraffic& t : grid_traffic(spec, plan, load_of(config)))
      bytes += t.elements * static_cast<double>(bytes_of(message_dtype(config, t)));
    return bytes;
  };
  return received(gathered) < received(split) ? gathered : split;
}

namespace {

void check_order(Checker& c, const MeshSection& mesh) {
  try {
    if (mesh.order != kOrderAuto) parse_order(mesh.order);
  } catch (const ConfigError& error) {
    for (const Problem& p : error.problems()) c.require(false, "mesh.order", p.what + "; or auto");
  }
}

// The sizes that mesh.tp gives, if it gives any.
std::optional<std::array<int, 3>> read_grid(Checker& c, const RunConfig& config) {
  try {
    return grid_of(config);
  } catch (const ConfigError& error) {
    for (const Problem& p : error.problems()) c.require(false, "mesh.tp", p.what);
  }
  return std::nullopt;
}

// Where a method leaves no choice.
void check_table(Checker& c, const TensorSection& tensor) {
  if (tensor.table == TableChoice::automatic) return;
  const bool is_split = tensor.table == TableChoice::split;
  if (tensor.method == TensorMethod::one_d)
    c.require(is_split, "tensor.table",
              "\"gathered\" with tensor.method = \"1d\", which gathers no weights: use split");
  if (tensor.method == TensorMethod::two_d || tensor.method == TensorMethod::two_and_half_d)
    c.require(!is_split, "tensor.table",
              fmt::format("\"split\" with tensor.method = \"{}\", which moves no partial sums: use "
                          "gathered",
                          name_of(tensor.method)));
}

// With the others a rank keeps its part of a sum for itself.
void check_sums(Checker& c, const RunConfig& config) {
  if (config.tensor.method == TensorMethod::one_d) return;
  for (const auto& [key, sum] : {std::pair{"tp.activation.sum", config.tp_activation.sum},
                                 {"tp.gradient.sum", config.tp_gradient.sum}})
    c.require(sum != SumForm::gathered, key,
              fmt::format("\"gathered\" with tensor.method = \"{}\": of a sum each rank keeps a "
                          "part, which is not encoded again: use two-step",
                          name_of(config.tensor.method)));
}

void check_ranks(Checker& c, const MeshSection& mesh, const Mesh& grid) {
  constexpr double kMost = static_cast<double>(kMostRanks) * kMostRanks;
  const double ranks = static_cast<double>(mesh.pp) * static_cast<double>(mesh.dp) * tp_size(grid);
  c.require(ranks <= kMost, "mesh.tp",
            fmt::format("pp = {}, dp = {} and tp = {} make {} ranks; at most {}", mesh.pp, mesh.dp,
                        tp_size(grid), ranks, kMost));
}

}  // namespace

Problems check_grid_texts(const RunConfig& config) {
  Checker c;
  check_order(c, config.mesh);
  const std::optional<std::array<int, 3>> grid = read_grid(c, config);
  if (!grid) return c.problems;
  const GridPlan plan{.method = config.tensor.method, .mesh = {.tp = *grid}};
  if (is_trivial(plan)) return c.problems;
  check_ranks(c, config.mesh, plan.mesh);
  check_table(c, config.tensor);
  check_sums(c, config);
  append(c.problems, check(plan));
  c.require(
      config.optimiser.kind != OptimiserKind::muon, "optimiser.kind",
      fmt::format("kind = \"muon\" with mesh.tp = {}: it makes whole matrices orthogonal, and "
                  "each rank has a part of them",
                  to_list(plan.mesh.tp)));
  return c.problems;
}

namespace {

// What a family has that pj must divide, by its key.
std::vector<std::pair<const char*, std::int64_t>> heads_of(const Family& family) {
  struct Visitor {
    using Heads = std::vector<std::pair<const char*, std::int64_t>>;
    Heads operator()(const GptShape& s) const { return {{"heads", s.heads}}; }
    Heads operator()(const LlamaShape& s) const {
      return {{"heads", s.heads}, {"key_heads", s.key_heads}};
    }
    Heads operator()(const BertShape& s) const { return {{"heads", s.heads}}; }
    Heads operator()(const Seq2SeqShape& s) const { return {{"heads", s.heads}}; }
    Heads operator()(const LstmShape&) const { return {}; }
    Heads operator()(const GnmtShape&) const { return {}; }
  };
  return std::visit(Visitor(), family);
}

// One parameter of each kind: those that are cut alike need no second look.
std::vector<ParameterSpec> kinds_of_parameters(const ModelSpec& spec) {
  std::set<std::tuple<Role, std::vector<std::int64_t>, std::int64_t, bool>> found;
  std::vector<ParameterSpec> kinds;
  for (const ParameterSpec& p : spec.parameters)
    if (found.insert({p.role, p.sizes, p.parts, p.is_out_in}).second) kinds.push_back(p);
  return kinds;
}

// What a grid must divide.
struct Divided {
  std::vector<ParameterSpec> kinds;
  std::vector<std::pair<const char*, std::int64_t>> heads;
  std::int64_t samples = 0;      // of a microbatch
  const char* samples_key = "";  // that says so
};

Divided divided_of(const RunConfig& config, const Family& family, const GridPlan& plan) {
  ModelSpec spec = model_spec(family, context_of(family));
  if (check(plan).empty()) add_grid_codes(spec, plan);
  return {.kinds = kinds_of_parameters(spec),
          .heads = heads_of(family),
          .samples = config.microbatch_size(),
          .samples_key = config.train.microbatch > 0 || config.mesh.pp > 1 ? "train.microbatch"
                                                                           : "train.batch"};
}

void check_parameters(Checker& c, const Divided& divided, const GridPlan& plan) {
  std::set<std::pair<Role, std::string>> said;
  for (const ParameterSpec& p : divided.kinds) {
    std::vector<std::int64_t> sizes = cut_sizes(p.sizes, p.parts, p.is_out_in);
    const Layout layout = layout_of(plan, p.role, p.is_out_in, sizes.size());
    // A vocabulary is what it is: the last of its blocks may be shorter.
    if (p.role == Role::table || p.role == Role::table_bias)
      sizes[0] = extent(plan.mesh, layout.by_dim[0]);
    for (Problem& problem : check(layout, plan.mesh, sizes, common_name(p))) {
      const std::string numbers = problem.what.substr(problem.what.find(" has "));  // of any dim
      if (said.insert({p.role, numbers}).second) c.problems.push_back(std::move(problem));
    }
  }
}

void check_rows(Checker& c, const Divided& divided, const GridPlan& plan) {
  const auto check_cut = [&](const Axes& rows) {
    const int parts = extent(plan.mesh, rows);
    c.require(divided.samples % parts == 0, divided.samples_key,
              fmt::format("a microbatch has {} samples, and the rows of activations are cut in {} "
                          "({})",
                          divided.samples, parts, to_text(rows)));
  };
  const Axes stream = stream_of(plan).rows, inner = inner_of(plan).rows;
  check_cut(stream);
  if (inner != stream) check_cut(inner);
}

Problems check_divided(const Divided& divided, const GridPlan& plan) {
  Checker c;
  const Axes across = inner_of(plan).features;
  const int parts = extent(plan.mesh, across);
  for (const auto& [key, heads] : divided.heads)
    c.require(
        heads % parts == 0, fmt::format("model.{}", key),
        fmt::format("{} = {}, which {} = {} does not divide", key, heads, to_text(across), parts));
  check_rows(c, divided, plan);
  check_parameters(c, divided, plan);
  return c.problems;
}

// How far apart two grids are: doublings along all axes.
double distance(const std::array<int, 3>& a, const std::array<int, 3>& b) {
  double sum = 0;
  for (std::size_t n = 0; n < 3; ++n)
    sum += std::abs(std::log2(static_cast<double>(a.at(n)) / b.at(n)));
  return sum;
}

// Whether samples or heads alone keep a grid from it, which is soon asked.
bool is_undivided(const Divided& divided, const GridPlan& plan) {
  const ActivationLayout stream = stream_of(plan), inner = inner_of(plan);
  const auto cuts = [&](std::int64_t size, const Axes& axes) {
    return size % extent(plan.mesh, axes) == 0;
  };
  return !cuts(divided.samples, stream.rows) || !cuts(divided.samples, inner.rows) ||
         !std::ranges::all_of(
             divided.heads, [&](const auto& heads) { return cuts(heads.second, inner.features); });
}

// Grids of so many ranks that the method allows and that divide everything, those nearest to the
// plan's first.
std::vector<std::array<int, 3>> possible_grids(const Divided& divided, GridPlan plan, int ranks) {
  const std::array<int, 3> asked = plan.mesh.tp;
  std::vector<std::array<int, 3>> grids;
  for (int pi = 1; pi <= ranks; ++pi)
    for (int pj = 1; ranks % pi == 0 && pj <= ranks / pi; ++pj) {
      if (ranks / pi % pj != 0) continue;
      plan.mesh.tp = {pi, pj, ranks / pi / pj};
      if (check(plan).empty() && !is_undivided(divided, plan) &&
          check_divided(divided, plan).empty())
        grids.push_back(plan.mesh.tp);
    }
  std::ranges::stable_sort(grids, {}, [&](const auto& grid) { return distance(grid, asked); });
  return grids;
}

// "4 ranks ([2, 2, 1])" of the nearest numbers below and above, up to twice as many.
std::vector<std::string> other_ranks(const Divided& divided, const GridPlan& plan) {
  const int asked = tp_size(plan.mesh), most = std::min(2 * asked, kMostTensorRanks);
  std::vector<std::string> others;
  for (const int step : {-1, 1})
    for (int ranks = asked + step; ranks > 1 && ranks <= most; ranks += step) {
      const std::vector<std::array<int, 3>> grids = possible_grids(divided, plan, ranks);
      if (grids.empty()) continue;
      others.push_back(fmt::format("{} ranks ({})", ranks, to_list(grids[0])));
      break;
    }
  return others;
}

// "\"1d\" ([1, 4, 1])" of methods that as many ranks can have.
std::vector<std::string> other_methods(const RunConfig& config, const Family& family,
                                       GridPlan plan) {
  const TensorMethod asked = plan.method;
  std::vector<std::string> others;
  for (const auto& named : kTensorMethodNames) {
    if (named.value == asked) continue;
    plan.method = named.value;
    const std::vector<std::array<int, 3>> grids =
        possible_grids(divided_of(config, family, plan), plan, tp_size(plan.mesh));
    if (!grids.empty())
      others.push_back(fmt::format("\"{}\" ({})", name_of(plan.method), to_list(grids[0])));
  }
  return others;
}

std::string instead_of(const RunConfig& config, const Family& family, const Divided& divided,
                       const GridPlan& plan) {
  const std::vector<std::string> ranks = other_ranks(divided, plan),
                                 methods = other_methods(config, family, plan);
  std::string text;
  if (!ranks.empty()) text += "; the nearest that can: " + join(ranks, ", ");
  if (!methods.empty())
    text +=
        fmt::format("; {} ranks with another method: {}", tp_size(plan.mesh), join(methods, ", "));
  return text;
}

Problem advice(const RunConfig& config, const Family& family, const GridPlan& plan) {
  const Divided divided = divided_of(config, family, plan);
  std::vector<std::array<int, 3>> grids = possible_grids(divided, plan, tp_size(plan.mesh));
  const std::string all =
      fmt::format("{} ranks with tensor.method = \"{}\"", tp_size(plan.mesh), name_of(plan.method));
  if (grids.empty())
    return {"mesh.tp", fmt::format("no grid of {} can cut this model and its microbatches{}", all,
                                   instead_of(config, family, divided, plan))};
  if (grids.size() > kMostAdvised) grids.resize(kMostAdvised);
  std::vector<std::string> lists;
  for (const std::array<int, 3>& grid : grids) lists.push_back(to_list(grid));
  return {"mesh.tp", fmt::format("grids of {} that can: {}", all, join(lists, ", "))};
}

}  // namespace

namespace {

// Layers that tp.*.layers names and the model has not: those of an encoder count before those of a
// decoder.
Problems check_grid_layers(const RunConfig& config, const Family& family) {
  const ModelSpec spec = model_spec(family, config.model.context);
  const auto layers = static_cast<std::int64_t>(layer_blocks(spec).size());
  Problems problems;
  for (const auto& [key, text] : {std::pair{"tp.activation.layers", config.tp_activation.layers},
                                  {"tp.gradient.layers", config.tp_gradient.layers},
                                  {"tp.weight.layers", config.tp_weight.layers}})
    append(problems, all_at(key, check_places(text, layers)));
  return problems;
}

// Of the method and of what its axes divide.
Problems check_cuts(const RunConfig& config, const Family& family) {
  const GridPlan plan = grid_plan_of(config, family);
  if (is_trivial(plan)) return {};
  Problems refused = check(plan);
  append(refused, check_chains(model_spec(family, context_of(family))));
  return refused.empty() ? check_divided(divided_of(config, family, plan), plan) : refused;
}

// Of the learned codes on a grid that can be.
Problems check_codes(const Family& family, const GridPlan& plan) {
  return check_grid_codes(model_spec(family, context_of(family)), plan);
}

}  // namespace

Problems check_grid_alone(const RunConfig& config, const Family& family) {
  Problems problems = check_grid_texts(config);
  append(problems, check_grid_layers(config, family));
  if (problems.empty()) append(problems, check_cuts(config, family));
  if (problems.empty()) append(problems, check_codes(family, grid_plan_of(config, family)));
  append(problems, check_projected(config, family));
  return problems;
}

Problems check_grid(const RunConfig& config, const Family& family) {
  Problems problems = check_grid_texts(config);
  append(problems, check_grid_layers(config, family));
  Checker ignored;
  if (!read_grid(ignored, config)) return problems;
  const GridPlan plan = grid_plan_of(config, family);
  if (is_trivial(plan)) return problems;
  if (is_recurrent(family)) {
    problems.push_back(
        {"mesh.tp", fmt::format("tp = {} with this model ({}): the cells of an LSTM need each "
                                "other at every token, so a grid would exchange them token by "
                                "token; use mesh.dp and mesh.pp",
                                to_list(plan.mesh.tp), to_text(family))});
    return problems;
  }
  const bool is_refused = !check(plan).empty();  // which check_grid_texts() has said
  Problems undivided = is_refused ? Problems() : check_cuts(config, family);
  if (is_refused || !undivided.empty()) undivided.push_back(advice(config, family, plan));
  append(problems, std::move(undivided));
  if (!is_refused) append(problems, check_codes(family, plan));
  return problems;
}

}  // namespace laconic
