// link/fidelity.hpp — how much of a message its receiver gets, measured where it is packed.
//
// The sender knows the true tensor and can decode what it sends. What it finds is
// summed, message by message, into a value that adds up over links and ranks.
//
// The true tensor is what was computed, not what is encoded: with error feedback a
// message also carries what earlier ones lost, and that counts as error here, though
// over many messages nothing is lost. There the residual tells more.
#pragma once

#include <cstdint>
#include <span>

namespace laconic {

// Sums over the measured messages; norms are squared.
struct Fidelity {
  std::uint64_t messages = 0;
  double truth = 0;     // ||x||^2: the tensor as computed
  double decoded = 0;   // ||y||^2: what the receiver makes of the message
  double product = 0;   // <x, y>
  double error = 0;     // ||y - x||^2
  double residual = 0;  // ||e||^2: what the sender still keeps afterwards; 0 without feedback

  Fidelity& operator+=(const Fidelity& other);
  double cosine() const;          // of y and x; 1 when nothing was measured
  double relative_error() const;  // ||y - x|| / ||x||
  double residual_ratio() const;  // ||e|| / ||x||
  bool operator==(const Fidelity&) const = default;
};

// Returns the squared norm.
double square_of(std::span<const float> values);

// Compares one message. Requires: equally many values.
Fidelity compare(std::span<const float> truth, std::span<const float> decoded);

}  // namespace laconic
