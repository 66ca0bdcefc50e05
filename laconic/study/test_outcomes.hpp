// study/test_outcomes.hpp — outcomes that nobody measured, for tests alone.
//
// Their numbers mean nothing.
#pragma once

#include <cmath>
#include <string>
#include <vector>

#include "laconic/study/trial.hpp"

namespace laconic::testing {

inline bool contains(const std::string& text, const std::string& part) {
  return text.find(part) != std::string::npos;
}

struct Invented {
  std::string part = "bandwidth";
  std::string method = "fp32";
  std::string rate = "100mbit";
  int round = 1;
  double seconds = 1;          // of every step that counts
  double raw_bytes = 24e6;     // a step, all ranks
  double wire_bytes = 24e6;    // likewise
  double codec_seconds = 0;    // a step
  double exposed_seconds = 0;  // a step
  std::int64_t steps = 3;
  int pp = 4;
  int dp = 1;
  std::string preset = {};
};

inline std::vector<StepRow> invented_steps(const Invented& wanted, std::int64_t warmup) {
  std::vector<StepRow> rows;
  for (std::int64_t step = 1; step <= warmup + wanted.steps; ++step) {
    // Whatever takes the warm-up's step must not show anywhere.
    const double seconds = step <= warmup ? 1000 : wanted.seconds;
    rows.push_back({step, seconds, 7.0 - 0.01 * static_cast<double>(step), wanted.wire_bytes / 4,
                    wanted.exposed_seconds});
  }
  return rows;
}

inline Outcome invented(const Invented& wanted) {
  Outcome outcome;
  Trial& trial = outcome.trial;
  trial.part = wanted.part;
  trial.method = wanted.method;
  trial.rate = wanted.rate;
  trial.round = wanted.round;
  trial.hosts = wanted.pp * wanted.dp;
  trial.preset = wanted.preset;
  trial.steps = wanted.steps;
  trial.set = {{"mesh.pp", std::to_string(wanted.pp)}, {"mesh.dp", std::to_string(wanted.dp)}};
  if (contains(wanted.method, "bypass")) trial.set["steering.bypass"] = "auto";
  outcome.commit = "abc1234";
  outcome.machine = "a machine";
  // Where nothing but the command knows them.
  outcome.command = {"laconic",
                     "train",
                     "mine file.toml",
                     "--set",
                     "train.batch=" + std::to_string(32 * wanted.dp),
                     "--set",
                     "train.microbatch=4",
                     "--set",
                     "model.context=128"};
  outcome.steps = invented_steps(wanted, trial.warmup);
  outcome.samples = 64.0 * wanted.dp;
  const auto all = static_cast<double>(outcome.steps.size());
  const double codec = wanted.codec_seconds * all / 2;
  if (wanted.pp > 1) {
    for (const char* traffic : {"pp.activation", "pp.gradient"}) {
      outcome.traffic.push_back(
          {traffic, 100, wanted.raw_bytes * all / 2, wanted.wire_bytes * all / 2, 0, 0, codec});
    }
  } else {
    outcome.traffic.push_back(
        {"dp.gradient", 100, wanted.raw_bytes * all, wanted.wire_bytes * all, 0, 0, 2 * codec});
  }
  if (wanted.rate != "none") {
    outcome.interface_packets = std::ceil(wanted.wire_bytes * all / 1448) * 1.5;
    outcome.interface_sent_bytes = wanted.wire_bytes * all + 66 * outcome.interface_packets;
  }
  outcome.computing_seconds.assign(static_cast<std::size_t>(trial.hosts), 0.03);
  return outcome;
}

inline Outcome invented_peer(Invented wanted) {
  wanted.pp = 1;
  Outcome outcome = invented(wanted);
  outcome.trial.program = Program::ddp;
  outcome.trial.set = {{"batch", "128"}, {"context", "128"}};
  outcome.trial.hosts = 4;
  outcome.command = {"python3", "torch_ddp.py", "--steps", "3"};
  outcome.traffic.clear();
  outcome.computing_seconds.clear();
  outcome.counted_sent_bytes = wanted.wire_bytes;
  outcome.versions = "PyTorch 1.13.1, Python 3.11.2";
  for (StepRow& row : outcome.steps) row.wire_bytes = row.exposed_seconds = 0;
  return outcome;
}

}  // namespace laconic::testing
