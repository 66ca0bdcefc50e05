// reduce/test_summing.hpp — for tests: a transport that can sum.
#pragma once

#include <cstring>
#include <functional>
#include <optional>
#include <span>
#include <stdexcept>
#include <string_view>
#include <utility>

#include "laconic/transport/tag.hpp"
#include "laconic/transport/transport.hpp"

namespace laconic::test {

// A transport with a sum of its own, in rank order. Like a real one it takes the k-th call of every
// rank for the same sum, and fails when their sizes differ.
class Summing final : public Transport {
 public:
  explicit Summing(Transport& inner) : inner_(inner) {}

  Rank rank() const override { return inner_.rank(); }
  int size() const override { return inner_.size(); }
  std::string_view name() const override { return "summing"; }
  void send(Rank to, Tag tag, ByteView message, Deadline deadline) override {
    inner_.send(to, tag, message, deadline);
  }
  Bytes recv(Rank from, Tag tag, Deadline deadline) override {
    return inner_.recv(from, tag, deadline);
  }
  std::optional<Bytes> try_recv(Rank from, Tag tag) override { return inner_.try_recv(from, tag); }
  void on_arrival(std::function<void()> wake) override { inner_.on_arrival(std::move(wake)); }
  bool has_sum() const override { return true; }
  void close() override { inner_.close(); }

  void sum(std::span<float> values, Deadline deadline) override {
    const Tag tag = make_tag({.traffic = Traffic::control, .number = calls_++});
    for (Rank to = 0; to < size(); ++to)
      inner_.send(to, tag, as_bytes(std::span<const float>(values)), deadline);
    for (Rank from = 0; from < size(); ++from) {
      const Bytes part = inner_.recv(from, tag, deadline);
      if (part.size() != values.size_bytes()) throw std::runtime_error("sums of different sizes");
      for (std::size_t i = 0; i < values.size(); ++i) {
        float x;
        std::memcpy(&x, part.data() + i * sizeof(float), sizeof(float));
        values[i] = from == 0 ? x : values[i] + x;
      }
    }
  }

 private:
  Transport& inner_;
  std::uint64_t calls_ = 0;
};

}  // namespace laconic::test
