// cli/codec_command.hpp — `laconic codec ...`: codecs and frames without a run.
//
// Needs no libtorch, so it all happens in the front. A frame does not hold the name of its tensor:
// `encode` puts the tensor's position in the file into the sequence number, and `decode` finds the
// name by it when it is shown the original.
//
// To add a verb: a command here, its words in codec_argument.cpp, a line in Parser and
// in Command (arguments), a run_codec() in codec_command.cpp or a file of its own, a line in
// front.cpp.
#pragma once

#include <cstdint>
#include <string>
#include <vector>

namespace laconic {

struct CodecListCommand {};

struct CodecShowCommand {
  std::string codec;
  std::vector<std::int64_t> shape = {8, 128, 384};
  std::string dtype = "f32";
  std::string json;
};

struct CodecEncodeCommand {
  std::string codec;
  std::string input;
  std::vector<std::string> tensors;  // none: all
  std::string output;
  std::uint64_t seed = 0;  // tensor i of the file gets seed + i
  bool overwrite = false;
};

struct CodecInspectCommand {
  std::string input;
  bool brief = false;
  std::string json;
};

struct CodecDecodeCommand {
  std::string input;
  std::string output;
  std::string original;  // to compare with; empty: no comparison, and no names
  bool overwrite = false;
  std::string json;
};

struct CodecBenchCommand {
  std::vector<std::string> codecs;  // none: the usual ones
  std::uint64_t mebibytes = 64;
  std::int64_t columns = 1024;
  int rounds = 9;
  std::string json;
};

// Exit codes. Throw ConfigError with every problem, FileError or SystemError.
int run_codec(const CodecListCommand& command);
int run_codec(const CodecShowCommand& command);
int run_codec(const CodecEncodeCommand& command);
int run_codec(const CodecInspectCommand& command);
int run_codec(const CodecDecodeCommand& command);
int run_codec(const CodecBenchCommand& command);

std::string commas(std::uint64_t value);  // "1,234,567", for sizes

}  // namespace laconic
