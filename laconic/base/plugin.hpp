// base/plugin.hpp — modules of ours, shared objects that are opened when they are first needed.
//
// A library goes into a module when linking it into the program would mix its symbols with others
// of the same names: libtorch brings a protobuf and a gloo of its own, and the loader takes the
// first definition it meets, for calls inside a library too. A module is opened with RTLD_LOCAL and
// RTLD_DEEPBIND: it and the libraries it brings along look for names among themselves first, and
// nobody else sees theirs (docs/adr/0022).
//
// What one could get wrong: program and module have copies of everything that both link, so a
// module must not link libraries of ours that have state. Between them pass abstract classes, plain
// functions and errors as text, never exceptions or types of the library behind.
//
// A module exports two symbols with C linkage: `laconic_plugin_interface`, an int that changes with
// its header, and `laconic_plugin_entry`, a function of which the header has the type.
#pragma once

#include <optional>
#include <string>
#include <vector>

namespace laconic {

struct PluginSpec {
  std::string file;    // "laconic-gloo.so"
  int interface = 0;   // what the program was compiled for
  std::string remedy;  // what to do when it is missing or does not open
};

// A link to the program that runs. Where there is no /proc nothing is known of places.
inline constexpr const char* kThisProgram = "/proc/self/exe";

// Every place where a module of that name may be: beside the program, beside the programs of a
// build, where modules are installed.
std::vector<std::string> plugin_places(const std::string& file,
                                       const std::string& program = kThisProgram);

// The first of these places that has it.
std::optional<std::string> find_plugin(const std::string& file,
                                       const std::string& program = kThisProgram);

// Opens it, for good, and returns its entry. Throws FileError: it is nowhere, it does not open (a
// library it needs is missing), or it is of another interface.
void* open_plugin(const PluginSpec& spec);

}  // namespace laconic
