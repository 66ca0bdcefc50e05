#include <c10/cuda/CUDAFunctions.h>
#include <c10/cuda/CUDAStream.h>

#include "laconic/tensor/device_stream.hpp"

namespace laconic {

Stream compute_stream(at::Device device) {
  if (device.has_index() && c10::cuda::current_device() != device.index())
    c10::cuda::set_device(device.index());
  return c10::cuda::getCurrentCUDAStream(device.index()).stream();
}

}  // namespace laconic
