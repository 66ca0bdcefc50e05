#include "laconic/engine/courier.hpp"

#include <gtest/gtest.h>

#include "laconic/base/error.hpp"
#include "laconic/engine/test_message.hpp"
#include "laconic/transport/in_process.hpp"

namespace laconic {
namespace {

// Waits for one message.
class Expect : public Operation {
 public:
  Expect(Rank from, Tag tag, DeadlineKey key) : from_(from), tag_(tag), key_(key) {}
  bool advance(Engine& engine) override {
    if (auto message = engine.try_recv(from_, tag_))
      got_ = std::move(*message);
    else
      return false;
    return true;
  }
  DeadlineKey key() const override { return key_; }
  Traffic traffic() const override { return fields_of(tag_).traffic; }
  std::string describe() const override {
    return "recv of " + to_text(tag_) + " from rank " + std::to_string(from_);
  }
  const Bytes& got() const { return got_; }

 private:
  Rank from_;
  Tag tag_;
  DeadlineKey key_;
  Bytes got_;
};

TEST(Courier, WalksManyOperationsAtOnce) {
  run_ranks(3, [](Transport& transport) {
    Engine engine(transport);
    Courier courier(engine);
    std::vector<std::shared_ptr<Expect>> operations;
    for (std::uint64_t i = 0; i < 100; ++i)
      for (Rank r = 0; r < 3; ++r) {
        if (r == engine.rank()) continue;
        operations.push_back(std::make_shared<Expect>(r, gradient_tag(i), 100 - i));
        courier.start(operations.back());
      }
    for (std::uint64_t i = 0; i < 100; ++i)
      for (Rank r = 0; r < 3; ++r)
        if (r != engine.rank())
          engine.send(parcel_to(r, gradient_tag(i), message_of(1000, i), 100 - i));
    courier.wait(operations.front());
    courier.wait_all();
    for (std::size_t i = 0; i < operations.size(); ++i)
      EXPECT_EQ(operations[i]->got(), message_of(1000, i / 2));
    engine.flush();
  });
}

}  // namespace
}  // namespace laconic
