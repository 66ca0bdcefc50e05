// What a rank of a tensor grid does in which order, recorded, against the rules that
// architecture/grid_time.hpp predicts times by: which collectives start and are waited for between
// which products.
#include <ATen/record_function.h>

#include <algorithm>
#include <string_view>

#include "grid_cases.hpp"
#include "laconic/architecture/grid_time.hpp"
#include "laconic/grid/overlap.hpp"

namespace laconic {
namespace {

std::string text_of(const char* what, std::string_view collective, const Axes& axes) {
  return fmt::format("{} {} along {}", what, collective, to_text(axes));
}

constexpr const char* kProduct = "product";

// Vectors, norms, look-ups and losses are left out: they are waited for where they are.
std::vector<std::string> predicted(const GridCase& c, const GridPlan& plan,
                                   const GridPasses& passes) {
  constexpr std::array kNames = {"gather", "scatter", "sum"};
  std::vector<std::string> order;
  for (const GridEvent& event :
       grid_events(model_spec(c.family, c.tokens()), plan, {.samples = kGridSamples}, passes)) {
    if (event.kind == GridEvent::Kind::product)
      order.emplace_back(kProduct);
    else if (event.traffic.map != kNoMap)
      order.push_back(text_of(event.kind == GridEvent::Kind::start ? "start" : "wait",
                              kNames.at(static_cast<std::size_t>(event.traffic.collective)),
                              event.traffic.axes));
  }
  return order;
}

// Of the rank's own thread.
thread_local std::vector<std::string>* record = nullptr;

// Those of attention are of single heads: 5 tokens, 12 columns. What maps make is longer on one
// side: 24 columns at least, or half of the 29 words.
std::unique_ptr<at::ObserverContext> see_begin(const at::RecordFunction&) {
  return nullptr;
}
void see_end(const at::RecordFunction& function, at::ObserverContext*) {
  if (record == nullptr || std::string_view(function.name()) != "aten::mm") return;
  const at::Tensor made = function.outputs().at(0).toTensor();
  if (std::max(made.size(0), made.size(1)) > 12) record->emplace_back(kProduct);
}

// Of rank 0, in a second pass: the first tells what to expect.
std::vector<std::string> recorded(const GridCase& c, const GridPlan& plan,
                                  const GridPasses& passes) {
  std::vector<std::string> order;
  on_grid(plan, [&](TensorGrid& grid, Rank rank) {
    grid.overlap().enable(passes.prefetches);
    Pass pass = pass_of(c, 0);
    pass.grid = &grid;
    Weights weights =
        make_weights(c.family, 7, kInDouble, {}, c.tokens(), {plan, coord_of(plan.mesh, rank)});
    const auto step = [&] {
      forward_backward(weights, c.batch, pass, 1.0, {.recompute = passes.recomputes});
      clear_gradients(weights);
    };
    step();
    if (rank != 0) return step();
    const auto note = [&](const char* what) {
      return [&order, what](const GridCallMade& call) {
        constexpr std::array kNames = {"gather", "scatter", "sum"};
        if (call.is_small || call.block == 0) return;  // block 0 looks tokens up
        order.push_back(text_of(what, kNames.at(static_cast<std::size_t>(call.call)), call.axes));
      };
    };
    grid.observe(note("start"));
    grid.observe_waits(note("wait"));
    record = &order;
    const auto handle = at::addThreadLocalCallback(at::RecordFunctionCallback(see_begin, see_end)
                                                       .needsOutputs(true)
                                                       .scopes({at::RecordScope::FUNCTION}));
    step();
    at::removeCallback(handle);
    record = nullptr;
  });
  return order;
}

// Where they part, with what came before.
void expect_same_order(const std::vector<std::string>& got,
                       const std::vector<std::string>& wanted) {
  const auto [g, w] = std::ranges::mismatch(got, wanted);
  if (g == got.end() && w == wanted.end()) return;
  const auto at = g - got.begin();
  const auto tail = [&](const std::vector<std::string>& order) {
    const auto begin = order.begin() + std::max<std::ptrdiff_t>(0, at - 6);
    const auto end = order.begin() + std::min<std::ptrdiff_t>(std::ssize(order), at + 4);
    return fmt::format("{}", fmt::join(begin, end, "; "));
  };
  ADD_FAILURE() << "after " << at << " of " << wanted.size() << "\n  done:      " << tail(got)
                << "\n  predicted: " << tail(wanted);
}

TEST(TensorOrder, ARankDoesWhatThePredictionFollows) {
  const GridCase gpt = cases()[0];  // a product for each of its maps
  const GridPlan cube{TensorMethod::three_d, {.tp = {2, 2, 2}}, TableCut::gathered},
      sequence{TensorMethod::one_d_sequence, {.tp = {1, 2, 1}}, TableCut::split},
      line{TensorMethod::three_d, {.tp = {4, 1, 1}}, TableCut::split};
  for (const GridPlan& plan :
       {GridPlan{TensorMethod::one_d, {.tp = {1, 2, 1}}, TableCut::split}, sequence, line, cube,
        GridPlan{TensorMethod::two_d, {.tp = {2, 2, 1}}, TableCut::gathered}, kept(sequence),
        kept(line), kept(cube)})
    for (const bool recomputes : {false, true})
      for (const bool prefetches : {false, true}) {
        SCOPED_TRACE(
            fmt::format("{} recomputes {} prefetches {}", to_text(plan), recomputes, prefetches));
        const GridPasses passes{.recomputes = recomputes, .prefetches = prefetches};
        const std::vector<std::string> wanted = predicted(gpt, plan, passes);
        ASSERT_GT(std::ranges::count(wanted, kProduct), 20);
        expect_same_order(recorded(gpt, plan, passes), wanted);
      }
}

}  // namespace
}  // namespace laconic
