#include "laconic/tensor/device_stream.hpp"

namespace laconic {

void codecs_wait_for(at::Device device) {
  enter_codec_stream(compute_stream(device));
}

void wait_for_codecs(at::Device device) {
  leave_codec_stream(compute_stream(device));
}

DeviceEvent queued_so_far(at::Device device) {
  return DeviceEvent(compute_stream(device));
}

}  // namespace laconic
