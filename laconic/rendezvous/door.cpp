#include "laconic/rendezvous/door.hpp"

#include <fmt/format.h>
#include <poll.h>
#include <sys/socket.h>

#include <algorithm>
#include <cerrno>
#include <cstring>
#include <random>

#include "laconic/base/error.hpp"

namespace laconic {
namespace {

using std::chrono::milliseconds;

constexpr milliseconds kBetweenCalls{50};
constexpr int kBacklog = 4096;
// Callers that say nothing. The oldest goes when there are more; if it was a rank, it calls again.
constexpr std::size_t kMostSilent = 512;

constexpr std::uint64_t kHelloMagic = 0x31'4f'4c'4c'45'48'43'4c;  // "LCHELLO1"
constexpr std::uint64_t kAnswerMagic =
    0x31'45'4d'4f'43'4c'45'57;  // "WELCOME1": not the hello, which
                                // a connection to oneself returns

struct Hello {
  std::uint64_t magic = kHelloMagic;
  std::uint64_t key = 0;
  std::int32_t from = -1;
  std::int32_t line = -1;
};

struct Answer {
  std::uint64_t magic = kAnswerMagic;
  std::uint64_t key = 0;
};

template <class T>
Bytes bytes_of(const T& value) {
  Bytes bytes;
  put(bytes, value);
  return bytes;
}

// Reads what is there, up to `whole` bytes in all. False when the other end has closed, or worse.
bool read_more(const Socket& socket, Bytes& bytes, std::size_t whole) {
  while (bytes.size() < whole) {
    std::byte buffer[64];
    const ssize_t count = ::recv(*socket, buffer, std::min(sizeof buffer, whole - bytes.size()), 0);
    if (count < 0 && (errno == EAGAIN || errno == EINTR)) return true;
    if (count <= 0) return false;
    bytes.insert(bytes.end(), buffer, buffer + count);
  }
  return true;
}

// A few bytes into an empty buffer of the system: they go at once, or the connection is broken.
bool say(const Socket& socket, const Bytes& bytes) {
  return ::send(*socket, bytes.data(), bytes.size(), MSG_NOSIGNAL) ==
         static_cast<ssize_t>(bytes.size());
}

std::uint64_t random_key() {
  std::random_device device;
  return std::uint64_t{device()} << 32 | device();
}

}  // namespace

Door::Door(Rank self, const std::string& address)
    : self_(self), place_{address, 0, random_key()}, listener_(listen_at(address, kBacklog)) {
  place_.port = local_port(listener_);
}

void Door::call(Rank peer, int line, const DoorPlace& place) {
  Call& call = calls_[{peer, line}];
  call.place = place;
  begin(call);
}

void Door::expect(Rank peer, int line) {
  awaited_.insert({peer, line});
}

void Door::begin(Call& call) {
  call.is_connected = false;
  call.answer.clear();
  call.socket = begin_connecting(call.place.address, call.place.port);
  if (call.socket) return;
  call.is_refused = errno == ECONNREFUSED;
  try_again(call, std::strerror(errno));
}

void Door::try_again(Call& call, const std::string& why) {
  call.why =
      fmt::format("connecting to {}: {}", host_and_port(call.place.address, call.place.port), why);
  call.socket = Socket();
  call.again_at = in(kBetweenCalls);
}

// The socket has something to tell.
void Door::go_on(const Line& line, Call& call) {
  if (!call.is_connected) {
    const int error = error_of(call.socket);
    if (error != 0) {
      call.is_refused = error == ECONNREFUSED;
      return try_again(call, std::strerror(error));
    }
    call.is_connected = true;
    if (!say(call.socket, bytes_of(Hello{kHelloMagic, call.place.key, self_, line.second})))
      return try_again(call, "the connection broke");
    return;
  }
  if (!read_more(call.socket, call.answer, sizeof(Answer)))
    return try_again(call, "it was closed before the other end had answered");
  if (call.answer.size() < sizeof(Answer)) return;
  const auto answer = get<Answer>(call.answer, 0);
  if (answer.magic != kAnswerMagic || answer.key != call.place.key) {
    call.is_refused = true;
    return try_again(call, "somebody else listens there");
  }
  standing_[line] = std::move(call.socket);
}

void Door::let_in() {
  while (Socket socket = accept_from(listener_)) {
    callers_.push_back({std::move(socket), {}});
    if (callers_.size() > kMostSilent) callers_.pop_front();
  }
}

bool Door::listen_to(Caller& caller) {
  const bool is_open = read_more(caller.socket, caller.hello, sizeof(Hello));
  if (caller.hello.size() < sizeof(Hello)) return is_open;
  const auto hello = get<Hello>(caller.hello, 0);
  const Line line{hello.from, hello.line};
  // A rank whose first call broke on the way may call twice; the last one counts.
  if (hello.magic != kHelloMagic || hello.key != place_.key ||
      (!awaited_.contains(line) && !standing_.contains(line)))
    return false;
  if (!say(caller.socket, bytes_of(Answer{kAnswerMagic, place_.key}))) return false;
  awaited_.erase(line);
  standing_[line] = std::move(caller.socket);
  return false;
}

bool Door::advance(Deadline until) {
  std::vector<pollfd> waited = {{*listener_, POLLIN, 0}};
  Deadline wake = until;
  const Deadline now = std::chrono::steady_clock::now();
  for (auto& [line, call] : calls_) {
    if (!call.socket && !call.is_refused && now >= call.again_at) begin(call);
    if (call.socket)
      waited.push_back({*call.socket, static_cast<short>(call.is_connected ? POLLIN : POLLOUT), 0});
    else if (!call.is_refused)
      wake = std::min(wake, call.again_at);
  }
  for (const Caller& caller : callers_) waited.push_back({*caller.socket, POLLIN, 0});
  if (!calls_.empty() || !awaited_.empty()) {
    const auto left = std::chrono::ceil<milliseconds>(wake - std::chrono::steady_clock::now());
    ::poll(waited.data(), waited.size(), std::max(0, static_cast<int>(left.count())));
  }
  const auto has_news = [&](const Socket& socket) {
    return std::ranges::any_of(
        waited, [&](const pollfd& one) { return one.fd == *socket && one.revents != 0; });
  };
  for (auto& [line, call] : calls_)
    if (call.socket && has_news(call.socket)) go_on(line, call);
  std::erase_if(calls_, [&](const auto& one) { return standing_.contains(one.first); });
  std::erase_if(callers_,
                [&](Caller& caller) { return has_news(caller.socket) && !listen_to(caller); });
  if (has_news(listener_)) let_in();
  return calls_.empty() && awaited_.empty();
}

std::vector<Door::Missing> Door::missing() const {
  std::map<Rank, Missing> missing;
  for (const auto& [line, call] : calls_)
    if (Missing& one = missing[line.first]; !one.is_gone)
      one = {line.first, call.is_refused,
             !call.why.empty() ? call.why
                               : fmt::format("connecting to {}: no answer",
                                             host_and_port(call.place.address, call.place.port))};
  for (const Line& line : awaited_)
    missing.insert(
        {line.first,
         {line.first, false,
          fmt::format("it has not connected to {}", host_and_port(place_.address, place_.port))}});
  std::vector<Missing> list;
  for (const auto& [rank, one] : missing) list.push_back(one);
  return list;
}

Socket Door::take(Rank peer, int line) {
  return std::move(standing_.at({peer, line}));
}

}  // namespace laconic
