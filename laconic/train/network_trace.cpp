#include "laconic/train/network_trace.hpp"

#include <fmt/format.h>

#include <string>

namespace laconic {

namespace {

using Kind = EngineEvent::Kind;

// "all_reduce of dp.gradient 2 #17" without its number: names are few, so that a viewer can add up
// what is of one kind.
std::string kind_of(const std::string& what) {
  return what.substr(0, what.find(" #"));
}

std::string name_of(const EngineEvent& event) {
  const std::string ranks = fmt::format("{} {}", event.peers.size() == 1 ? "rank" : "ranks",
                                        fmt::join(event.peers, ", "));
  switch (event.kind) {
    case Kind::send: return fmt::format("{} to {}", kind_of(event.what), ranks);
    case Kind::recv: return fmt::format("{} from {}", kind_of(event.what), ranks);
    case Kind::operation: return kind_of(event.what);
    case Kind::wait:
      return event.peers.empty() ? fmt::format("wait for {}", event.what)
                                 : fmt::format("wait for {} from {}", kind_of(event.what), ranks);
    case Kind::codec: return event.what;
  }
  return event.what;
}

std::string category_of(const EngineEvent& event) {
  const auto traffic = name_of(event.traffic);
  switch (event.kind) {
    case Kind::send: return fmt::format("{} sends", traffic);
    case Kind::recv: return fmt::format("{} receives", traffic);
    case Kind::operation: return std::string(traffic);
    case Kind::wait: return fmt::format("{} waits", traffic);
    case Kind::codec: return fmt::format("{} codec", traffic);
  }
  return "";
}

// What the text holds needs no escapes: classes, numbers and names from this program.
std::string args_of(const EngineEvent& event, std::int64_t step) {
  std::string args = fmt::format(R"("class":"{}","step":{},"what":"{}")", name_of(event.traffic),
                                 step, event.what);
  if (!event.peers.empty()) args += fmt::format(R"(,"peers":[{}])", fmt::join(event.peers, ","));
  if (event.raw_bytes > 0) args += fmt::format(R"(,"raw_bytes":{})", event.raw_bytes);
  if (event.wire_bytes > 0) args += fmt::format(R"(,"wire_bytes":{})", event.wire_bytes);
  return args;
}

}  // namespace

NetworkTrace::NetworkTrace(Trace& trace, Engine& engine) : trace_(trace), engine_(engine) {
  engine.observe([this](const EngineEvent& event) { add(event); });
}

NetworkTrace::~NetworkTrace() {
  engine_.observe({});
}

void NetworkTrace::add(const EngineEvent& event) {
  const bool is_wait = event.kind == Kind::wait;
  const std::string category = category_of(event);
  trace_.add(name_of(event), category, is_wait ? "compute" : category, event.begin, event.end,
             {.may_overlap = !is_wait,
              .args = args_of(event, step_),
              .flow_out = is_wait ? 0 : event.flow,
              .flow_in = is_wait ? event.flow : 0});
}

}  // namespace laconic
