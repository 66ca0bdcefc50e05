#include "laconic/base/plugin.hpp"

#include <dlfcn.h>
#include <fmt/format.h>

#include <filesystem>

#include "laconic/base/error.hpp"
#include "laconic/base/text.hpp"

namespace laconic {
namespace {

// Two sanitizers, of addresses and of threads, put themselves before everybody's malloc, which
// RTLD_DEEPBIND would bypass: they end a program that asks for it (docs/adr/0022).
#ifdef LACONIC_NO_DEEPBIND
constexpr int kPluginMode = RTLD_NOW | RTLD_LOCAL;
#else
constexpr int kPluginMode = RTLD_NOW | RTLD_LOCAL | RTLD_DEEPBIND;
#endif

std::string last_loader_error() {
  const char* const text = ::dlerror();
  return text == nullptr ? "the loader does not say why" : text;
}

void* symbol_of(void* module, const char* name, const std::string& path, const PluginSpec& spec) {
  if (void* const symbol = ::dlsym(module, name)) return symbol;
  throw FileError(path, "", "no module of laconic: " + last_loader_error(), spec.remedy);
}

}  // namespace

std::vector<std::string> plugin_places(const std::string& file, const std::string& program) {
  std::error_code error;
  const std::filesystem::path folder = std::filesystem::read_symlink(program, error).parent_path();
  std::vector<std::string> places;
  if (error) return places;
  for (const char* const place : {".", "../bin", "../lib/laconic"})
    places.push_back((folder / place / file).lexically_normal().string());
  return places;
}

std::optional<std::string> find_plugin(const std::string& file, const std::string& program) {
  for (std::string& place : plugin_places(file, program))
    if (std::error_code ignored; std::filesystem::exists(place, ignored)) return std::move(place);
  return std::nullopt;
}

void* open_plugin(const PluginSpec& spec) {
  const std::optional<std::string> path = find_plugin(spec.file);
  if (!path) {
    const std::vector<std::string> places = plugin_places(spec.file);
    throw FileError(spec.file, "",
                    places.empty() ? "missing: without /proc nobody knows where it would be"
                                   : fmt::format("missing: looked for {}", join(places, ", ")),
                    spec.remedy);
  }
  void* const module = ::dlopen(path->c_str(), kPluginMode);
  if (module == nullptr) throw FileError(*path, "", last_loader_error(), spec.remedy);
  const int interface =
      *static_cast<const int*>(symbol_of(module, "laconic_plugin_interface", *path, spec));
  if (interface != spec.interface)
    throw FileError(*path, "",
                    fmt::format("made for another laconic: its interface is {}, and {} is wanted",
                                interface, spec.interface),
                    "install program and modules of one version");
  return symbol_of(module, "laconic_plugin_entry", *path, spec);
}

}  // namespace laconic
