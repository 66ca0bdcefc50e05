// study/report_target.hpp — kinds of targets: so many times as fast, never slower, of its own
// speed.
//
// Each judges by medians over rounds, tells other rates beside the one that counts,
// and says where the time went when it was missed.
#pragma once

#include <functional>
#include <string>
#include <vector>

#include "laconic/study/report_pages.hpp"

namespace laconic {

// A link to the page, and the rate; empty: none.
std::string source_of(const std::string& page, const std::string& rate);

// `own` against `base` in the same part, judged at `rate`; other rates are shown beside it.
Target speed_target(std::string name, double wanted, const std::vector<Case>& cases,
                    const std::string& own, const std::string& base, const std::string& rate,
                    const std::string& page);
// Where a step's time goes. Waiting and encoding overlap, so they say nothing of what is left.
std::string reason_of(const Case& one);

using CaseAt = std::function<const Case*(const std::string& rate)>;
// Compares at every rate at which both were measured; `own_at` and `base_at` find the two cases.
// `may_overlap`: a slower case counts as met, and is reported, if the spreads overlap and the
// medians lie close.
Target never_slower(std::string name, const std::vector<Case>& cases, const CaseAt& own_at,
                    const CaseAt& base_at, const std::string& page, bool may_overlap);

// `method` at 100mbit against itself unshaped; without a name nothing was measured.
Target own_speed_target(std::string name, const std::vector<Case>& cases, const std::string& method,
                        const std::string& page);

// Data-parallel, against the field.
void add_replica_targets(const Outcomes& outcomes, std::vector<Target>& targets);

}  // namespace laconic
