#include "laconic/engine/engine.hpp"

#include <gtest/gtest.h>

#include "laconic/base/error.hpp"
#include "laconic/engine/test_message.hpp"
#include "laconic/transport/in_process.hpp"

namespace laconic {
namespace {

EngineOptions small_segments(std::size_t bytes = 16) {
  return {.segment_bytes = bytes, .deadline = std::chrono::milliseconds(5'000), .records = 64};
}

TEST(Engine, CarriesMessagesOfEverySizeAroundASegment) {
  run_ranks(2, [](Transport& transport) {
    Engine engine(transport, small_segments());
    for (std::size_t bytes = 0; bytes <= 50; ++bytes) {
      if (engine.rank() == 0)
        engine.send(parcel_to(1, gradient_tag(bytes), message_of(bytes, bytes)));
      else
        EXPECT_EQ(engine.recv(0, gradient_tag(bytes)), message_of(bytes, bytes)) << bytes;
    }
    engine.flush();
  });
}

}  // namespace
}  // namespace laconic
