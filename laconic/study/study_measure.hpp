// study/study_measure.hpp — every number that can be told of a trial.
//
// What a run has left behind becomes measures by name; measures of a study file that have an
// expression are added to rows afterwards. One that a run does not have is absent, never 0.
//
//   loss, validation_loss      of the last five steps, and at the end
//   accuracy, f1, ...          metrics of the task
//   step_seconds               of steps that count: the median, or the mean over the kinds of them
//   first_epoch_seconds        where links remember samples: of steps of the first epoch, without
//                              the very first step, which allocates
//   samples_per_second         in a step that counts
//   exposed_seconds            rank 0 waited for others in such a step
//   first_rank_bytes           rank 0 sent in such a step
//   seconds                    of the whole process
//   computing_seconds          a mean rank's forward and backward of a step, by itself
//   codec_seconds              a mean rank's encoding and decoding of a step
//   sent_bytes, raw_bytes      of a step, all ranks, all classes of training
//   network_bytes              of a step that counts, all hosts, headers included: see the source
//   meter_error                our meter against the kernel's: 0.01 is 1 % too little
//   ranks
//   CLASS.sent_bytes, CLASS.raw_bytes, CLASS.codec_seconds, CLASS.exposed_seconds
//                              of a step, by class of messages, as "pp.activation.sent_bytes"
//   CLASS.shorter              how many times fewer bytes were sent than there were; messages of an
//                              evaluation are counted
#pragma once

#include <map>
#include <string>
#include <vector>

#include "laconic/study/study_row.hpp"

namespace laconic {

std::map<std::string, double> measures_of(const Outcome& outcome);

// Adds those measures that have an expression, one after the other, so that later ones may use
// earlier ones.
void add_derived(const StudyFile& study, std::vector<StudyRow>& rows);

}  // namespace laconic
