// bench/rows_bench.cpp — what rows of tables cost a processor, and what they would cost networks
// that are not here.
//
//   rows_bench copies [ROUNDS]   packing, sums at owners and deduplication, in copies (memcpy) of
//                                the bytes that they move
//   rows_bench predict           seconds of a step by method, for 16 and 64 ranks, from cost_of
//                                (rows/row_method.hpp)
//
// Both print rows of a Markdown table. One thread. Copies want the allocator of a worker, which
// keeps its pages (MALLOC_MMAP_THRESHOLD_ and MALLOC_TRIM_THRESHOLD_ as `laconic doctor` has them):
// without it most of a pass over fresh memory is the kernel's.
#include <ATen/core/Tensor.h>
#include <ATen/ops/empty.h>
#include <ATen/ops/ones.h>
#include <fmt/format.h>

#include <algorithm>
#include <array>
#include <cstring>
#include <functional>
#include <memory>
#include <string>
#include <vector>

#include "laconic/base/clock.hpp"
#include "laconic/base/philox.hpp"
#include "laconic/base/word_law.hpp"
#include "laconic/model/ops.hpp"
#include "laconic/rows/row_memory.hpp"
#include "laconic/rows/row_method.hpp"

namespace {

using laconic::RowIds;
using laconic::RowMethod;

constexpr int kMembers = 4;
constexpr std::int64_t kVocabulary = 793470, kWidth = 512, kTokens = 20480;

// --- copies

double median(int rounds, const std::function<void()>& act) {
  std::vector<double> seconds;
  for (int round = 0; round < rounds + 2; ++round) {
    const laconic::Stopwatch watch;
    act();
    if (round >= 2) seconds.push_back(watch.seconds());
  }
  std::ranges::sort(seconds);
  return seconds[seconds.size() / 2];
}

// Tokens of every member, drawn as often as words of the One Billion Word benchmark come.
std::vector<std::vector<std::int64_t>> tokens_of_members() {
  const laconic::WordDraws draws(probabilities_of(laconic::lm1b_law(kVocabulary)));
  std::vector<std::vector<std::int64_t>> tokens(kMembers);
  for (int member = 0; member < kMembers; ++member)
    for (std::int64_t i = 0; i < kTokens; ++i)
      tokens[static_cast<std::size_t>(member)].push_back(
          draws.at(laconic::derive(laconic::key_of(1), static_cast<std::uint64_t>(member)),
                   static_cast<std::uint64_t>(i)));
  return tokens;
}

class Copies {
 public:
  explicit Copies(int rounds) : rounds_(rounds), tokens_(tokens_of_members()) {
    for (const auto& list : tokens_) rows_.push_back(laconic::unique_rows(list));
    for (const RowIds& list : rows_) most_ = std::max(most_, list.size());
  }

  void run() {
    packing();
    owner_sums();
    deduplication();
  }

 private:
  // Bytes count once, as in a copy of them.
  void row(const std::string& what, std::size_t bytes, const std::function<void()>& act) const {
    std::vector<std::byte> from(bytes), to(bytes);
    const double copy = median(rounds_, [&] { std::memcpy(to.data(), from.data(), bytes); });
    const double seconds = median(rounds_, act);
    fmt::print("| {} | {:.2f} | {:.3f} | {:.3f} | **{:.2f}** |\n", what,
               static_cast<double>(bytes) / 1e6, 1e3 * copy, 1e3 * seconds, seconds / copy);
  }

  void packing() const {
    const std::size_t held = kWidth / kMembers;
    std::vector<float> columns(kVocabulary * held, 1.0F), packed(rows_.size() * most_ * held);
    std::size_t all = 0;
    for (const RowIds& list : rows_) all += list.size() * held * sizeof(float);
    auto* first = reinterpret_cast<std::byte*>(columns.data());
    row("rows out of a rank's columns, for all members", all, [&] {
      auto* to = reinterpret_cast<std::byte*>(packed.data());
      for (const RowIds& list : rows_) {
        gather_rows(laconic::stretch_of(first, held, sizeof(float), {0, held}), list, to);
        to += list.size() * held * sizeof(float);
      }
    });
    const std::size_t mine = rows_[0].size();
    std::vector<float> whole(mine * kWidth, 1.0F), parts(mine * kWidth);
    auto* matrix = reinterpret_cast<std::byte*>(whole.data());
    const auto part_at = [&](int i) {
      return reinterpret_cast<std::byte*>(parts.data() + static_cast<std::size_t>(i) * mine * held);
    };
    const auto stretch = [&](int i) {
      return laconic::stretch_of(matrix, kWidth, sizeof(float),
                                 laconic::table_columns(kWidth, kMembers, i));
    };
    const std::size_t bytes = mine * kWidth * sizeof(float);
    const std::vector<std::int64_t> places = laconic::places_in(rows_[0], rows_[0]);
    row("columns of all members, side by side", bytes, [&] {
      for (int i = 0; i < kMembers; ++i) put_rows(part_at(i), places, stretch(i));
    });
    row("gradients, by who owns their columns", bytes, [&] {
      for (int i = 0; i < kMembers; ++i) gather_rows(stretch(i), places, part_at(i));
    });
  }

  // Union and places included.
  void owner_sums() const {
    const std::size_t held = kWidth / kMembers;
    std::size_t all = 0;
    for (const RowIds& list : rows_) all += list.size() * held * sizeof(float);
    std::vector<std::vector<float>> received;
    std::vector<const float*> from;
    for (const RowIds& list : rows_)
      from.push_back(received.emplace_back(list.size() * held, 1.0F).data());
    row("sums of all members' gradients at an owner", all, [&] {
      const RowIds rows = laconic::union_of(rows_);
      const auto sums = std::make_unique_for_overwrite<float[]>(rows.size() * held);
      laconic::sum_rows<float>(rows_, from, rows, held, sums.get());
    });
  }

  void deduplication() const {
    const std::size_t bytes = kTokens * kWidth * sizeof(float);
    row("ids, each once (bytes: of the rows that they stand for)", bytes,
        [&] { laconic::unique_rows(tokens_[0]); });
    const auto rows = static_cast<std::int64_t>(rows_[0].size());
    const at::Tensor leaf = at::ones({rows, kWidth}).requires_grad_(true);
    const at::Tensor places = at::empty({kTokens}, at::kLong);
    for (std::int64_t i = 0; i < kTokens; ++i) {
      const auto found =
          std::ranges::lower_bound(rows_[0], tokens_[0][static_cast<std::size_t>(i)]);
      places.data_ptr<std::int64_t>()[i] = found - rows_[0].begin();
    }
    const at::Tensor gradient = at::ones({kTokens, kWidth});
    row("rows of all tokens out of these, and the sum of their gradients (bytes: of both)",
        2 * bytes, [&] {
          laconic::table_rows(leaf, places).backward(gradient);
          leaf.mutable_grad() = at::Tensor();
        });
  }

  int rounds_;
  std::vector<std::vector<std::int64_t>> tokens_;
  std::vector<RowIds> rows_;
  std::size_t most_ = 0;
};

// --- predictions

struct Table {
  const char* name;
  double rows, width, looked_up;
};
// V, d and U as the paper's models have them: spec 1.4.
constexpr auto kTables = std::to_array<Table>({{"LM, input", 793470, 512, 1179},
                                               {"LM, softmax", 793470, 512, 8756},
                                               {"GNMT, one of two", 32320, 1024, 1229},
                                               {"Transformer, one of two", 33680, 1024, 1434},
                                               {"BERT", 30522, 768, 1843}});
constexpr double kRate = 10e9 / 8, kMessage = 50e-6;

void predict() {
  for (const auto& [ranks, per_card] :
       {std::pair{16, 1}, {16, 4}, {16, 8}, {64, 1}, {64, 4}, {64, 8}})
    for (const Table& t : kTables) {
      const laconic::TableFacts facts{.rows = t.rows,
                                      .width = t.width,
                                      .row_bytes = 4 * t.width,
                                      .looked_up = t.looked_up,
                                      .all_read = t.looked_up};
      const laconic::RowNetwork network{.ranks = ranks,
                                        .per_card = per_card,
                                        .bytes_per_second = kRate,
                                        .seconds_per_message = kMessage};
      fmt::print("| {} | {} | {} | {:.4f} |", ranks, per_card, t.name, facts.alpha());
      for (const RowMethod method :
           {RowMethod::allreduce, RowMethod::allgather, RowMethod::server, RowMethod::alltoall})
        fmt::print(" {:.1f} |", 1e3 * cost_of(method, facts, network));
      fmt::print(" {:.3f} |\n", alpha_of_break_even(network));
    }
}

}  // namespace

int main(int count, char** words) {
  const std::string what = count > 1 ? words[1] : "";
  if (what == "copies")
    Copies(count > 2 ? std::stoi(words[2]) : 50).run();
  else if (what == "predict")
    predict();
  else
    return fmt::print(stderr, "rows_bench copies [ROUNDS] | predict\n"), 1;
  return 0;
}
