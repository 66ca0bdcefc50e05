// A rank of a grid is killed at other places than process_tensor_test.cpp does.
#include "tests/processes/tensor_ranks.hpp"

namespace laconic {
namespace {

TEST_F(TensorProcesses, ARankThatIsKilledBeforeAWeightOrItsSumCostsNothingButTime) {
  expect_only_time_lost("runs/a", kGrids[0] + kShortMessages, "tp.weight");
  expect_only_time_lost("runs/b", kGrids[0], "tp.weight");
}

TEST_F(TensorProcesses, ARankThatIsKilledBeforeAnActivationCostsNothingButTime) {
  expect_only_time_lost("runs/a", kGrids[0] + kShortMessages, "tp.activation");
  expect_only_time_lost("runs/b", kGrids[1], "tp.activation");
}

TEST_F(TensorProcesses, ARankOf1dThatIsKilledInBackwardCostsNothingButTime) {
  expect_only_time_lost("runs/a", kGrids[1] + kShortMessages, "tp.gradient");
}

}  // namespace
}  // namespace laconic
