// link/feedback.hpp — residuals and warm starts of a sender, slot by slot.
//
// A slot remembers what its last message lost, and where low_rank's next power
// step starts. A message is an attempt(): it reads the newest values and writes
// new ones beside them, and only accept() makes these the newest, so that a
// message that is not finite leaves no trace. What a step accepted is in turn
// provisional until commit(). A tensor of another shape starts afresh: the
// last, smaller batch of an epoch does not inherit errors of other elements.
#pragma once

#include <cstdint>
#include <map>
#include <span>
#include <string>
#include <vector>

namespace laconic {

class Feedback {
 public:
  using Shape = std::vector<std::int64_t>;

  struct Attempt {
    const float* before = nullptr;        // the newest residual, or zeros; perhaps where `after` is
    float* after = nullptr;               // room for the next
    std::vector<float>* basis = nullptr;  // a copy of the newest warm start, to be replaced
  };
  // Valid until the next call on the slot.
  Attempt attempt(std::uint64_t slot, const Shape& shape, bool with_residual);
  // Requires: attempt() was called for the slot since the last accept().
  void accept(std::uint64_t slot);

  void commit();
  void abandon();
  // Requires, for these: no step is open.
  void drop_residuals();
  void drop_bases();
  void rescale(float factor);  // a residual that overflows is dropped
  bool has_open() const;

  double norm(std::uint64_t slot) const;  // of the newest residual; 0 when there is none
  // The newest residual, empty when there is none; valid until the next call that changes any.
  std::span<const float> residual(std::uint64_t slot) const;
  // For the next message, of this shape; without values the slot starts afresh. What is not finite
  // is no residual. Requires: no step is open, as many values as the shape has elements or none.
  void set_residual(std::uint64_t slot, const Shape& shape, std::span<const float> values);

  // Requires: no step is open. load() replaces everything; throws FileError.
  void save(const std::string& path) const;
  void load(const std::string& path);

 private:
  struct Values {
    Shape shape;
    std::vector<float> residual;
    std::vector<float> basis;
  };
  struct Slot {
    Values committed;
    Values open;  // newest, when is_open
    Values attempted;
    bool is_open = false;

    Values& newest() { return is_open ? open : committed; }
    const Values& newest() const { return is_open ? open : committed; }
  };
  std::map<std::uint64_t, Slot> slots_;
};

}  // namespace laconic
