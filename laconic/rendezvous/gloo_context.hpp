// rendezvous/gloo_context.hpp — gloo's connections between all ranks, made by way of our Store.
//
// gloo can connect a mesh by itself, but then says neither which rank is missing nor
// where it was looked for.
#pragma once

#include <memory>
#include <string>

#include "laconic/rendezvous/open.hpp"
#include "laconic/rendezvous/route.hpp"

namespace gloo {
class Context;
namespace transport {
class Device;
}
}  // namespace gloo

namespace laconic {

std::shared_ptr<gloo::transport::Device> make_gloo_device(const Interface& interface);

// `purpose` names the set of connections: one for messages, one for sums. `wire` must be equal on
// all ranks: it says what will pass.
std::shared_ptr<gloo::Context> connect_gloo(const Meeting& meeting, Store& store,
                                            const Interface& interface,
                                            std::shared_ptr<gloo::transport::Device> device,
                                            const std::string& purpose, const std::string& wire,
                                            Deadline deadline);

// Ends every operation on these connections, now and later.
void abandon(gloo::Context& context);

// gloo's messages begin with the place in its source.
std::string without_place(std::string text);

}  // namespace laconic
