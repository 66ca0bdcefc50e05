#include "laconic/runtime/link_registry.hpp"

#include <algorithm>

#include "laconic/base/text.hpp"

namespace laconic {

void LinkRegistry::override_codec(Traffic traffic, const CodecOverride& codec_override) const {
  for (const LinkControl& control : controls_)
    if (control.traffic == traffic && control.override_codec)
      control.override_codec(codec_override);
}

void LinkRegistry::measure_fidelity(bool measures) const {
  for (const LinkControl& control : controls_)
    if (control.measure_fidelity) control.measure_fidelity(measures);
}

std::map<Traffic, Fidelity> LinkRegistry::fidelity() const {
  std::map<Traffic, Fidelity> all;
  for (const LinkControl& control : controls_) {
    if (!control.fidelity) continue;
    const Fidelity fidelity = control.fidelity();
    if (fidelity.messages > 0) all[control.traffic] += fidelity;
  }
  return all;
}

bool LinkRegistry::has_memory() const {
  return std::ranges::any_of(controls_,
                             [](const LinkControl& c) { return c.has_memory && c.has_memory(); });
}

void LinkRegistry::save(const std::string& prefix) const {
  for (const LinkControl& control : controls_)
    if (control.save) control.save(prefix + control.name);
}

void LinkRegistry::load(const std::string& prefix) const {
  for (const LinkControl& control : controls_)
    if (control.load) control.load(prefix + control.name);
}

RankTensors LinkRegistry::tensors() const {
  RankTensors all;
  for (const LinkControl& control : controls_)
    if (control.tensors) all.merge(control.tensors());
  return all;
}

std::string LinkRegistry::restore(const std::vector<RankTensors>& saved) const {
  std::vector<std::string> notes;
  for (const LinkControl& control : controls_) {
    if (!control.restore) continue;
    const std::string note = control.restore(saved);
    if (!note.empty() && std::ranges::find(notes, note) == notes.end()) notes.push_back(note);
  }
  return join(notes, "; ");
}

}  // namespace laconic
