// simulate/program_builder.hpp — a RunProgram in the making: ranks on their hosts, and what things
// cost there.
//
// Ranks are classes here (rank_class.hpp), numbered as in RankClasses. Rates are those of the
// hosts; what has none takes no time. A rank that computes on a processor shares it with the
// handling of its messages; one with a GPU has a processor besides.
#pragma once

#include <cstdint>
#include <vector>

#include "laconic/codec/spec.hpp"
#include "laconic/hosts/hosts.hpp"
#include "laconic/simulate/rank_class.hpp"
#include "laconic/simulate/rank_work.hpp"
#include "laconic/simulate/run_program.hpp"

namespace laconic {

// A step of a strand's making, so that acts read as they happen.
class ProgramBuilder {
 public:
  ProgramBuilder(const Hosts& hosts, const std::vector<Seat>& seats, RankClasses classes,
                 RunPrecision precision, ProgramBounds bounds = {});

  const RankClasses& classes() const { return classes_; }
  int class_of(Rank rank) const { return classes_.class_of[static_cast<std::size_t>(rank)]; }
  RunProgram& program() { return program_; }
  const ProgramBounds& bounds() const { return bounds_; }

  // --- strands. One of the computing thread, or one that the progress thread carries.
  int add_main(int rank);
  int add_background(int rank, std::uint64_t key, Traffic traffic);
  void compute(int strand, WorkKind work, double seconds);
  void send(int strand, int message) { act(strand, StrandOp::send, message); }
  void wait(int strand, int message) { act(strand, StrandOp::wait, message); }
  void start(int strand, int other) { act(strand, StrandOp::start, other); }
  void join(int strand, int other) { act(strand, StrandOp::join, other); }
  int begin_span(int strand, SpanName name);
  void end_span(int strand, int span) { act(strand, StrandOp::end, span); }

  // --- messages. Each rank of the class sends `count` of so many bytes (a mean, if they differ),
  // segments not counted yet.
  struct Packet {
    Traffic traffic = Traffic::control;
    std::uint64_t key = 0;
    double message_bytes = 0;
    double count = 1;
    int way = 0;
    int edge = -1, microbatch = 0;
  };
  // Throws ProgramTooLarge.
  int add_message(int from, int to, const Packet& packet);

  // --- what things cost on a rank, in seconds
  double multiply_add_seconds(int rank, double count) const;
  double element_seconds(int rank, double count) const;
  double pass_samples(int rank) const;  // PassRates::pass_samples
  double update_seconds(int rank, double parameters) const;
  // With feedback the encoder remembers what was lost.
  double encode_seconds(int rank, const CodecSpec& codec, double elements,
                        bool has_feedback = false) const;
  double decode_seconds(int rank, const CodecSpec& codec, double elements) const;
  double copy_seconds(int rank, double bytes) const;
  FactorSeconds factor_seconds(int rank, const FactorWork& work, bool has_feedback) const {
    return laconic::factor_seconds(work, has_feedback, device_of(rank));
  }
  double call_seconds(int rank) const { return device_of(rank).call_seconds; }

 private:
  const HostGroup& group_of(int rank) const;
  const HostDevice& device_of(int rank) const { return group_of(rank).device; }
  void act(int strand, StrandOp op, int index);
  int add_link(const Link& link, double hosts, const std::string& name);
  NetworkMap::Port add_port(const Link& link, double hosts, const std::string& name);
  void add_network();
  void add_workers();

  const Hosts& hosts_;
  const std::vector<Seat>& seats_;  // by world rank
  const RankClasses classes_;
  const RunPrecision precision_;
  const ProgramBounds bounds_;
  RunProgram program_;
  std::vector<int> main_, progress_;  // workers by rank
};

}  // namespace laconic
