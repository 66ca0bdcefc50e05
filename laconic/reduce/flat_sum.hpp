// reduce/flat_sum.hpp — a flat buffer of floats that is summed once a step.
//
// Without elements there is nothing to do. The buffer is on the host, or on a GPU when the sum's
// blocks are; then `values` is only what download() fetched or upload() takes.
#pragma once

#include <cstdint>
#include <memory>
#include <string>
#include <vector>

#include "laconic/codec/device_memory.hpp"
#include "laconic/reduce/method.hpp"

namespace laconic {

class FlatSum {
 public:
  // `raw_elements`: what the buffer stands for, for the meter.
  FlatSum(const SumRequest& request, std::uint32_t unit, std::size_t elements, double raw_elements);

  void begin(std::uint64_t step);
  // The buffer is full: now it may leave.
  void start(DeadlineKey key);
  bool advance(Engine& engine);
  bool is_done() const { return is_done_; }
  bool polls() const;  // as Operation's
  std::string describe() const { return operation_ ? operation_->describe() : "nothing"; }
  void commit();
  void abandon();
  void set_codec(const CodecPair& codecs);

  void measure_fidelity(bool is_on);
  Fidelity fidelity() const;

  float* on_device() const { return device_.floats(); }
  // Wait for the device. They do nothing if the buffer is on the host.
  void upload();
  void download();

  std::vector<float> values;

 private:
  std::size_t elements_;
  DeviceBuffer device_;
  std::unique_ptr<Collective> sum_;
  std::shared_ptr<Operation> operation_;
  bool is_done_ = true;
};

}  // namespace laconic
