#include "laconic/update/update_rule.hpp"

#include "laconic/config/row_choice.hpp"
#include "laconic/update/rule.hpp"

namespace laconic {

namespace {

std::unique_ptr<UpdateRule> make_local_rule(const RuleRequest& request) {
  switch (request.config.local.method) {
    case LocalMethod::diloco:
    case LocalMethod::streaming_diloco: break;
    case LocalMethod::linear: return make_linear_rule(request);
    case LocalMethod::sparse_loco: return make_sparse_rule(request);
  }
  return make_diloco_rule(request);
}

std::unique_ptr<UpdateRule> make_dense_rule(const RuleRequest& request) {
  const RunConfig& config = request.config;
  if (request.world.is_alone()) return make_alone_rule(request);
  if (config.local.steps > 0) return make_local_rule(request);
  if (config.dp_gradient.method == GradientMethod::compressed_adam)
    return make_compressed_adam_rule(request);
  if (config.train.update == UpdateBy::block) return make_block_rule(request);
  return make_summed_rule(request);
}

}  // namespace

std::unique_ptr<UpdateRule> make_update_rule(const RuleRequest& request) {
  std::unique_ptr<UpdateRule> dense = make_dense_rule(request);
  if (row_tables(request.config, request.weights.spec).empty()) return dense;
  return make_table_rule(request, std::move(dense));
}

}  // namespace laconic
