// rendezvous/gloo_context.hpp — gloo's connections between all ranks, made by way of our Store.
//
// gloo can connect a mesh by itself, but says neither which rank is missing nor where it was looked
// for; and the gloo of 2022 takes whoever connects first to the port of a rank for that rank. So
// the connections are ours (rendezvous/door.hpp), and gloo gets those that are known to be right.
#pragma once

#include <memory>
#include <string>
#include <vector>

#include "laconic/rendezvous/open.hpp"
#include "laconic/rendezvous/route.hpp"

namespace gloo {
class Context;
namespace transport::tcp {
class Device;
}
}  // namespace gloo

namespace laconic {

std::shared_ptr<gloo::transport::tcp::Device> make_gloo_device(const Interface& interface);

// Makes so many sets of connections between all ranks. `wire` must be equal on all ranks: it says
// what will pass.
std::vector<std::shared_ptr<gloo::Context>> connect_gloo(
    const Meeting& meeting, Store& store, const Interface& interface,
    const std::shared_ptr<gloo::transport::tcp::Device>& device, int sets, const std::string& wire,
    Deadline deadline);

// Ends every operation on these connections, now and later.
void abandon(gloo::Context& context);

// Takes from a message of gloo the place in its source that it begins with, and addresses: it
// prints ports with their bytes swapped, and those of a connection that we have replaced. Who names
// the rank says more.
std::string readable(std::string text);

}  // namespace laconic
