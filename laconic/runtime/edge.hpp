// runtime/edge.hpp — a boundary between two pipeline stages, over the network.
//
// One directed link (link/link.hpp) whose two ends sit on two ranks: activations
// go to the next stage, gradients come back. An end packs and unpacks in the
// computing thread; bytes travel in the background (engine/engine.hpp).
//
// With a delta memory the receiver may refuse samples: a bit flipped, or the two
// ends remember different things. It then asks for them again, the sender
// forgets them and sends them as first visits, and both go on as if nothing had
// been. A sender therefore keeps what it sent until the receiver can no longer
// ask, and must be given the chance to answer wherever its rank waits: every wait
// of a step goes through wait_for(), which serves all senders of the rank.
//
//   tag part 0   the message          sender -> receiver
//   tag part 1   samples to resend    receiver -> sender: u32 index ..., u32 CRC-32C of these
//   tag part 2   the samples, anew    sender -> receiver; parts 3 and 4, 5 and 6 are further turns
//
// The tag's unit is the edge (and the tensor of the seam, runtime/pipeline_edge.cpp), its number
// counts messages: step * microbatches + microbatch.
// Evaluation has units of its own, edge + kEvaluationUnit, and its number is the microbatch.
// Frames are numbered by microbatch and turn (FrameNumbering), not in the order of packing: a
// sender that is three microbatches ahead when it is asked confuses nobody.
//
// A request that cannot be read is answered by an empty message. The receiver then refuses all its
// samples and asks again. What is damaged so that the engine cannot put it together counts as empty
// too. A message that never comes is a Timeout.
//
// Not thread-safe: ends belong to the computing thread.
#pragma once

#include <ATen/core/Tensor.h>

#include <cstdint>
#include <functional>
#include <map>
#include <optional>
#include <span>
#include <string>
#include <vector>

#include "laconic/base/clock.hpp"
#include "laconic/engine/engine.hpp"
#include "laconic/link/link.hpp"
#include "laconic/runtime/courier.hpp"
#include "laconic/tensor/tensor_link.hpp"

namespace laconic {

inline constexpr std::uint32_t kEvaluationUnit = 0x8000;
inline constexpr std::uint32_t kEdgeTurns = 3;  // how often samples are asked for again

struct EdgeSpec {
  LinkSpec link;  // its numbering follows from `microbatches`
  Traffic traffic = Traffic::pp_activation;
  std::uint32_t edge = 0;  // tag unit, < kEvaluationUnit
  Rank peer = 0;
  int microbatches = 1;  // of a step
};

// Numbers for the frames of all microbatches and turns of a step, equally many for each: a message
// has at most `samples` of them. Requires: microbatches > 0.
FrameNumbering edge_numbering(int microbatches);

// A message is a MessageSpec (link/message.hpp) whose number is the microbatch; in
// evaluations any number from 0 to 2^24 - 1, and no begin() is needed. Its samples are ids in
// the order of the rows of the tensor; each has equally many rows, its tokens, and a delta link
// sees the tensor as [samples, tokens, ...]. Turn 0 is the message itself, the others answer
// requests.
Tag message_tag(const EdgeSpec& spec, std::uint64_t step, const MessageSpec& message);
Tag request_tag(const EdgeSpec& spec, std::uint64_t step, const MessageSpec& message);  // turn > 0

class EdgeSender {
 public:
  EdgeSender(Engine& engine, EdgeSpec spec);  // throws ConfigError
  EdgeSender(const EdgeSender&) = delete;     // the link points to fidelity_
  EdgeSender& operator=(const EdgeSender&) = delete;

  void begin(std::uint64_t step);
  // Packs now, and returns; the bytes leave by their deadline key. What a GPU packs leaves when it
  // has done so, and nobody waits for that. The time of packing is metered as codec time, but for
  // that of the GPU. Do not write to `x` from here on: a GPU may still read it, and with a delta
  // memory it is kept, where it is, until the step ends or release(). `x` is [rows, width], on any
  // device, and may be part of a graph.
  void send(const at::Tensor& x, const MessageSpec& message, DeadlineKey key);
  // Drops what was kept of a microbatch: something came back that the receiver made of it, so it
  // will not ask again.
  void release(int microbatch);
  // Uses another codec from the next step on, at both ends: see link/link.hpp.
  void set_codec(const CodecSpec& codec);
  // Answers requests that have arrived. Never waits. Throws PeerLost, Timeout, and what has failed
  // of messages that a GPU packs.
  void serve();
  // Waits until all that a GPU packs is with the engine, so that flush() means it, too.
  void drain() { courier_.drain(); }
  // Ends the step at this end. Requires, with a delta memory: the receiver has all messages,
  // as it has when the gradients of all microbatches have come back.
  void commit();
  void abandon();

  // Starts or ends measuring what is sent; starting also forgets what was measured before. The time
  // that takes is metered as codec time, too. Samples that are sent again count again.
  void measure_fidelity(bool is_on);
  const Fidelity& fidelity() const { return fidelity_; }

  Sender& link() { return sender_; }
  const EdgeSpec& spec() const { return spec_; }
  std::uint64_t resent() const { return resent_; }   // samples, so far
  std::size_t kept() const { return kept_.size(); }  // messages that can still be asked for

 private:
  struct Kept {
    at::Tensor tensor;  // [samples, tokens, ...], where it was packed
    std::vector<std::uint64_t> samples;
    DeadlineKey key = 0;
    std::uint32_t turn = 0;  // resends so far
  };
  struct Outgoing {
    Tag tag = 0;
    DeadlineKey key = 0;
    std::uint64_t raw_bytes = 0;
  };
  std::optional<Bytes> poll_request(const MessageSpec& message);
  void answer(int microbatch, Kept& kept, const Bytes& request);
  void send_packed(const at::Tensor& x, const MessageSpec& message, const Outgoing& outgoing);
  void queue(const Outgoing& outgoing, SharedBytes message);

  Engine& engine_;
  EdgeSpec spec_;
  Sender sender_;
  std::uint64_t step_ = 0;
  std::map<int, Kept> kept_;  // by microbatch
  std::uint64_t resent_ = 0;
  Fidelity fidelity_;
  Courier courier_;  // last: it uses the rest until it has ended
};

class EdgeReceiver {
 public:
  EdgeReceiver(Engine& engine, EdgeSpec spec);  // throws ConfigError

  void begin(std::uint64_t step);
  // Says that it will be waited for, so that a hang can name it; does not wait. Throws as recv().
  void post(int microbatch);
  // Waits for the message and returns it as a tensor of `expected`, which is [rows, width] as at
  // the sender. `serve` is called whenever something arrives: it answers for the senders of this
  // rank. The time of unpacking is metered as codec time, that of waiting as exposed. Active is the
  // time in which at least one message of this edge was posted or waited for, and had not come as
  // far as this end has looked: in post() and while it waits, not during computation. Asks for
  // refused samples again, at most kEdgeTurns times; then, and on any damage of another memory,
  // throws WireError. Throws PeerLost, Timeout.
  at::Tensor recv(const TensorSpec& expected, at::Device device, const MessageSpec& message,
                  const std::function<void()>& serve);
  void commit();  // Requires: what was posted was received
  void abandon();
  void set_codec(const CodecSpec& codec);  // as the sender's

  Receiver& link() { return receiver_; }
  const EdgeSpec& spec() const { return spec_; }
  std::uint64_t refused() const { return refused_; }  // samples, so far: desynchronised or damaged

 private:
  void expect(Tag tag);
  void take_arrived();
  void arrived(Tag tag, Bytes message);
  Bytes wait(Tag tag, const std::function<void()>& serve);
  at::Tensor unpack_tensor(const SharedBytes& bytes, const TensorSpec& expected, at::Device device,
                           const MessageSpec& message);
  at::Tensor recv_samples(const SharedBytes& bytes, const TensorSpec& expected, at::Device device,
                          const MessageSpec& message, const std::function<void()>& serve);
  UnpackedTensor unpack_samples(const SharedBytes& bytes, TensorSpec expected, at::Device device,
                                const MessageSpec& message);
  void ask(const MessageSpec& message, const std::vector<std::size_t>& indices);
  [[noreturn]] void give_up(const MessageSpec& message, const std::vector<std::size_t>& missing,
                            const std::string& why) const;

  Engine& engine_;
  EdgeSpec spec_;
  Receiver receiver_;
  std::uint64_t step_ = 0;
  std::map<Tag, std::optional<Bytes>> posted_;  // with the message, when it has come
  std::size_t under_way_ = 0;                   // of these, have not
  Stopwatch active_;                            // since the first of them
  std::uint64_t refused_ = 0;
};

// Waits for a message as Engine::recv() does, and calls `serve` after every arrival meanwhile; not
// when the message is there. Throws Timeout when nothing moved for the engine's deadline: no
// segment came or left, whosever it was.
Bytes wait_for(Engine& engine, Rank from, Tag tag, const std::function<void()>& serve);

}  // namespace laconic
