#include "laconic/runtime/edge.hpp"

#include <ATen/ops/tensor.h>
#include <fmt/format.h>

#include <chrono>
#include <memory>
#include <numeric>
#include <utility>

#include "laconic/base/error.hpp"
#include "laconic/base/text.hpp"
#include "laconic/engine/progress_deadline.hpp"
#include "laconic/runtime/edge_message.hpp"
#include "laconic/tensor/host.hpp"
#include "laconic/tensor/tensor_link.hpp"

namespace laconic {

namespace {

constexpr DeadlineKey kAtOnce = 0;  // for requests: a stage stands still until they are answered

at::Tensor index_tensor(const std::vector<std::size_t>& indices, at::Device device) {
  return at::tensor(std::vector<std::int64_t>(indices.begin(), indices.end())).to(device);
}

// Returns where refused samples are in the whole message; `indices` says it for those of the part.
std::vector<std::size_t> indices_of(const std::vector<Refusal>& refused,
                                    const std::vector<std::size_t>& indices) {
  std::vector<std::size_t> result;
  for (const Refusal& refusal : refused) result.push_back(indices[refusal.index]);
  return result;
}

// Returns what `act` receives, or an empty message when that cannot be put together and
// `is_repairable`.
template <class Act>
auto received(bool is_repairable, const Act& act) -> decltype(act()) {
  try {
    return act();
  } catch (const WireError&) {
    if (!is_repairable) throw;
    return Bytes{};
  }
}

struct Awaited {
  Rank from = 0;
  Tag tag = 0;
};

// Waits until `is_there`, which is asked after every arrival.
template <class IsThere>
void wait_until(Engine& engine, Awaited awaited, const std::function<void()>& serve,
                const IsThere& is_there) {
  ProgressDeadline deadline(engine.options().deadline, engine.moved());
  for (;;) {
    // The count is taken first: what arrives from here on ends the sleep.
    const std::uint64_t seen = engine.wait_for_arrival(0, {});
    if (is_there()) return;
    serve();
    if (deadline.has_passed(engine.moved()))
      throw Timeout(
          awaited.from,
          fmt::format("rank {} waited in vain for {} from rank {}: nothing moved for {}",
                      engine.rank(), to_text(awaited.tag), awaited.from,
                      human_seconds(static_cast<double>(deadline.limit().count()) / 1e3)));
    engine.wait_for_arrival(seen, deadline.until());
  }
}

template <class Act>
auto timed_encoding(Engine& engine, Traffic traffic, const Act& act) {
  const Stopwatch watch;
  auto result = act();
  engine.meter().spent(traffic, {.codec = watch.seconds()});
  return result;
}

template <class Act>
auto timed_decoding(Engine& engine, Traffic traffic, const Act& act) {
  const Stopwatch watch;
  auto result = act();
  const double seconds = watch.seconds();
  engine.meter().spent(traffic, {.codec = seconds, .decode = seconds});
  return result;
}

}  // namespace

EdgeSender::EdgeSender(Engine& engine, EdgeSpec spec)
    : engine_(engine),
      spec_(checked(std::move(spec), engine.size())),
      sender_(spec_.link),
      courier_([&engine] { engine.wake(); }) {}

void EdgeSender::begin(std::uint64_t step) {
  kept_.clear();
  step_ = step;
  sender_.begin(step);
}

void EdgeSender::send(const at::Tensor& x, const MessageSpec& message, DeadlineKey key) {
  require_sound(spec_, message);
  const bool is_kept = goes_by_sample(spec_.link, message);
  at::Tensor tensor = x.detach().contiguous();
  if (is_kept)
    tensor = tensor.view(by_sample(spec_, spec_of(tensor), message.samples.size()).shape);
  send_packed(tensor, message,
              {message_tag(spec_, step_, message), key, static_cast<std::uint64_t>(x.nbytes())});
  if (is_kept)
    kept_[message.number] = {
        tensor, {message.samples.begin(), message.samples.end()}, key, /*turn=*/0};
}

void EdgeSender::send_packed(const at::Tensor& x, const MessageSpec& message,
                             const Outgoing& outgoing) {
  const Stopwatch watch;
  if (std::optional<PackedTensor> started = pack_on_device(sender_, x, message)) {
    const auto packed = std::make_shared<PackedTensor>(std::move(*started));
    courier_.hand_over([this, outgoing, packed] {
      packed->message.wait(engine_.options().deadline);
      queue(outgoing,
            timed_encoding(engine_, spec_.traffic, [&] { return packed->message.finish(); }));
    });
    engine_.meter().spent(spec_.traffic, {.codec = watch.seconds()});
    return;
  }
  queue(outgoing,
        timed_encoding(engine_, spec_.traffic, [&] { return pack(sender_, x, message); }));
}

void EdgeSender::queue(const Outgoing& outgoing, SharedBytes message) {
  engine_.send({.to = spec_.peer,
                .tag = outgoing.tag,
                .key = outgoing.key,
                .raw_bytes = outgoing.raw_bytes,
                .message = std::move(message)});
}

void EdgeSender::set_codec(const CodecSpec& codec) {
  sender_.set_codec(codec);
  spec_.link.codec = codec;
}

void EdgeSender::release(int microbatch) {
  kept_.erase(microbatch);
}

void EdgeSender::serve() {
  courier_.check();
  for (auto& [microbatch, kept] : kept_)
    while (kept.turn < kEdgeTurns) {
      const auto request = poll_request({.number = microbatch, .turn = kept.turn + 1});
      if (!request) break;
      answer(microbatch, kept, *request);
    }
}

std::optional<Bytes> EdgeSender::poll_request(const MessageSpec& message) {
  const Tag tag = request_tag(spec_, step_, message);
  return received(true, [&] { return engine_.poll(spec_.peer, tag); });
}

// Without encoding nothing would have been refused, so no raw bytes are counted.
void EdgeSender::answer(int microbatch, Kept& kept, const Bytes& request) {
  MessageSpec message{.number = microbatch, .turn = ++kept.turn};
  const Outgoing outgoing{message_tag(spec_, step_, message), kept.key};
  const auto indices = read_request(request, kept.samples.size());
  if (!indices) return queue(outgoing, std::make_shared<const Bytes>());
  const std::vector<std::uint64_t> keys = samples_at(kept.samples, *indices);
  sender_.forget(keys);
  message.samples = keys;
  send_packed(kept.tensor.index_select(0, index_tensor(*indices, kept.tensor.device())), message,
              outgoing);
  resent_ += keys.size();
}

void EdgeSender::measure_fidelity(bool is_on) {
  if (is_on) fidelity_ = {};
  sender_.measure_fidelity(is_on ? &fidelity_ : nullptr);
}

void EdgeSender::commit() {
  courier_.drain();
  kept_.clear();
  sender_.commit();
}

void EdgeSender::abandon() {
  courier_.drain_quietly();
  kept_.clear();
  sender_.abandon();
}

EdgeReceiver::EdgeReceiver(Engine& engine, EdgeSpec spec)
    : engine_(engine), spec_(checked(std::move(spec), engine.size())), receiver_(spec_.link) {}

void EdgeReceiver::begin(std::uint64_t step) {
  abandon();
  step_ = step;
  receiver_.begin(step);
}

void EdgeReceiver::post(int microbatch) {
  const MessageSpec message{.number = microbatch};
  require_sound(spec_, message);
  expect(message_tag(spec_, step_, message));
  take_arrived();
}

void EdgeReceiver::expect(Tag tag) {
  if (!posted_.try_emplace(tag).second) return;
  if (under_way_++ == 0) active_ = Stopwatch();
}

// Takes those of the posted messages that have come by now.
void EdgeReceiver::take_arrived() {
  for (const auto& [tag, message] : posted_) {
    if (message) continue;
    std::optional<Bytes> came =
        received(has_delta(spec_), [&] { return engine_.try_recv(spec_.peer, tag); });
    if (came) arrived(tag, std::move(*came));
  }
}

void EdgeReceiver::arrived(Tag tag, Bytes message) {
  posted_.at(tag) = std::move(message);
  if (--under_way_ == 0) engine_.meter().spent(spec_.traffic, {.active = active_.seconds()});
}

Bytes EdgeReceiver::wait(Tag tag, const std::function<void()>& serve) {
  const auto begin = std::chrono::steady_clock::now();
  expect(tag);
  wait_until(engine_, {spec_.peer, tag}, serve, [&] {
    take_arrived();
    return posted_.at(tag).has_value();
  });
  engine_.waited(spec_.peer, tag, begin, std::chrono::steady_clock::now());
  return std::move(*posted_.extract(tag).mapped());
}

at::Tensor EdgeReceiver::recv(const TensorSpec& expected, at::Device device,
                              const MessageSpec& message, const std::function<void()>& serve) {
  require_sound(spec_, message);
  const auto bytes =
      std::make_shared<const Bytes>(wait(message_tag(spec_, step_, message), serve));
  if (!goes_by_sample(spec_.link, message)) return unpack_tensor(bytes, expected, device, message);
  const TensorSpec samples = by_sample(spec_, expected, message.samples.size());
  return recv_samples(bytes, samples, device, message, serve).view(expected.shape);
}

at::Tensor EdgeReceiver::unpack_tensor(const SharedBytes& bytes, const TensorSpec& expected,
                                       at::Device device, const MessageSpec& message) {
  try {
    return timed_decoding(engine_, spec_.traffic, [&] {
      return unpack(receiver_, bytes, expected, device, message).tensor;
    });
  } catch (const WireError& error) {
    throw WireError(
        fmt::format("{} from rank {}", to_text(message_tag(spec_, step_, message)), spec_.peer),
        error);
  }
}

at::Tensor EdgeReceiver::recv_samples(const SharedBytes& bytes, const TensorSpec& expected,
                                      at::Device device, const MessageSpec& message,
                                      const std::function<void()>& serve) {
  std::vector<std::size_t> missing(message.samples.size());
  std::iota(missing.begin(), missing.end(), std::size_t{0});
  UnpackedTensor part = unpack_samples(bytes, expected, device, message);
  const at::Tensor all = part.tensor;
  MessageSpec again = message;
  while (!part.refused.empty()) {
    missing = indices_of(part.refused, missing);
    if (++again.turn > kEdgeTurns) give_up(message, missing, part.refused[0].why);
    const std::vector<std::uint64_t> keys = samples_at(message.samples, missing);
    again.samples = keys;
    ask(again, missing);
    const auto answer =
        std::make_shared<const Bytes>(wait(message_tag(spec_, step_, again), serve));
    part = unpack_samples(answer, expected, device, again);
    all.index_copy_(0, index_tensor(missing, device), part.tensor);
  }
  return all;
}

UnpackedTensor EdgeReceiver::unpack_samples(const SharedBytes& bytes, TensorSpec expected,
                                            at::Device device, const MessageSpec& message) {
  expected.shape[0] = static_cast<std::int64_t>(message.samples.size());
  UnpackedTensor part = timed_decoding(
      engine_, spec_.traffic, [&] { return unpack(receiver_, bytes, expected, device, message); });
  refused_ += part.refused.size();
  return part;
}

void EdgeReceiver::ask(const MessageSpec& message, const std::vector<std::size_t>& indices) {
  engine_.send({.to = spec_.peer,
                .tag = request_tag(spec_, step_, message),
                .key = kAtOnce,
                .message = std::make_shared<const Bytes>(write_request(indices))});
}

void EdgeReceiver::give_up(const MessageSpec& message, const std::vector<std::size_t>& missing,
                           const std::string& why) const {
  throw WireError(
      0, "samples",
      fmt::format("{}, step {}, microbatch {}: after {} further attempts rank {} has not got {} of "
                  "{} samples from rank {}: {}; the first because: {}",
                  spec_.link.name, step_, message.number, kEdgeTurns, engine_.rank(),
                  missing.size(), message.samples.size(), spec_.peer,
                  fmt::join(samples_at(message.samples, missing), ", "), why));
}

void EdgeReceiver::commit() {
  LACONIC_ASSERT(posted_.empty(), fmt::format("{}: {} was posted and not received", spec_.link.name,
                                              to_text(posted_.begin()->first)));
  receiver_.commit();
}

void EdgeReceiver::abandon() {
  posted_.clear();
  under_way_ = 0;
  receiver_.abandon();
}

void EdgeReceiver::set_codec(const CodecSpec& codec) {
  receiver_.set_codec(codec);
  spec_.link.codec = codec;
}

Bytes wait_for(Engine& engine, Rank from, Tag tag, const std::function<void()>& serve) {
  std::optional<Bytes> message;
  wait_until(engine, {from, tag}, serve, [&] {
    message = engine.try_recv(from, tag);
    return message.has_value();
  });
  return std::move(*message);
}

}  // namespace laconic
