// update/row_update.hpp — row-lazy optimisers: a row changes only in a step that has read it.
//
//   sgd       p -= lr g
//   adagrad   s += g^2, p -= lr g / (sqrt(s) + e)
//   adam      adamw of optimiser.hpp, bit for bit, on the rows of the step alone
//
// The last two differ from the algorithms that move every row in every step: a row that is not read
// keeps its moments. What a row becomes depends on itself, its gradient and the numbers of the
// step that the gradient is from; these come with it (RowRule), so that it may be applied later,
// and on any part of the columns.
//
// Decoupled decay does shrink all rows in every step. RowDecay remembers which steps each row has
// seen, and a row is shrunk for all others at once before somebody reads it.
#pragma once

#include <cstdint>
#include <span>
#include <vector>

#include "laconic/rows/row_plan.hpp"

namespace laconic {

enum class RowAlgorithm : std::uint8_t { sgd, adagrad, adam };

// How the gradients of one step change rows.
struct RowRule {
  RowAlgorithm algorithm = RowAlgorithm::sgd;
  std::int64_t updates = 1;  // of the run, this one included: adam's t
  double lr = 0;
  double beta1 = 0.9;
  double beta2 = 0.95;
  double epsilon = 1e-8;
  double weight_decay = 0;  // decoupled
  double gradient_scale = 1;
};

// The columns that a rank has of a table and of its moments, row after row.
template <class T>
struct RowColumns {
  T* value = nullptr;
  T* moment1 = nullptr;  // adagrad: s
  T* moment2 = nullptr;  // adam alone
  std::int64_t width = 0;
};

// `gradients` has a row for each of `rows`.
template <class T>
void update_rows(const RowRule& rule, std::span<const std::int64_t> rows, const T* gradients,
                 const RowColumns<T>& columns);

// Shrinks step by step, as the kernels would have: so it does not matter when, nor in how many
// parts, and a row costs no more than if it had been shrunk in every step.
class RowDecay {
 public:
  // With nothing to decay it keeps nothing.
  RowDecay(std::int64_t rows, bool is_used);

  bool is_used() const { return !had_.empty(); }
  // A step has been taken, in which every row shrinks by 1 - lr decay.
  void add_step(const RowRule& rule);
  std::int64_t steps() const { return static_cast<std::int64_t>(factors_.size()); }
  // What rows have missed that had shrunk in the first so many steps.
  std::vector<double> factors_since(std::int64_t steps) const {
    return {factors_.begin() + steps, factors_.end()};
  }
  // The rows have shrunk in their own update, which was step number `step`, counted from 0.
  void note(std::span<const std::int64_t> rows, std::int64_t step);
  // Shrinks a copy of a row's columns by what the row misses.
  template <class T>
  void shrink(std::int64_t row, T* columns, std::int64_t width) const;
  // Shrinks these rows by what they miss. Not for rows whose update is put off.
  template <class T>
  void catch_up(std::span<const std::int64_t> rows, const RowColumns<T>& columns);
  // All rows. Steps count from 0 again.
  template <class T>
  void catch_up_all(const RowColumns<T>& columns);

 private:
  std::vector<std::int64_t> had_;  // by row: so many of the steps
  std::vector<double> factors_;    // of steps
};

}  // namespace laconic
