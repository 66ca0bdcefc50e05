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
//   trained_seconds            of all steps, warm-up included, without evaluations
//   computing_seconds          a mean rank's forward and backward of a step, by itself
//   codec_seconds              a mean rank's encoding and decoding of a step
//   encode_seconds, decode_seconds
//                              its parts, where the program told them apart
//   messages                   of a step, all ranks, all classes of training
//   sent_bytes, raw_bytes      of a step, all ranks, all classes of training
//   network_bytes              of a step that counts, all hosts, headers included: see the source
//   meter_error                our meter against the kernel's: 0.01 is 1 % too little
//   ranks
//   CLASS.messages, CLASS.sent_bytes, CLASS.raw_bytes, CLASS.codec_seconds, CLASS.encode_seconds,
//   CLASS.decode_seconds, CLASS.active_seconds, CLASS.exposed_seconds
//                              of a step, by class of messages, as "pp.activation.sent_bytes";
//                              active is when a message of the class was under way, waited for or
//                              not
//   CLASS.shorter              how many times fewer bytes were sent than there were; messages of an
//                              evaluation are counted
#pragma once

#include <map>
#include <optional>
#include <string>
#include <vector>

#include "laconic/study/study_row.hpp"

namespace laconic {

std::map<std::string, double> measures_of(const Outcome& outcome);

// Every evaluation in the course of a run, and the one at its end.
std::vector<CurvePoint> curve_of(const Outcome& outcome);
// Interpolates between two evaluations. Nothing before the first one and behind the last: a run
// that ended earlier has no loss at that time.
std::optional<double> loss_after(const std::vector<CurvePoint>& curve, double seconds);

// A measure of a row that went well, or "value.AXIS": the number that the file gives to its
// setting.
std::optional<double> value_in(const StudyFile& study, const StudyRow& row,
                               const std::string& measure);

// Adds those measures that have an expression, or a time after which a loss is read, one after the
// other, so that later ones may use earlier ones.
void add_derived(const StudyFile& study, std::vector<StudyRow>& rows);

}  // namespace laconic
