#include "laconic/simulate/collective_program.hpp"

#include <algorithm>
#include <array>
#include <deque>
#include <set>

#include "laconic/base/index.hpp"
#include "laconic/wire/frame.hpp"

namespace laconic {

namespace {

TensorSpec tensor_of_slice(const CollectiveSpec& spec, std::uint64_t elements) {
  const auto count = static_cast<std::int64_t>(elements);
  const auto columns = static_cast<std::int64_t>(spec.columns);
  if (columns == 0) return {spec.dtype, {count}};
  return {spec.dtype, {count / columns, columns}};
}

double frame_bytes(const CodecSpec& codec, const TensorSpec& tensor) {
  return static_cast<double>(max_frame_bytes({.codec = codec, .tensor = tensor}));
}

// A round of a ring takes as long when its link is never idle, and lanes follow each other: some do
// that as well as thousands.
std::vector<std::vector<Slice>> bounded_lanes(const CollectiveSpec& spec, std::uint64_t most) {
  std::vector<std::vector<Slice>> lanes = lanes_of(spec);
  if (most == 0 || lanes.size() <= most) return lanes;
  CollectiveSpec coarse = spec;
  coarse.lane_elements = (spec.offsets.back() + most - 1) / most;
  return lanes_of(coarse);
}

class CollectiveWriter {
 public:
  CollectiveWriter(ProgramBuilder& builder, const CollectiveSpec& spec, std::uint64_t key)
      : builder_(builder),
        spec_(spec),
        key_(key),
        members_(static_cast<int>(spec.group.size())),
        result_codec_(adds_payloads(spec) ? spec.up : spec.down),
        lanes_(bounded_lanes(spec, builder.bounds().lanes)) {
    for (const Rank rank : spec.group) ++in_class_[builder.class_of(rank)];
  }

  ExchangeStrands write() {
    for (const auto& [rank, count] : in_class_) {
      roots_[rank] = builder_.add_background(rank, key_, spec_.traffic);
      builder_.compute(roots_[rank], WorkKind::handling, builder_.call_seconds(rank));
    }
    if (members_ == 1) return roots_;
    if (static_cast<int>(in_class_.size()) == members_)
      write_plan();
    else
      write_folded();
    for (const auto& [root, strand] : to_join_) builder_.join(root, strand);
    return roots_;
  }

 private:
  int add_lane(int rank) {
    const int strand = builder_.add_background(rank, key_, spec_.traffic);
    builder_.start(roots_[rank], strand);
    to_join_.emplace_back(roots_[rank], strand);
    return strand;
  }

  // --- as the plan says

  void write_plan() {
    const Plan plan = make_plan(spec_.kind, spec_.algorithm, members_);
    const std::size_t lanes = std::max<std::size_t>(1, lanes_.size());
    for (std::size_t lane = 0; lane < lanes; ++lane) {
      std::map<std::pair<int, int>, std::deque<int>> sent;  // messages by sender and receiver
      for (int self = 0; self < members_; ++self) add_messages(plan, lane, self, sent);
      for (int self = 0; self < members_; ++self) add_walk(plan, lane, self, sent);
    }
  }

  std::uint64_t elements_of_chunk(std::size_t lane, int chunk) const {
    return chunk == kNoChunk ? 0 : lanes_[lane][index(chunk)].elements;
  }

  // What a send carries is what the member encoded or received last.
  void add_messages(const Plan& plan, std::size_t lane, int self,
                    std::map<std::pair<int, int>, std::deque<int>>& sent) {
    CodecSpec at_hand = Raw{};
    bool is_result = has_results();
    for (const Hop& hop : plan.by_member[index(self)]) {
      if (hop.act == Act::encode || hop.act == Act::encode_for_all) at_hand = spec_.up;
      if (hop.act == Act::encode_result) is_result = true;
      if (is_result) at_hand = result_codec_;
      if (hop.act != Act::send) continue;
      const TensorSpec tensor = hop.chunk == kNoChunk
                                    ? TensorSpec{Dtype::u8, {0}}
                                    : tensor_of_slice(spec_, elements_of_chunk(lane, hop.chunk));
      sent[{self, hop.peer}].push_back(builder_.add_message(
          rank_at(self), rank_at(hop.peer),
          {.traffic = spec_.traffic, .key = key_, .message_bytes = frame_bytes(at_hand, tensor)}));
    }
  }

  void add_walk(const Plan& plan, std::size_t lane, int self,
                const std::map<std::pair<int, int>, std::deque<int>>& sent) {
    const int rank = rank_at(self);
    const int strand = add_lane(rank);
    std::map<int, std::size_t> to, from;
    bool is_result = false;
    for (const Hop& hop : plan.by_member[index(self)]) {
      const auto elements = static_cast<double>(elements_of_chunk(lane, hop.chunk));
      switch (hop.act) {
        case Act::encode: encode_up(strand, rank, elements); break;
        case Act::encode_result:
          encode_result(strand, rank, elements);
          is_result = true;
          break;
        case Act::encode_for_all: encode_for_all(strand, rank, elements); break;
        case Act::send: builder_.send(strand, sent.at({self, hop.peer})[to[hop.peer]++]); break;
        case Act::receive:
          builder_.wait(strand, sent.at({hop.peer, self})[from[hop.peer]++]);
          break;
        case Act::add: decode(strand, rank, spec_.up, elements); break;
        case Act::store:
          decode(strand, rank, is_result || has_results() ? result_codec_ : spec_.up, elements);
          break;
        case Act::add_own:
        case Act::finish_sum: break;
      }
    }
  }

  bool has_results() const {
    return spec_.kind == CollectiveKind::all_gather || spec_.kind == CollectiveKind::broadcast;
  }
  int rank_at(int member) const { return builder_.class_of(spec_.group[index(member)]); }

  void encode(int strand, int rank, const CodecSpec& codec, double elements, bool has_feedback) {
    builder_.compute(strand, WorkKind::codec,
                     builder_.encode_seconds(rank, codec, elements, has_feedback));
  }
  void encode_up(int strand, int rank, double elements) {
    encode(strand, rank, spec_.up, elements, spec_.up_feedback);
  }
  void decode(int strand, int rank, const CodecSpec& codec, double elements) {
    builder_.compute(strand, WorkKind::codec, builder_.decode_seconds(rank, codec, elements));
  }
  // The maker decodes what others will; sums of payloads are there already.
  void encode_result(int strand, int rank, double elements) {
    if (!adds_payloads(spec_)) encode(strand, rank, result_codec_, elements, spec_.down_feedback);
    decode(strand, rank, result_codec_, elements);
  }

  // The maker, too, decodes what others will.
  void encode_for_all(int strand, int rank, double elements) {
    encode_up(strand, rank, elements);
    decode(strand, rank, spec_.up, elements);
  }

  // --- members of one class

  struct MeanChunk {
    double elements = 0, up_bytes = 0, down_bytes = 0;
  };

  MeanChunk mean_chunk(std::size_t lane) const {
    MeanChunk mean;
    const auto chunks = static_cast<double>(lanes_[lane].size());
    for (const Slice& slice : lanes_[lane]) {
      const TensorSpec tensor = tensor_of_slice(spec_, slice.elements);
      mean.elements += static_cast<double>(slice.elements) / chunks;
      mean.up_bytes += frame_bytes(spec_.up, tensor) / chunks;
      mean.down_bytes += frame_bytes(result_codec_, tensor) / chunks;
    }
    return mean;
  }

  // What every member of one class sends those of another in a round, on average.
  struct Leg {
    int from = 0, to = 0, way = 0;
    double messages = 0;
  };
  using Legs = std::vector<Leg>;

  class LegCounter {
   public:
    void count(int from, int to, int way, double messages) { counts_[{from, to, way}] += messages; }
    Legs legs() const {
      Legs legs;
      for (const auto& [leg, messages] : counts_)
        legs.push_back({leg[0], leg[1], leg[2], messages});
      return legs;
    }

   private:
    std::map<std::array<int, 3>, double> counts_;
  };

  int way_between(int from, int to) const {
    return builder_.classes().way_between(spec_.group[index(from)], spec_.group[index(to)]);
  }

  // On average over the members of a class; of many the first speaks for all, who see nearly the
  // same from where they are.
  Legs legs_to_all() const {
    constexpr int kMostCounted = 512;
    LegCounter counter;
    std::set<int> counted;
    for (int from = 0; from < members_; ++from) {
      const bool is_first = counted.insert(rank_at(from)).second;
      if (!is_first && members_ > kMostCounted) continue;
      const double share = members_ > kMostCounted ? 1 : 1.0 / in_class_.at(rank_at(from));
      for (int to = 0; to < members_; ++to)
        if (to != from) counter.count(rank_at(from), rank_at(to), way_between(from, to), share);
    }
    return counter.legs();
  }

  template <class Partner>
  Legs legs_to(const Partner& partner) const {
    LegCounter counter;
    for (int from = 0; from < members_; ++from) {
      const int to = partner(from);
      counter.count(rank_at(from), rank_at(to), way_between(from, to),
                    1.0 / in_class_.at(rank_at(from)));
    }
    return counter.legs();
  }

  void write_folded() {
    std::vector<Legs> rounds;  // of the way up
    if (spec_.algorithm == Algorithm::direct || spec_.algorithm == Algorithm::gathered)
      rounds = {legs_to_all()};
    else if (spec_.algorithm == Algorithm::ring)
      rounds = {legs_to([&](int from) { return (from + 1) % members_; })};
    else
      for (int distance = 1; distance < members_; distance *= 2)
        rounds.push_back(legs_to([&](int from) {
          const int partner = from ^ distance;
          return partner < members_ ? partner : (from + distance) % members_;
        }));
    for (std::size_t lane = 0; lane < lanes_.size(); ++lane) {
      const MeanChunk chunk = mean_chunk(lane);
      std::map<int, int> strands;
      for (const auto& [rank, count] : in_class_) strands[rank] = add_lane(rank);
      switch (spec_.algorithm) {
        case Algorithm::direct: write_direct(strands, chunk, rounds.front()); break;
        case Algorithm::ring: write_ring(strands, chunk, rounds.front()); break;
        case Algorithm::gathered: write_gathered(strands, chunk, rounds.front()); break;
        case Algorithm::doubling:
        case Algorithm::tree:
          for (const Legs& legs : rounds) write_up(strands, chunk, legs);
          break;
      }
    }
  }

  void write_direct(const std::map<int, int>& strands, const MeanChunk& chunk, const Legs& legs) {
    const double others = members_ - 1;
    if (scatters()) {
      for (const auto& [rank, strand] : strands) encode_up(strand, rank, others * chunk.elements);
      exchange(strands, legs, chunk.up_bytes);
      for (const auto& [rank, strand] : strands)
        decode(strand, rank, spec_.up, others * chunk.elements);
    }
    if (!gathers()) return;
    for (const auto& [rank, strand] : strands) encode_result(strand, rank, chunk.elements);
    exchange(strands, legs, chunk.down_bytes);
    for (const auto& [rank, strand] : strands)
      decode(strand, rank, result_codec_, others * chunk.elements);
  }

  void write_gathered(const std::map<int, int>& strands, const MeanChunk& chunk, const Legs& legs) {
    for (const auto& [rank, strand] : strands) encode_for_all(strand, rank, chunk.elements);
    exchange(strands, legs, chunk.up_bytes);
    for (const auto& [rank, strand] : strands)
      decode(strand, rank, spec_.up, (members_ - 1) * chunk.elements);
  }

  void write_ring(const std::map<int, int>& strands, const MeanChunk& chunk, const Legs& legs) {
    std::map<int, std::deque<int>> coming;
    for (int round = 1; scatters() && round < members_; ++round) {
      for (const auto& [rank, strand] : strands) encode_up(strand, rank, chunk.elements);
      pass_on(strands, legs, chunk.up_bytes, coming);
      for (const auto& [rank, strand] : strands) decode(strand, rank, spec_.up, chunk.elements);
    }
    if (gathers())
      for (const auto& [rank, strand] : strands) encode_result(strand, rank, chunk.elements);
    for (int round = 1; gathers() && round < members_; ++round) {
      pass_on(strands, legs, chunk.down_bytes, coming);
      for (const auto& [rank, strand] : strands)
        decode(strand, rank, result_codec_, chunk.elements);
    }
    for (const auto& [rank, messages] : coming)
      for (const int message : messages) builder_.wait(strands.at(rank), message);
  }

  // What is late from another class holds up the first member of this one, and the last, who hands
  // it on, as many rounds later as there are members between: so long the class as a whole goes on.
  void pass_on(const std::map<int, int>& strands, const Legs& legs, double bytes,
               std::map<int, std::deque<int>>& coming) {
    const std::vector<int> messages = send(strands, legs, bytes);
    for (std::size_t i = 0; i < legs.size(); ++i) {
      const int to = legs[i].to;
      if (legs[i].from == to) {
        builder_.wait(strands.at(to), messages[i]);
        continue;
      }
      std::deque<int>& from_others = coming[to];
      from_others.push_back(messages[i]);
      if (static_cast<int>(from_others.size()) < in_class_.at(to)) continue;
      builder_.wait(strands.at(to), from_others.front());
      from_others.pop_front();
    }
  }

  void write_up(const std::map<int, int>& strands, const MeanChunk& chunk, const Legs& legs) {
    for (const auto& [rank, strand] : strands) encode_up(strand, rank, chunk.elements);
    exchange(strands, legs, chunk.up_bytes);
    for (const auto& [rank, strand] : strands) decode(strand, rank, spec_.up, chunk.elements);
  }

  bool scatters() const { return spec_.kind != CollectiveKind::all_gather; }
  bool gathers() const {
    return spec_.kind == CollectiveKind::all_reduce || spec_.kind == CollectiveKind::all_gather;
  }

  std::vector<int> send(const std::map<int, int>& strands, const Legs& legs, double bytes) {
    std::vector<int> messages;
    for (const Leg& leg : legs) {
      messages.push_back(builder_.add_message(leg.from, leg.to,
                                              {.traffic = spec_.traffic,
                                               .key = key_,
                                               .message_bytes = bytes,
                                               .count = leg.messages,
                                               .way = leg.way}));
      builder_.send(strands.at(leg.from), messages.back());
    }
    return messages;
  }

  // Everybody sends, and then waits for all that comes.
  void exchange(const std::map<int, int>& strands, const Legs& legs, double bytes) {
    const std::vector<int> messages = send(strands, legs, bytes);
    for (std::size_t i = 0; i < legs.size(); ++i)
      builder_.wait(strands.at(legs[i].to), messages[i]);
  }

  ProgramBuilder& builder_;
  const CollectiveSpec& spec_;
  const std::uint64_t key_;
  const int members_;
  const CodecSpec result_codec_;
  const std::vector<std::vector<Slice>> lanes_;
  std::map<int, int> in_class_;  // members of the group, by class
  ExchangeStrands roots_;
  std::vector<std::pair<int, int>> to_join_;  // root, lane
};

}  // namespace

ExchangeStrands add_collective(ProgramBuilder& builder, const CollectiveSpec& spec,
                               std::uint64_t key) {
  return CollectiveWriter(builder, spec, key).write();
}

}  // namespace laconic
