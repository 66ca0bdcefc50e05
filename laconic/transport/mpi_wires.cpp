#include "laconic/transport/mpi_wires.hpp"

#include <fmt/format.h>

#include <array>
#include <cstring>
#include <stdexcept>
#include <string>

#include "laconic/base/error.hpp"

namespace laconic {

namespace {

constexpr int kMessage = 1;  // MPI's tags; ours are longer than those
constexpr int kFarewell = 2;

void require(int result, const char* call) {
  if (result == MPI_SUCCESS) return;
  std::array<char, MPI_MAX_ERROR_STRING> text{};
  int length = 0;
  MPI_Error_string(result, text.data(), &length);
  throw std::runtime_error(fmt::format("{} failed: {}", call,
                                       std::string(text.data(), static_cast<std::size_t>(length))));
}

MPI_Comm duplicate_of_world() {
  MPI_Comm comm = MPI_COMM_NULL;
  require(MPI_Comm_dup(MPI_COMM_WORLD, &comm), "MPI_Comm_dup");
  require(MPI_Comm_set_errhandler(comm, MPI_ERRORS_RETURN), "MPI_Comm_set_errhandler");
  return comm;
}

}  // namespace

Bytes with_tag(ByteView message, Tag tag) {
  Bytes bytes(message.size() + sizeof tag);
  if (!message.empty()) std::memcpy(bytes.data(), message.data(), message.size());
  std::memcpy(bytes.data() + message.size(), &tag, sizeof tag);
  return bytes;
}

MpiWires::MpiWires(int* argc, char*** argv) {
  int is_started = 0, threads = 0;
  MPI_Initialized(&is_started);
  if (is_started != 0) throw ConfigError("transport mpi: MPI can be started once in a process");
  require(MPI_Init_thread(argc, argv, MPI_THREAD_FUNNELED, &threads), "MPI_Init_thread");
  if (threads < MPI_THREAD_FUNNELED)
    throw ConfigError("transport mpi: this MPI does not bear programs with threads");
  messages_ = duplicate_of_world();
  sums_ = duplicate_of_world();
  require(MPI_Comm_rank(messages_, &rank_), "MPI_Comm_rank");
  require(MPI_Comm_size(messages_, &size_), "MPI_Comm_size");
  arriving_.resize(static_cast<std::size_t>(size_));
}

void MpiWires::finalise() {
  MPI_Comm_free(&messages_);
  MPI_Comm_free(&sums_);
  MPI_Finalize();
}

void MpiWires::begin_send(Rank to, Bytes message) {
  begin(to, kMessage, std::move(message));
}

void MpiWires::begin_farewell(Rank to) {
  begin(to, kFarewell, {});
}

void MpiWires::begin(Rank to, int kind, Bytes message) {
  MPI_Request request = MPI_REQUEST_NULL;
  leaving_.push_back({to, std::move(message)});
  const Bytes& bytes = leaving_.back().message;
  require(MPI_Isend(bytes.data(), static_cast<int>(bytes.size()), MPI_BYTE, to, kind, messages_,
                    &request),
          "MPI_Isend");
  requests_.push_back(request);
}

void MpiWires::begin_sum(std::vector<float>& values) {
  LACONIC_ASSERT(sum_ == MPI_REQUEST_NULL, "two sums at once");
  require(MPI_Iallreduce(MPI_IN_PLACE, values.data(), static_cast<int>(values.size()), MPI_FLOAT,
                         MPI_SUM, sums_, &sum_),
          "MPI_Iallreduce");
}

bool MpiWires::progress(Inbox& inbox, const std::function<void(Rank, std::size_t)>& on_sent,
                        const std::function<void()>& on_sum) {
  bool has_moved = finish_sends(on_sent);
  has_moved |= begin_arrivals();
  has_moved |= finish_arrivals(inbox);
  has_moved |= finish_sum(on_sum);
  return has_moved;
}

bool MpiWires::finish_sends(const std::function<void(Rank, std::size_t)>& on_sent) {
  if (requests_.empty()) return false;
  int count = 0;
  finished_.resize(requests_.size());
  require(MPI_Testsome(static_cast<int>(requests_.size()), requests_.data(), &count,
                       finished_.data(), MPI_STATUSES_IGNORE),
          "MPI_Testsome");
  if (count == 0 || count == MPI_UNDEFINED) return false;
  for (int i = 0; i < count; ++i) {
    const Leaving& sent =
        leaving_[static_cast<std::size_t>(finished_[static_cast<std::size_t>(i)])];
    on_sent(sent.to, sent.message.size());
  }
  std::size_t kept = 0;  // MPI has set the requests that are finished to null
  for (std::size_t i = 0; i < requests_.size(); ++i) {
    if (requests_[i] == MPI_REQUEST_NULL) continue;
    requests_[kept] = requests_[i];
    if (kept != i) leaving_[kept] = std::move(leaving_[i]);
    ++kept;
  }
  requests_.resize(kept);
  leaving_.resize(kept);
  return true;
}

bool MpiWires::begin_arrivals() {
  bool has_moved = false;
  for (;;) {
    int is_there = 0, bytes = 0;
    MPI_Message message = MPI_MESSAGE_NULL;
    MPI_Status status;
    require(MPI_Improbe(MPI_ANY_SOURCE, MPI_ANY_TAG, messages_, &is_there, &message, &status),
            "MPI_Improbe");
    if (is_there == 0) return has_moved;
    has_moved = true;
    require(MPI_Get_count(&status, MPI_BYTE, &bytes), "MPI_Get_count");
    Arriving& next = arriving_.at(static_cast<std::size_t>(status.MPI_SOURCE)).emplace_back();
    next.is_farewell = status.MPI_TAG == kFarewell;
    next.message.resize(static_cast<std::size_t>(bytes));
    require(MPI_Imrecv(next.message.data(), bytes, MPI_BYTE, &message, &next.request),
            "MPI_Imrecv");
  }
}

bool MpiWires::finish_arrivals(Inbox& inbox) {
  bool has_moved = false;
  for (Rank from = 0; from < size_; ++from) {
    std::deque<Arriving>& queue = arriving_[static_cast<std::size_t>(from)];
    while (!queue.empty()) {
      int is_complete = 0;
      require(MPI_Test(&queue.front().request, &is_complete, MPI_STATUS_IGNORE), "MPI_Test");
      if (is_complete == 0) break;
      deliver(from, std::move(queue.front()), inbox);
      queue.pop_front();
      has_moved = true;
    }
  }
  return has_moved;
}

void MpiWires::deliver(Rank from, Arriving arrived, Inbox& inbox) {
  if (arrived.is_farewell) {
    ++left_;
    return inbox.lose(from, "it closed its transport", Inbox::End::goodbye);
  }
  const std::size_t size = arrived.message.size();
  LACONIC_ASSERT(size >= sizeof(Tag), fmt::format("{} bytes from rank {}", size, from));
  const Tag tag = get<Tag>(arrived.message, size - sizeof(Tag));
  arrived.message.resize(size - sizeof(Tag));
  inbox.put(from, tag, std::move(arrived.message));
}

bool MpiWires::finish_sum(const std::function<void()>& on_sum) {
  if (sum_ == MPI_REQUEST_NULL) return false;
  int is_complete = 0;
  require(MPI_Test(&sum_, &is_complete, MPI_STATUS_IGNORE), "MPI_Test");
  if (is_complete != 0) on_sum();
  return is_complete != 0;
}

bool MpiWires::is_busy() const {
  if (!requests_.empty() || sum_ != MPI_REQUEST_NULL) return true;
  for (const auto& queue : arriving_)
    if (!queue.empty()) return true;
  return false;
}

bool MpiWires::have_all_left() const {
  return left_ == size_ - 1;
}

}  // namespace laconic
