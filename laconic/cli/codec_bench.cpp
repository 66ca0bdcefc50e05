#include "laconic/cli/codec_bench.hpp"

#include <fmt/format.h>
#include <malloc.h>

#include <algorithm>
#include <cstring>
#include <functional>
#include <limits>
#include <memory>
#include <nlohmann/json.hpp>
#include <utility>

#include "laconic/base/clock.hpp"
#include "laconic/base/crc32c.hpp"
#include "laconic/base/error.hpp"
#include "laconic/base/philox.hpp"
#include "laconic/base/text.hpp"
#include "laconic/cli/codec_command.hpp"
#include "laconic/codec/codec.hpp"
#include "laconic/codec/subspace.hpp"
#include "laconic/file/atomic_file.hpp"
#include "laconic/link/link.hpp"
#include "laconic/report/table.hpp"

namespace laconic {

namespace {

std::vector<CodecSpec> usual_codecs() {
  std::vector<CodecSpec> codecs;
  for (const char* text : {"raw",
                           "half",
                           "half:kind=f16",
                           "huffman",
                           "huffman:kind=f16",
                           "huffman:kind=f32",
                           "quantise:bits=8",
                           "quantise:bits=6",
                           "quantise:bits=4",
                           "quantise:bits=3",
                           "quantise:bits=2",
                           "quantise:bits=4,block=64",
                           "quantise:bits=4,group=row",
                           "quantise:bits=4,group=channel",
                           "quantise:bits=4,rounding=stochastic,grid=ends",
                           "quantise:bits=4,grid=powers",
                           "quantise:bits=4,rotate=true",
                           "quantise:bits=4,group=channel,scale=f16,grid=artefact",
                           "sign",
                           "top_k",
                           "top_k+quantise:bits=4",
                           "random_k",
                           "low_rank:rank=16"})
    codecs.push_back(parse_codec(text));
  return codecs;
}

double median(std::vector<double> values) {
  const auto middle = values.begin() + static_cast<std::ptrdiff_t>(values.size() / 2);
  std::nth_element(values.begin(), middle, values.end());
  return *middle;
}

double seconds_of(const std::function<void()>& act) {
  const Stopwatch watch;
  act();
  return watch.seconds();
}

// A tensor, its copy, a decoded one and a payload, all touched.
class Bench {
 public:
  explicit Bench(const CodecBenchOptions& options)
      : rounds_(options.rounds),
        tensor_{Dtype::f32,
                {static_cast<std::int64_t>(options.bytes / 4) / options.columns, options.columns}},
        x_(elements_of(tensor_)),
        copy_(x_.size(), 0.0F),
        out_(x_.size(), 0.0F) {
    fill_normal(key_of(1), 0, 0.0, 1.0, std::span<float>(x_));
  }

  int rounds() const { return rounds_; }
  const TensorSpec& tensor() const { return tensor_; }
  ConstHostTensor x() const { return {tensor_, x_.data()}; }
  HostTensor out() { return {tensor_, out_.data()}; }
  std::size_t bytes() const { return x_.size() * 4; }
  std::vector<float>& values() { return x_; }

  CodecBenchRow measure(std::string what, std::string act, const std::function<void()>& run) {
    run();
    std::vector<double> seconds, multiples;
    for (int round = 0; round < rounds_; ++round) {
      const double before = copy_once();
      seconds.push_back(seconds_of(run));
      // Between two copies, since the machine's speed drifts.
      multiples.push_back(seconds.back() / ((before + copy_once()) / 2));
    }
    const auto [least, most] = std::ranges::minmax(multiples);
    return {.what = std::move(what),
            .act = std::move(act),
            .multiple = median(multiples),
            .least = least,
            .most = most,
            .seconds = median(seconds)};
  }

  double copy_seconds() const { return median(copies_); }

 private:
  double copy_once() {
    copies_.push_back(seconds_of([&] { std::memcpy(copy_.data(), x_.data(), bytes()); }));
    return copies_.back();
  }

  int rounds_;
  TensorSpec tensor_;
  std::vector<float> x_, copy_, out_;
  std::vector<double> copies_;
};

// Multiply-adds of low_rank's products, counted as two: two of them to encode, one to decode.
double flops_of(const CodecSpec& codec, const TensorSpec& tensor, int products) {
  const auto* low_rank = std::get_if<LowRank>(&codec);
  if (low_rank == nullptr) return 0;
  const MatrixShape matrix = matrix_shape(tensor);
  return 2.0 * products * static_cast<double>(matrix.rows) * static_cast<double>(matrix.columns) *
         static_cast<double>(effective_rank(*low_rank, tensor));
}

// The part of low_rank's encode that is no matrix product: its start and its left factor, each made
// orthonormal.
void bench_orthonormal(Bench& bench, const LowRank& codec, std::vector<CodecBenchRow>& rows) {
  const MatrixShape matrix = matrix_shape(bench.tensor());
  const std::uint64_t rank = effective_rank(codec, bench.tensor());
  std::vector<float> start(matrix.columns * rank), left(matrix.rows * rank);
  rows.push_back(bench.measure(to_text(CodecSpec(codec)), "orthonormalise", [&] {
    std::copy_n(bench.values().begin(), start.size(), start.begin());
    std::copy_n(bench.values().begin(), left.size(), left.begin());
    orthonormalise_start(start.data(), matrix.columns, rank, key_of(1));
    orthonormalise(left.data(), matrix.rows, rank);
  }));
}

void bench_codec(Bench& bench, const CodecSpec& codec, std::vector<CodecBenchRow>& rows) {
  Bytes payload(max_payload_bytes(codec, bench.tensor()), std::byte{});
  std::vector<float> basis;
  const CodecInput input{.seed = 1, .basis = &basis};
  std::size_t size = 0;
  CodecBenchRow row = bench.measure(to_text(codec), "encode",
                                    [&] { size = encode(codec, bench.x(), input, payload); });
  row.bits = 8.0 * static_cast<double>(size) / static_cast<double>(elements_of(bench.tensor()));
  row.gigaflops = flops_of(codec, bench.tensor(), 2) / row.seconds / 1e9;
  rows.push_back(row);
  const ByteView encoded(payload.data(), size);
  row =
      bench.measure(to_text(codec), "decode", [&] { decode(codec, encoded, input, bench.out()); });
  row.gigaflops = flops_of(codec, bench.tensor(), 1) / row.seconds / 1e9;
  rows.push_back(row);
  if (const auto* low_rank = std::get_if<LowRank>(&codec))
    bench_orthonormal(bench, *low_rank, rows);
}

// The whole path of a link: difference, codec, reference, frame, check sum and their memory. The
// sample goes back and forth between two values, so that there always is a difference.
void bench_delta(Bench& bench, const CodecSpec& codec, std::vector<CodecBenchRow>& rows) {
  const LinkSpec spec{"bench", codec, Delta{.first = Raw{}, .hash_every = 1 << 30}};
  Sender sender(spec);
  Receiver receiver(spec);
  TensorSpec batch = bench.tensor();
  batch.shape.insert(batch.shape.begin(), 1);
  const std::uint64_t key = 7;
  const MessageSpec message{.samples = std::span(&key, 1)};
  std::vector<float> moved = bench.values();
  for (float& value : moved) value *= 1.01F;
  const auto pack = [&](Sender& end, std::size_t step) {
    end.begin(step);
    Bytes frame = end.pack({batch, (step % 2 == 0 ? bench.values() : moved).data()}, message);
    end.commit();
    return frame;
  };
  const auto unpack = [&](std::size_t step, const Bytes& frame) {
    receiver.begin(step);
    const Unpacked got = receiver.unpack(frame, {batch, bench.out().data}, message);
    LACONIC_ASSERT(got.refused.empty(), got.refused[0].why);
    receiver.commit();
  };
  // Kept for the receiver, by a sender of their own: the one on the clock gives its memory back
  // after each message, as one in a run does.
  std::vector<Bytes> frames;
  Sender unhurried(spec);
  for (int step = 0; step < bench.rounds() + 2; ++step)
    frames.push_back(pack(unhurried, frames.size()));
  std::size_t packed = 0, unpacked = 0;
  pack(sender, packed++);
  unpack(unpacked, frames[unpacked]);
  ++unpacked;
  const std::string what = "delta link, " + to_text(codec);
  CodecBenchRow row = bench.measure(what, "pack", [&] { pack(sender, packed++); });
  row.bits =
      8.0 * static_cast<double>(frames.back().size()) / static_cast<double>(elements_of(batch));
  rows.push_back(row);
  rows.push_back(bench.measure(what, "unpack", [&] {
    unpack(unpacked, frames.at(unpacked));
    ++unpacked;
  }));
}

}  // namespace

CodecBenchReport bench_codecs(const CodecBenchOptions& options) {
  // As the environment of a worker has it (machine/environment.hpp): memory that was given back is
  // used again instead of being fetched anew from the system, page by page.
  ::mallopt(M_MMAP_THRESHOLD, 1 << 30);
  ::mallopt(M_TRIM_THRESHOLD, std::numeric_limits<int>::max());
  Bench bench(options);
  CodecBenchReport report{.bytes = bench.bytes()};
  const bool is_usual = options.codecs.empty();
  for (const CodecSpec& codec : is_usual ? usual_codecs() : options.codecs)
    bench_codec(bench, codec, report.rows);
  if (is_usual) {
    const ByteView whole(reinterpret_cast<const std::byte*>(bench.values().data()), bench.bytes());
    volatile std::uint32_t sink = 0;
    report.rows.push_back(bench.measure("CRC-32C", "sum", [&] { sink = crc32c(whole); }));
    for (const char* text : {"quantise:bits=4", "quantise:bits=2"})
      bench_delta(bench, parse_codec(text), report.rows);
  }
  report.copy_seconds = bench.copy_seconds();
  return report;
}

std::string to_text(const CodecBenchReport& report) {
  Table table({{"codec", Align::left},
               {"act", Align::left},
               {"copies"},
               {"spread"},
               {"GB/s"},
               {"bits"},
               {"GFLOP/s"}});
  for (const CodecBenchRow& row : report.rows)
    table.add({row.what, row.act, fmt::format("{:.2f}", row.multiple),
               fmt::format("{:.2f}-{:.2f}", row.least, row.most),
               fmt::format("{:.1f}", static_cast<double>(report.bytes) / row.seconds / 1e9),
               row.bits > 0 ? fmt::format("{:.3f}", row.bits) : "",
               row.gigaflops > 0 ? fmt::format("{:.1f}", row.gigaflops) : ""});
  return to_text(table) +
         fmt::format(
             "{} of f32, one thread; \"copies\" is the time in units of one memcpy of the "
             "tensor, {:.2f} ms ({:.1f} GB/s)\n",
             human_bytes(static_cast<double>(report.bytes)), report.copy_seconds * 1e3,
             static_cast<double>(report.bytes) / report.copy_seconds / 1e9);
}

std::string to_json(const CodecBenchReport& report) {
  nlohmann::ordered_json rows = nlohmann::ordered_json::array();
  for (const CodecBenchRow& row : report.rows)
    rows.push_back({{"what", row.what},
                    {"act", row.act},
                    {"copies", row.multiple},
                    {"least", row.least},
                    {"most", row.most},
                    {"seconds", row.seconds},
                    {"bits", row.bits},
                    {"gigaflops", row.gigaflops}});
  const nlohmann::ordered_json json = {
      {"bytes", report.bytes}, {"copy_seconds", report.copy_seconds}, {"rows", rows}};
  return json.dump(2) + "\n";
}

int run_codec(const CodecBenchCommand& command) {
  CodecBenchOptions options{
      .bytes = command.mebibytes << 20, .columns = command.columns, .rounds = command.rounds};
  Problems problems;
  if (options.bytes / 4 < static_cast<std::uint64_t>(command.columns))
    problems.push_back({"--columns", fmt::format("{} are more than {} MiB hold", command.columns,
                                                 command.mebibytes)});
  for (const std::string& text : command.codecs) {
    try {
      options.codecs.push_back(parse_codec(text));
      if (std::holds_alternative<AutoEncoder>(options.codecs.back()))
        problems.push_back({text, "is learned: there is nothing to measure without its maps"});
    } catch (const ConfigError& error) {
      append(problems, error.problems());
    }
  }
  refuse(problems);
  const CodecBenchReport report = bench_codecs(options);
  fmt::print("{}", to_text(report));
  if (!command.json.empty()) write_atomically(command.json, to_json(report));
  return 0;
}

}  // namespace laconic
