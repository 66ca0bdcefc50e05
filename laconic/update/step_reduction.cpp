#include "laconic/update/step_reduction.hpp"

#include <fmt/format.h>

#include <algorithm>

#include "laconic/base/error.hpp"
#include "laconic/update/optimiser.hpp"

namespace laconic {

namespace {

void add_note(const StepShare& note, ReducedStep& all) {
  all.loss += note.loss;
  all.square += note.square;
  all.skipped += note.skipped;
  all.in_a_row = std::min(all.in_a_row, note.in_a_row);
  all.signal = std::max(all.signal, static_cast<int>(note.signal));
}

double norm_in_order(std::vector<NumberedSquare> squares) {
  std::ranges::stable_sort(squares, {}, &NumberedSquare::number);  // parts stay in rank order
  std::vector<double> ordered;
  for (std::size_t i = 0; i < squares.size(); ++i) {
    if (i > 0 && squares[i - 1].number == squares[i].number)
      ordered.back() += squares[i].square;
    else
      ordered.push_back(squares[i].square);
  }
  return norm_of(ordered);
}

}  // namespace

std::vector<NumberedSquare> squares_of(const Weights& weights) {
  const std::vector<double> squares = squared_norms(weights.parameters);
  std::vector<NumberedSquare> numbered;
  for (std::size_t p = 0; p < squares.size(); ++p)
    if (speaks_for(weights, weights.parameters[p]))
      numbered.push_back({weights.parameters[p].number, squares[p]});
  return numbered;
}

Bytes pack(const StepShare& note, const std::vector<NumberedSquare>& squares) {
  const ByteView head = as_bytes(std::span(&note, 1));
  const ByteView tail = as_bytes(std::span(squares));
  Bytes bytes(head.begin(), head.end());
  bytes.insert(bytes.end(), tail.begin(), tail.end());
  return bytes;
}

ReducedStep combine(const std::vector<Bytes>& notes) {
  ReducedStep all;
  std::vector<NumberedSquare> squares;
  for (const Bytes& bytes : notes) {
    add_note(get<StepShare>(bytes, 0), all);
    for (std::size_t at = sizeof(StepShare); at < bytes.size(); at += sizeof(NumberedSquare))
      squares.push_back(get<NumberedSquare>(bytes, at));
  }
  all.norm = norm_in_order(std::move(squares));
  return all;
}

void post_step(World& world, const StepShare& mine, const std::vector<NumberedSquare>& squares) {
  world.post_note(pack(mine, squares));
}

ReducedStep take_step(World& world) {
  return combine(world.take_notes());
}

ReducedStep reduce_step(World& world, const StepShare& mine,
                        const std::vector<NumberedSquare>& squares) {
  return combine(world.gather(pack(mine, squares)));
}

ReducedStep reduce_in_replica(World& world, const StepShare& mine,
                              const std::vector<NumberedSquare>& squares) {
  return combine(world.gather_replica(pack(mine, squares)));
}

}  // namespace laconic
