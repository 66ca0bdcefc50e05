// base/gpu_error.hpp — a GPU, or its driver, refused or failed.
//
// Whoever throws it knows neither rank nor step: train/loop.cpp adds them, as to libtorch's own.
#pragma once

#include <stdexcept>
#include <string>

namespace laconic {

class GpuError : public std::runtime_error {
 public:
  explicit GpuError(const std::string& what, bool is_out_of_memory = false)
      : std::runtime_error(what), is_out_of_memory_(is_out_of_memory) {}
  bool is_out_of_memory() const { return is_out_of_memory_; }

 private:
  bool is_out_of_memory_;
};

}  // namespace laconic
