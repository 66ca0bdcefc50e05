// rendezvous/gloo_context.hpp — gloo's connections between all ranks, made by way of our Store.
//
// gloo can connect a mesh by itself, but says neither which rank is missing nor where it was looked
// for; and the gloo of 2022 takes whoever connects first to the port of a rank for that rank. So
// the connections are ours (rendezvous/door.hpp), and gloo gets those that are known to be right.
#pragma once

#include <memory>
#include <string>
#include <vector>

#include "laconic/base/plugin.hpp"
#include "laconic/rendezvous/gloo_engine.hpp"
#include "laconic/rendezvous/open.hpp"
#include "laconic/rendezvous/route.hpp"

namespace laconic {

// The module that has gloo; has_gloo() says whether it is there.
PluginSpec gloo_plugin();

// Opens the module when it is called first. Throws FileError (base/plugin.hpp), ConfigError.
std::unique_ptr<GlooEngine> make_gloo_engine(const Interface& interface);

// Makes so many sets of connections between all ranks. `wire` must be equal on all ranks: it says
// what will pass.
std::vector<std::unique_ptr<GlooMesh>> connect_gloo(const Meeting& meeting, Store& store,
                                                    const Interface& interface, GlooEngine& engine,
                                                    int sets, const std::string& wire,
                                                    Deadline deadline);

// Takes from a message of gloo the place in its source that it begins with, and addresses: it
// prints ports with their bytes swapped, and those of a connection that we have replaced. Who names
// the rank says more.
std::string readable(std::string text);

}  // namespace laconic
