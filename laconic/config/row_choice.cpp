#include "laconic/config/row_choice.hpp"

#include <fmt/format.h>

#include <algorithm>

#include "laconic/base/error.hpp"
#include "laconic/base/word_law.hpp"
#include "laconic/codec/spec.hpp"
#include "laconic/config/model_family.hpp"

namespace laconic {

namespace {

// Whether the codec has scales of rows; of a text that is none others tell.
bool needs_rows(const std::string& text) {
  try {
    const CodecSpec codec = parse_codec(text);
    const auto* quantise = std::get_if<Quantise>(&codec);
    return quantise != nullptr && quantise->group != ScaleGroup::block;
  } catch (const ConfigError&) {
    return false;
  }
}

// Whether boundaries are projected on what the first samples show, before any step.
bool looks_at_first_samples(const RunConfig& config, const Family& family) {
  const Projection projection = projection_of(family);
  return !projection.is_empty() &&
         (projection.basis == BasisKind::pca ||
          (is_code(projection.basis) && boundary_start(config) == CodeBegin::pca));
}

}  // namespace

RowsMethod method_of_table(const RunConfig& config, const std::string& table) {
  const EmbeddingRowsSection& rows = config.embedding_rows;
  if (rows.method != RowsMethod::automatic) return rows.method;
  if (!rows.decided) return RowsMethod::allreduce;
  const auto found = rows.decided->find(table);
  return found == rows.decided->end() ? RowsMethod::allreduce : found->second;
}

bool may_move_rows(const RunConfig& config) {
  const EmbeddingRowsSection& rows = config.embedding_rows;
  if (rows.method != RowsMethod::automatic) return rows.method != RowsMethod::allreduce;
  return rows.decided && std::ranges::any_of(*rows.decided, [](const auto& table) {
           return table.second != RowsMethod::allreduce;
         });
}

std::vector<std::size_t> row_tables(const RunConfig& config, const ModelSpec& spec) {
  std::vector<std::size_t> tables;
  for (std::size_t p = 0; p < spec.parameters.size(); ++p)
    if (!spec.parameters[p].looked_up_by.empty() &&
        method_of_table(config, spec.parameters[p].name) != RowsMethod::allreduce)
      tables.push_back(p);
  return tables;
}

ReplicaCuts table_cuts(const RunConfig& config, const ModelSpec& spec) {
  ReplicaCuts cuts{.ranks = static_cast<int>(config.mesh.dp)};
  for (const std::size_t p : row_tables(config, spec)) {
    const std::string& name = spec.parameters[p].name;
    const RowsMethod method = method_of_table(config, name);
    if (method == RowsMethod::alltoall) cuts.by_name[name] = ReplicaCut::columns;
    if (method == RowsMethod::server) cuts.by_name[name] = ReplicaCut::rows;
    if (method == RowsMethod::allgather) cuts.by_name[name] = ReplicaCut::whole;
  }
  return cuts;
}

std::optional<Key> negatives_key_of(const RunConfig& config, std::int64_t step,
                                    std::int64_t dp_member) {
  if (config.task.sampled == 0) return std::nullopt;
  const auto seed = static_cast<std::uint64_t>(config.run.seed);
  return config.task.negatives == NegativesOf::shared ? negatives_key(seed, step)
                                                      : negatives_key(seed, step, dp_member);
}

std::vector<std::int64_t> drawn_rows(const RunConfig& config, const ParameterSpec& table,
                                     std::int64_t step, std::int64_t dp_member) {
  const std::optional<Key> key = negatives_key_of(config, step, dp_member);
  if (!key) return {};
  return draw_negatives(table.sizes[0], config.task.sampled, *key).ids;
}

bool splits_rows(const RunConfig& config) {
  if (config.embedding_rows.split != RowsSplit::automatic)
    return config.embedding_rows.split == RowsSplit::on;
  return config.train.clip == 0 || config.embedding_rows.clip == RowsClip::dense;
}

double row_decay(const RunConfig& config) {
  const OptimiserKind kind = config.optimiser.kind;
  const bool is_decoupled =
      kind == OptimiserKind::adamw || kind == OptimiserKind::lion || kind == OptimiserKind::muon;
  return is_decoupled ? config.optimiser.weight_decay : 0;
}

Problems check_rows(const RunConfig& config, const Family& family) {
  if (!may_move_rows(config)) return {};
  const std::string method(name_in(kRowsMethodNames, config.embedding_rows.method));
  const ModelSpec spec = model_spec(family, context_of(family));
  const std::vector<std::size_t> tables = row_tables(config, spec);
  Problems problems;
  if (tables.empty())
    problems.push_back(
        {"embedding.rows.method",
         fmt::format("method = \"{}\" needs a table whose rows are looked up and that has no "
                     "other use, and {} has none: what it looks up it multiplies with in the end, "
                     "too, which changes every row in every step. Use \"allreduce\", or a model "
                     "with a table of its own for the output",
                     method, to_text(family))});
  if (!tables.empty() && config.run.device.is_cuda() && looks_at_first_samples(config, family))
    problems.push_back(
        {"embedding.rows.method",
         fmt::format("method = \"{}\" with run.device = \"cuda\" and boundaries that begin with "
                     "the principal directions of the first samples, which are looked up in whole "
                     "tables: none is on a GPU. Use \"allreduce\", or another basis or start",
                     method)});
  for (const std::size_t p : tables) {
    const std::int64_t width = spec.parameters[p].sizes[1];
    const bool is_cut = method_of_table(config, spec.parameters[p].name) == RowsMethod::alltoall;
    const bool is_even = !is_cut || width % config.mesh.dp == 0;
    for (const auto& [leaf, text] : {std::pair{"codec", config.embedding_rows.codec},
                                     {"gradient", config.embedding_rows.gradient}})
      if (!is_even && needs_rows(text))
        problems.push_back(
            {fmt::format("embedding.rows.{}", leaf),
             fmt::format("{} = \"{}\" sees rows, and mesh.dp = {} does not divide the {} columns "
                         "of {}, so that messages have rows of two lengths: use group=block",
                         leaf, text, config.mesh.dp, width, spec.parameters[p].name)});
    const std::size_t users = users_of(spec, p).size();
    if (users > 1 && config.mesh.pp > 1)
      problems.push_back(
          {"embedding.rows.method",
           fmt::format("method = \"{}\" with mesh.pp = {}: {} blocks look up {}, and where they "
                       "lie on different ranks their gradients would have to be added before rows "
                       "leave. Use \"allreduce\", mesh.pp = 1, or model.sharing = \"none\"",
                       method, config.mesh.pp, users, spec.parameters[p].name)});
    if (is_cut && width < config.mesh.dp)
      problems.push_back(
          {"embedding.rows.method",
           fmt::format(
               "method = \"alltoall\" cuts the {} columns of {} over mesh.dp "
               "= {} ranks, some of which would have none: use \"server\", \"allgather\" or "
               "\"allreduce\"",
               width, spec.parameters[p].name, config.mesh.dp)});
  }
  return problems;
}

}  // namespace laconic
