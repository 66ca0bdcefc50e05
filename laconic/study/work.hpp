// study/work.hpp — what the trials of a report have in common: two models, their data, and the
// command line that a trial becomes.
//
// Command lines are made by a pure function and kept with each outcome, so that any of them can be
// typed again. Both programs train the same model from the same weights on the same samples in the
// same order, with the same BLAS kernels and one thread. Settings of the allocator are Laconic's
// own: PyTorch gets the ones that its users have, unless the trial sets "allocator".
#pragma once

#include <map>
#include <string>
#include <vector>

#include "laconic/machine/environment.hpp"
#include "laconic/study/trial.hpp"

namespace laconic {

// Samples of the model "pipeline": so few that an epoch is short, since links that remember are
// measured in the second.
inline constexpr int kPipelineSamples = 208;

// Models of Size::quality: a small one, and a tiny one with many microbatches.
inline constexpr const char* kQualityModel = "wikitext";
inline constexpr const char* kLowRankModel = "wikitext-tiny";

// Where everything is. Paths stand in commands as they stand here.
struct Places {
  std::string laconic;       // the program
  std::string python;        // one that has PyTorch; empty: there is none, and no weights from it
  std::string source;        // the source tree: corpus, presets and bench/peers are in it
  std::string work;          // OUT/work
  std::string corpora;       // public ones, with wikitext-2 among them; empty: they are not here
  Environment peer_setting;  // of peer_setting()
  Environment allocator;     // of allocator_setting()
};

// "8 layers of width 256, 4 heads, ..."; empty for a model that there is none of. Pure.
std::string description_of(const std::string& model);

// Makes what these trials need and places.work does not have yet: datasets, initial weights, an
// empty configuration. Throws std::runtime_error with the command and what it said.
void prepare_work(const Places& places, const std::vector<Trial>& trials);
// The same as lines for a shell, which make everything anew. Pure.
std::vector<std::string> preparation_of(const Places& places, const std::vector<Trial>& trials);

// As one would type them. Pure.
std::string shell_line(const std::vector<std::string>& words);

// The model trains on a public corpus (Places::corpora).
bool needs_corpora(const std::string& model);

// Counts the samples in the dataset of a model. Throws FileError when there is none.
double samples_of(const Places& places, const std::string& model);

// The trial where there are no weights of the peer: one of Laconic draws its own, which its outcome
// shows, so that it is run again once there are. Pure.
Trial without_weights(Trial trial);

// What is measured before the first step decides something in it.
bool needs_preflight(const Trial& trial);

// What `laconic train` is told, "section.key" to value; what the trial sets wins. Pure.
std::map<std::string, std::string> keys_of(const Trial& trial, const Places& places,
                                           const std::string& folder);

// Every word of it. What it writes is in `folder`: run/log.jsonl, summary.json, lab.json; `ddp`
// prints instead of the first two. Pure.
std::vector<std::string> command_of(const Trial& trial, const Places& places,
                                    const std::string& folder);

// What trials inherit: nothing that changes their threads, their libraries or their ranks. Pure.
Environment quiet_environment(Environment environment);
// What PyTorch needs to multiply as fast as Laconic does. `advised` is worker_environment() of an
// empty environment, `blas` the folder of an OpenBLAS that uses OpenMP; empty: none. Pure.
Environment peer_setting(const std::vector<EnvironmentSetting>& advised, const std::string& blas);
// What Laconic sets for itself and PyTorch's users do not have. Pure.
Environment allocator_setting(const std::vector<EnvironmentSetting>& advised);

}  // namespace laconic
