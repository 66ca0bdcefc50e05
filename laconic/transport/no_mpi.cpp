// In place of mpi.cpp where the build found no MPI.
#include "laconic/base/error.hpp"
#include "laconic/transport/mpi.hpp"

namespace laconic {

bool has_mpi() {
  return false;
}

std::unique_ptr<Transport> make_mpi(int*, char***) {
  throw ConfigError(
      "transport mpi: this laconic was built without MPI; install libopenmpi-dev (or libmpich-dev) "
      "and build again, or choose another transport");
}

}  // namespace laconic
