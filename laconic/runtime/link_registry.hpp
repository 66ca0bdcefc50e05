// runtime/link_registry.hpp — all that carries a run's encoded messages on this rank, in one list.
//
// Whoever overrides a codec, measures fidelity, saves or loads walks this list; no
// class passes these verbs on by hand. A row is the end of a link between stages, or
// a sum over ranks. Pipeline and update rule add theirs once, when they are made.
//
// Everything here happens between steps. Rows must not outlive what added them.
#pragma once

#include <ATen/core/Tensor.h>

#include <functional>
#include <map>
#include <string>
#include <vector>

#include "laconic/link/codec_override.hpp"
#include "laconic/link/fidelity.hpp"
#include "laconic/transport/tag.hpp"

namespace laconic {

// What one rank alone remembers, by name, on the CPU.
using RankTensors = std::map<std::string, at::Tensor>;

// An empty function: the row has nothing of that kind.
struct LinkControl {
  Traffic traffic = Traffic::control;
  std::string name;  // "pp.activation.0.sender"; what it saves is a file of this name
  // From the next step on messages go by this instead of how they did; the same on all ranks.
  // `CodecOverride{}` is as configured. Throws ConfigError, and nothing has changed.
  std::function<void(const CodecOverride&)> override_codec = {};
  // Whether to measure how much receivers get of what is sent from here on; true also forgets what
  // was measured before.
  std::function<void(bool)> measure_fidelity = {};
  std::function<Fidelity()> fidelity = {};
  // What a checkpoint holds of it as files of this rank, if `has_memory` says that there is any.
  std::function<bool()> has_memory = {};
  std::function<void(const std::string& path)> save = {};
  std::function<void(const std::string& path)> load = {};  // throws FileError
  // What it holds as tensors of this rank; and from those that all ranks saved, perhaps more or
  // fewer than now. restore() returns a note for people when something could not be used.
  std::function<RankTensors()> tensors = {};
  std::function<std::string(const std::vector<RankTensors>& saved)> restore = {};
};

class LinkRegistry {
 public:
  void add(LinkControl control) { controls_.push_back(std::move(control)); }

  // Throws ConfigError. Requires: before load(), for a run that goes on.
  void override_codec(Traffic traffic, const CodecOverride& codec_override) const;
  void measure_fidelity(bool measures) const;
  // By class; classes of which this rank has sent any messages that lose something.
  std::map<Traffic, Fidelity> fidelity() const;

  // Files are PREFIX + name of the row.
  bool has_memory() const;
  void save(const std::string& prefix) const;
  void load(const std::string& prefix) const;

  RankTensors tensors() const;
  // All notes of rows, without repetition.
  std::string restore(const std::vector<RankTensors>& saved) const;

 private:
  std::vector<LinkControl> controls_;
};

}  // namespace laconic
