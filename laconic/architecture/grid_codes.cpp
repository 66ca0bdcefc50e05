#include "laconic/architecture/grid_codes.hpp"

#include <fmt/format.h>

#include <cmath>
#include <set>

#include "laconic/architecture/joined_maps.hpp"

namespace laconic {

namespace {

// One message with a code.
struct CodedMove {
  std::string name;                  // for people
  std::vector<std::size_t> weights;  // whose maps it has: one for an input, all for outputs
  bool is_input = false;
  std::int64_t features = 0;  // on all ranks together
  ActivationLayout layout;
  Move move;
};

bool is_coded(const GridPlan& plan, const Move& move) {
  return move.kind != MoveKind::none && move.kind != MoveKind::copy &&
         extent(plan.mesh, move.axes) > 1;
}

std::vector<CodedMove> coded_moves(const ModelSpec& spec, const GridPlan& plan) {
  std::vector<CodedMove> moves;
  if (plan.codes.size == 0) return moves;
  for (std::size_t b = 0; b < spec.blocks.size(); ++b) {
    if (!plan.codes.blocks[b]) continue;
    for (const JoinedMaps& maps : joined_maps(spec, spec.blocks[b])) {
      const LinearPlan way = linear_plan(plan, maps.role);
      const std::string& first = spec.parameters[maps.weights.front()].name;
      if (is_coded(plan, way.in))
        moves.push_back(
            {in_code_name(first), {maps.weights.front()}, true, maps.inputs, way.from, way.in});
      if (is_coded(plan, way.out))
        moves.push_back({out_code_name(first), maps.weights, false, maps.outputs, way.to, way.out});
    }
  }
  return moves;
}

int slices_of(const GridPlan& plan, const CodedMove& move) {
  return extent(plan.mesh, move.layout.features);
}

// Cut like a vector of these features. With 1d, where the stream is whole on every rank, each has a
// part of its gradient.
Role role_of(const GridPlan& plan, const ActivationLayout& layout) {
  if (plan.method == TensorMethod::one_d) return Role::common_vector;
  return layout == stream_of(plan) ? Role::stream_vector : Role::inner_vector;
}

std::int64_t outputs_of(const ParameterSpec& weight) {
  return weight.sizes[weight.is_out_in ? 0 : 1];
}

// Whoever gathers features decodes those of all others.
bool gathers_features(const CodedMove& move) {
  return move.move.kind == MoveKind::gather_features;
}

class CodeBuilder {
 public:
  CodeBuilder(ModelSpec& spec, const GridPlan& plan) : spec_(spec), plan_(plan) {}

  void add(const CodedMove& move) {
    const Role role = role_of(plan_, move.layout);
    const Role whole = gathers_features(move) ? Role::common_vector : role;
    std::int64_t before = 0;
    for (const std::size_t weight : move.weights) {
      const ParameterSpec p = spec_.parameters[weight];
      const std::int64_t features = move.is_input ? move.features : outputs_of(p);
      const std::string name = move.is_input ? in_code_name(p.name) : out_code_name(p.name);
      const auto add_map = [&](const char* leaf, Role its_role) {
        add_parameter(weight,
                      {.name = name + leaf,
                       .sizes = {plan_.codes.size, features},
                       .deviation = deviation(move),
                       .role = its_role,
                       .parts = move.is_input ? 1 : p.parts,
                       .code = CodeStart{.site = move.name,
                                         .is_drawn = plan_.codes.is_drawn,
                                         .features = move.layout.features,
                                         .slices = slices_of(plan_, move),
                                         .before = before / slices_of(plan_, move),
                                         .columns = move.features / slices_of(plan_, move)}});
      };
      add_map(".encoder", plan_.codes.is_tied ? whole : role);
      if (!plan_.codes.is_tied) add_map(".decoder", whole);
      before += features;
    }
  }

 private:
  // As published: what comes out of both has about the size of what went in.
  double deviation(const CodedMove& move) const {
    const auto columns = static_cast<double>(move.features) / slices_of(plan_, move);
    return std::sqrt(2 / (columns + static_cast<double>(plan_.codes.size)));
  }
  void add_parameter(std::size_t weight, ParameterSpec parameter) {
    for (BlockSpec& block : spec_.blocks)
      for (const std::size_t used : block.uses)
        if (used == weight) {
          block.uses.push_back(spec_.parameters.size());
          break;
        }
    spec_.parameters.push_back(std::move(parameter));
  }

  ModelSpec& spec_;
  const GridPlan& plan_;
};

// "h.0.attn.c_attn.weight" is "tp.h.0.attn.c_attn".
std::string base_of(const std::string& weight) {
  return "tp." + weight.substr(0, weight.rfind('.'));
}

}  // namespace

std::string in_code_name(const std::string& weight) {
  return base_of(weight) + ".in";
}

std::string out_code_name(const std::string& weight) {
  return base_of(weight) + ".out";
}

void add_grid_codes(ModelSpec& spec, const GridPlan& plan) {
  CodeBuilder builder(spec, plan);
  for (const CodedMove& move : coded_moves(spec, plan)) builder.add(move);
}

Problems check_grid_codes(const ModelSpec& spec, const GridPlan& plan) {
  Problems problems;
  std::set<std::pair<std::string, std::int64_t>> said;
  for (const CodedMove& move : coded_moves(spec, plan)) {
    const std::int64_t columns = move.features / slices_of(plan, move);
    const std::string name = common_name({.name = move.name});
    if (columns >= plan.codes.size || !said.insert({name, columns}).second) continue;
    problems.push_back({"tp.activation.codec",
                        fmt::format("a code of {} numbers for rows of {} columns ({}): nothing "
                                    "would be shorter; at most {}",
                                    plan.codes.size, columns, name, columns)});
  }
  return problems;
}

}  // namespace laconic
