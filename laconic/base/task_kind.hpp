// base/task_kind.hpp — the kinds of task: what prepare writes, and what training asks for.
#pragma once

#include <cstdint>

#include "laconic/base/named.hpp"

namespace laconic {

enum class TaskKind : std::uint8_t { causal, masked, classify, regress, span, translate };
inline constexpr auto kTaskKindNames =
    std::to_array<Named<TaskKind>>({{TaskKind::causal, "causal"},
                                    {TaskKind::masked, "masked"},
                                    {TaskKind::classify, "classify"},
                                    {TaskKind::regress, "regress"},
                                    {TaskKind::span, "span"},
                                    {TaskKind::translate, "translate"}});

}  // namespace laconic
