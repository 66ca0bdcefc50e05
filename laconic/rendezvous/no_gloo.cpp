#include "laconic/base/error.hpp"
#include "laconic/rendezvous/open.hpp"

namespace laconic {

bool has_gloo() {
  return false;
}

std::unique_ptr<Transport> make_gloo(const Meeting&, Store&) {
  throw ConfigError(
      "this build has no gloo: install libgloo-dev, build again, or choose another transport");
}

}  // namespace laconic
