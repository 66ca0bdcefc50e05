// cli/codec_bench.hpp — how fast codecs are on this machine, as multiples of copying the tensor.
//
// A copy is what sending raw would cost anyway, and it scales with the memory
// of the machine as the codecs do. Every figure is the median over rounds that
// alternate between the act and the copy, on one thread, with all memory
// touched before.
#pragma once

#include <cstdint>
#include <string>
#include <vector>

#include "laconic/codec/spec.hpp"

namespace laconic {

struct CodecBenchOptions {
  std::vector<CodecSpec> codecs;      // empty: the usual ones
  std::uint64_t bytes = 64ULL << 20;  // of f32
  std::int64_t columns = 1024;        // the tensor is a matrix of so many
  int rounds = 9;
};

struct CodecBenchRow {
  std::string what;     // "quantise:bits=4", "delta link, quantise:bits=4", "CRC-32C"
  std::string act;      // "encode", "decode", "orthonormalise", "pack", "unpack", "sum"
  double multiple = 0;  // of the copy's time: median, least and most of the rounds
  double least = 0, most = 0;
  double seconds = 0;    // median
  double bits = 0;       // on the wire for each element; 0 where nothing is encoded
  double gigaflops = 0;  // of the matrix products, where there are any
};

struct CodecBenchReport {
  std::uint64_t bytes = 0;
  double copy_seconds = 0;  // median over everything
  std::vector<CodecBenchRow> rows;
};

CodecBenchReport bench_codecs(const CodecBenchOptions& options);

std::string to_text(const CodecBenchReport& report);
std::string to_json(const CodecBenchReport& report);

}  // namespace laconic
