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
//   tag part 1   samples to resend    receiver -> sender
//   tag part 2   the samples, anew    sender -> receiver, and so on in turns
//
// The tag's unit is the edge, its number counts messages: step * microbatches + microbatch.
//
// Not thread-safe: ends belong to the computing thread.
#pragma once

#include <ATen/core/Tensor.h>

#include <cstdint>
#include <functional>
#include <map>
#include <span>
#include <string>
#include <vector>

#include "laconic/engine/engine.hpp"
#include "laconic/link/link.hpp"
#include "laconic/tensor/tensor_link.hpp"

namespace laconic {

struct EdgeSpec {
  LinkSpec link;
  Traffic traffic = Traffic::pp_activation;
  std::uint32_t edge = 0;  // tag unit
  Rank peer = 0;
  int microbatches = 1;  // of a step
};

// What one message is, the same at both ends.
struct EdgeMessage {
  int microbatch = 0;
  Use use = Use::train;
  std::span<const std::uint64_t> samples;  // ids, one per slice of dim 0; used by Delta alone
  std::uint64_t slot = 0;                  // residual (ErrorFeedback)
};

class EdgeSender {
 public:
  EdgeSender(Engine& engine, EdgeSpec spec);  // throws ConfigError

  void begin(std::uint64_t step);
  // Packs now, and returns; the bytes leave by their deadline key. The time of packing is metered
  // as codec time. With a delta memory keeps `x` until the step ends or release().
  void send(const at::Tensor& x, const EdgeMessage& message, DeadlineKey key);
  // The receiver will not ask for this microbatch any more.
  void release(int microbatch);
  // Answers requests that have arrived. Never waits. Throws PeerLost, WireError.
  void serve();
  void commit();
  void abandon();

  Sender& link() { return sender_; }
  const EdgeSpec& spec() const { return spec_; }
  std::uint64_t resent() const { return resent_; }  // samples, so far

 private:
  struct Kept {
    at::Tensor tensor;
    std::vector<std::uint64_t> samples;
    DeadlineKey key = 0;
    std::uint32_t turn = 0;  // resends so far
  };
  Engine& engine_;
  EdgeSpec spec_;
  Sender sender_;
  std::uint64_t step_ = 0;
  std::map<int, Kept> kept_;  // by microbatch
  std::uint64_t resent_ = 0;
};

class EdgeReceiver {
 public:
  EdgeReceiver(Engine& engine, EdgeSpec spec);

  void begin(std::uint64_t step);
  // Says that it will be waited for, so that a hang can name it; does not wait.
  void post(int microbatch);
  // Waits for the message. `serve` is called whenever something arrives: it answers for the
  // senders of this rank. The time of waiting is metered as exposed, that of unpacking as codec
  // time. Asks for refused samples again, at most three times; then, and on any damage of another
  // memory, throws WireError. Throws PeerLost, Timeout.
  at::Tensor recv(const TensorSpec& expected, at::Device device, const EdgeMessage& message,
                  const std::function<void()>& serve);
  void commit();
  void abandon();

  Receiver& link() { return receiver_; }
  const EdgeSpec& spec() const { return spec_; }
  std::uint64_t refused() const { return refused_; }  // samples, so far: desynchronised or damaged

 private:
  Engine& engine_;
  EdgeSpec spec_;
  Receiver receiver_;
  std::uint64_t step_ = 0;
  std::uint64_t refused_ = 0;
};

// Waits for a message as Engine::recv() does, and calls `serve` after every arrival meanwhile.
Bytes wait_for(Engine& engine, Rank from, Tag tag, const std::function<void()>& serve);

}  // namespace laconic
