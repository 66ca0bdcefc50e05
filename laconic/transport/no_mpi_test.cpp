#include <gtest/gtest.h>

#include "laconic/base/error.hpp"
#include "laconic/transport/mpi.hpp"

namespace laconic {
namespace {

TEST(NoMpi, SaysWhatToDo) {
  EXPECT_FALSE(has_mpi());
  try {
    make_mpi();
    FAIL();
  } catch (const ConfigError& e) {
    EXPECT_NE(std::string(e.what()).find("libopenmpi-dev"), std::string::npos) << e.what();
  }
}

}  // namespace
}  // namespace laconic
