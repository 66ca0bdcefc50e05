// link/device_feedback.hpp — link/feedback.hpp for messages that a GPU encodes: the same values, in
// its memory.
//
// Nobody waits for the device to hear whether a message was finite: what it wrote is the newest in
// any case, and settle() has the device put the old values back if it was not. Only where that
// cannot be, because the message has another shape, somebody does. The values come from
// a Feedback and go back to it, when a checkpoint or the host's codec wants them.
#pragma once

#include <cstdint>
#include <vector>

#include "laconic/codec/device_memory.hpp"
#include "laconic/link/feedback.hpp"

namespace laconic {

class DeviceFeedback {
 public:
  using Shape = Feedback::Shape;

  // Takes over the newest values. Requires: no step is open there.
  explicit DeviceFeedback(const Feedback& host);

  struct Attempt {
    const float* before = nullptr;  // null: zeros, of which `after` is made
    float* after = nullptr;         // null: no residual
    std::uint32_t* is_unsound = nullptr;
    float* basis = nullptr;  // null: none
    std::uint32_t* has_basis = nullptr;
  };
  // Prepares one message. basis_size: elements of a warm start, 0 for none.
  Attempt attempt(const Shape& shape, bool with_residual, std::uint64_t basis_size);
  // Makes what the attempt wrote the newest values, if they are finite.
  void settle();

  void commit();
  void abandon();
  void drop_residual();
  void drop_basis();
  bool has_open() const { return is_open_; }

  // Gives the values back. Waits for the device. Requires: no step is open.
  void give_back(Feedback& host) const;

 private:
  struct Values {
    Shape shape;
    DeviceBuffer residual, basis, has_basis;
    bool is_empty() const { return residual.is_empty() && basis.is_empty(); }
  };
  bool is_sound() const;
  Values& newest() { return is_open_ ? open_ : committed_; }

  Values committed_;
  Values open_;
  Values attempted_;
  DeviceBuffer is_unsound_;
  bool is_open_ = false;
};

}  // namespace laconic
