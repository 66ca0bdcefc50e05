// architecture/gnmt_spec.hpp — the blocks of GNMT; asked for by model_spec() alone.
#pragma once

#include "laconic/architecture/model_spec.hpp"

namespace laconic {

ModelSpec gnmt_spec(const GnmtShape& shape, std::int64_t tokens, std::int64_t target_tokens);

}  // namespace laconic
