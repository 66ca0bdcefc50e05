// transport/in_process.hpp — ranks are threads of one process.
//
// For tests, the quickstart, and everybody who wants to see several ranks in one
// debugger. A message is copied once, into the receiver's inbox.
#pragma once

#include <functional>
#include <memory>
#include <vector>

#include "laconic/transport/transport.hpp"

namespace laconic {

// One transport per rank, joined to each other.
std::vector<std::unique_ptr<Transport>> make_in_process(int size);

// Runs `body` once per rank, each in a thread of its own, and waits for all. When some throw, the
// others are let go (their transports close), and the exception of the rank that failed first
// is thrown again.
void run_ranks(int size, const std::function<void(Transport&)>& body);
// The same over these: decorated ones, for instance.
void run_ranks(const std::vector<std::unique_ptr<Transport>>& transports,
               const std::function<void(Transport&)>& body);

}  // namespace laconic
