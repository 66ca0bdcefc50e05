// config/task_section.hpp — what is asked of the model: [task].
#pragma once

#include <cstdint>

#include "laconic/base/task_kind.hpp"
#include "laconic/config/option.hpp"

namespace laconic {

// What is asked about a sample.
struct TaskSection {
  TaskKind kind = TaskKind::causal;
  double mask_share = 0.15;
  bool whole_words = false;
  bool next_sentence = false;
  MaskDraws masks = MaskDraws::epoch;
  Padding pad = Padding::context;
  double label_smoothing = 0;
  std::int64_t sampled = 0;
  NegativesOf negatives = NegativesOf::shared;

  template <class V>
  void visit(V& v) {
    v("kind", kind,
      "causal: the next token; masked: hidden tokens; classify, regress: a class or number for a "
      "text or a pair; span: where the answer lies; translate: a text from another",
      kTaskKindNames);
    v("mask_share", mask_share, "masked: the chance of a token to be asked for");
    v("whole_words", whole_words, "masked: the tokens of a word are asked for together");
    v("next_sentence", next_sentence,
      "masked: pairs of sentences, and whether the second follows the first, too");
    v("masks", masks,
      "masked: new masks in every epoch; or by sample, the same ones in all, so that its "
      "activations change less",
      kMaskDrawsNames);
    v("pad", pad, "padding of samples: to the context, or to the longest of a microbatch",
      kPaddingNames);
    v("label_smoothing", label_smoothing,
      "translate: share of each target's weight that is spread over the vocabulary");
    v("sampled", sampled,
      "causal, lstm: training compares a target with so many drawn words instead of the whole "
      "vocabulary; 0: with all. Evaluation always does");
    v("negatives", negatives,
      "sampled: the words drawn for a step are the same on all ranks, or each data-parallel rank "
      "has its own",
      kNegativesOfNames);
  }
};

}  // namespace laconic
