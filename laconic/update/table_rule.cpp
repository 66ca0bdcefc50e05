// Embedding tables that the replicas share, or whose gradients travel by rows: rows come before
// forward and gradients of rows leave in backward (update/table_exchange.hpp), beside the rule for
// all other parameters.
#include <algorithm>
#include <cmath>
#include <deque>
#include <limits>
#include <map>
#include <optional>
#include <utility>

#include "laconic/base/bytes.hpp"
#include "laconic/base/error.hpp"
#include "laconic/config/row_choice.hpp"
#include "laconic/update/rule.hpp"
#include "laconic/update/table_exchange.hpp"

namespace laconic {

namespace {

RowAlgorithm algorithm_of(const RunConfig& config) {
  switch (config.embedding_rows.optimiser) {
    case RowsOptimiser::same:
    case RowsOptimiser::sgd: return RowAlgorithm::sgd;
    case RowsOptimiser::adagrad: return RowAlgorithm::adagrad;
    case RowsOptimiser::lazy_adam: return RowAlgorithm::adam;
  }
  return RowAlgorithm::sgd;
}

ReplicaCut cut_of(RowsMethod method) {
  if (method == RowsMethod::alltoall) return ReplicaCut::columns;
  return method == RowsMethod::server ? ReplicaCut::rows : ReplicaCut::whole;
}

// Whether what becomes of a row depends on no other row of its message.
bool is_by_row(const CodecSpec& codec) {
  const auto* quantise = std::get_if<Quantise>(&codec);
  return quantise == nullptr ||
         (quantise->group == ScaleGroup::row && quantise->rounding == Rounding::nearest);
}

// A run must repeat itself: what was measured may say which rows travel together only where that
// changes no bit of them.
SplitPrice price_of(const EmbeddingRowsSection& rows) {
  const bool may_measure = is_by_row(parse_codec(rows.gradient));
  return {.is_free = rows.split == RowsSplit::on,
          .bytes_per_second = may_measure ? rows.rates.bytes_per_second : 0,
          .seconds_per_message = rows.rates.latency,
          .seconds_per_row = rows.rates.seconds_per_row};
}

class TableRule final : public UpdateRule {
 public:
  TableRule(const RuleRequest& request, std::unique_ptr<UpdateRule> dense)
      : config_(request.config),
        weights_(request.weights),
        world_(request.world),
        dense_(std::move(dense)) {
    const std::vector<std::size_t> tables = row_tables(config_, weights_.spec);
    for (std::size_t i = 0; i < tables.size(); ++i)
      if (weights_.holds(first_user(weights_.spec, tables[i])))
        tables_.push_back(std::make_unique<TableExchange>(
            world_, weights_, tables[i],
            TableOptions{
                .cut = cut_of(method_of_table(config_, weights_.spec.parameters[tables[i]].name)),
                .splits = splits_rows(config_),
                .price = price_of(config_.embedding_rows),
                .decays = row_decay(config_) > 0,
                .number = static_cast<std::uint32_t>(i),
                .rows = parse_codec(config_.embedding_rows.codec),
                .gradient = parse_codec(config_.embedding_rows.gradient),
                .seed = static_cast<std::uint64_t>(config_.run.seed),
                .is_apart = request.tables_are_apart}));
    left_.resize(tables_.size());
    lookup_.tables = {tables.begin(), tables.end()};
    lookup_.rows = [this](std::size_t parameter, std::int64_t block, const at::Tensor& ids) {
      return table(parameter).look_up(block, ids);
    };
  }

  std::int64_t samples() const override { return dense_->samples(); }
  bool agrees_after(std::int64_t steps) const override { return dense_->agrees_after(steps); }

  void foresee(std::int64_t step, const ReadIds& read) override {
    std::erase_if(known_, [&](const auto& known) { return known.first < step; });
    for (const std::int64_t s : {step, step + 1})
      if (!known_.contains(s))
        for (const auto& one : tables_) known_[s].push_back(rows_of(*one, s, read));
  }
  const RowLookup* row_lookup() const override { return &lookup_; }
  void peek(const ReadIds& read, const std::vector<bool>& takes_part) override {
    for (const auto& one : tables_)
      if (!is_drawn(*one)) one->peek(*rows_of(*one, 0, read));
    for (const auto& one : tables_)
      if (is_drawn(*one)) one->peek_tiles(takes_part);
  }
  void settle(bool is_checkpoint) override {
    for (std::size_t i = 0; i < tables_.size(); ++i) finish(i);
    dense_->settle(is_checkpoint);
    for (const auto& one : tables_) one->settle(is_checkpoint);
  }

  void begin(std::int64_t step) override {
    dense_->begin(step);
    step_ = step;
    is_backward_ = false;
    finish_arrived();
    for (std::size_t i = 0; i < tables_.size(); ++i) {
      tables_[i]->end_peek();
      if (left_[i]) continue;
      if (tables_[i]->requested() != step) tables_[i]->request(step, known_.at(step)[i]);
    }
  }
  void begin_shadow(std::int64_t) override {
    LACONIC_ASSERT(false, "rows of tables have no shadow");
  }

  // Before the block's other gradients: the next step looks rows up first of all. What it reads and
  // this step does not change leaves with the first gradients.
  void block_done(std::int64_t block) override {
    if (!std::exchange(is_backward_, true)) send_early();
    for (std::size_t i = 0; i < tables_.size(); ++i)
      if (first_user(weights_.spec, tables_[i]->parameter()) == block) {
        tables_[i]->give(known_.at(step_ + 1)[i]->all);
        if (tables_[i]->is_given()) given_.push_back(i);
      }
    dense_->block_done(block);
    send_given(/*waits=*/false);
    finish_arrived();
  }

  // A gradient of rows that is no number anywhere keeps all ranks from the update, as if the loss
  // were none.
  Measured measure(const StepLoss& loss, int signal) override {
    send_given(/*waits=*/true);
    Measured measured = dense_->measure(checked(loss), signal);
    for (const auto& one : tables_) one->wait();
    if (config_.embedding_rows.clip == RowsClip::all && !splits_rows(config_)) add_norms(measured);
    return measured;
  }

  void apply(OptimiserState& state, double lr, double scale) override {
    dense_->apply(state, lr, scale);
    const bool is_clipped = config_.embedding_rows.clip == RowsClip::all;
    const RowRule rule = row_rule(state, lr, is_clipped ? scale : 1);
    for (const auto& one : tables_) apply_to(*one, rule, state);
    for (std::size_t i = 0; i < tables_.size(); ++i) request_next(i, step_ + 1);
  }

  void abandon() override {
    dense_->abandon();
    for (const auto& one : tables_) one->drop();
    given_.clear();
    for (std::size_t i = 0; i < tables_.size(); ++i) request_next(i, step_ + 1);
  }

  // Each table goes on by itself: its gradients come, it changes, and its rows leave for the next
  // step, whenever this thread passes here and finds them. Nobody waits but the block that looks
  // rows up.
  bool leaves_steps() const override { return dense_->leaves_steps(); }
  void leave(const StepLoss& loss, int signal, OptimiserState& state, double lr) override {
    send_given(/*waits=*/true);
    dense_->leave(checked(loss), signal, state, lr);
    for (auto& left : left_) left = Left{row_rule(state, lr, 1), step_, &state};
    finish_arrived();
  }
  bool owes_update(std::int64_t block) const override {
    for (std::size_t i = 0; i < tables_.size(); ++i)
      if (left_[i] && (looks_up(block, i) || tables_[i]->has_arrived())) return true;
    return dense_->owes_update(block);
  }
  void wait_for(std::int64_t block) override {
    finish_arrived();
    for (std::size_t i = 0; i < tables_.size(); ++i)
      if (looks_up(block, i)) finish(i);
    dense_->wait_for(block);
  }
  Measured hear() override { return dense_->hear(); }

  void add_links(LinkRegistry& registry) override { dense_->add_links(registry); }
  RankTensors save(const OptimiserState& state) const override { return dense_->save(state); }
  void load(const std::vector<RankTensors>& saved, OptimiserState& state) override {
    dense_->load(saved, state);
  }

 private:
  TableExchange& table(std::size_t parameter) {
    for (const auto& one : tables_)
      if (one->parameter() == parameter) return *one;
    LACONIC_ASSERT(false, "parameter " + std::to_string(parameter) + " is no table here");
    return *tables_.front();
  }

  const ParameterSpec& spec_of(const TableExchange& one) const {
    return weights_.spec.parameters[one.parameter()];
  }
  bool is_drawn(const TableExchange& one) const {
    return std::ranges::count(spec_of(one).looked_up_by, kDrawnField) > 0;
  }

  void send_early() {
    if (!config_.embedding_rows.early || step_ + 1 >= config_.train.steps) return;
    for (std::size_t i = 0; i < tables_.size(); ++i)
      tables_[i]->send_early(*known_.at(step_ + 1)[i]);
  }

  std::shared_ptr<const StepRows> rows_of(const TableExchange& one, std::int64_t step,
                                          const ReadIds& read) const {
    RowIds shared;  // what all members draw alike is drawn once
    const auto rows_by = [&](const std::string& field, int member) -> RowIds {
      if (field != kDrawnField) return read(step, field, member);
      if (step >= config_.train.steps) return {};
      if (shared.empty() || config_.task.negatives == NegativesOf::rank)
        shared = unique_rows(drawn_rows(config_, spec_of(one), step, member));
      return shared;
    };
    std::vector<RowIds> by_member;
    for (int m = 0; m < static_cast<int>(world_.dp_group().size()); ++m) {
      std::vector<RowIds> by_field;
      for (const std::string& field : spec_of(one).looked_up_by)
        by_field.push_back(rows_by(field, m));
      by_member.push_back(by_field.size() == 1 ? std::move(by_field[0]) : union_of(by_field));
    }
    return std::make_shared<const StepRows>(step_rows(std::move(by_member)));
  }

  // The rows of the next step are final, once what was put off longest is done: they leave at once.
  void request_next(std::size_t i, std::int64_t next) {
    tables_[i]->apply_delayed();
    if (next < config_.train.steps) tables_[i]->request(next, known_.at(next)[i]);
  }

  RowRule row_rule(const OptimiserState& state, double lr, double scale) const {
    const OptimiserSection& o = config_.optimiser;
    return {.algorithm = algorithm_of(config_),
            .updates = state.updates,
            .lr = lr,
            .beta1 = o.beta1,
            .beta2 = o.beta2,
            .epsilon = o.epsilon,
            .weight_decay = row_decay(config_),
            .gradient_scale = scale};
  }
  void apply_to(TableExchange& one, const RowRule& rule, OptimiserState& state) const {
    const std::size_t place = weights_.places[one.parameter()];
    one.apply(rule, state.moment1[place], state.moment2[place]);
  }

  // A gradient of rows that is no number counts as a loss that is none.
  StepLoss checked(const StepLoss& loss) const {
    const bool is_finite =
        std::ranges::all_of(tables_, [](const auto& one) { return one->is_finite(); });
    return is_finite ? loss : StepLoss(std::numeric_limits<double>::quiet_NaN());
  }

  // What a GPU has given leaves when it is here, first come first: backward goes on meanwhile.
  void send_given(bool waits) {
    while (!given_.empty() && (waits || tables_[given_.front()]->can_send())) {
      tables_[given_.front()]->send();
      given_.pop_front();
    }
  }

  bool looks_up(std::int64_t block, std::size_t i) const {
    const std::size_t place = weights_.places[tables_[i]->parameter()];
    return std::ranges::find(weights_.users[place], block) != weights_.users[place].end();
  }
  void finish_arrived() {
    for (std::size_t i = 0; i < tables_.size(); ++i)
      if (left_[i] && tables_[i]->has_arrived()) finish(i);
  }
  void finish(std::size_t i) {
    if (!left_[i]) return;
    const Left left = *std::exchange(left_[i], std::nullopt);
    tables_[i]->wait();
    apply_to(*tables_[i], left.rule, *left.state);
    request_next(i, left.step + 1);
  }

  // Each rank has the norm of what it holds, and the first replica that of tables which are whole;
  // squares are added in rank order.
  void add_norms(Measured& measured) {
    double square = 0;
    for (const auto& one : tables_)
      if (one->cut() != ReplicaCut::whole || world_.dp_member() == 0) square += one->square();
    double sum = measured.norm * measured.norm;
    for (const double of_rank : world_.gather_values(square)) sum += of_rank;
    measured.norm = std::sqrt(sum);
    measured.is_skipped = measured.is_skipped || !std::isfinite(sum);
  }

  const RunConfig& config_;
  Weights& weights_;
  World& world_;
  const std::unique_ptr<UpdateRule> dense_;
  // What becomes of a table whose gradients of a step are on their way: the rule is that step's.
  struct Left {
    RowRule rule;
    std::int64_t step = 0;
    OptimiserState* state = nullptr;
  };
  std::vector<std::unique_ptr<TableExchange>> tables_;
  std::vector<std::optional<Left>> left_;  // by table
  std::deque<std::size_t> given_;          // tables whose gradients a GPU has, first come first
  RowLookup lookup_;
  std::int64_t step_ = 0;
  bool is_backward_ = false;  // of the step has begun
  // By step, and then by table.
  std::map<std::int64_t, std::vector<std::shared_ptr<const StepRows>>> known_;
};

}  // namespace

std::unique_ptr<UpdateRule> make_table_rule(const RuleRequest& request,
                                            std::unique_ptr<UpdateRule> dense) {
  return std::make_unique<TableRule>(request, std::move(dense));
}

}  // namespace laconic
