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
  }
  LACONIC_ASSERT(false, "no such kind of model");
  return {};
}

}  // namespace laconic
