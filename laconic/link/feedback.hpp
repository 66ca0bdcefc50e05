// link/feedback.hpp — what a sender remembers of its messages: a residual and a warm start.
//
// The residual is what the last message lost, the warm start is where low_rank's
// next power step begins. A message is an attempt(): it reads the newest values
// and writes new ones beside them, and only accept() makes these the newest, so
// that a message that is not finite leaves no trace. What a step accepted is in
// turn provisional until commit(). A tensor of another shape starts afresh: the
// last, smaller batch of an epoch does not inherit errors of other elements.
#pragma once

#include <cstdint>
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
  // Prepares one message. Valid until the next call that changes anything.
  Attempt attempt(const Shape& shape, bool with_residual);
  // Makes what the attempt wrote the newest values. Requires: one attempt() since the last
  // accept().
  void accept();

  void commit();
  void abandon();
  // Requires, for these: no step is open.
  void drop_residual();
  void drop_basis();
  bool has_open() const { return is_open_; }

  // The newest residual, empty when there is none. Valid until the next call that changes anything.
  std::span<const float> residual() const { return newest().residual; }
  // Sets the residual for the next message, of this shape. No values, or one that is not finite:
  // the next message starts afresh. Requires: no step is open, as many values as the shape has
  // elements or none.
  void set_residual(const Shape& shape, std::span<const float> values);
  // The same of the warm start, for messages of the shape that set_residual() was told.
  void set_basis(std::span<const float> values);

  // All values, as the device keeps them meanwhile (link/device_feedback.hpp). Requires, to
  // restore: no step is open.
  const Shape& shape() const { return newest().shape; }
  std::span<const float> basis() const { return newest().basis; }
  void restore(Shape shape, std::vector<float> residual, std::vector<float> basis);

  // Requires: no step is open. load() replaces everything; throws FileError.
  void save(const std::string& path) const;
  void load(const std::string& path);

 private:
  struct Values {
    Shape shape;
    std::vector<float> residual;
    std::vector<float> basis;
  };
  const Values& newest() const { return is_open_ ? open_ : committed_; }

  Values committed_;
  Values open_;  // the newest, when is_open_
  Values attempted_;
  bool is_open_ = false;
};

}  // namespace laconic
