// What keeps [task] from being asked.
#include <fmt/format.h>

#include "laconic/config/checker.hpp"

namespace laconic {

// What is asked, and whether the model answers it.
void check_task(Checker& c, const RunConfig& config) {
  const TaskSection& t = config.task;
  const std::string kind(name_in(kTaskKindNames, t.kind));
  c.require(t.mask_share > 0 && t.mask_share <= 1, "task.mask_share",
            fmt::format("mask_share = {} is not in (0, 1]", t.mask_share));
  c.in_range("task.label_smoothing", t.label_smoothing, 0, 1);
  const bool is_masked = t.kind == TaskKind::masked;
  c.require(
      is_masked || !t.whole_words, "task.whole_words",
      fmt::format("whole_words = true with kind = \"{}\": only \"masked\" hides words", kind));
  c.require(
      is_masked || !t.next_sentence, "task.next_sentence",
      fmt::format("next_sentence = true with kind = \"{}\": only \"masked\" has sentence pairs",
                  kind));
  c.require(is_masked || t.masks == MaskDraws::epoch, "task.masks",
            fmt::format("masks = \"sample\" with kind = \"{}\": only \"masked\" has masks", kind));
  c.require(t.kind == TaskKind::translate || t.label_smoothing == 0, "task.label_smoothing",
            fmt::format("label_smoothing = {} with kind = \"{}\": it is for \"translate\" alone",
                        t.label_smoothing, kind));
  c.at_least("task.sampled", t.sampled, 0);
  c.require(t.sampled > 0 || t.negatives == NegativesOf::shared, "task.negatives",
            "negatives = \"rank\" without task.sampled: nothing is drawn");
  if (t.pad != Padding::longest) return;
  c.require(t.kind != TaskKind::causal, "task.pad",
            "pad = \"longest\" with kind = \"causal\": its samples are not padded");
  for (const auto& [key, memory] : {std::pair{"pp.activation.memory", config.pp_activation.memory},
                                    {"pp.gradient.memory", config.pp_gradient.memory}})
    c.require(memory != LinkMemory::delta, "task.pad",
              fmt::format("pad = \"longest\" with {} = \"delta\": references of a sample must have "
                          "the same length at every visit",
                          key));
}

}  // namespace laconic
