// tensor/device_stream.hpp — the stream on which libtorch queues its work, for the codecs' one.
#pragma once

#include <c10/core/Device.h>

#include "laconic/codec/device_memory.hpp"

namespace laconic {

// Makes the device the thread's current one first. Requires: a CUDA device, has_device_codecs().
Stream compute_stream(at::Device device);

// What libtorch has queued there comes before what codecs do from here on; and the other way round.
// Nobody waits but the device.
void codecs_wait_for(at::Device device);
void wait_for_codecs(at::Device device);

// What libtorch has queued there so far, for whoever asks whether it is done.
DeviceEvent queued_so_far(at::Device device);

}  // namespace laconic
