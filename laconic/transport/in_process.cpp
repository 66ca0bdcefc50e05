#include "laconic/transport/in_process.hpp"

#include <exception>
#include <mutex>
#include <thread>

#include "laconic/transport/inbox.hpp"

namespace laconic {

namespace {

using Inboxes = std::vector<std::unique_ptr<Inbox>>;

class InProcess final : public Transport {
 public:
  InProcess(Rank rank, std::shared_ptr<Inboxes> inboxes)
      : rank_(rank), inboxes_(std::move(inboxes)) {}
  ~InProcess() override { close(); }

  Rank rank() const override { return rank_; }
  int size() const override { return static_cast<int>(inboxes_->size()); }
  std::string_view name() const override { return "in_process"; }

  void send(Rank to, Tag tag, ByteView message, Deadline) override {
    mine().require_present(to);
    inbox(to).put(rank_, tag, copy_of(message));
  }
  Bytes recv(Rank from, Tag tag, Deadline deadline) override {
    return mine().take(from, tag, deadline);
  }
  std::optional<Bytes> try_recv(Rank from, Tag tag) override { return mine().try_take(from, tag); }
  std::optional<PeerLost> death() const override {
    return (*inboxes_)[static_cast<std::size_t>(rank_)]->death();
  }
  std::uint64_t most_held_bytes() const override {
    return (*inboxes_)[static_cast<std::size_t>(rank_)]->most_held_bytes();
  }
  void on_arrival(std::function<void()> wake) override { mine().on_arrival(std::move(wake)); }

  void close() override {
    mine().close();
    for (Rank r = 0; r < size(); ++r)
      if (r != rank_) inbox(r).lose(rank_, "it closed its transport", Inbox::End::goodbye);
  }

 private:
  Inbox& inbox(Rank rank) { return *(*inboxes_)[static_cast<std::size_t>(rank)]; }
  Inbox& mine() { return inbox(rank_); }

  const Rank rank_;
  std::shared_ptr<Inboxes> inboxes_;
};

}  // namespace

std::vector<std::unique_ptr<Transport>> make_in_process(int size) {
  auto inboxes = std::make_shared<Inboxes>();
  for (Rank r = 0; r < size; ++r) inboxes->push_back(std::make_unique<Inbox>(r, size));
  std::vector<std::unique_ptr<Transport>> transports;
  for (Rank r = 0; r < size; ++r) transports.push_back(std::make_unique<InProcess>(r, inboxes));
  return transports;
}

void run_ranks(int size, const std::function<void(Transport&)>& body) {
  run_ranks(make_in_process(size), body);
}

void run_ranks(const std::vector<std::unique_ptr<Transport>>& transports,
               const std::function<void(Transport&)>& body) {
  std::mutex mutex;
  std::exception_ptr first;
  std::vector<std::thread> threads;
  for (const auto& transport : transports)
    threads.emplace_back([&, t = transport.get()] {
      try {
        body(*t);
      } catch (...) {
        {
          const std::lock_guard lock(mutex);
          if (first == nullptr) first = std::current_exception();
        }
        t->close();
      }
    });
  for (std::thread& thread : threads) thread.join();
  if (first != nullptr) std::rethrow_exception(first);
}

}  // namespace laconic
