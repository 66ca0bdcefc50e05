#include "laconic/study/lab_report_methods.hpp"

#include <fmt/format.h>

namespace laconic {

namespace {

using Keys = std::map<std::string, std::string>;

Keys operator+(Keys keys, const Keys& more) {
  for (const auto& [key, value] : more) keys[key] = value;
  return keys;
}

// The embedding is then summed in two acts, as if nobody had thought of it.
const Keys kUnfused = {{"embedding.tied.fused", "false"}};
const Keys kBypass = {{"steering.bypass", "auto"}};

std::string quantise(int bits) {
  return fmt::format("quantise:bits={},block=64", bits);
}

Method direct(int forward, int backward) {
  return {fmt::format("DirectQ, {} and {} bits", forward, backward),
          "",
          {{"pp.activation.codec", quantise(forward)},
           {"pp.gradient.codec", quantise(backward)},
           {"embedding.tied.codec", quantise(8)}}};
}

Method delta(int forward, int backward) {
  return {fmt::format("AC-SGD, {} and {} bits", forward, backward),
          "ac-sgd",
          {{"pp.activation.codec", quantise(forward)}, {"pp.gradient.codec", quantise(backward)}}};
}

Method fp16() {
  const std::string half = "half:kind=f16";
  return {
      "fp16",
      "",
      {{"pp.activation.codec", half}, {"pp.gradient.codec", half}, {"embedding.tied.codec", half}},
      true};
}

}  // namespace

std::vector<Method> bandwidth_methods() {
  return {{"fp32", "", {}, true},
          fp16(),
          direct(3, 6),
          direct(4, 8),
          delta(2, 4),
          delta(3, 6),
          delta(4, 8),
          {"ac-sgd", "ac-sgd", {}, true},
          {"rotated", "rotated", {}},
          {"ac-sgd, bypass auto", "ac-sgd", kBypass}};
}

// The sum of the embedding is one of gradients: it goes with those between replicas.
std::vector<Method> end_to_end_methods() {
  const Keys plain = {{"embedding.tied.codec", "raw"}, {"dp.gradient.codec", "raw"}};
  return {{"nothing", "", {}, true},
          {"activations only", "ac-sgd", plain},
          {"gradients only",
           "",
           {{"embedding.tied.codec", quantise(8)}, {"dp.gradient.codec", quantise(4)}}},
          {"both", "ac-sgd", {}, true}};
}

// CB: gradients between stages by low rank; LEP: what a message lost is in the next one; FE: one
// sum for the embedding; SC: low rank between replicas too, on the stages where it is worth it. The
// preset also sends the embedding's sum and the factors in 8 bits, which was not published.
std::vector<Method> optimus_methods() {
  const Keys cb = {{"pp.gradient.codec", "low_rank:rank=16"}, {"pp.gradient.when", "epilogue"}};
  const Keys lep = {{"pp.gradient.memory", "feedback"}};
  const Keys critical = {{"pp.gradient.when", "critical"}};
  return {{"base", "", kUnfused, true},
          {"CB", "", kUnfused + cb + Keys{{"pp.gradient.memory", "none"}}},
          {"CB + LEP", "", kUnfused + cb + lep},
          {"CB + LEP + FE", "", cb + lep + Keys{{"embedding.tied.fused", "true"}}},
          {"CB + LEP + FE + SC",
           "optimus-cc",
           {{"embedding.tied.codec", "raw"}, {"dp.gradient.codec", "raw"}}},
          {"optimus-cc", "optimus-cc", {}, true},
          {"CB + LEP, critical", "", kUnfused + cb + lep + critical}};
}

// Sparse gradients and local updates are not among them: in short runs they lost more than half a
// per cent of the loss (bench/results/*-policies.md), and a step of the latter has no one length.
std::vector<Method> replica_methods() {
  const auto codec = [](const std::string& text) { return Keys{{"dp.gradient.codec", text}}; };
  const Program ddp = Program::ddp;
  return {{"DDP", "", {}, true, ddp},
          {"DDP, 5 MB buckets", "", {{"bucket-mb", "5"}}, false, ddp},
          {"DDP, our allocator settings", "", {{"allocator", "ours"}}, false, ddp},
          {"DDP, fp16 hook", "", {{"hook", "fp16"}}, true, ddp},
          {"DDP, fp16 hook, 5 MB buckets", "", {{"hook", "fp16"}, {"bucket-mb", "5"}}, false, ddp},
          {"DDP, PowerSGD hook rank 32", "", {{"hook", "powersgd"}, {"rank", "32"}}, false, ddp},
          {"laconic, raw", "", codec("raw"), true},
          {"laconic, 16 bits", "", codec("half:kind=f16")},
          {"laconic, 16 bits, Huffman", "", codec("huffman:kind=f16")},
          {"laconic, 4 bits", "", codec("quantise:bits=4"), true},
          {"laconic, 3 bits", "", codec("quantise:bits=3")},
          {"laconic, PowerSGD rank 32, 8 bits", "",
           codec("quantise:bits=8") + Keys{{"dp.gradient.method", "power_sgd"},
                                           {"dp.gradient.rank", "32"},
                                           {"dp.gradient.by_block", "true"}},
           true},
          {.name = "laconic, compressed Adam, sign",
           .set = codec("sign") +
                  Keys{{"dp.gradient.method", "compressed_adam"}, {"dp.gradient.warmup", "1"}},
           // So many that the second moment is worth freezing.
           .loss = {{"dp.gradient.warmup", "10"}}},
          {"laconic, 4 bits, bypass auto", "", codec("quantise:bits=4") + kBypass}};
}

std::vector<Method> schedule_methods() {
  std::vector<Method> methods;
  for (const char* kind : {"gpipe", "1f1b", "zero_bubble", "interleaved"})
    methods.push_back({kind, "", {{"pipeline.schedule", kind}}});
  methods[1].is_brief = true;
  methods[3].set["pipeline.chunks"] = "2";
  return methods;
}

std::vector<Method> quality_methods() {
  return {{"uncompressed", "", {}},
          delta(2, 4),
          delta(3, 6),
          delta(4, 6),
          delta(4, 8),
          direct(2, 4),
          direct(3, 6),
          direct(4, 6),
          direct(4, 8),
          {"rotated", "rotated", {}}};
}

std::vector<Method> low_rank_methods() {
  const Keys low_rank = {{"pp.gradient.codec", "low_rank:rank=8"}};
  const Keys feedback = {{"pp.gradient.memory", "feedback"}};
  return {{"uncompressed", "", {}},
          {"low rank 8, no feedback", "", low_rank},
          {"low rank 8, feedback within a step", "",
           low_rank + feedback + Keys{{"pp.gradient.reset", "true"}}},
          {"low rank 8, feedback", "", low_rank + feedback},
          {"low rank 8, epilogue, feedback", "",
           low_rank + feedback + Keys{{"pp.gradient.when", "epilogue"}}}};
}

std::vector<Method> replicated_quality_methods() {
  return {{"uncompressed, dp 2", "", {}}, {"ac-sgd, dp 2", "ac-sgd", {}}};
}

// The published share of stages: what "auto" finds depends on the machine.
std::vector<Method> replicated_low_rank_methods() {
  return {{"uncompressed, dp 2", "", {}},
          {"optimus-cc, dp 2", "optimus-cc", {{"dp.gradient.stages", "0.75"}}}};
}

}  // namespace laconic
