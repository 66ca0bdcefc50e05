// Both ends of a link against messages nobody vouches for, several in a row so that memories grow.
// The first byte chooses the link. Then come moves, a byte each and its operands:
//
//   genuine message · evaluation or bypass · message with changes · bytes · the sender forgets ·
//   commit · abandon · begin
//
// Check sums are mended, since they would be a wall for a fuzzer.
//
// Promises: nothing but WireError comes out of unpack(), and it writes nowhere but in its tensor; a
// refused sample is NaN and forgotten; references are finite; and a genuine message after genuine
// ones gives both ends the same references, bit by bit.
#include <algorithm>
#include <array>
#include <cmath>
#include <cstdint>
#include <cstring>
#include <memory>
#include <optional>
#include <vector>

#include "laconic/base/crc32c.hpp"
#include "laconic/base/error.hpp"
#include "laconic/link/link.hpp"
#include "laconic/store/reference_record.hpp"

using namespace laconic;

namespace {

struct Case {
  const char* codec;
  MemorySpec memory;
  TensorSpec tensor;
};

// The number of a case is in the seeds: append only.
const Case kCases[] = {
    {"quantise:bits=4,block=8", Delta{.first = Raw{}, .hash_every = 2}, {Dtype::f32, {2, 12}}},
    {"quantise:bits=2,group=row",
     Delta{.reference = Reference::bf16, .budget_bytes = 2 * 4096, .hash_every = 1},
     {Dtype::f32, {3, 2, 5}}},
    {"top_k:count=3+half",
     Delta{.reference = Reference::q8, .hash_every = 3},
     {Dtype::f16, {2, 20}}},
    {"low_rank:rank=2", Delta{.first = Quantise{}, .hash_every = 1}, {Dtype::bf16, {1, 4, 4}}},
    {"raw", Delta{.reference = Reference::bf16}, {Dtype::f64, {2, 3}}},
    {"quantise:bits=3,rotate=true,block=8", Delta{.first = Sign{.block = 8}}, {Dtype::f32, {2, 0}}},
    {"quantise:bits=4,block=8", ErrorFeedback{}, {Dtype::f32, {30}}},
    {"low_rank:rank=2,factors=f16", ErrorFeedback{}, {Dtype::f32, {4, 5}}},
    {"top_k:count=5", ErrorFeedback{Reset::step}, {Dtype::f16, {40}}},
    {"random_k:count=5", ErrorFeedback{}, {Dtype::f64, {17}}},
    {"raw", ErrorFeedback{}, {Dtype::bf16, {9}}},
    {"low_rank:rank=1", NoMemory{}, {Dtype::f32, {3, 7}}},
};

constexpr std::uint64_t kKeys = 4;
constexpr std::size_t kGuard = 16;  // bytes on both sides of a tensor
constexpr std::byte kUntouched{0xA5};

void require(bool condition) {
  if (!condition) __builtin_trap();
}

class Input {
 public:
  Input(const std::uint8_t* data, std::size_t size)
      : rest_(reinterpret_cast<const std::byte*>(data), size) {}
  bool is_empty() const { return rest_.empty(); }
  std::uint8_t byte() {
    if (rest_.empty()) return 0;
    const auto value = std::to_integer<std::uint8_t>(rest_[0]);
    rest_ = rest_.subspan(1);
    return value;
  }
  ByteView take(std::size_t most) {
    const ByteView taken = rest_.first(std::min(most, rest_.size()));
    rest_ = rest_.subspan(taken.size());
    return taken;
  }

 private:
  ByteView rest_;
};

// Puts a check sum behind every frame whose lengths are sound.
void mend(Bytes& message) {
  for (std::size_t at = 0; message.size() - at >= kFrameFixedBytes + kFrameCrcBytes;) {
    const ByteView frame = ByteView(message).subspan(at);
    const std::uint64_t before = kFrameFixedBytes + get<std::uint8_t>(frame, 9) +
                                 8 * get<std::uint8_t>(frame, 7) +
                                 (get<std::uint16_t>(frame, 10) & 1 ? 8 : 0);
    const auto payload = get<std::uint64_t>(frame, 32);
    const std::uint64_t room = frame.size() - kFrameCrcBytes;
    if (before > room || payload > room - before) return;
    const std::uint32_t crc = crc32c(frame.first(before + payload));
    std::memcpy(message.data() + at + before + payload, &crc, sizeof crc);
    at += before + payload + kFrameCrcBytes;
  }
}

class Trial {
 public:
  explicit Trial(const Case& c)
      : tensor_(c.tensor),
        spec_{"fuzz", parse_codec(c.codec), c.memory, 1, {.turns = 2, .samples = 4}},
        sender_(spec_),
        receiver_(spec_) {
    if (const auto* delta = std::get_if<Delta>(&spec_.memory)) {
      reference_ = delta->reference;
      has_budget_ = delta->budget_bytes != 0;
    }
    begin(0);
  }

  void move(Input& input) {
    switch (input.byte() % 8) {
      case 0: return send_genuine(input, Use::train);
      case 1: return send_genuine(input, static_cast<Use>(input.byte() % 3));
      case 2: return send_changed(input);
      case 3: return send_bytes(input);
      case 4: is_pristine_ = false; return sender_.forget(keys_of(input));
      case 5: return commit();
      case 6: return abandon();
      case 7: return begin(input.byte());
    }
  }

  void check_references() {
    check_finite(sender_.references());
    check_finite(receiver_.references());
  }

 private:
  void begin(std::uint64_t step) {
    sender_.begin(step);
    receiver_.begin(step);
    is_disturbed_ = false;
  }
  void disturb() {
    is_disturbed_ = true;
    is_pristine_ = false;
  }
  void commit() {
    sender_.commit();
    receiver_.commit();
  }
  void abandon() {
    sender_.abandon();
    receiver_.abandon();
  }

  std::vector<std::uint64_t> keys_of(Input& input) {
    if (!reference_) return {};
    std::vector<std::uint64_t> keys(static_cast<std::size_t>(tensor_.shape[0]));
    const std::uint8_t bits = input.byte();
    for (std::size_t i = 0; i < keys.size(); ++i) keys[i] = (bits >> 2 * i) % kKeys;
    return keys;
  }

  // Any bits for some elements, small numbers of the input for the others.
  Bytes tensor_of(Input& input) {
    const std::size_t width = bytes_of(tensor_.dtype);
    Bytes x(elements_of(tensor_) * width, std::byte{0});
    const ByteView bits = input.take(input.byte() % 16);
    for (std::size_t i = 0; i < x.size() && !bits.empty(); ++i) x[i] = bits[i % bits.size()];
    // Without this nearly every tensor would be poisoned: clear the exponent's top bit.
    if (input.byte() % 4 != 0)
      for (std::size_t i = width - 1; i < x.size(); i += width) x[i] &= std::byte{0xBF};
    return x;
  }

  Bytes pack(const Bytes& x, const MessageSpec& message) {
    return sender_.pack({tensor_, x.data()}, message);
  }

  // What was refused; nothing when unpack() threw.
  std::optional<Unpacked> unpack(ByteView message, const MessageSpec& spec) {
    const std::size_t size = elements_of(tensor_) * bytes_of(tensor_.dtype);
    out_.assign(size + 2 * kGuard, kUntouched);
    std::optional<Unpacked> result;
    try {
      result = receiver_.unpack(message, {tensor_, out_.data() + kGuard}, spec);
    } catch (const WireError& error) {
      require(error.offset() <= message.size());
    }
    for (std::size_t i = 0; i < kGuard; ++i)
      require(out_[i] == kUntouched && out_[kGuard + size + i] == kUntouched);
    if (result) check_refused(*result, spec);
    return result;
  }

  void check_refused(const Unpacked& unpacked, const MessageSpec& spec) {
    require(unpacked.refused.size() <= spec.samples.size());
    std::size_t next = 0;
    const std::size_t samples = std::max<std::size_t>(spec.samples.size(), 1);
    const std::size_t count = elements_of(tensor_) / samples;
    for (std::size_t i = 0; i < spec.samples.size() && next < unpacked.refused.size(); ++i) {
      if (!is_nan(i * count, count) || unpacked.refused[next].key != spec.samples[i]) continue;
      ++next;
    }
    require(next == unpacked.refused.size());
  }

  bool is_nan(std::size_t start, std::size_t count) const {
    const std::size_t width = bytes_of(tensor_.dtype);
    for (std::size_t i = start; i < start + count; ++i) {
      const std::byte* at = out_.data() + kGuard + i * width;
      double value = 0;
      std::uint16_t bits = 0;
      switch (tensor_.dtype) {
        case Dtype::f32: value = get<float>(ByteView(at, width), 0); break;
        case Dtype::f64: value = get<double>(ByteView(at, width), 0); break;
        default:
          bits = get<std::uint16_t>(ByteView(at, width), 0);
          value = (bits & 0x7FFF) > (tensor_.dtype == Dtype::f16 ? 0x7C00 : 0x7F80) ? NAN : 0;
      }
      if (!std::isnan(value)) return false;
    }
    return true;
  }

  void send_genuine(Input& input, Use use) {
    // In a further turn, since some of its samples may have been refused before in this step.
    MessageSpec spec{.number = input.byte() % 2, .use = use, .turn = use == Use::train};
    const std::vector<std::uint64_t> keys = keys_of(input);
    if (use == Use::train) spec.samples = keys;
    const bool agree = do_references_agree(keys) && (is_pristine_ || !has_budget_);
    const auto unpacked = unpack(pack(tensor_of(input), spec), spec);
    if (!is_disturbed_) require(unpacked.has_value());
    if (!is_disturbed_ && agree) require(unpacked->refused.empty());
    if (agree && unpacked && unpacked->refused.empty()) require(do_references_agree(keys));
  }

  void send_changed(Input& input) {
    MessageSpec spec{.number = input.byte() % 2};
    const std::vector<std::uint64_t> keys = keys_of(input);
    spec.samples = keys;
    Bytes message = pack(tensor_of(input), spec);
    for (int changes = input.byte() % 8; changes > 0 && !message.empty(); --changes) {
      const std::size_t low = input.byte(), high = input.byte();
      const std::size_t at = (low + 256 * high) % message.size();
      message[at] ^= static_cast<std::byte>(input.byte());
    }
    if (input.byte() % 8 == 0) message.resize(message.size() - message.size() / 3);
    mend(message);
    disturb();
    unpack(message, spec);
  }

  void send_bytes(Input& input) {
    const std::vector<std::uint64_t> keys = keys_of(input);
    const ByteView raw = input.take(input.byte());
    Bytes message(raw.begin(), raw.end());
    mend(message);
    disturb();
    unpack(message, {.samples = keys});
  }

  bool do_references_agree(const std::vector<std::uint64_t>& keys) {
    DeltaStore *a = sender_.references(), *b = receiver_.references();
    if (a == nullptr || b == nullptr) return a == b;
    for (const std::uint64_t key : keys) {
      const auto sent = a->find(key), received = b->find(key);
      if (sent.has_value() != received.has_value()) return false;
      if (sent &&
          (sent->visits != received->visits || !std::ranges::equal(sent->bytes, received->bytes)))
        return false;
    }
    return true;
  }

  // A sum of finite numbers in f32 may still overflow: see ReferenceUpdate::finish().
  void check_finite(DeltaStore* store) {
    if (store == nullptr || reference_ == Reference::f32) return;
    for (std::uint64_t key = 0; key < kKeys; ++key)
      if (const auto found = store->find(key))
        require(is_finite(*reference_, found->bytes,
                          elements_of(tensor_) / static_cast<std::size_t>(tensor_.shape[0])));
  }

  TensorSpec tensor_;
  LinkSpec spec_;
  Sender sender_;
  Receiver receiver_;
  std::optional<Reference> reference_;
  Bytes out_;
  bool has_budget_ = false;
  bool is_disturbed_ = false;  // frames were not genuine, in this step
  bool is_pristine_ = true;    // all ever were, and the sender forgot nothing by itself
};

}  // namespace

extern "C" int LLVMFuzzerTestOneInput(const std::uint8_t* data, std::size_t size) {
  Input input(data, size);
  Trial trial(kCases[input.byte() % std::size(kCases)]);
  for (int moves = 0; moves < 64 && !input.is_empty(); ++moves) {
    trial.move(input);
    trial.check_references();
  }
  return 0;
}
