// link/link.hpp — the two ends of one directed edge, as state machines without a network.
//
//     Sender:   tensor -> memory -> codec -> frame(s)        one message
//     Receiver: frame(s) -> codec -> memory -> tensor
//
// What both remember advances in lock-step, because both compute it from the
// same bytes. A step is a transaction: everything remembered between begin()
// and commit() is provisional, and abandon() takes it back (an overflow, a lost
// peer, a loss that is not finite). Use::bypass and Use::evaluation neither read
// nor change a memory, Use::encoded_evaluation reads where low_rank begins and the
// directions of transform; recomputation does not call pack() at all.
//
// A message that is not finite changes no residual, and a reference that would
// not be is forgotten at both ends, so that its sample starts anew; until the
// commit that is provisional too. forget() and refusals are not: they say that the
// ends disagree, which no step takes back.
//
// Tensors are in host memory, or in that of a GPU, which then encodes and decodes (the same bytes)
// and keeps residuals and references; tensor/tensor_link.hpp takes tensors anywhere. Thread-safety:
// an end belongs to one thread at a time; two ends share nothing.
#pragma once

#include <cstdint>
#include <functional>
#include <memory>
#include <set>
#include <span>
#include <string>
#include <variant>
#include <vector>

#include "laconic/base/bytes.hpp"
#include "laconic/codec/codec.hpp"
#include "laconic/link/basis_memory.hpp"
#include "laconic/link/device_feedback.hpp"
#include "laconic/link/device_message.hpp"
#include "laconic/link/feedback.hpp"
#include "laconic/link/fidelity.hpp"
#include "laconic/link/link_spec.hpp"
#include "laconic/link/message.hpp"
#include "laconic/link/verdict.hpp"
#include "laconic/store/delta_store.hpp"
#include "laconic/wire/frame.hpp"

namespace laconic {

class Sender {
 public:
  // Throws ConfigError with every reason of check().
  explicit Sender(LinkSpec spec);

  const LinkSpec& spec() const { return spec_; }

  void begin(std::uint64_t step);  // abandons an open step
  // Requires: no message of the step has the same number, turn and use.
  Bytes pack(ConstHostTensor x, const MessageSpec& message = {});
  // The same by the GPU that has x: queues the work on the codec stream and returns.
  // Requires: packs_on_device(), and the answer was the same for all messages of the step, but for
  // those of a Delta link.
  DeviceMessage pack_on_device(ConstDeviceTensor x, const MessageSpec& message = {});
  // The same, and what receivers will decode is put in the place of x. Requires: no Delta.
  DeviceMessage pack_in_place_on_device(DeviceTensor x, const MessageSpec& message = {});
  // False for learned maps, low_rank without a warm start or in evaluations, and while fidelity is
  // measured: copy x to the host then.
  bool packs_on_device(const TensorSpec& tensor, const MessageSpec& message = {}) const;
  void commit();
  void abandon();

  // Forgets samples that the receiver refused (Unpacked::refused): their next message is a first
  // visit.
  void forget(std::span<const std::uint64_t> keys);
  // Hints that these samples come next.
  void prefetch(std::span<const std::uint64_t> keys);
  // Adds to `into`, from here on, how much the receiver gets of every message of Use::train that
  // loses something; null: measures nothing, at no cost. Messages that are not finite say nothing
  // about a codec and are not counted.
  void measure_fidelity(Fidelity* into) { fidelity_ = into; }
  // Uses another codec from the next step on, which the other end must be told too: frames of the
  // wrong one are refused. Residuals and references stay, since they do not depend on the codec;
  // warm starts of low_rank begin anew when the kind changes. Throws ConfigError, and nothing has
  // changed. Requires: no open step.
  void set_codec(const CodecSpec& codec);

  // Save what a checkpoint must hold: `path` and, with Delta, `path` + ".references".
  // Requires, for save(): no open step. load() forgets an open step; it throws FileError when the
  // files are not of such a link, and everything is then as before.
  void save(const std::string& path);
  void load(const std::string& path);

  // The residual itself, element by element; see link/feedback.hpp. Requires, to set: no open step.
  // Waits for the GPU if it has it, and takes it from there.
  std::span<const float> residual() const {
    bring_home();
    return feedback_.residual();
  }
  void set_residual(const std::vector<std::int64_t>& shape, std::span<const float> values);
  // The same of low_rank's warm start. To set: behind set_residual(), which says the shape.
  std::span<const float> basis() const {
    bring_home();
    return feedback_.basis();
  }
  void set_basis(std::span<const float> values);
  DeltaStore* references() { return store_.get(); }  // null unless Delta and a sample was packed

 private:
  void require_closed() const;
  void bring_home() const;
  std::size_t encode_forgetting(ConstHostTensor x, CodecInput input, const CodecSpec& codec,
                                std::span<std::byte> room) const;
  std::size_t encode_remembering(ConstHostTensor x, CodecInput input, const MessageSpec& message,
                                 std::span<std::byte> room);
  Bytes pack_samples(ConstHostTensor x, const MessageSpec& message);
  std::size_t max_bytes(const TensorSpec& sample, const MessageSpec& message) const;
  void pack_first(ConstHostTensor x, const MessageSpec& message, std::size_t index,
                  const TensorSpec& whole, Bytes& out);
  void pack_difference(ConstHostTensor x, const MessageSpec& message, std::size_t index,
                       const TensorSpec& whole, const DeltaStore::Record& record, Bytes& out);
  DeviceMessage pack_whole_on_device(ConstDeviceTensor x, const MessageSpec& message,
                                     void* decoded);
  DeviceMessage pack_samples_on_device(ConstDeviceTensor x, const MessageSpec& message);
  DeviceMessage::Part pack_first_on_device(ConstDeviceTensor x, const MessageSpec& message,
                                           std::size_t index,
                                           const std::shared_ptr<Download>& download);
  DeviceMessage::Part pack_difference_on_device(ConstDeviceTensor x, const MessageSpec& message,
                                                const SampleVisit& visit,
                                                const std::shared_ptr<Download>& download);
  void measure_payload(const CodecSpec& codec, ConstHostTensor x, ByteView payload,
                       const CodecInput& input, double residual) const;
  void measure_update(ConstHostTensor x, const float* after) const;
  void measure(ConstHostTensor x, const float* decoded, double residual) const;

  LinkSpec spec_;
  std::uint64_t step_ = 0;
  // The values are in one of them: the GPU's, if it exists. Where is no matter to anybody else.
  mutable Feedback feedback_;
  mutable std::unique_ptr<DeviceFeedback> device_feedback_;
  std::unique_ptr<DeltaStore> store_;
  Verdicts verdicts_;                // of this step's samples
  Fidelity* fidelity_ = nullptr;     // adds up how much receivers get
  BasisMemory basis_, first_basis_;  // of the codec, and of that of first visits
};

struct Refusal {
  std::uint64_t key = 0;
  std::string why;
  std::size_t index = 0;  // in dim 0 of the message: a key may be there twice
};

struct Unpacked {
  // Samples that could not be decoded, with Delta only: their part of the tensor is NaN, and the
  // sender must forget them and send them again, in a further turn (MessageSpec::turn). Elsewhere
  // damage throws. Once refused, a sample is refused in all further messages of the step but those
  // of later turns, however sound: nobody here knows if they were packed before the sender forgot.
  std::vector<Refusal> refused;
};

class Receiver {
 public:
  explicit Receiver(LinkSpec spec);

  const LinkSpec& spec() const { return spec_; }

  void begin(std::uint64_t step);
  // Fills `out`. Throws WireError when the message is not one that the other end makes for such a
  // tensor; with Delta and Use::train the samples concerned are refused instead, unless there are
  // more frames than samples: then abandon the step.
  Unpacked unpack(ByteView bytes, HostTensor out, const MessageSpec& message = {});
  // The same by the GPU whose memory `out` is: checks here, queues the rest on the codec stream and
  // returns; the GPU may still read the bytes. Requires: unpacks_on_device().
  Unpacked unpack_on_device(const SharedBytes& bytes, DeviceTensor out,
                            const MessageSpec& message = {});
  bool unpacks_on_device(const TensorSpec& tensor, const MessageSpec& message = {}) const;
  void commit();
  void abandon();

  void prefetch(std::span<const std::uint64_t> keys);
  void set_codec(const CodecSpec& codec);  // as the sender's
  void save(const std::string& path);      // as the sender's, but `path` + ".references" only
  void load(const std::string& path);

  DeltaStore* references() { return store_.get(); }

 private:
  // How the samples of a message are unpacked: `unpack` throws WireError to refuse one, which
  // `spoil` then fills with NaN.
  struct SampleSteps {
    std::function<void(const Frame&, std::size_t index)> unpack;
    std::function<void(std::size_t index)> spoil;
  };
  Unpacked unpack_frames(ByteView bytes, const MessageSpec& message, const SampleSteps& steps);
  void require_visit(const Frame& frame, const MessageSpec& message, std::size_t index,
                     const TensorSpec& sample);
  Unpacked unpack_samples(ByteView bytes, HostTensor out, const MessageSpec& message);
  void unpack_first(const Frame& frame, const MessageSpec& message, std::size_t index,
                    HostTensor out, const TensorSpec& whole);
  void unpack_difference(const Frame& frame, const MessageSpec& message, std::size_t index,
                         HostTensor out, const TensorSpec& whole);
  void forget(std::uint64_t key);

  // A frame and the message that it is part of.
  struct SharedFrame {
    const Frame& frame;
    const SharedBytes& message;
  };
  void decode_on_device(const SharedFrame& shared, const DeviceSink& sink);
  Unpacked unpack_samples_on_device(const SharedBytes& bytes, DeviceTensor out,
                                    const MessageSpec& message);
  void unpack_first_on_device(const SharedFrame& shared, std::uint64_t key, DeviceTensor out,
                              const std::shared_ptr<Download>& flags);
  void unpack_difference_on_device(const SharedFrame& shared, DeviceTensor out,
                                   const std::shared_ptr<Download>& flags);

  LinkSpec spec_;
  std::uint64_t step_ = 0;
  std::set<std::uint64_t> refused_;  // keys, in this step
  std::unique_ptr<DeltaStore> store_;
  Verdicts verdicts_;  // of this step's samples
  Uploads uploads_;
  BasisMemory basis_, first_basis_;  // as the sender's
};

}  // namespace laconic
