// transport/decorator.hpp — a transport that is another one but for what its heirs change.
//
// An heir overrides send() and close(), as a rule, and calls its own close() in its destructor.
#pragma once

#include <fmt/format.h>

#include <memory>
#include <string>
#include <string_view>
#include <utility>

#include "laconic/transport/transport.hpp"

namespace laconic {

class Decorator : public Transport {
 public:
  // `kind` goes before the name of the transport below: "shaped gloo".
  Decorator(std::string_view kind, std::unique_ptr<Transport> below)
      : below_(std::move(below)), name_(fmt::format("{} {}", kind, below_->name())) {}

  Rank rank() const override { return below_->rank(); }
  int size() const override { return below_->size(); }
  std::string_view name() const override { return name_; }
  Bytes recv(Rank from, Tag tag, Deadline deadline) override {
    return below_->recv(from, tag, deadline);
  }
  std::optional<Bytes> try_recv(Rank from, Tag tag) override { return below_->try_recv(from, tag); }
  std::optional<PeerLost> death() const override { return below_->death(); }
  std::uint64_t most_held_bytes() const override { return below_->most_held_bytes(); }
  void on_arrival(std::function<void()> wake) override { below_->on_arrival(std::move(wake)); }

 protected:
  const std::unique_ptr<Transport> below_;

 private:
  const std::string name_;
};

}  // namespace laconic
