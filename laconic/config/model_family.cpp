#include "laconic/config/model_family.hpp"

#include "laconic/base/error.hpp"

namespace laconic {

Family family_of(const ModelSection& m, std::int64_t vocabulary) {
  switch (m.kind) {
    case ModelKind::gpt:
      return GptShape{.layers = m.layers,
                      .width = m.width,
                      .heads = m.heads,
                      .context = m.context,
                      .vocabulary = m.vocabulary > 0 ? m.vocabulary : vocabulary};
    case ModelKind::llama:
      return LlamaShape{.layers = m.layers,
                        .width = m.width,
                        .heads = m.heads,
                        .key_heads = m.key_heads > 0 ? m.key_heads : m.heads,
                        .head_width = m.head_width > 0 ? m.head_width : m.width / m.heads,
                        .hidden = m.hidden > 0 ? m.hidden : (8 * m.width / 3 + 63) / 64 * 64,
                        .context = m.context,
                        .vocabulary = m.vocabulary > 0 ? m.vocabulary : vocabulary,
                        .rope = {.theta = m.rope_theta,
                                 .scaling = m.rope_scaling,
                                 .factor = m.rope_factor,
                                 .low_turns = m.rope_low_turns,
                                 .high_turns = m.rope_high_turns,
                                 .trained_context = m.rope_trained_context},
                        .has_qkv_bias = m.qkv_bias,
                        .has_qk_norm = m.qk_norm,
                        .is_tied = m.tied};
  }
  LACONIC_ASSERT(false, "no such kind of model");
  return {};
}

}  // namespace laconic
