// study/work.hpp — the command line that a trial becomes, and the data that it needs.
//
// Command lines are made by a pure function and kept with each outcome, so that any of them can be
// typed again. Laconic and its peer train the same model from the same weights on the same samples
// in the same order, with the same BLAS kernels and one thread. Settings of the allocator are
// Laconic's own: PyTorch gets the ones that its users have, unless the trial sets "allocator".
#pragma once

#include <map>
#include <string>
#include <vector>

#include "laconic/machine/environment.hpp"
#include "laconic/study/study_file.hpp"
#include "laconic/study/trial.hpp"

namespace laconic {

// Where everything is. Paths stand in commands as they stand here; texts of a study file name them
// as $laconic, $python, $source, $work and $data.
struct Places {
  std::string laconic;       // the program
  std::string python;        // one that has PyTorch; empty: there is none, and no weights from it
  std::string source;        // the source tree: corpus, presets and bench/peers are in it
  std::string work;          // OUT/scratch
  std::string corpora;       // a folder of public ones; empty: they are not here
  Environment peer_setting;  // of peer_setting()
  Environment allocator;     // of allocator_setting()
};
// A text of a study file with the places that it names. Pure.
std::string with_places(const std::string& text, const Places& places);

// "8 layers of width 256, 4 heads, ..."; empty where the model's keys do not say. Pure.
std::string description_of(const StudyModel& model);

// Makes what these trials need and is not there yet: datasets, initial weights, an empty
// configuration. Throws std::runtime_error with the lines and what they said.
void prepare_work(const Places& places, const std::vector<StudyModel>& models,
                  const std::vector<Trial>& trials);
// The same as lines for a shell, which make everything anew. Pure.
std::vector<std::string> preparation_of(const Places& places, const std::vector<StudyModel>& models,
                                        const std::vector<Trial>& trials);

// As one would type them. Pure.
std::string shell_line(const std::vector<std::string>& words);

// Why a trial cannot be run here, beginning with "skipped"; empty: it can.
std::string obstacle_to(const Trial& trial, const std::vector<StudyModel>& models,
                        const Places& places);

// Counts the samples in the dataset of a trial; 0 where its description does not tell.
double samples_of(const Trial& trial, const StudyFile& study, const Places& places);

// The trial where there are no weights of the peer: one of Laconic draws its own, which its outcome
// shows, so that it is run again once there are. Pure.
Trial without_weights(Trial trial, const std::vector<StudyModel>& models);

// What is measured before the first step decides something in a run with this preset and these
// keys.
bool needs_preflight(const std::string& preset, const Keys& keys);

// What `laconic train` is told, "section.key" to value; what the trial sets wins. Pure.
Keys keys_of(const Trial& trial, const StudyFile& study, const Places& places,
             const std::string& folder);
// The file that its configuration begins from: "preset:ac-sgd", the study's; empty: defaults. Pure.
std::string config_of(const Trial& trial, const StudyFile& study);

// Every word of it. What it writes is in `folder`: run/log.jsonl, summary.json, lab.json; `ddp`
// prints instead of the first two. Pure.
std::vector<std::string> command_of(const Trial& trial, const StudyFile& study,
                                    const Places& places, const std::string& folder);

// What trials inherit: nothing that changes their threads, their libraries or their ranks. Pure.
Environment quiet_environment(Environment environment);
// What PyTorch needs to multiply as fast as Laconic does. `advised` is worker_environment() of an
// empty environment, `blas` the folder of an OpenBLAS that uses OpenMP; empty: none. Pure.
Environment peer_setting(const std::vector<EnvironmentSetting>& advised, const std::string& blas);
// What Laconic sets for itself and PyTorch's users do not have. Pure.
Environment allocator_setting(const std::vector<EnvironmentSetting>& advised);

}  // namespace laconic
