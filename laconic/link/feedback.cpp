#include "laconic/link/feedback.hpp"

#include <fmt/format.h>

#include <charconv>
#include <cstring>
#include <utility>

#include "laconic/base/error.hpp"
#include "laconic/base/text.hpp"
#include "laconic/codec/codec.hpp"
#include "laconic/file/safetensors.hpp"
#include "laconic/file/safetensors_writer.hpp"

namespace laconic {

// Error feedback. A sender has tensors x(1), x(2), ... to send; C encodes and decodes again, and
// loses something. Without a memory the receiver gets C(x(t)), and what is lost adds up. With one
// the sender keeps a residual e, zero at first, and
//
//   y(t)     = C(x(t) + e(t))           is what the receiver decodes
//   e(t + 1) = (x(t) + e(t)) - y(t)     is what this message lost of it
//
// So y(t) + e(t + 1) = x(t) + e(t) in every message, and summed over the first n of them all
// residuals but the last cancel:
//
//   y(1) + ... + y(n) + e(n + 1) = x(1) + ... + x(n)
//
// What was decoded and what is still kept make up what was given, but for the rounding of one
// addition and one subtraction a message. The sum errs by one residual, however large n is, and the
// residual stays bounded if C loses less than a fixed share of its input. A message that travels
// raw has y = x and leaves e as it is, so the identity holds whichever messages are encoded.
//
// Lazy propagation (Optimus-CC). The messages of a pipeline's gradient link are microbatches t, and
// their residual goes on to the next microbatch instead of the next step. A linear layer with
// inputs a(t) adds y(t) a(t)^T to its gradient where x(t) a(t)^T was meant. Since y(t) - x(t) =
// e(t) - e(t + 1), the error of the step is the sum of (e(t) - e(t + 1)) a(t)^T, and by parts
//
//   e(1) a(1)^T  +  sum over t > 1 of e(t) (a(t) - a(t - 1))^T  -  e(n + 1) a(n)^T
//
// which is small if inputs of microbatches are alike. The first term is there because e(1) comes
// from the step before (Reset::never); Reset::step drops it at the start of every step.
//
// Transactions. The values exist three times. committed_ is as the last committed step left it;
// open_ is what this step has accepted since, if is_open_; attempted_ is what a codec is writing
// now. attempt() gives e(t) of newest() as `before` and room for e(t + 1) in attempted_ as `after`;
// accept() swaps attempted_ with open_, commit() swaps open_ with committed_, and abandon() only
// forgets that open_ means anything. By swapping, the buffers of old messages serve the next ones.
// A message with a number that is not finite is not accepted: e(t + 1) would be no number, and
// every later message with it.
//
// `basis` goes the same way. It is no error but a hint: the subspace with which low_rank's next
// power step starts, which makes up for taking only one step a message.

namespace {

constexpr char kResidual[] = "0.residual";
constexpr char kBasis[] = "0.basis";
constexpr char kShape[] = "0.shape";

std::size_t count_of(const Feedback::Shape& shape) {
  return elements_of(TensorSpec{Dtype::f32, shape});
}

ByteView bytes_of_floats(const std::vector<float>& values) {
  return as_bytes(std::span<const float>(values));
}

std::vector<float> finite_floats(const SafetensorsFile& file, const SafetensorsEntry& entry) {
  if (entry.dtype != Dtype::f32) throw FileError(file.path(), entry.name, "is not f32");
  const ByteView bytes = file.bytes(entry);
  std::vector<float> values(bytes.size() / sizeof(float));
  if (!values.empty()) std::memcpy(values.data(), bytes.data(), bytes.size());
  if (!is_finite(values.data(), values.size()))
    throw FileError(file.path(), entry.name, "has numbers that are not finite");
  return values;
}

template <class T>
T whole_number(const std::string& text, const std::string& path, const std::string& field) {
  T value{};
  const auto [end, error] = std::from_chars(text.data(), text.data() + text.size(), value);
  if (error != std::errc{} || end != text.data() + text.size())
    throw FileError(path, printable(field),
                    fmt::format("'{}' is not a whole number", printable(text)));
  return value;
}

Feedback::Shape shape_of(const std::string& text, const std::string& path,
                         const std::string& field) {
  Feedback::Shape shape;
  if (!text.empty())
    for (const std::string& size : split(text, ','))
      shape.push_back(whole_number<std::int64_t>(size, path, field));
  return shape;
}

}  // namespace

Feedback::Attempt Feedback::attempt(const Shape& shape, bool with_residual) {
  const Values& last = newest();
  const bool fits = last.shape == shape;
  const bool has_residual = fits && !last.residual.empty();
  Values& next = attempted_;
  next.shape = shape;
  next.basis = fits ? last.basis : std::vector<float>();
  if (!with_residual) {
    next.residual.clear();
    return {nullptr, nullptr, &next.basis};
  }
  if (has_residual)
    next.residual.resize(count_of(shape));
  else
    next.residual.assign(count_of(shape), 0.0F);
  return {has_residual ? last.residual.data() : next.residual.data(), next.residual.data(),
          &next.basis};
}

void Feedback::accept() {
  std::swap(open_, attempted_);
  is_open_ = true;
}

void Feedback::commit() {
  if (std::exchange(is_open_, false)) std::swap(committed_, open_);
}

void Feedback::abandon() {
  is_open_ = false;
}

void Feedback::drop_residual() {
  committed_.residual.clear();
}

void Feedback::drop_basis() {
  committed_.basis.clear();
}

void Feedback::set_residual(const Shape& shape, std::span<const float> values) {
  LACONIC_ASSERT(values.empty() || values.size() == count_of(shape),
                 fmt::format("{} values for {} elements", values.size(), count_of(shape)));
  committed_.shape = shape;
  committed_.residual.clear();
  if (is_finite(values.data(), values.size()))
    committed_.residual.assign(values.begin(), values.end());
}

void Feedback::set_basis(std::span<const float> values) {
  committed_.basis.clear();
  if (is_finite(values.data(), values.size()))
    committed_.basis.assign(values.begin(), values.end());
}

void Feedback::restore(Shape shape, std::vector<float> residual, std::vector<float> basis) {
  committed_ = {std::move(shape), std::move(residual), std::move(basis)};
  is_open_ = false;
}

// At most two tensors, the residual with the shape of its messages and the warm start. Their names
// begin with a number, which was once one of several.
void Feedback::save(const std::string& path) const {
  const auto& [shape, residual, basis] = committed_;
  std::vector<SafetensorsSpec> specs;
  if (!residual.empty()) specs.push_back({kResidual, Dtype::f32, shape});
  if (!basis.empty())
    specs.push_back({kBasis, Dtype::f32, {static_cast<std::int64_t>(basis.size())}});
  SafetensorsMetadata shapes;  // a warm start alone does not tell the shape of its messages
  if (!specs.empty()) shapes[kShape] = fmt::format("{}", fmt::join(shape, ","));
  SafetensorsWriter writer(path, specs, shapes);
  for (const auto* values : {&residual, &basis})
    if (!values->empty()) writer.write(bytes_of_floats(*values));
  writer.commit();
}

void Feedback::load(const std::string& path) {
  const SafetensorsFile file(path);
  Values loaded;
  std::size_t used = 0;
  for (const auto& [name, text] : file.metadata()) {
    if (name != kShape)
      throw FileError(path, printable(name), "is not the shape of a link's messages");
    loaded.shape = shape_of(text, path, name);
    if (const auto* entry = file.find(kResidual)) {
      if (entry->shape != loaded.shape)
        throw FileError(path, entry->name, fmt::format("is not f32 [{}]", text));
      loaded.residual = finite_floats(file, *entry);
      ++used;
    }
    if (const auto* entry = file.find(kBasis)) {
      loaded.basis = finite_floats(file, *entry);
      ++used;
    }
  }
  if (used != file.entries().size())
    throw FileError(
        path, "",
        fmt::format("{} of {} tensors are of no memory: this is not the state of a link",
                    file.entries().size() - used, file.entries().size()));
  committed_ = std::move(loaded);
  is_open_ = false;
}

}  // namespace laconic
