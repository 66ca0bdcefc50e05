// study/test_outcomes.hpp — outcomes that nobody measured, for tests alone.
//
// invented_study() is a whole study by a crude formula: computing, and bytes over the
// rate. Its numbers mean nothing; pages made of them never leave a temporary folder.
#pragma once

#include <algorithm>
#include <cmath>
#include <string>
#include <utility>
#include <vector>

#include "laconic/study/report_case.hpp"
#include "laconic/study/trial.hpp"

namespace laconic::testing {

// 1448 of 1514 bytes are payload, so that so many take a second at this rate.
inline constexpr const char* kRate = "64mbit";
inline constexpr double kSecondsBytes = 8e6 * 1448 / 1514;

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

// 0 where there is no rate.
inline double invented_network_seconds(double bytes, const std::string& rate) {
  const auto bits = payload_bits(rate);
  return bits ? 8 * bytes / *bits : 0;
}

struct InventedMethod {
  std::string name;
  double shrink = 1;
  double codec_seconds = 0;
  std::string preset = {};
};

inline std::vector<Outcome> invented_rounds(const std::string& part, const InventedMethod& method,
                                            const std::string& rate, int pp, int dp) {
  std::vector<Outcome> outcomes;
  for (int round = 1; round <= 2; ++round) {
    const double wire = 24e6 / method.shrink;
    const double waiting = invented_network_seconds(wire / pp, rate);
    const double noise = 1 + 0.02 * (round - 1);
    const bool is_long = method.preset == "ac-sgd";
    outcomes.push_back(invented(
        {part, method.name, rate, round, noise * (0.9 + method.codec_seconds + waiting), 24e6, wire,
         method.codec_seconds, waiting, is_long ? 5 : 3, pp, dp, method.preset}));
  }
  return outcomes;
}

inline void add(std::vector<Outcome>& all, std::vector<Outcome> more) {
  all.insert(all.end(), more.begin(), more.end());
}

inline std::vector<Outcome> invented_losses(const std::vector<InventedMethod>& methods) {
  std::vector<Outcome> all;
  for (const InventedMethod& method : methods) {
    Invented wanted{"loss", method.name, "unshaped"};
    wanted.steps = 60;
    wanted.pp = 1;
    wanted.dp = 4;
    const bool is_peer = method.name.starts_with("DDP");
    Outcome outcome = is_peer ? invented_peer(wanted) : invented(wanted);
    for (StepRow& row : outcome.steps) {
      row.loss = 4 + 3 * std::exp(-static_cast<double>(row.step) / 20) + 0.001 * method.shrink;
    }
    all.push_back(outcome);
  }
  return all;
}

inline void add_data_parallel(std::vector<Outcome>& all) {
  const std::vector<InventedMethod> methods = {{"DDP", 1, 0},
                                               {"DDP, fp16 hook", 2, 0.01},
                                               {"DDP, PowerSGD hook rank 32", 10, 0.1},
                                               {"DDP, 5 MB buckets", 1, 0},
                                               {"laconic, raw", 1, 0},
                                               {"laconic, 4 bits", 7.7, 0.05},
                                               {"laconic, power_sgd rank 32, 8 bits", 33, 0.1},
                                               {"laconic, compressed_adam, sign", 28, 0.08},
                                               {"laconic, auto", 30, 0.08}};
  for (const char* rate : {"unshaped", "1gbit", "100mbit", "20mbit"}) {
    for (const InventedMethod& method : methods) {
      for (Outcome& outcome : invented_rounds("data-parallel", method, rate, 1, 4)) {
        if (!method.name.starts_with("DDP")) {
          all.push_back(outcome);
          continue;
        }
        Outcome peer = invented_peer({"data-parallel", method.name, rate, outcome.trial.round,
                                      1.01 * outcome.steps.back().seconds});
        all.push_back(peer);
      }
    }
  }
  add(all, invented_losses(methods));
}

inline std::vector<Outcome> invented_study() {
  std::vector<Outcome> all;
  const std::vector<InventedMethod> sweep = {{"fp32", 1, 0},
                                             {"fp16", 2, 0.01},
                                             {"DirectQ, 3 and 6 bits", 7, 0.05},
                                             {"DirectQ, 4 and 8 bits", 5.2, 0.05},
                                             {"AC-SGD, 2 and 4 bits", 10, 0.07, "ac-sgd"},
                                             {"AC-SGD, 3 and 6 bits", 7, 0.07, "ac-sgd"},
                                             {"AC-SGD, 4 and 8 bits", 5.2, 0.07, "ac-sgd"},
                                             {"ac-sgd", 6.1, 0.07, "ac-sgd"},
                                             {"rotated", 5.1, 0.08},
                                             {"ac-sgd, bypass auto", 6.0, 0.001, "ac-sgd"}};
  for (const char* rate :
       {"unshaped", "10gbit", "1gbit", "500mbit", "300mbit", "100mbit", "50mbit"}) {
    for (const auto& method : sweep) add(all, invented_rounds("bandwidth", method, rate, 4, 1));
  }
  for (const InventedMethod& method :
       {InventedMethod{"nothing", 1, 0}, InventedMethod{"activations only", 1.8, 0.05, "ac-sgd"},
        InventedMethod{"gradients only", 1.9, 0.03}, InventedMethod{"both", 7, 0.08, "ac-sgd"}}) {
    add(all, invented_rounds("end-to-end", method, "50mbit", 4, 2));
  }
  double shrink = 1;
  for (const char* name : {"base", "CB", "CB + LEP", "CB + LEP + FE", "CB + LEP + FE + SC",
                           "optimus-cc", "CB + LEP, critical"}) {
    add(all, invented_rounds("optimus-cc", {name, shrink, 0.02}, "200mbit", 4, 2));
    add(all, invented_rounds("optimus-cc loss", {name, shrink, 0.02}, "unshaped", 4, 2));
    shrink += 0.3;
  }
  add_data_parallel(all);
  for (const char* name : {"gpipe", "1f1b", "zero_bubble", "interleaved"}) {
    for (Outcome& outcome : invented_rounds("honesty", {name, 1, 0}, "100mbit", 4, 1)) {
      outcome.trial.set["pipeline.schedule"] = name;
      if (outcome.trial.method == "interleaved") outcome.trial.set["pipeline.chunks"] = "2";
      all.push_back(outcome);
    }
  }
  add(all, invented_rounds("honesty", {"fp32", 1, 0}, "none", 4, 1));
  return all;
}

}  // namespace laconic::testing
